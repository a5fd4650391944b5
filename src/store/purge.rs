//! Deletes rows whose time is over: expired records, and leases that ended long ago.
//!
//! Nobody is waited for: a row that somebody else has locked is left to the next batch. Nobody is
//! kept waiting but who wants to put a new record in the place of an expired one of this batch, and
//! he waits in `write::delete` until the batch has committed, which holds no lock that he could
//! have been asked for. The locks of the keys are not taken: a batch of them would fill the lock
//! table, and a claim that does not wait would be told that its key is in progress. They are not
//! needed either: nobody else changes a finished record but by deleting it.

use idempotency_core::Micros;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::relation::Table;
use super::walk::Walk;
use super::write::{self, Locked, Target};
use super::{leases, records, settings, stretches};
use crate::clock;
use crate::error::Error;

/// How long the row of an ended lease is kept after its deadline, in microseconds: 30 days. A worker
/// that comes back within that time learns that it lost its lease, and not that nobody knows its
/// token.
const LATE_WORKERS: Micros = 30 * 24 * 60 * 60 * 1_000_000;

/// After so many stretches a batch that has deleted something ends, whatever it may yet delete, so
/// that its transaction stays short: half a gigabyte.
const STRETCHES: usize = 64;

/// Deletes up to so many rows; returns how many. 0 where nothing is left to be deleted, but for what
/// somebody else has locked.
///
/// # Errors
/// 55000 where a table is not as this library expects.
pub fn batch(max_rows: usize) -> Result<usize, Error> {
    let now = clock::now();
    // Where somebody is just changing settings, it is not certain which keys are too late.
    let records = if settings::hold_still()? { delete_records(now, max_rows)? } else { 0 };
    let leases = delete_leases(now.saturating_sub(LATE_WORKERS), max_rows - records)?;
    Ok(records + leases)
}

/// Records, the longest expired parts of the table first.
fn delete_records(now: Micros, max_rows: usize) -> Result<usize, Error> {
    let records = records::open_to_write()?;
    let map = stretches::open()?;
    let mut left = max_rows;
    write::change(&map, |on_map| {
        // SAFETY: each target is its table's, and the slot the map's.
        write::change(&records, |on_records| unsafe {
            let blocks = blocks(&records);
            let slot = on_map.slot(&map);
            let due = stretches::due(&map, blocks.div_ceil(stretches::BLOCKS), now, slot);
            for (looked_at, stretch) in due.iter().enumerate() {
                if left == 0 || (left < max_rows && looked_at >= STRETCHES) {
                    break;
                }
                if stretch.take(&map, on_map, slot) {
                    let again =
                        sweep(&records, on_records, stretch.number, blocks, now, &mut left)?;
                    stretch.note(again, &map, on_map, slot)?;
                }
            }
            Ok(())
        })
    })?;
    map.close();
    records.close();
    Ok(max_rows - left)
}

unsafe fn blocks(table: &Table) -> u32 {
    // SAFETY: the table is open.
    unsafe {
        let main = pg_sys::ForkNumber::MAIN_FORKNUM;
        pg_sys::RelationGetNumberOfBlocksInFork(table.relation(), main)
    }
}

/// Deletes what has expired in a stretch, up to `left` rows. Returns when the stretch is due again, which
/// is at once where rows were left; `None` where the table does not reach so far.
unsafe fn sweep(
    table: &Table,
    target: &Target,
    stretch: u32,
    blocks: u32,
    now: Micros,
    left: &mut usize,
) -> Result<Option<Micros>, Error> {
    let first = stretch.checked_mul(stretches::BLOCKS).filter(|first| *first < blocks);
    let Some(first) = first else { return Ok(None) };
    let length = stretches::BLOCKS.min(blocks - first);
    let mut again = now.saturating_add(stretches::LOOK_AGAIN);
    // SAFETY: the target is the table's, which reaches behind the stretch.
    unsafe {
        let mut walk = Walk::part(table, first, length, target.slot(table));
        while let Some(slot) = walk.next() {
            check_for_interrupts!();
            let Some(expires_at) = records::expires_at(slot) else { continue };
            let expires_at =
                if expires_at <= now { purged_from(slot, expires_at)? } else { expires_at };
            let is_over = expires_at <= now && records::is_finished(slot);
            let may_go = is_over && *left > 0;
            if may_go
                && target.lock(slot, pg_sys::LockWaitPolicy::LockWaitSkip) == Locked::Yes
                // A trigger may keep it.
                && target.delete(table, slot).is_ok()
            {
                *left -= 1;
            } else {
                again = again.min(expires_at);
            }
            if *left == 0 && again <= now {
                break;
            }
        }
        walk.end();
    }
    Ok(Some(again))
}

/// From when on an expired record may be purged: its key must be too late by its own time, as far as that
/// decides. An operation without a row refuses nothing.
unsafe fn purged_from(
    slot: *mut pg_sys::TupleTableSlot,
    expires_at: Micros,
) -> Result<Micros, Error> {
    // SAFETY: the slot has a record.
    let (operation, key, completed_at) = unsafe { records::completion(slot) };
    let policy = settings::listed(&operation)?;
    Ok(policy.map_or(expires_at, |policy| policy.purged_from(&key, completed_at, expires_at)))
}

/// Rows of leases that ended before `until`, the oldest first.
fn delete_leases(until: Micros, max_rows: usize) -> Result<usize, Error> {
    let table = leases::open_to_write()?;
    let mut deleted = 0;
    write::change(&table, |target| {
        // SAFETY: the target is the table's, and its slot outlives the walk.
        unsafe {
            let mut walk = Walk::until(&table, &leases::BY_DEADLINE, until, target.slot(&table));
            while deleted < max_rows
                && let Some(slot) = walk.next()
            {
                check_for_interrupts!();
                let is_over = leases::is_ended(slot) && leases::deadline(slot) <= until;
                if is_over
                    && target.lock(slot, pg_sys::LockWaitPolicy::LockWaitSkip) == Locked::Yes
                    && target.delete(&table, slot).is_ok()
                {
                    deleted += 1;
                }
            }
            walk.end();
        }
    });
    table.close();
    Ok(deleted)
}
