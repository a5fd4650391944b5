//! The database's clock. What is added to its times the core adds, in UTC.

use idempotency_core::Micros;

use crate::unguarded;

/// `clock_timestamp()`.
pub fn now() -> Micros {
    // SAFETY: reads the system's clock.
    unsafe { unguarded::GetCurrentTimestamp() }
}
