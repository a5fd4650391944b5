//! `on_lease_expiry = hold`, and the operator who settles what became of a request.

use pg_idempotency_tests::lease::{
    LONG, alone, changes, checkpoint, complete_by, everything, extend, lease, open_leases, resume,
    run_out, settle, start,
};
use pg_idempotency_tests::operation::{assert_says, configure};
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use uuid::Uuid;

const NAMED: &str = "key \"k\" of scope \"alice\" in key space \"POST /orders\".";

/// A lease that has run out at a checkpoint, of an operation that holds.
fn on_hold(db: &Database<'_>, isolation: Isolation) -> Uuid {
    configure(db, json!({ "on_lease_expiry": "hold" }));
    run_out_at_a_checkpoint(db, isolation)
}

fn run_out_at_a_checkpoint(db: &Database<'_>, isolation: Isolation) -> Uuid {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    alone(&mut worker, isolation, checkpoint(token, "charged", json!({ "charge": 7 })));
    run_out(db, token);
    token
}

fn operator(db: &Database<'_>) -> Session {
    db.session_as(Role::Superuser, "operator")
}

/// Nobody knows whether the charge was made, and only a human can find out.
fn a_request_on_hold_stays_blocked(db: &Database<'_>, isolation: Isolation) {
    on_hold(db, isolation);
    let before = everything(db);
    let mut other = db.session("other");
    other.begin(isolation);
    let own = Uuid::from_u128(7);
    for again in [claim("k"), lease("k"), lease("k").with("token", own), replay("k")] {
        let told = other.call(again).expect("in_progress");
        told.expect_problem(409);
        assert_eq!((told.retry_after, told.token), (Some(1), None));
    }
    other.call(claim("k").with("wait_ms", -1)).expect("in_progress");
    other.call(claim("k").with("fingerprint", [1; 32])).expect("mismatch");
    assert!(!other.has_transaction_id());
    other.run("COMMIT");
    assert_eq!((everything(db), db.keys_held()), (before, 0));
    assert_eq!(db.value::<i64>("SELECT count(*) FROM idempotency.abandoned"), 1);
}

/// Whose time is up has lost nothing: the worker itself may come back.
fn the_worker_of_a_request_on_hold_goes_on(db: &Database<'_>, isolation: Isolation) {
    let token = on_hold(db, isolation);
    let mut worker = db.session("worker");
    let again = lease("k").with("token", token);
    alone(&mut worker, isolation, again).expect("claimed");
    run_out(db, token);
    alone(&mut worker, isolation, extend(token, LONG)).expect("claimed");
    run_out(db, token);
    alone(&mut worker, isolation, complete_by(token, 201)).expect("completed");
    db.session("other").call(claim("k")).expect("replayed");
}

/// The setting is looked at when the next one comes, not when the lease began.
fn the_setting_may_change_meanwhile(db: &Database<'_>, isolation: Isolation) {
    on_hold(db, isolation);
    let mut other = db.session("other");
    alone(&mut other, isolation, claim("k")).expect("in_progress");
    configure(db, json!({ "on_lease_expiry": null }));
    let claimed = alone(&mut other, isolation, lease("k")).expect("claimed");
    assert_eq!((claimed.attempt, claimed.recovery_point.as_deref()), (Some(2), Some("charged")));
}

fn settled_with_a_status_it_is_recorded(db: &Database<'_>, isolation: Isolation) {
    let token = on_hold(db, isolation);
    let call = settle("k").with("status", 201).with("body", "settled");
    let call = call.with("content_type", "text/plain").with("headers", json!({ "X-By": "hand" }));
    let told = alone(&mut operator(db), isolation, call).expect("completed");
    let mut other = db.session("other");
    for again in [claim("k"), lease("k"), replay("k")] {
        let replayed = alone(&mut other, isolation, again).expect("replayed");
        assert_eq!((replayed.answer(), replayed.text()), (told.answer(), "settled"));
        assert_eq!(replayed.header("content-type"), Some(&json!("text/plain")));
        assert_eq!((replayed.header("x-by"), replayed.attempt), (Some(&json!("hand")), Some(1)));
    }
    assert_eq!((db.records(), open_leases(db), db.keys_held()), (1, 0, 0));
    assert_fenced(db, isolation, token, &["IK002", "IK005"]);
}

fn settled_without_a_status_it_is_free(db: &Database<'_>, isolation: Isolation) {
    let token = on_hold(db, isolation);
    let told = alone(&mut operator(db), isolation, settle("k")).expect("released");
    assert_eq!((told.status, &told.body, told.token), (None, &None, None));
    assert_eq!((db.records(), open_leases(db), db.keys_held()), (0, 0, 0));
    assert_fenced(db, isolation, token, &["IK005"]);
    let next = alone(&mut db.session("next"), isolation, lease("k")).expect("claimed");
    assert_eq!((next.attempt, &next.recovery_point), (Some(1), &None));
    assert_fenced(db, isolation, token, &["IK005"]);
}

/// The worker comes too late: nothing that it writes commits.
#[track_caller]
fn assert_fenced(db: &Database<'_>, isolation: Isolation, token: Uuid, codes: &[&str]) {
    let mut worker = db.session("worker");
    for (name, change) in changes(token) {
        worker.begin(isolation);
        worker.run("INSERT INTO orders (key) VALUES ('k')");
        let refusal = worker.refused(change);
        assert!(codes.contains(&refusal.code().unwrap_or("")), "{name}: {refusal:?}");
        worker.run("COMMIT");
    }
    assert_eq!(db.orders("k"), 0);
}

fn a_settlement_rolled_back_is_none(db: &Database<'_>, isolation: Isolation) {
    let token = on_hold(db, isolation);
    let before = everything(db);
    let mut operator = operator(db);
    for (call, outcome) in
        [(settle("k"), "released"), (settle("k").with("status", 201), "completed")]
    {
        operator.begin(isolation);
        operator.call(call).expect(outcome);
        operator.run("ROLLBACK");
        assert_eq!((everything(db), db.keys_held()), (before.clone(), 0));
    }
    alone(&mut db.session("worker"), isolation, resume(token)).expect("claimed");
}

/// With `retry` too: an operator may come before the next claim does.
fn what_is_not_on_hold_can_be_settled_too(db: &Database<'_>, isolation: Isolation) {
    run_out_at_a_checkpoint(db, isolation);
    alone(&mut operator(db), isolation, settle("k").with("status", 410)).expect("completed");
    assert_eq!(db.session("other").call(claim("k")).expect("replayed").status, Some(410));
}

/// An operator says what happened, for example in a table of the trade's own, before settling.
fn an_operator_may_write_first(db: &Database<'_>, isolation: Isolation) {
    on_hold(db, isolation);
    let mut operator = operator(db);
    operator.begin(isolation);
    operator.run("INSERT INTO orders (key) VALUES ('k')");
    operator.call(settle("k").with("status", 201)).expect("completed");
    operator.run("COMMIT");
    assert_eq!((db.orders("k"), open_leases(db)), (1, 0));
}

#[track_caller]
fn assert_nothing_to_settle(operator: &mut Session, isolation: Isolation, detail: &str) {
    for call in [settle("k"), settle("k").with("status", 201)] {
        operator.begin(isolation);
        let hint = "The view idempotency.abandoned lists the requests that wait for this.";
        assert_says(operator.refused(call), "55000", ["nothing to settle", detail, hint]);
        operator.run("ROLLBACK");
    }
}

fn only_a_lease_that_has_run_out_can_be_settled(db: &Database<'_>, isolation: Isolation) {
    let (mut operator, mut worker) = (operator(db), db.session("worker"));
    assert_nothing_to_settle(&mut operator, isolation, &format!("There is no record of {NAMED}"));
    let token = start(&mut worker, isolation, "k");
    let before = everything(db);
    assert_nothing_to_settle(
        &mut operator,
        isolation,
        &format!("There is a live lease on {NAMED}"),
    );
    assert_eq!((everything(db), db.keys_held()), (before, 0));
    alone(&mut worker, isolation, complete_by(token, 201).with("body", "the worker's"));
    let before = everything(db);
    let detail = format!("There is an answer already to {NAMED}");
    assert_nothing_to_settle(&mut operator, isolation, &detail);
    assert_eq!((everything(db), db.keys_held()), (before, 0));
}

/// Catches an operator who decides over the head of a worker that is just finishing.
fn a_settlement_waits_for_an_open_phase(db: &Database<'_>, isolation: Isolation) {
    let token = on_hold(db, isolation);
    let (mut worker, mut operator) = (db.session("worker"), operator(db));
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    operator.run("SET pg_idempotency.wait_ms = 0");
    assert_locked(operator.refused(settle("k")));
    // The operation's setting comes first.
    operator.run("SET pg_idempotency.wait_ms = -1; SET statement_timeout = '20 s'");
    configure(db, json!({ "wait_ms": 0 }));
    assert_locked(operator.refused(settle("k")));
    configure(db, json!({ "wait_ms": null }));
    operator.run("RESET statement_timeout");
    operator.begin(isolation);
    operator.start(settle("k").with("status", 410));
    db.wait_until_blocked(&operator, &worker);
    worker.call(complete_by(token, 201)).expect("completed");
    worker.run("COMMIT");
    let detail = "There is an answer already to";
    assert_says(operator.finish_refused(), "55000", ["nothing to settle", detail, "abandoned"]);
    assert_eq!(db.session("other").call(claim("k")).expect("replayed").status, Some(201));
}

#[track_caller]
fn assert_locked(refusal: Refusal) {
    let message = "could not obtain the lock of a key in time";
    let detail = format!("Another transaction holds {NAMED}");
    assert_says(refusal, "55P03", [message, &detail, "Try again later."]);
}

/// The next one waits for the operator, as for any transaction that has the key.
fn a_claim_waits_for_an_open_settlement(db: &Database<'_>, isolation: Isolation) {
    run_out_at_a_checkpoint(db, isolation);
    let (mut operator, mut other) = (operator(db), db.session("other"));
    operator.begin(isolation);
    operator.call(settle("k").with("status", 410)).expect("completed");
    other.begin(isolation);
    other.start(claim("k").with("wait_ms", -1));
    db.wait_until_blocked(&other, &operator);
    operator.run("COMMIT");
    assert_eq!(other.finish_call().expect("replayed").status, Some(410));
}

/// The arguments are those of complete, and so are their errors; a key that names nothing is one.
#[test]
fn wrong_arguments() {
    let db = Database::fresh();
    on_hold(&db, Isolation::ReadCommitted);
    let before = everything(&db);
    let mut operator = operator(&db);
    let both = settle("k").with("status", 200).with("body", "a").with("body_json", json!(1));
    for (call, code) in [
        (settle("k").with("status", 99), "22023"),
        (both, "22023"),
        (settle("k").with("status", 200).with("headers", json!("x")), "22023"),
        (
            Call::new("idempotency_settle")
                .with("scope", "alice")
                .with("operation", None::<&str>)
                .with("key", "k"),
            "22004",
        ),
        (
            Call::new("idempotency_settle")
                .with("scope", None::<&str>)
                .with("operation", "POST /orders")
                .with("key", "k"),
            "22023",
        ),
        (settle(""), "22023"),
    ] {
        operator.refused(call).expect(code);
    }
    assert_eq!((everything(&db), db.keys_held()), (before, 0));
}

at_every_isolation!(
    a_request_on_hold_stays_blocked,
    the_worker_of_a_request_on_hold_goes_on,
    the_setting_may_change_meanwhile,
    settled_with_a_status_it_is_recorded,
    settled_without_a_status_it_is_free,
    a_settlement_rolled_back_is_none,
    what_is_not_on_hold_can_be_settled_too,
    an_operator_may_write_first,
    only_a_lease_that_has_run_out_can_be_settled,
    a_settlement_waits_for_an_open_phase,
    a_claim_waits_for_an_open_settlement,
);
