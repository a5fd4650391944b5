//! The table `idempotency.stretches`: when a purge has to look at which part of the records' table
//! again. Only purges write it.
//!
//! It is a hint, and only asked in large tables. A record that is written into a part after the look
//! at it is met a day later at the latest, and so is everything where the hint is wrong: after VACUUM
//! FULL, for example. The table is UNLOGGED: after a crash it is empty, and everything is looked at.

use idempotency_core::Micros;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::relation::{Layout, Table};
use super::walk::{self, Walk};
use super::write::{Locked, Target};
use crate::error::Error;

/// How many blocks are one stretch: 8 MiB.
pub const BLOCKS: u32 = 1024;

/// As many stretches are always due: a table of 64 MiB is read in a moment.
const FEW: u32 = 8;

/// After which time a stretch is looked at again, whatever is in it: a day, in microseconds.
pub const LOOK_AGAIN: Micros = 24 * 60 * 60 * 1_000_000;

static LAYOUT: Layout = Layout {
    name: c"stretches",
    columns: &[pg_sys::INT4OID, pg_sys::TIMESTAMPTZOID],
    survives: false,
};

const STRETCH: i16 = 1;
const DUE: i16 = 2;

/// A part of the records' table.
pub struct Stretch {
    /// Which, counted from 0.
    pub number: u32,
    /// When it is due.
    pub due: Micros,
    /// Its row; `None` where it has none yet.
    row: Option<pg_sys::ItemPointerData>,
}

/// The table, open to be written.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn open() -> Result<Table, Error> {
    Table::open(&LAYOUT, pg_sys::RowExclusiveLock)
}

/// The stretches that are due, of so many that there are, the oldest first: all of them where they are
/// few. Those that have no row yet are due, unless another purge is just adding rows.
///
/// # Safety
/// The slot is one of the table's.
pub unsafe fn due(
    table: &Table,
    count: u32,
    now: Micros,
    slot: *mut pg_sys::TupleTableSlot,
) -> Vec<Stretch> {
    let mut is_known = vec![false; count as usize];
    let mut due = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        // Before anything is read: what a purge has added that had the lock is there by now.
        let may_add = may_add(table);
        let mut walk = Walk::through(table, slot);
        while let Some(slot) = walk.next() {
            check_for_interrupts!();
            let stretch = read(slot);
            if let Some(known) = is_known.get_mut(stretch.number as usize) {
                *known = true;
            }
            if stretch.due <= now || count <= FEW {
                due.push(stretch);
            }
        }
        walk.end();
        if may_add {
            let new = (0..count).zip(is_known).filter(|(_, known)| !known);
            due.extend(new.map(|(number, _)| Stretch { number, due: Micros::MIN, row: None }));
        }
    }
    due.sort_by_key(|stretch| (stretch.due, stretch.number));
    due
}

unsafe fn read(slot: *mut pg_sys::TupleTableSlot) -> Stretch {
    // SAFETY: the slot has a row of the table, whose columns' types were checked when it was opened.
    unsafe {
        let number = walk::column(slot, STRETCH).map_or(0, |number| number.value() as u32);
        let due = walk::column(slot, DUE).map_or(Micros::MIN, |due| due.value() as Micros);
        Stretch { number, due, row: Some((*slot).tts_tid) }
    }
}

/// One purge at a time adds rows, so that two never add the same; the lock goes with the transaction.
unsafe fn may_add(table: &Table) -> bool {
    // SAFETY: the table is open.
    unsafe {
        let lock = pg_sys::ShareUpdateExclusiveLock as i32;
        pg_sys::ConditionalLockRelation(table.relation(), lock)
    }
}

impl Stretch {
    /// Takes the stretch for this purge; false where another has it. One without a row is looked for once
    /// more: the walk has missed its row where another purge replaced that meanwhile.
    ///
    /// # Safety
    /// The target is the table's, and the slot too.
    pub unsafe fn take(
        &self,
        table: &Table,
        target: &Target,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> bool {
        let Some(row) = self.row else {
            return table.find::<2>((self.number as i32).into()).is_none();
        };
        // SAFETY: the caller's promise; the row was found by its place.
        unsafe {
            (*slot).tts_tid = row;
            target.lock(slot, pg_sys::LockWaitPolicy::LockWaitSkip) == Locked::Yes
        }
    }

    /// Notes when it is due; where it is not there any more, deletes its row.
    ///
    /// # Errors
    /// 55000 where a trigger skips it.
    ///
    /// # Safety
    /// The stretch was taken with this target, table and slot.
    pub unsafe fn note(
        &self,
        due: Option<Micros>,
        table: &Table,
        target: &Target,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> Result<(), Error> {
        let row = due.map(|due| [Some((self.number as i32).into()), Some(due.into())]);
        // SAFETY: the caller's promise.
        unsafe {
            match (self.row, row) {
                (Some(_), Some(row)) => target.update(table, slot, &row),
                (Some(_), None) => target.delete(table, slot),
                (None, Some(row)) => target.insert(table, &row),
                (None, None) => Ok(()),
            }
        }
    }
}
