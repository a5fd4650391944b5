//! Operations with settings of their own, and whole requests to them.

use crate::call::{Argument, Call};
use crate::database::Database;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::session::{Role, Session};
use crate::{paths, process};
use serde_json::Value;
use std::process::{Command, Stdio};
use uuid::Uuid;

/// The operation of [`crate::call::claim`] and [`crate::call::replay`].
pub const ORDERS: &str = "POST /orders";

/// The call that changes settings.
pub fn configuring(operation: &str, settings: Value) -> Call {
    Call::new("idempotency_configure").with("operation", operation).with("settings", settings)
}

/// Has the superuser change settings of [`ORDERS`]; returns all that are set.
#[track_caller]
pub fn configure(db: &Database<'_>, settings: Value) -> Value {
    configure_operation(db, ORDERS, settings)
}

/// Has the superuser change settings; returns all that are set.
#[track_caller]
pub fn configure_operation(db: &Database<'_>, operation: &str, settings: Value) -> Value {
    let [operation, settings] =
        [operation, &settings.to_string()].map(|text| text.replace('\'', "''"));
    db.value(&format!("SELECT idempotency_configure('{operation}', '{settings}')"))
}

/// A claim in a scope and for an operation of the test's own.
pub fn claim_by(scope: impl Argument, operation: &str, key: impl Argument) -> Call {
    addressed("idempotency_claim", scope, operation, key)
}

/// A replay in a scope and for an operation of the test's own.
pub fn replay_by(scope: impl Argument, operation: &str, key: impl Argument) -> Call {
    addressed("idempotency_replay", scope, operation, key)
}

fn addressed(
    function: &'static str,
    scope: impl Argument,
    operation: &str,
    key: impl Argument,
) -> Call {
    Call::new(function).with("scope", scope).with("operation", operation).with("key", key)
}

/// A whole request without work, in one transaction: the claim must be won.
#[track_caller]
pub fn execute(session: &mut Session, claim: Call, completion: Call) -> Outcome {
    session.run("BEGIN");
    session.call(claim).expect("claimed");
    let sent = session.call(completion);
    session.run("COMMIT");
    sent
}

/// The error of a completion that must fail, for a request that has written an order. Nothing of it
/// is left.
#[track_caller]
pub fn execute_refused(
    db: &Database<'_>,
    session: &mut Session,
    claim: Call,
    completion: Call,
) -> Refusal {
    session.run("BEGIN");
    session.call(claim).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('refused')");
    let refusal = session.refused(completion);
    session.run("ROLLBACK");
    assert_eq!((db.orders("refused"), db.records(), db.keys_held()), (0, 0, 0));
    refusal
}

/// Ends the time of all records, whatever it was: nobody has to wait for it.
#[track_caller]
pub fn expire_all(db: &Database<'_>) {
    db.run("UPDATE idempotency.records SET expires_at = clock_timestamp()");
}

/// A UUIDv7 whose own time is the database's clock plus `interval`.
#[track_caller]
pub fn uuid_v7(db: &Database<'_>, interval: &str) -> String {
    let millis: i64 = db.value(&format!(
        "SELECT floor(extract(epoch FROM clock_timestamp() + interval '{interval}') * 1000)::bigint"
    ));
    let random: [u8; 16] = db.value::<Uuid>("SELECT gen_random_uuid()").into_bytes();
    let random = std::array::from_fn(|i| random[i + 6]);
    let millis = u64::try_from(millis).expect("a time after 1970");
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().to_string()
}

/// Asserts an error of the extension's word for word, but for DETAIL and HINT, of which the given
/// parts must be there.
#[track_caller]
pub fn assert_says(refusal: Refusal, code: &str, [message, detail, hint]: [&str; 3]) {
    let refusal = refusal.expect_ours(code);
    let error = refusal.db();
    assert_eq!(error.message(), message, "message of {refusal:?}");
    assert!(error.detail().is_some_and(|text| text.contains(detail)), "{detail:?} in {refusal:?}");
    assert!(error.hint().is_some_and(|text| text.contains(hint)), "{hint:?} in {refusal:?}");
}

/// A whole answer that points at the header and says what is wrong by a code.
#[track_caller]
pub fn assert_invalid(outcome: &Outcome, status: i32, code: &str) {
    assert_eq!(outcome.outcome, "invalid", "{outcome:?}");
    let problem = outcome.expect_problem(status);
    let error = &problem["errors"][0];
    assert_eq!(
        (&error["pointer"], &error["code"]),
        (&Value::from("#header/Idempotency-Key"), &Value::from(code))
    );
    assert_eq!(problem["detail"], error["detail"], "{problem}");
    assert_eq!((outcome.token, outcome.attempt, &outcome.fingerprint), (None, None, &None));
}

/// Dumps a database with pg_dump and restores it with psql into an empty one.
pub fn copy_by_dump(from: &Database<'_>, into: &Database<'_>) {
    let at = |program: &str, database: &Database<'_>| {
        let mut command = Command::new(paths::pg_bin().join(program));
        command.args(["-U", Role::Superuser.name(), "-d", database.name()]);
        command.arg("-h").arg(database.server().sockets());
        command
    };
    let mut dump = at("pg_dump", from).stdout(Stdio::piped()).spawn().expect("pg_dump starts");
    let script = dump.stdout.take().expect("it is piped");
    process::output_of(at("psql", into).args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]).stdin(script));
    assert!(dump.wait().expect("the child is ours").success(), "pg_dump failed");
}
