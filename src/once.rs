//! Registrations with PostgreSQL, each made once in the life of a process.
//!
//! A registration allocates, so it can fail. It counts once it has succeeded: what raises is tried
//! again by the next call, which then raises too or has it.

use std::cell::Cell;

/// Whether a registration is made.
pub struct Once(Cell<bool>);

impl Once {
    /// Not made yet.
    pub const fn new() -> Self {
        Self(Cell::new(false))
    }

    /// Makes the registration, unless it is made. What `register` raises is passed on.
    pub fn ensure(&self, register: impl FnOnce()) {
        if !self.0.get() {
            register();
            self.0.set(true);
        }
    }
}
