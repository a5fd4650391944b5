//! What tests of erasure share.

use crate::call::{Call, complete};
use crate::database::Database;
use crate::operation::{ORDERS, claim_by, execute};
use crate::session::{Role, Session};

/// An operation besides the usual one.
pub const OTHER: &str = "POST /rides";

/// Erases a scope.
pub fn forget(scope: &str) -> Call {
    Call::new("idempotency_forget").with("scope", scope)
}

/// Erases one key of alice's.
pub fn forget_key(key: &str) -> Call {
    forget("alice").with("operation", ORDERS).with("key", key)
}

/// The same, of live leases too.
pub fn forced(call: Call) -> Call {
    call.with("force", true)
}

/// Who may erase.
pub fn operator(db: &Database<'_>) -> Session {
    db.session_as(Role::Superuser, "operator")
}

/// Finished requests of two people to two operations.
pub fn fill(db: &Database<'_>) {
    let mut session = db.session("filler");
    for scope in ["alice", "bob"] {
        for operation in [ORDERS, OTHER] {
            for key in ["k1", "k2"] {
                execute(&mut session, claim_by(scope, operation, key), complete(204));
            }
        }
    }
}
