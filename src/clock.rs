//! The database's clock, and PostgreSQL's arithmetic of time.

use idempotency_core::Micros;
use idempotency_core::policy::Span;
use pgrx::fcinfo::direct_function_call_as_datum;
use pgrx::pg_sys;

use crate::unguarded;

/// Milliseconds from 1970 to 2000, PostgreSQL's epoch (timestamp.h).
const EPOCH_MILLIS: i64 = 946_684_800_000;

/// `clock_timestamp()`.
pub fn now() -> Micros {
    // SAFETY: reads the system's clock.
    unsafe { unguarded::GetCurrentTimestamp() }
}

/// From milliseconds since 1970.
pub fn from_unix_millis(millis: u64) -> Micros {
    (millis as i64).saturating_sub(EPOCH_MILLIS).saturating_mul(1000)
}

/// To milliseconds since 1970; 0 before.
pub fn to_unix_millis(instant: Micros) -> u64 {
    (instant.div_euclid(1000) + EPOCH_MILLIS).max(0) as u64
}

/// `instant + interval`, in the session's time zone where days or months are added.
pub fn plus(instant: Micros, span: Span) -> Micros {
    let mut interval = pg_sys::Interval { time: span.micros, day: span.days, month: span.months };
    let interval = pg_sys::Datum::from(&raw mut interval);
    // SAFETY: a timestamptz and an interval; it raises where the sum is out of range.
    let sum = unsafe {
        direct_function_call_as_datum(
            pg_sys::timestamptz_pl_interval,
            &[Some(instant.into()), Some(interval)],
        )
    };
    sum.map_or(instant, |sum| sum.value() as Micros)
}
