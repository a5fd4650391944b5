//! Whether what was read is what was committed at one moment.
//!
//! A look-up under SnapshotSelf asks for each row version by itself whether its transaction has
//! ended. A row that is replaced while the look-up is under way can so be missed: its new version is
//! looked at before, its old one after the commit. Where no transaction ended meanwhile, nothing was
//! missed.

use pgrx::prelude::*;

use crate::majors;

/// How many transactions that had a transaction id have ended since the server started.
///
/// PostgreSQL counts one before it lets go of the transaction's locks, on a standby too
/// (procarray.c), and tells by this count whether a snapshot can be used again
/// (GetSnapshotDataReuse). So where it has not moved, nothing new is committed.
pub fn completions() -> u64 {
    // SAFETY: we run in a backend. Who has just taken a lock reads no older value than its last
    // holder left.
    unsafe { majors::xact_completion_count() }
}

/// Reads until the result is certain by itself, or no transaction has ended while it was read. A
/// read takes microseconds, so this takes few rounds on the busiest server.
pub fn at_one_moment<R>(mut read: impl FnMut() -> R, is_certain: impl Fn(&R) -> bool) -> R {
    loop {
        let before = completions();
        let result = read();
        if is_certain(&result) || completions() == before {
            return result;
        }
        check_for_interrupts!();
    }
}
