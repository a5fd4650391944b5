//! New tokens.

use idempotency_core::Micros;
use pgrx::pg_sys;
use uuid::{Builder, Uuid};

use crate::clock;

/// A UUIDv7 (RFC 9562 section 5.7) of the given instant. Its random part is not for guessing, so it
/// comes from the server's strong source.
pub fn new(now: Micros) -> Uuid {
    let mut random = [0u8; 10];
    // SAFETY: fills the array.
    let filled = unsafe { pg_sys::pg_strong_random(random.as_mut_ptr().cast(), random.len()) };
    assert!(filled, "could not generate random values");
    Builder::from_unix_timestamp_millis(clock::to_unix_millis(now), &random).into_uuid()
}
