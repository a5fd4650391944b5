//! The life of a lease: claimed, worked on in phases, taken over when its time is up.

use pg_idempotency_tests::lease::{
    LONG, alone, changes, checkpoint, complete_by, deadline, everything, extend, lease,
    open_leases, release_by, resume, run_out, start, token_of,
};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{operation, shop};
use serde_json::{Value, json};
use uuid::Uuid;

/// A refusal for now: the answer is complete, and the token of whoever works is not given away.
#[track_caller]
fn assert_in_progress(outcome: Outcome) {
    let outcome = outcome.expect("in_progress");
    outcome.expect_problem(409);
    let seconds = outcome.retry_after.unwrap_or_default();
    assert!((1..=LONG / 1000).contains(&seconds), "the time left, in {outcome:?}");
    assert_eq!(outcome.header("retry-after"), Some(&Value::from(seconds.to_string())));
    assert_eq!((outcome.token, outcome.attempt, &outcome.recovery_data), (None, None, &None));
}

/// Catches a live lease that is taken for an orphan, and one that is waited for: nobody holds it.
fn a_live_lease_is_in_progress_at_once(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    start(&mut worker, isolation, "k");
    let before = everything(db);
    other.begin(isolation);
    for again in [claim("k"), claim("k").with("wait_ms", 0), claim("k").with("wait_ms", -1)] {
        assert_in_progress(other.call(again));
    }
    assert_in_progress(other.call(lease("k")));
    assert_in_progress(other.call(lease("k").with("token", Uuid::from_u128(7))));
    assert_in_progress(other.call(replay("k")));
    assert!(!other.has_transaction_id(), "a refusal writes nothing");
    assert_eq!(db.keys_held(), 0);
    other.run("INSERT INTO orders (key) VALUES ('unguarded'); COMMIT");
    assert_eq!((everything(db), db.orders("unguarded")), (before, 1));
}

/// Another request is told so before it is told to wait for this one.
fn a_mismatch_comes_before_in_progress(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let claimed = alone(&mut worker, isolation, lease("k").with("fingerprint", [1; 32]));
    let token = token_of(&claimed.expect("claimed"));
    for expired in [false, true] {
        if expired {
            run_out(db, token);
        }
        other.begin(isolation);
        let with_another = || lease("k").with("fingerprint", [2; 32]);
        other.call(with_another()).expect("mismatch").expect_problem(422);
        other.call(with_another().with("token", token)).expect("mismatch");
        other.call(claim("k")).expect("mismatch");
        other.call(replay("k").with("fingerprint", [2; 32])).expect("mismatch");
        other.run("COMMIT");
    }
    assert_eq!((db.keys_held(), open_leases(db)), (0, 1));
}

/// A worker that got as far as `shipped` and whose time is up.
fn abandoned_at_a_checkpoint(db: &Database<'_>, isolation: Isolation) -> Outcome {
    let mut worker = db.session("worker");
    let data = json!({ "item": "book" });
    let claimed =
        alone(&mut worker, isolation, lease("k").with("fingerprint", [1; 32]).with("data", data))
            .expect("claimed");
    let token = token_of(&claimed);
    let reached =
        alone(&mut worker, isolation, checkpoint(token, "shipped", json!({ "parcel": 7 })));
    assert_eq!((reached.outcome.as_str(), reached.token), ("claimed", Some(token)));
    assert_eq!(reached.recovery_point.as_deref(), Some("shipped"));
    run_out(db, token);
    claimed
}

#[track_caller]
fn assert_handed_over(claimed: &Outcome, first: &Outcome, attempt: i32) {
    assert_eq!((claimed.outcome.as_str(), claimed.attempt), ("claimed", Some(attempt)));
    assert!(claimed.token.is_some() && claimed.token != first.token, "a new token: {claimed:?}");
    assert_eq!(claimed.recovery_point.as_deref(), Some("shipped"));
    assert_eq!(claimed.recovery_data, Some(json!({ "parcel": 7 })));
    assert_eq!(claimed.created_at, first.created_at, "the request is as old as it is");
    assert_eq!(claimed.fingerprint.as_deref(), Some(&[1; 32][..]));
}

fn data_of(db: &Database<'_>, claimed: &Outcome) -> Value {
    let token = token_of(claimed);
    db.value(&format!("SELECT data FROM idempotency.leases WHERE token = '{token}'"))
}

/// A worker may be the third; what the second one reached is what the third one gets.
fn an_expired_lease_is_taken_over_with_all_it_had(db: &Database<'_>, isolation: Isolation) {
    let first = abandoned_at_a_checkpoint(db, isolation);
    assert_eq!((first.attempt, &first.recovery_point), (Some(1), &None));
    let mut other = db.session("other");
    let again = || lease("k").with("fingerprint", [1; 32]);
    let second = alone(&mut other, isolation, again());
    assert_handed_over(&second, &first, 2);
    assert_eq!(second.expires_at, Some(deadline(db, token_of(&second))));
    assert_eq!(data_of(db, &second), json!({ "item": "book" }));
    run_out(db, token_of(&second));
    let third = alone(&mut other, isolation, again().with("data", json!("other data")));
    assert_handed_over(&third, &first, 3);
    assert_ne!(third.token, second.token);
    assert_eq!(data_of(db, &third), json!("other data"));
    assert_eq!((db.records(), open_leases(db)), (1, 1));
}

/// The rest of the work may fit into one transaction.
fn a_transactional_claim_takes_over(db: &Database<'_>, isolation: Isolation) {
    let first = abandoned_at_a_checkpoint(db, isolation);
    let mut other = db.session("other");
    other.begin(isolation);
    let second = other.call(claim("k").with("fingerprint", [1; 32]));
    assert_handed_over(&second, &first, 2);
    assert_eq!(second.expires_at, None, "it has no deadline");
    assert!(!other.has_transaction_id(), "a transactional claim writes nothing");
    let sent = shop::work(&mut other, "k").expect("the work succeeds").expect("completed");
    other.run("COMMIT");
    let replayed = other.call(claim("k").with("fingerprint", [1; 32])).expect("replayed");
    assert_eq!((replayed.answer(), replayed.attempt), (sent.answer(), Some(2)));
    assert_eq!(replayed.created_at, first.created_at);
    assert_eq!((db.orders("k"), db.records(), open_leases(db)), (1, 1, 0));
}

/// Every way in which a transaction that has taken over can come to nothing.
const COME_TO_NOTHING: [fn(&Database<'_>, &mut Session); 4] = [
    |_, session| session.run("ROLLBACK"),
    |db, session| db.terminate(session),
    |_, session| {
        session.run("INSERT INTO orders (key) VALUES ('k')");
        session.run_refused("COMMIT").expect_ours("IK003").mentions("claimed and not completed");
    },
    |_, session| {
        session.rows(release());
        session.run("COMMIT");
    },
];

/// Catches a take-over that writes before it is over.
fn a_take_over_that_comes_to_nothing_leaves_the_lease(db: &Database<'_>, isolation: Isolation) {
    let first = abandoned_at_a_checkpoint(db, isolation);
    let before = everything(db);
    let again = || claim("k").with("fingerprint", [1; 32]);
    for come_to_nothing in COME_TO_NOTHING {
        let mut other = db.session("other");
        other.begin(isolation);
        assert_handed_over(&other.call(again()), &first, 2);
        come_to_nothing(db, &mut other);
        assert_eq!((everything(db), db.keys_held(), db.orders("k")), (before.clone(), 0, 0));
    }
    let mut other = db.session("other");
    other.begin(isolation);
    assert_handed_over(&other.call(again().with("lease_ms", LONG)), &first, 2);
    other.run("ROLLBACK");
    assert_eq!(everything(db), before);
    let resumed = alone(&mut other, isolation, resume(token_of(&first))).expect("claimed");
    assert_eq!((resumed.token, resumed.attempt), (first.token, Some(1)), "the worker goes on");
}

/// A phase commits what it wrote, completed or not; the answer comes with the last one.
fn phases_commit_their_writes_and_the_last_one_completes(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    worker.begin(isolation);
    let token = token_of(&worker.call(lease("k")).expect("claimed"));
    worker.run("INSERT INTO orders (key, note) VALUES ('k', 'first phase'); COMMIT");
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    worker.run("INSERT INTO orders (key, note) VALUES ('k', 'second phase')");
    worker.call(checkpoint(token, "second", json!(2)));
    worker.run("COMMIT");
    assert_eq!((db.orders("k"), db.records(), db.keys_held()), (2, 1, 0));
    worker.begin(isolation);
    let resumed = worker.call(resume(token)).expect("claimed");
    assert_eq!(resumed.recovery_point.as_deref(), Some("second"));
    // The transaction holds one claim: its token may be left out.
    let sent = worker.call(complete(201).with("body", "done")).expect("completed");
    worker.run("COMMIT");
    let replayed = db.session("other").call(claim("k")).expect("replayed");
    assert_eq!((replayed.answer(), replayed.text()), (sent.answer(), "done"));
    assert_eq!((db.records(), open_leases(db), db.keys_held()), (1, 0, 0));
}

/// Whoever did not resume, resumes by completing.
fn a_completion_by_token_needs_no_resume(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    run_out(db, token);
    let sent = alone(&mut worker, isolation, complete_by(token, 201).with("body", "done"));
    let sent = sent.expect("completed");
    let replayed = db.session("other").call(replay("k")).expect("replayed");
    assert_eq!((replayed.answer(), replayed.attempt), (sent.answer(), Some(1)));
    assert_eq!((db.records(), open_leases(db), db.keys_held()), (1, 0, 0));
}

/// A commit whose outcome the worker did not learn: the same token asks what came of it.
fn the_token_of_a_completed_lease_replays(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let sent = alone(&mut worker, isolation, complete_by(token, 201).with("body", "done"));
    let before = everything(db);
    worker.begin(isolation);
    let told = worker.call(resume(token)).expect("replayed");
    assert_eq!((told.answer(), told.token), (sent.answer(), Some(token)));
    assert_eq!(db.key_locks_of(&worker), 0, "there is nothing left to hold");
    assert_eq!(worker.call(lease("k").with("token", token)).expect("replayed").text(), "done");
    for (_, change) in changes(token) {
        worker.refused_inside_savepoint(change, "IK002").mentions("already completed");
    }
    worker.run("COMMIT");
    assert_eq!(everything(db), before);
}

/// A request given back counts as never begun.
fn a_release_by_token_frees(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    alone(&mut worker, isolation, checkpoint(token, "half", json!(1)));
    let before = everything(db);
    worker.begin(isolation);
    worker.rows(release_by(token));
    worker.refused_inside_savepoint(complete_by(token, 201), "IK002").mentions("released");
    worker.run("ROLLBACK");
    assert_eq!(everything(db), before, "a release rolled back is none");
    worker.begin(isolation);
    worker.rows(release_by(token));
    worker.run("COMMIT");
    assert_eq!((db.records(), open_leases(db), db.keys_held()), (0, 0, 0));
    db.session("reader").call(replay("k")).expect("unknown");
    let next = alone(&mut db.session("other"), isolation, lease("k")).expect("claimed");
    assert_eq!((next.attempt, &next.recovery_point, &next.recovery_data), (Some(1), &None, &None));
}

/// A status that is not kept ends nothing: the lease is as before, and whoever wrote rolls back.
fn a_status_that_is_not_kept_leaves_the_lease(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let before = everything(db);
    let sent = alone(&mut worker, isolation, complete_by(token, 503).with("body", "later"));
    assert_eq!((sent.outcome.as_str(), sent.status, sent.text()), ("released", Some(503), "later"));
    assert_eq!(everything(db), before);
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    worker.run("INSERT INTO orders (key) VALUES ('k')");
    worker.call(complete_by(token, 503)).expect("released");
    let refusal = worker.run_refused("COMMIT");
    operation::assert_says(
        refusal,
        "IK003",
        [
            "cannot commit with an unsettled claim",
            "was released, or completed with a status that is not kept",
            "Roll the transaction back",
        ],
    );
    assert_eq!((everything(db), db.orders("k"), db.keys_held()), (before, 0, 0));
    alone(&mut worker, isolation, complete_by(token, 201)).expect("completed");
}

/// Without BEGIN the claim commits by itself, and a resume guards nothing.
#[test]
fn a_lease_in_autocommit() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    let token = token_of(&worker.call(lease("k")).expect("claimed"));
    assert_eq!((db.records(), open_leases(&db), db.keys_held()), (1, 1, 0));
    worker.call(resume(token)).expect("claimed");
    assert_eq!(db.keys_held(), 0);
    worker.call(checkpoint(token, "half", Value::Null)).expect("claimed");
    worker.call(extend(token, LONG)).expect("claimed");
    worker.call(complete_by(token, 204)).expect("completed");
    db.session("other").call(claim("k")).expect("replayed");
}

at_every_isolation!(
    a_live_lease_is_in_progress_at_once,
    a_mismatch_comes_before_in_progress,
    an_expired_lease_is_taken_over_with_all_it_had,
    a_transactional_claim_takes_over,
    a_take_over_that_comes_to_nothing_leaves_the_lease,
    phases_commit_their_writes_and_the_last_one_completes,
    a_completion_by_token_needs_no_resume,
    the_token_of_a_completed_lease_replays,
    a_release_by_token_frees,
    a_status_that_is_not_kept_leaves_the_lease,
);

/// After the outside work is done, a change of settings must not refuse its answer. Catches a lease that is
/// completed by the operation's settings of now.
#[test]
fn a_lease_keeps_the_settings_that_decide_its_answer() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for (n, patch) in
        [r#"{"kept_statuses": "{[201,202)}"}"#, r#"{"form": "resource"}"#].iter().enumerate()
    {
        let key = format!("k{n}");
        let token =
            session.call(claim(key.as_str()).with("lease_ms", 60_000)).expect("claimed").token;
        db.run(&format!("SELECT idempotency_configure('POST /orders', '{patch}')"));
        let call = complete(200).with("body", "done").with("token", token);
        assert_eq!(session.call(call).expect("completed").text(), "done");
        assert_eq!(session.call(claim(key.as_str())).expect("replayed").text(), "done", "{patch}");
        db.run("DELETE FROM idempotency.operations");
    }
}

/// What becomes of a lease that runs out is the operation's, for incidents.
#[test]
fn on_lease_expiry_is_the_operations() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(claim("k").with("lease_ms", 1)).expect("claimed");
    db.run(r#"SELECT idempotency_configure('POST /orders', '{"on_lease_expiry": "hold"}')"#);
    db.run("UPDATE idempotency.leases SET deadline = now() - interval '1 hour'");
    session.call(claim("k").with("lease_ms", 60_000)).expect("in_progress");
}
