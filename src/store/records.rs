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

use idempotency_core::Micros;
use idempotency_core::identity::Identity;
use idempotency_core::record::Record;
use pgrx::pg_sys;

use super::relation::{Layout, Sees, Table};
use crate::convert::datum;
use crate::error::Error;

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

static LAYOUT: Layout = Layout { name: c"records", columns: &TYPES };

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
pub struct Row([Option<pg_sys::Datum>; COLUMNS]);

impl Row {
    /// A row of nothing but NULLs.
    pub fn new() -> Self {
        Self([None; COLUMNS])
    }

    /// With a column set; `None` is NULL.
    pub fn with(mut self, column: Column, value: Option<pg_sys::Datum>) -> Self {
        self.0[column as usize] = value;
        self
    }

    /// A column's value.
    pub fn get(&self, column: Column) -> Option<pg_sys::Datum> {
        self.0[column as usize]
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
    let table = Table::open(&LAYOUT, pg_sys::AccessShareLock)?;
    let row = table.find(&key(identity), Sees::Now).map(Row);
    table.close();
    Ok(row)
}

/// Inserts a finished record.
///
/// # Errors
/// 55000 where the table is not as this library expects. What PostgreSQL and the table's triggers
/// raise is passed on.
pub fn insert(row: &Row) -> Result<(), Error> {
    change(|table, target| {
        // SAFETY: the target is the table's, and the row has its columns.
        unsafe {
            let slot = virtual_slot(target.estate, table.relation(), row);
            pg_sys::ExecSimpleRelationInsert(target.relation, target.estate, slot);
        }
    })
}

/// Deletes the record of an identity whose lock the transaction holds, if it is there.
///
/// # Errors
/// As for [`insert`].
pub fn delete(identity: &Identity) -> Result<(), Error> {
    change(|table, target| {
        let Some(tid) = table.locate(&key(identity), Sees::Now) else { return };
        // SAFETY: the target is the table's; of the slot, only the row's place is used.
        unsafe {
            let mut epq = pg_sys::EPQState::default();
            pg_sys::EvalPlanQualInit(
                &mut epq,
                target.estate,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                -1,
            );
            let slot = pg_sys::table_slot_create(
                table.relation(),
                &raw mut (*target.estate).es_tupleTable,
            );
            (*slot).tts_tid = tid;
            pg_sys::ExecSimpleRelationDelete(target.relation, target.estate, &mut epq, slot);
        }
    })
}

fn key(identity: &Identity) -> [&str; 3] {
    [&identity.scope, &identity.key_space, &identity.key]
}

/// What the executor needs to change one row.
struct Target {
    estate: *mut pg_sys::EState,
    relation: *mut pg_sys::ResultRelInfo,
}

/// Opens the table, changes it as its owner, and fires the triggers that this queued.
fn change(execute: impl FnOnce(&Table, &Target)) -> Result<(), Error> {
    let table = Table::open(&LAYOUT, pg_sys::RowExclusiveLock)?;
    // SAFETY: the table is open for writing.
    table.as_owner(|| unsafe { with_target(table.relation(), |target| execute(&table, target)) });
    table.close();
    Ok(())
}

unsafe fn with_target(relation: pg_sys::Relation, execute: impl FnOnce(&Target)) {
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
        // Where after-row triggers look for the relation that they were queued for.
        (*estate).es_opened_result_relations =
            pg_sys::lappend((*estate).es_opened_result_relations, target.cast());
        (*estate).es_output_cid = pg_sys::GetCurrentCommandId(true);
        pg_sys::ExecOpenIndices(target, false);
        pg_sys::AfterTriggerBeginQuery();
        execute(&Target { estate, relation: target });
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
        for (i, value) in row.0.iter().enumerate() {
            *(*slot).tts_values.add(i) = value.unwrap_or(pg_sys::Datum::null());
            *(*slot).tts_isnull.add(i) = value.is_none();
        }
        slot
    }
}
