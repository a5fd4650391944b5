//! Finds and deletes what is known of a scope, by walks through the tables: no index begins with the
//! scope, because each create would pay for it.

use std::collections::BTreeSet;

use idempotency_core::identity::Identity;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::relation::Table;
use super::walk::{self, Walk};
use super::{leases, records, write};
use crate::convert::datum;
use crate::error::Error;
use crate::session::xact;

/// The most requests on lease that one call takes: each takes an entry of the shared lock table.
pub const MAX_OPEN: usize = 1000;

/// What is to be erased.
#[derive(Clone)]
pub struct Wanted {
    /// Of this principal or tenant,
    pub scope: String,
    /// of this operation, or of all,
    pub operation: Option<String>,
    /// under this key, or under all.
    pub key: Option<String>,
}

/// What a walk through the records came to.
pub struct Walked {
    /// How many finished records it has deleted.
    pub deleted: usize,
    /// The requests that are not finished.
    pub open: BTreeSet<Identity>,
}

/// The wanted values as `text`.
struct Texts {
    scope: pg_sys::Datum,
    operation: Option<pg_sys::Datum>,
    key: Option<pg_sys::Datum>,
}

/// The requests whose lease is open.
///
/// # Errors
/// 54000 where there are more than [`MAX_OPEN`], 55000 where the table is not as this library expects.
pub fn open_leases(wanted: &Wanted) -> Result<BTreeSet<Identity>, Error> {
    let table = leases::open(pg_sys::AccessShareLock)?;
    let texts = Texts::of(wanted);
    let mut open = BTreeSet::new();
    // SAFETY: the slot is the table's, and outlives the walk.
    unsafe {
        let slot = pg_sys::table_slot_create(table.relation(), std::ptr::null_mut());
        let mut walk = Walk::through(&table, slot);
        while let Some(slot) = walk.next() {
            check_for_interrupts!();
            if texts.are_in_lease(slot) && !leases::is_ended(slot) {
                note(&mut open, leases::identity(slot))?;
            }
        }
        walk.end();
        pg_sys::ExecDropSingleTupleTableSlot(slot);
    }
    table.close();
    Ok(open)
}

/// Deletes the finished records, but for those of this very transaction: they have to commit with
/// their effects. Who has locked one of them is waited for; a purge for example.
///
/// The locks of the keys are not needed. A finished record is only ever deleted, or replaced once it
/// has expired by a claim that can do without it; and who looks for it meanwhile finds it, or finds
/// that it is gone.
///
/// # Errors
/// As for [`open_leases`].
pub fn delete_finished(wanted: &Wanted) -> Result<Walked, Error> {
    let table = records::open_to_write()?;
    let texts = Texts::of(wanted);
    let mut walked = Walked { deleted: 0, open: BTreeSet::new() };
    let mut noted = Ok(());
    write::change(&table, |target| {
        // SAFETY: the target is the table's, and its slot outlives the walk.
        unsafe {
            let mut walk = Walk::through(&table, target.slot(&table));
            while noted.is_ok()
                && let Some(slot) = walk.next()
            {
                check_for_interrupts!();
                if !texts.are_in_record(slot) || is_own(slot) {
                    continue;
                }
                if !records::is_finished(slot) {
                    noted = note(&mut walked.open, records::identity(slot));
                } else if target.lock(slot, pg_sys::LockWaitPolicy::LockWaitBlock) {
                    noted = target.delete(&table, slot);
                    walked.deleted += 1;
                }
            }
            walk.end();
        }
    });
    table.close();
    noted.map(|()| walked)
}

/// Ends the leases whose record is gone, and empties their rows of all but token and deadline: a late
/// worker still learns that it lost its lease, until the rows are purged. `is_meant` tells more of
/// a lease whose record is gone.
///
/// # Errors
/// 55000 where a table is not as this library expects.
pub fn blank_leases(wanted: &Wanted, is_meant: impl Fn(&Identity) -> bool) -> Result<(), Error> {
    let table = leases::open(pg_sys::RowExclusiveLock)?;
    let texts = Texts::of(wanted);
    let mut looked = Ok(());
    write::change(&table, |target| {
        // SAFETY: the target is the table's, and its slot outlives the walk. A blank row that the
        // walk meets again is not wanted: no key is empty.
        unsafe {
            let mut walk = Walk::through(&table, target.slot(&table));
            while looked.is_ok()
                && let Some(slot) = walk.next()
            {
                check_for_interrupts!();
                if texts.are_in_lease(slot) {
                    looked = blank(&table, target, slot, &is_meant);
                }
            }
            walk.end();
        }
    });
    table.close();
    looked
}

unsafe fn blank(
    table: &Table,
    target: &write::Target,
    slot: *mut pg_sys::TupleTableSlot,
    is_meant: &impl Fn(&Identity) -> bool,
) -> Result<(), Error> {
    // SAFETY: the slot has a row of the table.
    unsafe {
        let identity = leases::identity(slot);
        let token = leases::token(slot);
        let record = records::find(&identity)?;
        let goes = match record {
            Some(record) => leases::is_ended(slot) && record.uuid(records::Column::Token) != token,
            None => true,
        };
        if goes && is_meant(&identity) && target.lock(slot, pg_sys::LockWaitPolicy::LockWaitBlock) {
            let row = leases::blank(slot);
            target.delete(table, slot)?;
            target.insert(table, &row)?;
        }
    }
    Ok(())
}

fn note(open: &mut BTreeSet<Identity>, identity: Identity) -> Result<(), Error> {
    open.insert(identity);
    if open.len() > MAX_OPEN { Err(Error::too_many_leases(MAX_OPEN)) } else { Ok(()) }
}

/// Whether the record is one of this transaction's.
unsafe fn is_own(slot: *mut pg_sys::TupleTableSlot) -> bool {
    // SAFETY: the slot has a record.
    let token = unsafe { records::token(slot) };
    token.is_some_and(|token| xact::with_ledger(|ledger| ledger.holds(token)))
}

impl Texts {
    fn of(wanted: &Wanted) -> Self {
        Self {
            scope: datum::text(&wanted.scope),
            operation: wanted.operation.as_deref().map(datum::text),
            key: wanted.key.as_deref().map(datum::text),
        }
    }

    /// # Safety
    /// The slot has a record.
    unsafe fn are_in_record(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        use records::Column::{Key, Operation, Scope};
        // SAFETY: the caller's promise.
        let is = |column: records::Column, wanted| unsafe {
            walk::is_text(slot, column.number(), wanted)
        };
        is(Scope, self.scope)
            && self.operation.is_none_or(|operation| is(Operation, operation))
            && self.key.is_none_or(|key| is(Key, key))
    }

    /// Whether scope and key are; a lease does not know its operation.
    ///
    /// # Safety
    /// The slot has a lease.
    unsafe fn are_in_lease(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            walk::is_text(slot, leases::SCOPE, self.scope)
                && self.key.is_none_or(|key| walk::is_text(slot, leases::KEY, key))
                && !walk::is_text(slot, leases::KEY, datum::text(""))
        }
    }
}
