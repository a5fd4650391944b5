//! What operations and resource types are set to, read once per backend and kept until a message
//! says that a row has changed.
//!
//! Changes of rows send no such message by themselves: the tables' triggers send one that
//! is otherwise sent when a table's definition changes (inval.c). It arrives with their commit, and
//! every backend takes it in before its next transaction.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use idempotency_core::late::{self, Past};
use idempotency_core::policy::{Mode, Policy, Retention};
use idempotency_core::settings;
use pgrx::pg_sys;
use pgrx::prelude::*;
use serde_json::{Map, Value};

use super::relation::{Layout, Table};
use crate::clock;
use crate::convert::datum;
use crate::convert::returned::Done;
use crate::convert::settings::{Checks, Server};
use crate::error::Error;
use crate::guc::{self, Unlisted};
use crate::once::Once;

static OPERATIONS: Layout = Layout {
    name: c"operations",
    columns: &[pg_sys::TEXTOID, pg_sys::JSONBOID, pg_sys::JSONBOID],
    survives: true,
};
static RESOURCE_TYPES: Layout =
    Layout { name: c"resource_types", columns: &[pg_sys::TEXTOID; 5], survives: true };

/// The most names that are kept, so that a caller who puts ids into operations cannot fill memory.
const MAX_CACHED: usize = 1000;

/// Where the resources of a type are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceType {
    /// Schema of the table or view.
    pub schema: String,
    /// Its name.
    pub relation: String,
    /// The column that holds the id.
    pub id_column: String,
    /// The role that owned it when it was registered.
    pub owner: String,
}

#[derive(Default)]
struct Cache {
    /// `None`: there is no row.
    operations: HashMap<String, Option<Rc<Policy>>>,
    resource_types: HashMap<String, Option<Rc<ResourceType>>>,
    /// The tables that are read.
    tables: Vec<pg_sys::Oid>,
    /// Of which generation it is.
    generation: u64,
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
    /// Moves when what is in the cache is void. The callback does nothing else, so that it needs no borrow.
    static GENERATION: Cell<u64> = const { Cell::new(0) };
    static REGISTERED: Once = const { Once::new() };
}

/// The cache, without what is void. `use_it` must not call into the server.
fn with_cache<R>(use_it: impl FnOnce(&mut Cache) -> R) -> R {
    CACHE.with_borrow_mut(|cache| {
        let generation = GENERATION.get();
        if cache.generation != generation {
            cache.operations.clear();
            cache.resource_types.clear();
            cache.generation = generation;
        }
        use_it(cache)
    })
}

/// The settings of an operation.
///
/// # Errors
/// 55000 where the table is not as this library expects, 22023 where its row does not make sense.
pub fn policy(operation: &str) -> Result<Rc<Policy>, Error> {
    let cached = with_cache(|cache| cache.operations.get(operation).cloned());
    let listed = match cached {
        Some(listed) => listed,
        None => remember(&OPERATIONS, operation, read_policy, |cache| &mut cache.operations)?,
    };
    Ok(listed.unwrap_or_else(unlisted))
}

/// The settings that hold for a lease: those it was claimed under decide its answer.
///
/// # Errors
/// As for [`policy`].
pub fn policy_of_lease(
    operation: &str,
    claimed_under: Option<pg_sys::Datum>,
) -> Result<Rc<Policy>, Error> {
    let now = policy(operation)?;
    match json(claimed_under)? {
        Some(Value::Object(then)) if then != now.set => {
            let then = settings::read(&then, &Server(Checks::Nothing));
            let then = then.map_err(|fault| Error::setting(operation, &fault))?;
            Ok(Rc::new(then.of_a_lease(&now)))
        }
        _ => Ok(now),
    }
}

/// Whether an operation has settings, as far as this backend has read them. Nothing is looked up.
pub fn is_listed(operation: &str) -> bool {
    with_cache(|cache| matches!(cache.operations.get(operation), Some(Some(_))))
}

/// Where the resources of a type are; `None` where the type is not registered.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn resource_type(name: &str) -> Result<Option<Rc<ResourceType>>, Error> {
    match with_cache(|cache| cache.resource_types.get(name).cloned()) {
        Some(registered) => Ok(registered),
        None => {
            remember(&RESOURCE_TYPES, name, read_resource_type, |cache| &mut cache.resource_types)
        }
    }
}

/// Changes settings of an operation by a merge patch; returns all that are set.
///
/// # Errors
/// 22023 where a setting or a value does not exist; 42501 where the check is changed by somebody who does not
/// own the table; 55000 where a trigger skips the row.
pub fn configure(operation: &str, patch: Map<String, Value>) -> Result<Value, Error> {
    // Nobody else may read and write in between.
    let table = Table::open(&OPERATIONS, pg_sys::ShareRowExclusiveLock)?;
    let fault = |fault| Error::setting(operation, &fault);
    let row = table.find::<3>(datum::text(operation));
    let before = row.as_ref().map(settings_of).transpose()?.unwrap_or_default();
    let past = row.as_ref().map(past_of).transpose()?.unwrap_or_default();
    let (retention, check_before) = (retention_of(&before), before.get(COMPLETION_CHECK).cloned());
    let after = settings::patch(before, patch).map_err(fault)?;
    let changes_check = after.get(COMPLETION_CHECK) != check_before.as_ref();
    if changes_check && !is_owner(&table) {
        return Err(Error::check_of_another());
    }
    let checks = if changes_check { Checks::Functions } else { Checks::Nothing };
    let policy = settings::read(&after, &Server(checks)).map_err(fault)?;
    // Read under the lock: no purge acts by the old settings from now on.
    let past = late::replaced(past, retention, policy.retention, clock::now());
    let after = Value::Object(after);
    let past = settings::write_past(&past);
    let arguments = [datum::text_arg(operation), datum::jsonb_arg(&after), datum::jsonb_arg(&past)];
    table.as_owner(|| {
        write(
            &table,
            "INSERT INTO idempotency.operations (operation, settings, past_retentions) VALUES ($1, $2, $3) \
             ON CONFLICT (operation) DO UPDATE SET settings = excluded.settings, \
             past_retentions = excluded.past_retentions",
            &arguments,
        )
    })?;
    table.close();
    Ok(after)
}

/// The setting that says what whoever completes or settles runs: it is for those alone who own the table.
const COMPLETION_CHECK: &str = "completion_check";

/// Whether the caller has the rights of the table's owner, as superusers have.
fn is_owner(table: &Table) -> bool {
    // SAFETY: both roles exist.
    unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), table.owner()) }
}

/// Keeps [`configure`] waiting until the transaction ends, and takes in what it changed before. False where
/// somebody is just changing settings: nothing is waited for.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn hold_still() -> Result<bool, Error> {
    let table = Table::open(&OPERATIONS, pg_sys::AccessShareLock)?;
    // SAFETY: the table is open. The mode stands against that of `configure`. PostgreSQL sends the messages
    // about a change before it lets go of the locks, and takes them in when a lock is won.
    let holds = unsafe {
        pg_sys::ConditionalLockRelation(table.relation(), pg_sys::RowExclusiveLock as i32)
    };
    table.close();
    Ok(holds)
}

/// Takes in what others have changed and committed.
pub fn take_in_changes() {
    // SAFETY: we are in a transaction and hold no borrow that the callback would want.
    unsafe { pg_sys::AcceptInvalidationMessages() }
}

/// The settings of an operation that has a row.
///
/// # Errors
/// As for [`policy`].
pub fn listed(operation: &str) -> Result<Option<Rc<Policy>>, Error> {
    let policy = policy(operation)?;
    Ok(is_listed(operation).then_some(policy))
}

/// Registers where the resources of a type are.
///
/// # Errors
/// 55000 where the table is not as this library expects, and where a trigger skips the row.
pub fn register(name: &str, resource_type: &ResourceType) -> Result<(), Error> {
    let table = Table::open(&RESOURCE_TYPES, pg_sys::RowExclusiveLock)?;
    let ResourceType { schema, relation, id_column, owner } = resource_type;
    let arguments = [name, schema, relation, id_column, owner].map(datum::text_arg);
    table.as_owner(|| {
        write(
            &table,
            "INSERT INTO idempotency.resource_types VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (resource_type) DO UPDATE SET relation_schema = excluded.relation_schema, \
             relation_name = excluded.relation_name, id_column = excluded.id_column, \
             relation_owner = excluded.relation_owner",
            &arguments,
        )
    })?;
    table.close();
    Ok(())
}

fn write(
    table: &Table,
    sql: &str,
    arguments: &[pgrx::datum::DatumWithOid<'_>],
) -> Result<(), Error> {
    let rows = Spi::connect_mut(|client| Ok(client.update(sql, None, arguments)?.len()));
    let rows = rows.map_err(|error: pgrx::spi::Error| Error::unexpected(error.to_string()))?;
    if rows == 0 { Err(Error::row_skipped(table.name(), "written")) } else { Ok(()) }
}

fn unlisted() -> Rc<Policy> {
    thread_local! {
        static DEFAULTS: [Rc<Policy>; 3] = [Mode::Optional, Mode::Ignored, Mode::Forbidden]
            .map(|mode| Rc::new(Policy { mode, ..Policy::default() }));
    }
    let index = match guc::unlisted() {
        Unlisted::Optional => 0,
        Unlisted::Ignored => 1,
        Unlisted::Forbidden => 2,
    };
    DEFAULTS.with(|defaults| defaults[index].clone())
}

/// Reads a row and keeps what it says, unless the cache is thrown away meanwhile: then what was read
/// may be what was thrown away, and is read again.
fn remember<T: Clone, const COLUMNS: usize>(
    layout: &'static Layout,
    key: &str,
    read: impl Fn(&[Option<pg_sys::Datum>; COLUMNS]) -> Result<T, Error>,
    map: impl FnOnce(&mut Cache) -> &mut HashMap<String, Option<T>>,
) -> Result<Option<T>, Error> {
    register_callback();
    let value = loop {
        let generation = GENERATION.get();
        let table = Table::open(layout, pg_sys::AccessShareLock)?;
        watch(table.oid());
        let value = table.find(datum::text(key)).map(|row| read(&row)).transpose()?;
        table.close();
        if GENERATION.get() == generation {
            break value;
        }
        check_for_interrupts!();
    };
    with_cache(|cache| {
        let map = map(cache);
        if map.len() == MAX_CACHED {
            map.clear();
        }
        map.insert(key.into(), value.clone());
    });
    Ok(value)
}

fn watch(table: pg_sys::Oid) {
    with_cache(|cache| {
        if !cache.tables.contains(&table) {
            cache.tables.push(table);
        }
    });
}

fn read_policy(row: &[Option<pg_sys::Datum>; 3]) -> Result<Rc<Policy>, Error> {
    let policy = settings::read(&settings_of(row)?, &Server(Checks::Nothing));
    let policy = policy.map_err(|fault| Error::setting(&text(row[0]), &fault))?;
    Ok(Rc::new(Policy { past: past_of(row)?, ..policy }))
}

fn settings_of(row: &[Option<pg_sys::Datum>; 3]) -> Result<Map<String, Value>, Error> {
    match json(row[1])? {
        Some(Value::Object(settings)) => Ok(settings),
        _ => Err(Error::setting(&text(row[0]), &settings::Fault::not_an_object())),
    }
}

fn past_of(row: &[Option<pg_sys::Datum>; 3]) -> Result<Vec<Past>, Error> {
    let past = json(row[2])?.unwrap_or_default();
    settings::read_past(&past, &Server(Checks::Nothing))
        .map_err(|fault| Error::setting(&text(row[0]), &fault))
}

/// The retention among settings that may make no sense otherwise.
fn retention_of(settings: &Map<String, Value>) -> Retention {
    let retention = settings.iter().filter(|(name, _)| *name == "retention");
    let retention = retention.map(|(name, value)| (name.clone(), value.clone())).collect();
    let policy = settings::read(&retention, &Server(Checks::Nothing));
    policy.map_or(Retention::Forever, |policy| policy.retention)
}

fn json(column: Option<pg_sys::Datum>) -> Result<Option<Value>, Error> {
    // SAFETY: the column is a jsonb, checked when the table was opened.
    let json = column.map(|json| unsafe { datum::jsonb_text(json) });
    let json = json.map(|json| json.ok_or_else(Error::stored_not_encoded)).transpose()?;
    Ok(json.and_then(|json| serde_json::from_str(json).ok()))
}

fn read_resource_type(row: &[Option<pg_sys::Datum>; 5]) -> Result<Rc<ResourceType>, Error> {
    Ok(Rc::new(ResourceType {
        schema: text(row[1]),
        relation: text(row[2]),
        id_column: text(row[3]),
        owner: text(row[4]),
    }))
}

fn text(column: Option<pg_sys::Datum>) -> String {
    // SAFETY: the column is a text, checked when the table was opened.
    column
        .map(|text| datum::stored_utf8(unsafe { datum::bytes(&text, text) }).to_owned())
        .unwrap_or_default()
}

/// It takes a place in an array of PostgreSQL's, or ends the session where that is full.
fn register_callback() {
    // SAFETY: the function is static and matches the signature of inval.h.
    let register = || unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(on_table_change), pg_sys::Datum::null());
    };
    REGISTERED.with(|once| once.ensure(register));
}

/// Called by inval.c whenever a table has changed; all of them where `table` is 0. It neither raises nor panics:
/// where the cache is in use, the change counts as one of ours.
unsafe extern "C-unwind" fn on_table_change(_arg: pg_sys::Datum, table: pg_sys::Oid) {
    let is_read = |cache: &Cache| cache.tables.contains(&table);
    let concerns_us = table == pg_sys::InvalidOid
        || CACHE.with(|cache| cache.try_borrow().map_or(true, |cache| is_read(&cache)));
    if concerns_us {
        GENERATION.set(GENERATION.get() + 1);
    }
}

/// `sql/functions/settings.sql`: the triggers of both tables.
#[pg_extern(sql = false)]
fn idempotency_settings_changed(fcinfo: pg_sys::FunctionCallInfo) -> Done {
    // SAFETY: the caller's context is a node, and that of a trigger is the trigger's data (trigger.h).
    unsafe {
        let context = (*fcinfo).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_TriggerData {
            Error::not_a_trigger().raise();
        }
        let trigger = context.cast::<pg_sys::TriggerData>();
        pg_sys::CacheInvalidateRelcache((*trigger).tg_relation);
    }
    Done
}
