//! The table `idempotency.records`: one look-up, one insert.
//!
//! **Look-up.** An index scan under SnapshotSelf, which sees what is committed now, at every
//! isolation level, and takes no predicate locks: an MVCC read, even with the latest snapshot,
//! would make unrelated keys abort each other under SERIALIZABLE. It is right because finished
//! records never change and the key's lock keeps writers out.
//!
//! **Insert.** Through `ExecSimpleRelationInsert` (execReplication.c), by which logical replication
//! applies rows: constraints, indexes, row triggers, WAL and logical decoding are those of an
//! INSERT; statement triggers and rules do not apply. It runs as the table's owner, the way
//! foreign-key checks do (ri_triggers.c).

use std::ffi::CStr;

use idempotency_core::Micros;
use idempotency_core::identity::Identity;
use idempotency_core::record::Record;
use pgrx::pg_sys;

use super::relation::Table;
use crate::convert::datum;
use crate::error::Error;

const TABLE: &CStr = c"records";
const COLUMNS: usize = 16;

/// The columns, in the order of `sql/schema.sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Principal or tenant.
    Scope,
    /// The operation, or the name that several share.
    KeySpace,
    /// The key.
    Key,
    /// The executed operation.
    Operation,
    /// The request's fingerprint.
    Fingerprint,
    /// HTTP status.
    Status,
    /// Headers.
    Headers,
    /// Body.
    Body,
    /// Pointer: type.
    ResourceType,
    /// Pointer: id.
    ResourceId,
    /// Why the answer was not kept.
    Withheld,
    /// The claim's token.
    Token,
    /// 1 for the first execution.
    Attempt,
    /// When the key was won.
    CreatedAt,
    /// When the answer was recorded.
    CompletedAt,
    /// When the record expires.
    ExpiresAt,
}

const TYPES: [pg_sys::Oid; COLUMNS] = [
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::BYTEAOID,
    pg_sys::INT4OID,
    pg_sys::JSONBOID,
    pg_sys::BYTEAOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::UUIDOID,
    pg_sys::INT4OID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
];

/// One row, found or to be inserted. It points into PostgreSQL's memory of the current call.
#[derive(Clone, Copy)]
pub struct Row {
    values: [pg_sys::Datum; COLUMNS],
    nulls: [bool; COLUMNS],
}

impl Row {
    /// A row of nothing but NULLs.
    pub fn new() -> Self {
        Self { values: [pg_sys::Datum::null(); COLUMNS], nulls: [true; COLUMNS] }
    }

    /// With a column set; `None` is NULL.
    pub fn with(mut self, column: Column, value: Option<pg_sys::Datum>) -> Self {
        let i = column as usize;
        self.nulls[i] = value.is_none();
        self.values[i] = value.unwrap_or(pg_sys::Datum::null());
        self
    }

    /// A column's value.
    pub fn get(&self, column: Column) -> Option<pg_sys::Datum> {
        let i = column as usize;
        (!self.nulls[i]).then(|| self.values[i])
    }

    /// A column of type `text`.
    pub fn text(&self, column: Column) -> Option<&str> {
        // SAFETY: the column's type was checked when the table was opened.
        self.get(column).map(|value| datum::to_utf8(unsafe { datum::bytes(value) }))
    }

    /// What decisions need of the row.
    pub fn record(&self) -> Record<'_> {
        Record {
            operation: self.text(Column::Operation).unwrap_or_default(),
            // SAFETY: the column's type was checked when the table was opened.
            fingerprint: self.get(Column::Fingerprint).map(|value| unsafe { datum::bytes(value) }),
            withheld: self.text(Column::Withheld),
            expires_at: self.get(Column::ExpiresAt).map(|value| value.value() as Micros),
        }
    }
}

/// The row of an identity, as it is committed now or was written by this transaction.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn find(identity: &Identity) -> Result<Option<Row>, Error> {
    let table = Table::open(TABLE, &TYPES, pg_sys::AccessShareLock)?;
    // SAFETY: the table is open, and its columns are as the scan and the row expect.
    let row = unsafe { scan(table.relation(), identity) };
    table.close();
    Ok(row)
}

/// Inserts a finished record; one that has expired and was not purged gives way.
///
/// # Errors
/// 55000 where the table is not as this library expects. What PostgreSQL and the table's triggers
/// raise is passed on.
pub fn insert(row: &Row) -> Result<(), Error> {
    let table = Table::open(TABLE, &TYPES, pg_sys::RowExclusiveLock)?;
    // SAFETY: the table is open, and the row has its columns.
    unsafe { as_owner(table.relation(), |relation| execute_insert(relation, row)) };
    table.close();
    Ok(())
}

unsafe fn scan(relation: pg_sys::Relation, identity: &Identity) -> Option<Row> {
    // SAFETY: the caller's promise; whatever raises in between, the transaction's abort cleans up.
    unsafe {
        let index = pg_sys::index_open(
            pg_sys::RelationGetPrimaryKeyIndex(relation),
            pg_sys::AccessShareLock as i32,
        );
        let slot = pg_sys::table_slot_create(relation, std::ptr::null_mut());
        let mut keys = scan_keys(identity);
        let snapshot = &raw mut pg_sys::SnapshotSelfData;
        let scan = pg_sys::index_beginscan(relation, index, snapshot, keys.len() as i32, 0);
        pg_sys::index_rescan(scan, keys.as_mut_ptr(), keys.len() as i32, std::ptr::null_mut(), 0);
        let found =
            pg_sys::index_getnext_slot(scan, pg_sys::ScanDirection::ForwardScanDirection, slot);
        let row = found.then(|| copy(relation, slot));
        pg_sys::index_endscan(scan);
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        pg_sys::index_close(index, pg_sys::NoLock as i32);
        row
    }
}

/// The primary key's columns, equal to the identity's parts under the collation "C".
unsafe fn scan_keys(identity: &Identity) -> [pg_sys::ScanKeyData; 3] {
    let parts = [&identity.scope, &identity.key_space, &identity.key];
    let mut keys = [pg_sys::ScanKeyData::default(); 3];
    for (i, (key, part)) in keys.iter_mut().zip(parts).enumerate() {
        // SAFETY: an ordinary scan key, as genam.h describes it.
        unsafe {
            let (column, equal) = (i as i16 + 1, pg_sys::BTEqualStrategyNumber as u16);
            pg_sys::ScanKeyInit(key, column, equal, pg_sys::F_TEXTEQ.into(), datum::text(part));
        }
    }
    keys
}

/// The slot's row, in memory of its own: the slot's page is unpinned before the row is used.
unsafe fn copy(relation: pg_sys::Relation, slot: *mut pg_sys::TupleTableSlot) -> Row {
    // SAFETY: the slot holds a row of the relation, whose first columns are ours.
    unsafe {
        let columns = (*(*relation).rd_att).natts as usize;
        let (mut values, mut nulls) = (vec![pg_sys::Datum::null(); columns], vec![true; columns]);
        let mut own = false;
        let tuple = pg_sys::ExecFetchSlotHeapTuple(slot, false, &mut own);
        let tuple = if own { tuple } else { pg_sys::heap_copytuple(tuple) };
        pg_sys::heap_deform_tuple(
            tuple,
            (*relation).rd_att,
            values.as_mut_ptr(),
            nulls.as_mut_ptr(),
        );
        Row { values: std::array::from_fn(|i| values[i]), nulls: std::array::from_fn(|i| nulls[i]) }
    }
}

unsafe fn execute_insert(relation: pg_sys::Relation, row: &Row) {
    // SAFETY: the steps of worker.c's apply_handle_insert, without a range table: index 0 says that
    // there is none, and the executor then looks for no column permissions. After an error the
    // executor's memory and the indexes are given back by the transaction's abort.
    unsafe {
        let estate = pg_sys::CreateExecutorState();
        let context = pg_sys::MemoryContextSwitchTo((*estate).es_query_cxt);
        let target =
            pg_sys::palloc0(size_of::<pg_sys::ResultRelInfo>()).cast::<pg_sys::ResultRelInfo>();
        (*target).type_ = pg_sys::NodeTag::T_ResultRelInfo;
        pg_sys::InitResultRelInfo(target, relation, 0, std::ptr::null_mut(), 0);
        // Where after-row triggers look for the relation they were queued for.
        (*estate).es_opened_result_relations =
            pg_sys::lappend((*estate).es_opened_result_relations, target.cast());
        (*estate).es_output_cid = pg_sys::GetCurrentCommandId(true);
        pg_sys::ExecOpenIndices(target, false);
        pg_sys::AfterTriggerBeginQuery();
        pg_sys::ExecSimpleRelationInsert(target, estate, virtual_slot(estate, relation, row));
        pg_sys::AfterTriggerEndQuery(estate);
        pg_sys::ExecCloseIndices(target);
        pg_sys::ExecResetTupleTable((*estate).es_tupleTable, false);
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::FreeExecutorState(estate);
    }
}

unsafe fn virtual_slot(
    estate: *mut pg_sys::EState,
    relation: pg_sys::Relation,
    row: &Row,
) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: a slot of the table's own descriptor; columns behind ours are NULL.
    unsafe {
        let slot =
            pg_sys::ExecInitExtraTupleSlot(estate, (*relation).rd_att, &pg_sys::TTSOpsVirtual);
        pg_sys::ExecStoreAllNullTuple(slot);
        for (i, (value, null)) in row.values.iter().zip(row.nulls).enumerate() {
            *(*slot).tts_values.add(i) = *value;
            *(*slot).tts_isnull.add(i) = null;
        }
        slot
    }
}

/// Runs `f` as the table's owner, so that triggers on it do not run with a backend's rights.
unsafe fn as_owner(relation: pg_sys::Relation, f: impl FnOnce(pg_sys::Relation)) {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: after an error the abort of the (sub)transaction puts the user back (xact.c).
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        let flags = pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_NOFORCE_RLS;
        pg_sys::SetUserIdAndSecContext((*(*relation).rd_rel).relowner, context | flags as i32);
        f(relation);
        pg_sys::SetUserIdAndSecContext(user, context);
    }
}
