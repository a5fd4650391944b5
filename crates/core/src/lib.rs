//! What an idempotency key decides: pure rules over plain values.
//!
//! This crate knows no PostgreSQL, reads no clock, does no I/O and has no `unsafe`. The extension
//! turns a call into these values, asks, and acts on the answer.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod body;
pub mod calendar;
pub mod completion;
pub mod decide;
pub mod fingerprint;
pub mod headers;
pub mod held;
pub mod identity;
pub mod key;
pub mod late;
pub mod lease;
pub mod order;
pub mod policy;
pub mod problem;
pub mod record;
pub mod settings;

/// An instant of the database's clock: microseconds since 2000-01-01 00:00 UTC, as PostgreSQL's
/// `timestamptz` counts (timestamp.h).
pub type Micros = i64;
