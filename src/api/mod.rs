//! The SQL functions, one file per verb: arguments to core types, ask the core, act, answer.

mod answer;
mod call;
mod claim;
mod claim_many;
mod complete;
mod release;
mod replay;
mod token;

use idempotency_core::Micros;
use pgrx::pg_sys;

/// The database's clock (`clock_timestamp()`).
fn now() -> Micros {
    // SAFETY: reads the system's clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}
