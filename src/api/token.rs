//! New tokens.

use std::cell::RefCell;

use idempotency_core::{Micros, calendar};
use pgrx::pg_sys;
use uuid::{Builder, Uuid};

/// The random bits of a UUIDv7, in bytes.
const RANDOM: usize = 10;

/// How many random parts are drawn at once: each call of the strong source is dear.
const STOCK: usize = 100;

thread_local! {
    static RANDOM_PARTS: RefCell<Vec<[u8; RANDOM]>> = const { RefCell::new(Vec::new()) };
}

/// A UUIDv7 (RFC 9562 section 5.7) of the given instant. Its random part is not for guessing, so it
/// comes from the server's strong source.
pub fn new(now: Micros) -> Uuid {
    let random = RANDOM_PARTS.with_borrow_mut(Vec::pop).unwrap_or_else(draw);
    Builder::from_unix_timestamp_millis(calendar::to_unix_millis(now), &random).into_uuid()
}

/// Fills the stock, and takes one of it.
fn draw() -> [u8; RANDOM] {
    let mut parts = [[0u8; RANDOM]; STOCK];
    // SAFETY: fills the array.
    let filled = unsafe { pg_sys::pg_strong_random(parts.as_mut_ptr().cast(), RANDOM * STOCK) };
    assert!(filled, "could not generate random values");
    let [first, rest @ ..] = parts;
    RANDOM_PARTS.with_borrow_mut(|stock| stock.extend(rest));
    first
}
