//! Whether a resource still exists, asked the way a foreign-key check asks (ri_triggers.c): by the
//! latest snapshot, as the relation's owner, past its row security. An old snapshot or a row that
//! the caller may not see must not turn into a resource that is gone for good.

use std::ffi::{CStr, CString, c_void};

use pgrx::pg_sys;
use pgrx::prelude::*;

use super::equality::Equality;
use super::relation::reading_as;
use super::settings::{self, ResourceType};
use crate::convert::datum::{self, quote};
use crate::convert::settings::input;
use crate::error::Error;

/// What is known of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Existence {
    /// Its type is not registered.
    NotChecked,
    /// Its row is there.
    Exists,
    /// Its row is not there.
    Gone,
    /// Its row is not there, and the relation is another role's than the one that was registered: perhaps
    /// somebody took the name of one that was dropped. The reason says so.
    GoneUnderAnotherOwner(String),
    /// Nobody can tell, for this reason.
    Unknown(String),
}

/// Looks for a resource.
///
/// # Errors
/// 55000 where our own tables are not as expected. What a view raises is passed on.
pub fn existence(resource_type: &str, resource_id: &str) -> Result<Existence, Error> {
    let Some(registered) = settings::resource_type(resource_type)? else {
        return Ok(Existence::NotChecked);
    };
    loop {
        let column = match Column::find(&registered) {
            Ok(column) => column,
            Err(reason) => return Ok(Existence::Unknown(reason)),
        };
        match column.has(resource_id) {
            Has::Row => return Ok(Existence::Exists),
            Has::NoRow => return Ok(column.gone(&registered)),
            Has::NoSuchId(reason) => return Ok(Existence::Unknown(reason)),
            Has::Moved => {
                check_for_interrupts!();
            }
        }
    }
}

/// The column that holds a type's ids, in a relation that is locked until the transaction ends: it
/// cannot be dropped or change its owner any more.
struct Column {
    relation: pg_sys::Oid,
    owner: pg_sys::Oid,
    value_type: pg_sys::Oid,
    /// The type of the query's parameter: the column's, or what that is a domain over.
    base_type: pg_sys::Oid,
    /// Finds a row by its id.
    sql: CString,
}

/// What a look into a column shows.
enum Has {
    Row,
    NoRow,
    /// The text is none of the column's values, for this reason.
    NoSuchId(String),
    /// Another relation has the name by now.
    Moved,
}

impl Column {
    fn find(resource_type: &ResourceType) -> Result<Self, String> {
        let ResourceType { schema, relation, id_column, .. } = resource_type;
        let named = format!("{schema}.{relation}");
        let [schema, relation, id_column] =
            [schema, relation, id_column].map(|name| datum::cstring(name).unwrap_or_default());
        // SAFETY: look-ups in the system catalogs by zero-terminated names.
        unsafe {
            let oid = lock(&schema, &relation);
            let owner = oid.and_then(|oid| owner(oid));
            let (Some(oid), Some(owner)) = (oid, owner) else {
                return Err(format!("There is no relation {named}."));
            };
            if !may_trust_schema(pg_sys::get_rel_namespace(oid), owner) {
                return Err(format!(
                    "The schema of {named} belongs to another role than the relation."
                ));
            }
            let number = pg_sys::get_attnum(oid, id_column.as_ptr());
            if number == 0 {
                return Err(format!("{named} has no column {}.", id_column.to_string_lossy()));
            }
            let value_type = pg_sys::get_atttype(oid, number);
            let base_type = pg_sys::getBaseType(value_type);
            let equal = Equality::of(oid, number, base_type)
                .ok_or_else(|| format!("The ids in {named} cannot be compared."))?;
            let [schema, relation, column] =
                [&schema, &relation, &id_column].map(|name| quote(name));
            let is_equal = equal.clause(&format!("r.{column}"), value_type, "$1", base_type);
            let sql = format!("SELECT 1 FROM {schema}.{relation} AS r WHERE {is_equal}");
            let sql = datum::cstring(&sql).unwrap_or_default();
            Ok(Self { relation: oid, owner, value_type, base_type, sql })
        }
    }

    /// What a missing row says.
    fn gone(&self, registered: &ResourceType) -> Existence {
        let owner = role_name(self.owner).unwrap_or_default();
        if owner == registered.owner {
            return Existence::Gone;
        }
        let ResourceType { schema, relation, owner: before, .. } = registered;
        Existence::GoneUnderAnotherOwner(format!(
            "{schema}.{relation} belongs to {owner}, and belonged to {before} when it was registered."
        ))
    }

    /// Whether there is a row with this id. All of it runs as the relation's owner: the id's type may
    /// be a domain, whose checks are functions of the owner's.
    fn has(&self, id: &str) -> Has {
        // SAFETY: the owner was found in the catalog.
        let found = unsafe {
            reading_as(self.owner, || input(id, self.value_type).map(|value| is_any(self, value)))
        };
        found.unwrap_or_else(|| {
            Has::NoSuchId(format!("\"{id}\" is not an id of the column's type."))
        })
    }
}

/// Locks a relation by its name. Who waits for a lock may find another relation under the name, or
/// none, so the name is looked up again.
unsafe fn lock(schema: &CStr, relation: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: look-ups by zero-terminated names, and an ordinary lock on what they found.
    unsafe {
        let look = || {
            let schema = pg_sys::get_namespace_oid(schema.as_ptr(), true);
            pg_sys::get_relname_relid(relation.as_ptr(), schema)
        };
        loop {
            let oid = look();
            if oid == pg_sys::InvalidOid {
                return None;
            }
            pg_sys::LockRelationOid(oid, pg_sys::AccessShareLock as i32);
            if look() == oid {
                return Some(oid);
            }
            pg_sys::UnlockRelationOid(oid, pg_sys::AccessShareLock as i32);
        }
    }
}

/// Whether a query with one parameter finds a row, by the latest snapshot. It finds the relation by its
/// name once more, and what it found is compared before it is read: the lock on a relation does not
/// keep its schema from being renamed.
unsafe fn is_any(column: &Column, id: pg_sys::Datum) -> Has {
    let mut id_type = column.base_type;
    // SAFETY: the steps of ri_PerformCheck, with a cursor, which keeps to one plan; the row may come
    // from this very command, so it counts as done. An error closes SPI, the cursor and the snapshot by
    // the transaction's abort.
    unsafe {
        pg_sys::SPI_connect();
        let plan = pg_sys::SPI_prepare(column.sql.as_ptr(), 1, &mut id_type);
        pg_sys::CommandCounterIncrement();
        pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        let found = if finds(plan, column.relation) { fetch(plan, column, id) } else { Has::Moved };
        pg_sys::PopActiveSnapshot();
        pg_sys::SPI_finish();
        found
    }
}

/// Whether a prepared statement reads a relation.
unsafe fn finds(plan: pg_sys::SPIPlanPtr, relation: pg_sys::Oid) -> bool {
    // SAFETY: the statement is prepared.
    unsafe {
        let sources = pg_sys::SPI_plan_get_plan_sources(plan);
        let sources = pgrx::PgList::<pg_sys::CachedPlanSource>::from_pg(sources);
        sources.iter_ptr().any(|source| begins_with((*source).relationOids, relation))
    }
}

/// Whether PostgreSQL's list of what a statement depends on begins with a relation. What the statement itself
/// names comes first (setrefs.c); behind it is what a view mentions, be it as a constant of type regclass: so a view
/// in the place of a relation may have that one in its list.
unsafe fn begins_with(relations: *mut pg_sys::List, relation: pg_sys::Oid) -> bool {
    // SAFETY: a list of OIDs, or null.
    let relations = unsafe { pgrx::PgList::<c_void>::from_pg(relations) };
    relations.iter_oid().next() == Some(relation)
}

/// Fetches a row. The cursor keeps to the plan that it was opened with, which may be a newer one than
/// the statement was prepared with.
unsafe fn fetch(plan: pg_sys::SPIPlanPtr, column: &Column, mut id: pg_sys::Datum) -> Has {
    // SAFETY: the statement has one parameter; the cursor's list is of planned statements.
    unsafe {
        let (name, nulls) = (std::ptr::null(), std::ptr::null());
        let cursor = pg_sys::SPI_cursor_open(name, plan, &mut id, nulls, true);
        let planned = pgrx::PgList::<pg_sys::PlannedStmt>::from_pg((*cursor).stmts);
        let is_same = planned.iter_ptr().any(|s| begins_with((*s).relationOids, column.relation));
        let found = if is_same {
            pg_sys::SPI_cursor_fetch(cursor, true, 1);
            if pg_sys::SPI_processed > 0 { Has::Row } else { Has::NoRow }
        } else {
            Has::Moved
        };
        pg_sys::SPI_cursor_close(cursor);
        found
    }
}

/// The name of the role that owns a relation; `None` where there is no such relation, or the name is not valid in
/// this database's encoding: roles are the cluster's.
pub fn owner_name(relation: pg_sys::Oid) -> Option<String> {
    // SAFETY: a look-up in the system cache.
    role_name(unsafe { owner(relation) }?)
}

fn role_name(role: pg_sys::Oid) -> Option<String> {
    // SAFETY: a look-up in the system cache, which returns a copy or null.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        if name.is_null() {
            return None;
        }
        datum::to_utf8(CStr::from_ptr(name).to_bytes()).map(str::to_owned)
    }
}

unsafe fn owner(relation: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // SAFETY: a look-up in the system cache.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::RELOID as i32;
        let tuple = pg_sys::SearchSysCache1(cache, relation.into());
        if tuple.is_null() {
            return None;
        }
        let owner = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_class>()).relowner;
        pg_sys::ReleaseSysCache(tuple);
        Some(owner)
    }
}

/// Whether nobody but the relation's owner, the database's owner and superusers can rename the
/// schema. A lock on the relation does not keep its schema from being renamed, and the query finds
/// the relation by name: who can put another schema in the place of this one could have a view of
/// his own run with the rights of the relation's owner.
unsafe fn may_trust_schema(schema: pg_sys::Oid, relation_owner: pg_sys::Oid) -> bool {
    // SAFETY: a look-up in the system cache.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::NAMESPACEOID as i32;
        let tuple = pg_sys::SearchSysCache1(cache, schema.into());
        if tuple.is_null() {
            return false;
        }
        let owner = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_namespace>()).nspowner;
        pg_sys::ReleaseSysCache(tuple);
        owner == relation_owner
            || owner == pg_sys::Oid::from(PG_DATABASE_OWNER)
            || pg_sys::superuser_arg(owner)
    }
}

/// The role that stands for the owner of the database (pg_authid.dat).
const PG_DATABASE_OWNER: u32 = 6171;
