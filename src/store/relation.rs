//! Opening a table of ours, finding one row of it, and writing as its owner.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use pgrx::PgList;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::{names, now};
use crate::error::Error;
use crate::session::search_path::with_safe_search_path;
use crate::{majors, unguarded};

/// The schema of all our tables.
pub const SCHEMA: &CStr = c"idempotency";

/// A table's name and the types of its first columns; the first is its primary key.
pub struct Layout {
    /// The name, in the schema `idempotency`.
    pub name: &'static CStr,
    /// The types.
    pub columns: &'static [pg_sys::Oid],
    /// Whether it has to survive a crash: without its record, what was executed would be executed again.
    pub survives: bool,
}

/// An open table. It stays locked until the transaction ends, as a table in use by SQL would;
/// after an error PostgreSQL closes it by itself.
pub struct Table {
    relation: pg_sys::Relation,
    layout: &'static Layout,
}

impl Table {
    /// Opens a table.
    ///
    /// # Errors
    /// 55000 where there is no such table, or a column has another type: the library is then newer
    /// or older than the SQL objects.
    pub fn open(layout: &'static Layout, lock: u32) -> Result<Self, Error> {
        loop {
            let oid = names::find(layout.name).ok_or_else(|| layout.is_missing())?;
            // SAFETY: the table was there when it was looked up.
            if let Some(relation) = unsafe { open_unless_changed(oid, lock as i32) } {
                return Self { relation, layout }.checked();
            }
            check_for_interrupts!();
        }
    }

    fn checked(self) -> Result<Self, Error> {
        if !names::is_checked(self.layout.name) {
            if !self.is_as_expected() {
                return Err(self.layout.is_different());
            }
            names::note_checked(self.layout.name);
        }
        Ok(self)
    }

    /// PostgreSQL's own handle.
    pub fn relation(&self) -> pg_sys::Relation {
        self.relation
    }

    /// The table's name, in the schema `idempotency`.
    pub fn name(&self) -> &'static CStr {
        self.layout.name
    }

    /// The table's OID.
    pub fn oid(&self) -> pg_sys::Oid {
        // SAFETY: the table is open.
        unsafe { (*self.relation).rd_id }
    }

    /// The role that owns the table.
    pub fn owner(&self) -> pg_sys::Oid {
        // SAFETY: the table is open.
        unsafe { (*(*self.relation).rd_rel).relowner }
    }

    /// Closes the table and keeps its lock.
    pub fn close(self) {
        // SAFETY: opened by us, closed once.
        unsafe { pg_sys::table_close(self.relation, pg_sys::NoLock as i32) }
    }

    /// The values of the row that has this primary key, in memory of the current call; the key is of the
    /// type of the first column.
    ///
    /// An index scan under SnapshotSelf: it sees what is committed now, and what this transaction
    /// wrote, at every isolation level, and takes no predicate locks. An MVCC read, even with the
    /// latest snapshot, would make unrelated keys abort each other under SERIALIZABLE.
    pub fn find<const COLUMNS: usize>(
        &self,
        key: pg_sys::Datum,
    ) -> Option<[Option<pg_sys::Datum>; COLUMNS]> {
        // SAFETY: the table is open and laid out as expected.
        now::at_one_moment(|| unsafe { self.look_up(key) }, Option::is_some)
    }

    /// Runs `f`, which writes, as the table's owner, the way foreign-key checks run: a backend has no
    /// rights on the table, and triggers on it do not run with a backend's rights. (Deferred ones do before
    /// 18: PostgreSQL runs them at the commit, as whoever commits. Since 18 it runs them as whoever queued
    /// them, which is the owner, but with the search path of the commit.)
    pub fn as_owner<R>(&self, f: impl FnOnce() -> R) -> R {
        let owner = self.owner();
        // SAFETY: the table is open, so its owner exists.
        unsafe {
            if self.has_more_columns() || runs_functions(self.relation) {
                as_user(owner, 0, || with_safe_search_path(f))
            } else {
                as_user(owner, 0, f)
            }
        }
    }

    /// Whether somebody has added columns behind ours, which may have defaults.
    pub fn has_more_columns(&self) -> bool {
        // SAFETY: an open table has a descriptor.
        let columns = unsafe { (*(*self.relation).rd_att).natts } as usize;
        columns > self.layout.columns.len()
    }

    fn is_as_expected(&self) -> bool {
        // SAFETY: an open table has a descriptor.
        let attributes = unsafe { majors::attributes((*self.relation).rd_att) };
        let expected = self.layout.columns;
        let is_as_expected = |(attribute, oid): (&pg_sys::FormData_pg_attribute, &pg_sys::Oid)| {
            attribute.atttypid == *oid && !attribute.attisdropped
        };
        self.is_heap()
            && attributes.len() >= expected.len()
            && attributes.iter().zip(expected).all(is_as_expected)
            && self.first_column_is_key()
    }

    /// Whether it is an ordinary table of PostgreSQL's own kind: what is read and written here goes past
    /// the executor, which knows others (partitioned ones have no rows themselves). A crash empties tables
    /// that are UNLOGGED.
    fn is_heap(&self) -> bool {
        // SAFETY: the table is open.
        let class = unsafe { &*(*self.relation).rd_rel };
        class.relkind == pg_sys::RELKIND_RELATION as i8
            && class.relam == pg_sys::HEAP_TABLE_AM_OID
            && (class.relpersistence == pg_sys::RELPERSISTENCE_PERMANENT as i8
                || !self.layout.survives)
    }

    /// Whether the primary key is the first column, and that alone: it is what is asked for.
    fn first_column_is_key(&self) -> bool {
        // SAFETY: the table is open, and so is its index while it is looked at.
        unsafe {
            let index = unguarded::together(|| majors::primary_key(self.relation));
            if index == pg_sys::InvalidOid {
                return false;
            }
            let index = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
            let form = (*index).rd_index;
            let is_first =
                (*form).indnkeyatts == 1 && (*form).indkey.values.as_slice(1).first() == Some(&1);
            pg_sys::index_close(index, pg_sys::NoLock as i32);
            is_first
        }
    }

    unsafe fn look_up<const COLUMNS: usize>(
        &self,
        key: pg_sys::Datum,
    ) -> Option<[Option<pg_sys::Datum>; COLUMNS]> {
        // SAFETY: the caller's promise; whatever raises in between, the transaction's abort cleans up.
        unsafe {
            unguarded::together(|| {
                let slot = unguarded::table_slot_create(self.relation, null_mut());
                let found = self.fetch(slot, key);
                let row = if found { Some(copy_unguarded(self.relation, slot)) } else { None };
                unguarded::ExecDropSingleTupleTableSlot(slot);
                row
            })
        }
    }

    /// Whether there is a row with this primary key.
    ///
    /// # Safety
    /// The key is of the type of the first column.
    pub unsafe fn has(&self, key: pg_sys::Datum) -> bool {
        // SAFETY: the caller's promise. The slot goes at once: it would keep the row's page pinned.
        unsafe {
            unguarded::together(|| {
                let slot = unguarded::table_slot_create(self.relation, null_mut());
                let found = self.fetch(slot, key);
                unguarded::ExecDropSingleTupleTableSlot(slot);
                found
            })
        }
    }

    /// Puts the row that has this primary key into a slot; false where there is none.
    ///
    /// # Safety
    /// The slot is the table's, and the key of the type of the first column.
    pub unsafe fn find_in(&self, slot: *mut pg_sys::TupleTableSlot, key: pg_sys::Datum) -> bool {
        // SAFETY: the caller's promise; whatever raises in between, the transaction's abort cleans up.
        unsafe { unguarded::together(|| self.fetch(slot, key)) }
    }

    /// The same, for [`unguarded::together`].
    unsafe fn fetch(&self, slot: *mut pg_sys::TupleTableSlot, key: pg_sys::Datum) -> bool {
        // SAFETY: the caller's promise. A slot keeps its row's page itself.
        unsafe {
            let index = majors::primary_key(self.relation);
            let index = unguarded::index_open(index, pg_sys::AccessShareLock as i32);
            let mut key = self.layout.scan_key(key);
            let snapshot = &raw mut pg_sys::SnapshotSelfData;
            let scan = majors::index_beginscan(self.relation, index, snapshot, 1);
            unguarded::index_rescan(scan, &raw mut key, 1, null_mut(), 0);
            let forward = pg_sys::ScanDirection::ForwardScanDirection;
            let found = unguarded::index_getnext_slot(scan, forward, slot);
            unguarded::index_endscan(scan);
            unguarded::index_close(index, pg_sys::NoLock as i32);
            found
        }
    }
}

impl Layout {
    /// The primary key, which is the first column, equal to a value; for [`unguarded::together`].
    unsafe fn scan_key(&self, value: pg_sys::Datum) -> pg_sys::ScanKeyData {
        let mut key = pg_sys::ScanKeyData::default();
        let function = match self.columns.first() {
            Some(&pg_sys::UUIDOID) => pg_sys::F_UUID_EQ,
            Some(&pg_sys::INT4OID) => pg_sys::F_INT4EQ,
            _ => pg_sys::F_TEXTEQ,
        };
        let equal = pg_sys::BTEqualStrategyNumber as u16;
        // SAFETY: an ordinary scan key, as genam.h describes it.
        unsafe { unguarded::ScanKeyInit(&raw mut key, 1, equal, function.into(), value) };
        key
    }

    fn is_missing(&self) -> Error {
        Error::not_installed(format!(
            "There is no table idempotency.{}.",
            self.name.to_string_lossy()
        ))
    }

    fn is_different(&self) -> Error {
        Error::not_installed(format!(
            "The kind or the columns of idempotency.{} are not as expected.",
            self.name.to_string_lossy()
        ))
    }
}

/// Runs `f`, which reads, as the owner of a relation that is not ours.
///
/// # Safety
/// The owner exists.
pub unsafe fn reading_as<R>(owner: pg_sys::Oid, f: impl FnOnce() -> R) -> R {
    // SAFETY: the caller's promise.
    unsafe { as_user(owner, pg_sys::SECURITY_RESTRICTED_OPERATION, || with_safe_search_path(f)) }
}

/// Runs `f` as another user, without the right to change users, and past the row security of that
/// user's own tables (ri_triggers.c, ri_PerformCheck).
unsafe fn as_user<R>(user: pg_sys::Oid, more: u32, f: impl FnOnce() -> R) -> R {
    let (mut caller, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: after an error the abort of the (sub)transaction puts the caller back (xact.c).
    unsafe {
        unguarded::GetUserIdAndSecContext(&mut caller, &mut context);
        let flags = pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_NOFORCE_RLS | more;
        unguarded::SetUserIdAndSecContext(user, context | flags as i32);
        let result = f();
        unguarded::SetUserIdAndSecContext(caller, context);
        result
    }
}

/// Whether a write to a table may run functions of somebody's: triggers, checks, generated columns,
/// or the expressions and conditions of indexes.
unsafe fn runs_functions(relation: pg_sys::Relation) -> bool {
    // SAFETY: the table is open.
    unsafe {
        let constraints = (*(*relation).rd_att).constr;
        let has_checks = !constraints.is_null()
            && ((*constraints).num_check > 0 || (*constraints).has_generated_stored);
        !(*relation).trigdesc.is_null() || has_checks || indexes_run_functions(relation)
    }
}

/// The primary key's index has neither expressions nor a condition, and is all that most tables have.
unsafe fn indexes_run_functions(relation: pg_sys::Relation) -> bool {
    // SAFETY: the table is open, and so stays locked.
    unsafe {
        let indexes = PgList::<c_void>::from_pg(pg_sys::RelationGetIndexList(relation));
        indexes.len() > 1 && indexes.iter_oid().any(|index| index_runs_functions(index))
    }
}

/// Whether the entries of an index are computed, or chosen by more than NULLs and booleans.
unsafe fn index_runs_functions(index: pg_sys::Oid) -> bool {
    // SAFETY: an index of an open table; what it is copied from stays in the relation cache.
    unsafe {
        let index = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
        let condition = PgList::<pg_sys::Node>::from_pg(pg_sys::RelationGetIndexPredicate(index));
        let runs = !pg_sys::RelationGetIndexExpressions(index).is_null()
            || condition.iter_ptr().any(|part| !is_plain(part));
        pg_sys::index_close(index, pg_sys::NoLock as i32);
        runs
    }
}

/// Whether a condition has nothing but columns, NOT, AND, OR and tests for NULL.
unsafe fn is_plain(node: *mut pg_sys::Node) -> bool {
    // SAFETY: a node of an expression, cast to what its tag says that it is.
    unsafe {
        match (*node).type_ {
            pg_sys::NodeTag::T_Var => true,
            pg_sys::NodeTag::T_NullTest => {
                let test = node.cast::<pg_sys::NullTest>();
                !(*test).argisrow && is_plain((*test).arg.cast())
            }
            pg_sys::NodeTag::T_BoolExpr => {
                let parts = (*node.cast::<pg_sys::BoolExpr>()).args;
                PgList::<pg_sys::Node>::from_pg(parts).iter_ptr().all(|part| is_plain(part))
            }
            _ => false,
        }
    }
}

/// The slot's row, in memory of its own: the slot's page is unpinned before the row is used.
///
/// # Safety
/// The slot holds a row of the relation, whose layout was checked.
pub unsafe fn copy<const COLUMNS: usize>(
    relation: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
) -> [Option<pg_sys::Datum>; COLUMNS] {
    // SAFETY: the caller's promise; what is called has nothing to unwind.
    unsafe { unguarded::together(|| copy_unguarded(relation, slot)) }
}

/// The same, for [`unguarded::together`].
unsafe fn copy_unguarded<const COLUMNS: usize>(
    relation: pg_sys::Relation,
    slot: *mut pg_sys::TupleTableSlot,
) -> [Option<pg_sys::Datum>; COLUMNS] {
    // SAFETY: the slot holds a row of the relation, whose first columns are ours; there is room for
    // all that it has.
    unsafe {
        let descriptor = (*relation).rd_att;
        let columns = (*descriptor).natts as usize;
        let values = unguarded::palloc(columns * size_of::<pg_sys::Datum>()).cast();
        let nulls = unguarded::palloc(columns).cast();
        let mut own = false;
        let tuple = unguarded::ExecFetchSlotHeapTuple(slot, false, &mut own);
        let tuple = if own { tuple } else { unguarded::heap_copytuple(tuple) };
        unguarded::heap_deform_tuple(tuple, descriptor, values, nulls);
        std::array::from_fn(|i| if *nulls.add(i) { None } else { Some(*values.add(i)) })
    }
}

/// Locks and opens a table; `None`, and no lock, where what is known of our names has been thrown away
/// by the time that it is locked: it may have been dropped, or another have its name.
unsafe fn open_unless_changed(table: pg_sys::Oid, lock: i32) -> Option<pg_sys::Relation> {
    let before = names::generation();
    // SAFETY: what is called has nothing to unwind. A table that is locked, and of which no message
    // says that it has changed, is there.
    unsafe {
        unguarded::together(|| {
            unguarded::LockRelationOid(table, lock);
            if names::generation() == before {
                return Some(unguarded::table_open(table, pg_sys::NoLock as i32));
            }
            unguarded::UnlockRelationOid(table, lock);
            None
        })
    }
}
