//! The settings of operations.

use std::rc::Rc;

use idempotency_core::policy::Policy;

thread_local! {
    static UNLISTED: Rc<Policy> = Rc::default();
}

/// The settings of an operation: as yet, every operation has the defaults.
pub fn policy(_operation: &str) -> Rc<Policy> {
    UNLISTED.with(Rc::clone)
}
