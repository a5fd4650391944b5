//! Finds and deletes what is known of a scope, by walks through the tables: no index begins with the
//! scope, because each create would pay for it.

use std::collections::BTreeSet;

use idempotency_core::identity::Identity;
use pgrx::pg_sys;
use pgrx::prelude::*;
use uuid::Uuid;

use super::relation::Table;
use super::walk::{self, Walk};
use super::write::{self, Locked};
use super::{leases, records};
use crate::clock;
use crate::convert::datum;
use crate::error::Error;
use crate::session::key_lock::KeyLock;
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

/// What another transaction has in hand.
pub enum Busy {
    /// The lock of a key,
    Key(Identity),
    /// the record of one,
    Record(Identity),
    /// the row of a lease on one.
    Lease(Identity, Uuid),
}

/// Why an erasure stops.
pub enum Stop {
    /// Something is not free, and the erasure holds locks, so it must not wait for it.
    Busy(Busy),
    /// An error.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

impl Busy {
    /// The key that it is about.
    pub fn identity(&self) -> &Identity {
        match self {
            Busy::Key(identity) | Busy::Record(identity) | Busy::Lease(identity, _) => identity,
        }
    }
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
    let table = leases::open_to_write()?;
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
/// their effects.
///
/// The locks of the keys are not kept. A finished record is only ever deleted, or replaced once it
/// has expired; and who looks for it meanwhile finds it, or finds that it is gone. Whose claim is about to
/// replace one holds its key, so such a one is deleted only where the key is free.
///
/// # Errors
/// What somebody else has in hand; errors as for [`open_leases`].
pub fn delete_finished(wanted: &Wanted) -> Result<Walked, Stop> {
    let table = records::open_to_write()?;
    let texts = Texts::of(wanted);
    let mut walked = Walked { deleted: 0, open: BTreeSet::new() };
    write::change(&table, |target| {
        // SAFETY: the target is the table's, and its slot outlives the walk.
        unsafe {
            let mut walk = Walk::through(&table, target.slot(&table));
            while let Some(slot) = walk.next() {
                check_for_interrupts!();
                if !texts.are_in_record(slot) || is_own(slot) {
                    continue;
                }
                if records::is_finished(slot) {
                    walked.deleted += usize::from(delete(&table, target, slot)?);
                } else {
                    note(&mut walked.open, records::identity(slot))?;
                }
            }
            walk.end();
        }
        Ok::<_, Stop>(())
    })?;
    table.close();
    Ok(walked)
}

/// Deletes a finished record; false where it is gone by now.
unsafe fn delete(
    table: &Table,
    target: &write::Target,
    slot: *mut pg_sys::TupleTableSlot,
) -> Result<bool, Stop> {
    // SAFETY: the slot has a record of the table.
    unsafe {
        let is_expired = records::expires_at(slot).is_some_and(|at| at <= clock::now());
        let key = is_expired.then(|| records::identity(slot));
        if let Some(key) = key.as_ref().filter(|key| !KeyLock::of(key).try_acquire()) {
            return Err(Stop::Busy(Busy::Key(key.clone())));
        }
        let locked = target.lock(slot, pg_sys::LockWaitPolicy::LockWaitSkip);
        if locked == Locked::Busy {
            return Err(Stop::Busy(Busy::Record(records::identity(slot))));
        }
        if locked == Locked::Yes {
            target.delete(table, slot)?;
        }
        if let Some(key) = key {
            KeyLock::of(&key).release();
        }
        Ok(locked == Locked::Yes)
    }
}

/// Deletes the record of a request whose key the transaction has locked; false where there is none.
///
/// # Errors
/// Where somebody else has it in hand; errors as for [`open_leases`].
pub fn delete_one(identity: &Identity) -> Result<bool, Stop> {
    match records::delete(identity, pg_sys::LockWaitPolicy::LockWaitSkip)? {
        Locked::Yes => Ok(true),
        Locked::Gone => Ok(false),
        Locked::Busy => Err(Stop::Busy(Busy::Record(identity.clone()))),
    }
}

/// Ends the leases whose record is gone, and empties their rows of all but token and deadline: a late
/// worker still learns that it lost its lease, until the rows are purged. `is_meant` tells more of
/// a lease whose record is gone.
///
/// # Errors
/// What somebody else has in hand; 55000 where a table is not as this library expects.
pub fn blank_leases(wanted: &Wanted, is_meant: impl Fn(&Identity) -> bool) -> Result<(), Stop> {
    let table = leases::open_to_write()?;
    let texts = Texts::of(wanted);
    write::change(&table, |target| {
        // SAFETY: the target is the table's, and its slot outlives the walk. A blank row that the
        // walk meets again is not wanted: no key is empty.
        unsafe {
            let mut walk = Walk::through(&table, target.slot(&table));
            while let Some(slot) = walk.next() {
                check_for_interrupts!();
                if texts.are_in_lease(slot) {
                    blank(&table, target, slot, &is_meant)?;
                }
            }
            walk.end();
        }
        Ok::<_, Stop>(())
    })?;
    table.close();
    Ok(())
}

unsafe fn blank(
    table: &Table,
    target: &write::Target,
    slot: *mut pg_sys::TupleTableSlot,
    is_meant: &impl Fn(&Identity) -> bool,
) -> Result<(), Stop> {
    // SAFETY: the slot has a row of the table.
    unsafe {
        let identity = leases::identity(slot);
        let token = leases::token(slot);
        let record = records::find(&identity)?;
        let goes = match record {
            Some(record) => leases::is_ended(slot) && record.uuid(records::Column::Token) != token,
            None => true,
        };
        if !goes || !is_meant(&identity) {
            return Ok(());
        }
        match target.lock(slot, pg_sys::LockWaitPolicy::LockWaitSkip) {
            Locked::Gone => {}
            Locked::Busy => {
                return Err(Stop::Busy(Busy::Lease(identity, token.unwrap_or_default())));
            }
            Locked::Yes => {
                let row = leases::blank(slot);
                target.delete(table, slot)?;
                target.insert(table, &row)?;
            }
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
