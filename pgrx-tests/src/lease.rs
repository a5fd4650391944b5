//! Leased claims: the calls, and a superuser's hand on their deadlines.

use crate::call::{Call, claim, complete, release};
use crate::database::Database;
use crate::isolation::Isolation;
use crate::outcome::Outcome;
use crate::session::Session;
use serde_json::Value;
use std::time::SystemTime;
use uuid::Uuid;

/// A lease that no test outlives, in milliseconds.
pub const LONG: i32 = 600_000;

/// A claim on lease.
pub fn lease(key: &str) -> Call {
    claim(key).with("lease_ms", LONG)
}

pub fn resume(token: Uuid) -> Call {
    Call::new("idempotency_resume").with("token", token)
}

pub fn checkpoint(token: Uuid, recovery_point: &str, data: Value) -> Call {
    let call = Call::new("idempotency_checkpoint").with("token", token);
    call.with("recovery_point", recovery_point).with("data", data)
}

pub fn extend(token: Uuid, lease_ms: i32) -> Call {
    Call::new("idempotency_extend").with("token", token).with("lease_ms", lease_ms)
}

pub fn complete_by(token: Uuid, status: i32) -> Call {
    complete(status).with("token", token)
}

pub fn release_by(token: Uuid) -> Call {
    release().with("token", token)
}

/// An operator's decision about alice's `POST /orders` under `key`.
pub fn settle(key: &str) -> Call {
    let call = Call::new("idempotency_settle").with("scope", "alice");
    call.with("operation", "POST /orders").with("key", key)
}

/// Every call by a token that changes something, by name.
pub fn changes(token: Uuid) -> [(&'static str, Call); 4] {
    [
        ("checkpoint", checkpoint(token, "late", Value::Null)),
        ("extend", extend(token, LONG)),
        ("complete", complete_by(token, 201)),
        ("release", release_by(token)),
    ]
}

/// One call in a transaction of its own.
#[track_caller]
pub fn alone(session: &mut Session, isolation: Isolation, call: Call) -> Outcome {
    session.begin(isolation);
    let outcome = session.call(call);
    session.run("COMMIT");
    outcome
}

/// Claims `key` on lease in a transaction of its own; returns the token.
#[track_caller]
pub fn start(session: &mut Session, isolation: Isolation, key: &str) -> Uuid {
    token_of(&alone(session, isolation, lease(key)).expect("claimed"))
}

#[track_caller]
pub fn token_of(outcome: &Outcome) -> Uuid {
    outcome.token.unwrap_or_else(|| panic!("a token is expected in {outcome:?}"))
}

/// Has the time of a lease run out, at this instant of the database's clock.
#[track_caller]
pub fn run_out(db: &Database<'_>, token: Uuid) {
    set_deadline(db, token, "clock_timestamp()");
}

/// Sets the deadline of a lease to an SQL expression and returns it.
#[track_caller]
pub fn set_deadline(db: &Database<'_>, token: Uuid, expression: &str) -> SystemTime {
    db.value(&format!(
        "UPDATE idempotency.leases SET deadline = {expression} WHERE token = '{token}' RETURNING deadline"
    ))
}

#[track_caller]
pub fn deadline(db: &Database<'_>, token: Uuid) -> SystemTime {
    db.value(&format!("SELECT deadline FROM idempotency.leases WHERE token = '{token}'"))
}

/// The clock that decides.
#[track_caller]
pub fn now(db: &Database<'_>) -> SystemTime {
    db.value("SELECT clock_timestamp()")
}

/// All records and leases that are there, as text: to see that nothing has changed.
#[track_caller]
pub fn everything(db: &Database<'_>) -> String {
    db.value(
        "SELECT concat((SELECT string_agg(r::text, E'\\n' ORDER BY r) FROM idempotency.records AS r), E'\\n\\n',
                       (SELECT string_agg(l::text, E'\\n' ORDER BY l) FROM idempotency.leases AS l))",
    )
}

/// How many leases are open: live ones and those that have run out.
#[track_caller]
pub fn open_leases(db: &Database<'_>) -> i64 {
    db.value("SELECT count(*) FROM idempotency.leases WHERE NOT ended")
}
