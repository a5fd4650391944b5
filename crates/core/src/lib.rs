//! What an idempotency key decides.
#![forbid(unsafe_code)]
