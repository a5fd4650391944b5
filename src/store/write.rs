//! Writes rows through `ExecSimpleRelationInsert`, `-Update` and `-Delete` (execReplication.c), by which
//! logical replication applies rows: constraints, indexes, row triggers, WAL and logical decoding are
//! those of INSERT, UPDATE and DELETE; statement triggers and rules do not apply. No snapshot is asked,
//! so none can be too old; a row that is changed or deleted is locked before. It runs as the table's
//! owner, the way foreign-key checks do (ri_triggers.c).
//!
//! A BEFORE trigger that returns NULL has a row skipped, without a word. A record that is not written
//! would let its request be executed again, so here that is an error.

use std::cell::Cell;
use std::ptr::null_mut;

use pgrx::pg_sys;

use super::relation::{self, Table};
use super::{defaults, walk};
use crate::error::Error;
use crate::{majors, unguarded};

/// Inserts a row.
///
/// # Errors
/// 55000 where a trigger skips it.
pub fn insert(table: &Table, row: &[Option<pg_sys::Datum>]) -> Result<(), Error> {
    // SAFETY: the target is the table's, and the row has its columns.
    change(table, |target| unsafe { target.insert(table, row) })
}

/// What came of locking a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It is ours.
    Yes,
    /// It is not there any more.
    Gone,
    /// Another transaction has it, and was not to be waited for.
    Busy,
}

/// Deletes the row that has this primary key, if it is there and `check` lets it. Where another
/// transaction has it in hand, a purge for example, `policy` says what to do. (RelationFindReplTupleByIndex would do
/// that, but since 16 it compares all columns where the table has another index for its replica identity.)
///
/// # Errors
/// What `check` says of the row; 55000 where a trigger skips it.
pub fn delete<const COLUMNS: usize>(
    table: &Table,
    key: pg_sys::Datum,
    policy: pg_sys::LockWaitPolicy::Type,
    check: impl FnOnce([Option<pg_sys::Datum>; COLUMNS]) -> Result<(), Error>,
) -> Result<Locked, Error> {
    change(table, |target| {
        // SAFETY: the target is the table's, whose primary key is the first column.
        unsafe {
            // The row may have been written by this very command.
            pg_sys::CommandCounterIncrement();
            let found = target.slot(table);
            while table.find_in(found, key) {
                match target.lock(found, policy) {
                    Locked::Gone => {}
                    Locked::Busy => return Ok(Locked::Busy),
                    Locked::Yes => {
                        check(relation::copy(table.relation(), found))?;
                        return target.delete(table, found).map(|()| Locked::Yes);
                    }
                }
            }
        }
        Ok(Locked::Gone)
    })
}

/// Waits until nobody else has the row with this primary key in hand, by locking it. Who calls undoes
/// that.
pub fn wait_for(table: &Table, key: pg_sys::Datum) {
    // SAFETY: the target is the table's, whose primary key is the first column.
    change(table, |target| unsafe {
        let found = target.slot(table);
        while table.find_in(found, key)
            && target.lock(found, pg_sys::LockWaitPolicy::LockWaitBlock) == Locked::Gone
        {}
    });
}

/// Puts a row in the place of the one that has its primary key.
///
/// # Errors
/// 55000 where a trigger skips it.
pub fn replace<const COLUMNS: usize>(
    table: &Table,
    row: &[Option<pg_sys::Datum>; COLUMNS],
) -> Result<(), Error> {
    let wait = pg_sys::LockWaitPolicy::LockWaitBlock;
    delete(table, row[0].ok_or_else(no_key)?, wait, |_: [_; COLUMNS]| Ok(()))?;
    insert(table, row)
}

fn no_key() -> Error {
    Error::unexpected("a row has no primary key".into())
}

/// What the executor needs to change rows.
pub struct Target {
    estate: *mut pg_sys::EState,
    relation: *mut pg_sys::ResultRelInfo,
    /// Where rows are put that are to be written; null before the first.
    new: Cell<*mut pg_sys::TupleTableSlot>,
}

/// What is allocated for a target lives as long as the target: it may be used while a change of another
/// table is under way, whose memory is current then, and is gone before.
impl Target {
    /// A slot for rows of the table.
    ///
    /// # Safety
    /// The target is the table's.
    pub unsafe fn slot(&self, table: &Table) -> *mut pg_sys::TupleTableSlot {
        // SAFETY: the caller's promise.
        self.in_own_memory(|| unsafe {
            let slots = &raw mut (*self.estate).es_tupleTable;
            pg_sys::table_slot_create(table.relation(), slots)
        })
    }

    /// Locks the row in a slot against all others; where another transaction has locked it, `policy` says
    /// whether to wait.
    ///
    /// # Safety
    /// The slot has a row of the table.
    pub unsafe fn lock(
        &self,
        slot: *mut pg_sys::TupleTableSlot,
        policy: pg_sys::LockWaitPolicy::Type,
    ) -> Locked {
        let mut failure = pg_sys::TM_FailureData::default();
        // SAFETY: the caller's promise. The snapshot would only be asked for later versions of the
        // row, and none are wanted.
        let result = self.in_own_memory(|| unsafe {
            pg_sys::table_tuple_lock(
                (*self.relation).ri_RelationDesc,
                &raw mut (*slot).tts_tid,
                &raw mut pg_sys::SnapshotSelfData,
                slot,
                pg_sys::GetCurrentCommandId(false),
                pg_sys::LockTupleMode::LockTupleExclusive,
                policy,
                0,
                &mut failure,
            )
        });
        match result {
            pg_sys::TM_Result::TM_Ok => Locked::Yes,
            pg_sys::TM_Result::TM_WouldBlock => Locked::Busy,
            _ => Locked::Gone,
        }
    }

    /// Inserts a row.
    ///
    /// # Errors
    /// 55000 where a trigger skips it.
    ///
    /// # Safety
    /// The target is the table's, and the row has its columns.
    pub unsafe fn insert(&self, table: &Table, row: &[Option<pg_sys::Datum>]) -> Result<(), Error> {
        // SAFETY: the caller's promise. Who is written is given a place.
        let place = self.in_own_memory(|| unsafe {
            let slot = self.put(table, row);
            self.as_of_now();
            unguarded::together(|| {
                unguarded::ExecSimpleRelationInsert(self.relation, self.estate, slot)
            });
            (*slot).tts_tid
        });
        written(table, place)
    }

    /// Puts a row in the place of the one in a slot, which the transaction has locked.
    ///
    /// # Errors
    /// 55000 where a trigger skips it.
    ///
    /// # Safety
    /// The slot has a row of the table, which is the target's.
    pub unsafe fn update(
        &self,
        table: &Table,
        slot: *mut pg_sys::TupleTableSlot,
        row: &[Option<pg_sys::Datum>],
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise. Who is written is given a place.
        let place = self.in_own_memory(|| unsafe {
            let new = self.put(table, row);
            self.as_of_now();
            let epq = &mut self.no_plan();
            pg_sys::ExecSimpleRelationUpdate(self.relation, self.estate, epq, slot, new);
            (*new).tts_tid
        });
        written(table, place)
    }

    /// Deletes the row in a slot, which the transaction has locked.
    ///
    /// # Errors
    /// 55000 where a trigger skips it.
    ///
    /// # Safety
    /// The slot has a row of the table, which is the target's.
    pub unsafe fn delete(
        &self,
        table: &Table,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        self.in_own_memory(|| unsafe {
            self.as_of_now();
            let epq = &mut self.no_plan();
            pg_sys::ExecSimpleRelationDelete(self.relation, self.estate, epq, slot);
        });
        // SAFETY: as above; the primary key is the first column.
        let is_kept = unsafe {
            may_be_kept(table) && walk::column(slot, 1).is_some_and(|key| table.has(key))
        };
        if is_kept { Err(Error::row_skipped(table.name(), "deleted")) } else { Ok(()) }
    }

    /// Has triggers find what this command has written so far: a row that they lock may be one of those, and
    /// the command counter may have been incremented since the target was set up, by us or by a trigger.
    unsafe fn as_of_now(&self) {
        // SAFETY: the target's state; GetCurrentCommandId raises nothing but in a parallel worker, in which
        // nothing is written.
        unsafe { (*self.estate).es_output_cid = pg_sys::GetCurrentCommandId(true) };
    }

    /// The slot with a row that is to be written; columns behind ours have their defaults. One slot serves for
    /// all rows: PostgreSQL notes who uses a table's descriptor, and takes longer for each further slot.
    unsafe fn put(
        &self,
        table: &Table,
        row: &[Option<pg_sys::Datum>],
    ) -> *mut pg_sys::TupleTableSlot {
        // SAFETY: the caller's promise: the target is the table's, and the row has its columns.
        unsafe {
            let slot = unguarded::together(|| {
                if self.new.get().is_null() {
                    let descriptor = (*table.relation()).rd_att;
                    let ops = &raw const pg_sys::TTSOpsVirtual;
                    self.new.set(unguarded::ExecInitExtraTupleSlot(self.estate, descriptor, ops));
                }
                unguarded::ExecStoreAllNullTuple(self.new.get())
            });
            for (i, value) in row.iter().enumerate() {
                *(*slot).tts_values.add(i) = value.unwrap_or(pg_sys::Datum::null());
                *(*slot).tts_isnull.add(i) = value.is_none();
            }
            if table.has_more_columns() {
                defaults::fill(table.relation(), self.estate, slot, row.len());
            }
            slot
        }
    }

    /// What the executor wants to have where it might have to evaluate a plan once more.
    unsafe fn no_plan(&self) -> pg_sys::EPQState {
        let mut epq = pg_sys::EPQState::default();
        // SAFETY: sets the struct's fields.
        unsafe { majors::init_recheck(&mut epq, self.estate) };
        epq
    }

    fn in_own_memory<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: the executor's memory lives as long as the target; an error puts the caller's back,
        // as every abort does.
        unsafe {
            let context = pg_sys::MemoryContextSwitchTo((*self.estate).es_query_cxt);
            let result = f();
            pg_sys::MemoryContextSwitchTo(context);
            result
        }
    }
}

/// Whether the row that was to be written has been, which gives it a place.
fn written(table: &Table, place: pg_sys::ItemPointerData) -> Result<(), Error> {
    let is_written = place.ip_posid != pg_sys::InvalidOffsetNumber;
    if is_written { Ok(()) } else { Err(Error::row_skipped(table.name(), "written")) }
}

/// Whether a trigger may keep a row that is to be deleted.
unsafe fn may_be_kept(table: &Table) -> bool {
    // SAFETY: the table is open.
    unsafe {
        (*table.relation())
            .trigdesc
            .as_ref()
            .is_some_and(|triggers| triggers.trig_delete_before_row)
    }
}

/// Changes the table as its owner, and fires the triggers that this queued.
pub fn change<R>(table: &Table, execute: impl FnOnce(&Target) -> R) -> R {
    // SAFETY: the table is open for writing.
    table.as_owner(|| unsafe { with_target(table.relation(), execute) })
}

unsafe fn with_target<R>(relation: pg_sys::Relation, execute: impl FnOnce(&Target) -> R) -> R {
    // SAFETY: the steps of worker.c's apply_handle_insert, without a range table: index 0 says that
    // there is none, and the executor then looks for no column permissions. After an error the
    // executor's memory and the indexes are given back by the transaction's abort.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let target = unguarded::together(|| begin(relation));
        let result = execute(&target);
        unguarded::together(|| {
            unguarded::AfterTriggerEndQuery(target.estate);
            unguarded::ExecCloseIndices(target.relation);
            unguarded::ExecResetTupleTable((*target.estate).es_tupleTable, false);
            pg_sys::CurrentMemoryContext = context;
            unguarded::FreeExecutorState(target.estate);
        });
        result
    }
}

/// Sets up a change of the relation, for [`unguarded::together`].
unsafe fn begin(relation: pg_sys::Relation) -> Target {
    // SAFETY: as for with_target. A node of zeros with its tag is what makeNode makes.
    unsafe {
        let estate = unguarded::CreateExecutorState();
        pg_sys::CurrentMemoryContext = (*estate).es_query_cxt;
        let size = size_of::<pg_sys::ResultRelInfo>();
        let target = unguarded::palloc0(size).cast::<pg_sys::ResultRelInfo>();
        (*target).type_ = pg_sys::NodeTag::T_ResultRelInfo;
        unguarded::InitResultRelInfo(target, relation, 0, null_mut(), 0);
        // Where after-row triggers look for the relation that they were queued for.
        (*estate).es_opened_result_relations =
            unguarded::lappend((*estate).es_opened_result_relations, target.cast());
        unguarded::ExecOpenIndices(target, false);
        unguarded::AfterTriggerBeginQuery();
        Target { estate, relation: target, new: Cell::new(null_mut()) }
    }
}
