//! Fencing: a worker that lost its lease commits nothing, neither its answer nor its other writes,
//! and it cannot lose the lease while a phase of its is open.

use pg_idempotency_tests::lease::{
    LONG, alone, changes, checkpoint, complete_by, everything, extend, lease, release_by, resume,
    run_out, start,
};
use pg_idempotency_tests::operation::assert_says;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use serde_json::json;
use uuid::Uuid;

const WRITE: &str = "INSERT INTO orders (key, note) VALUES ('k', 'stale')";

/// How a worker may have lost: what somebody else did, and what the worker is told.
type Loss = (fn(&Database<'_>, Isolation, Uuid), &'static str);

const LOSSES: [Loss; 4] = [
    (
        taken_over,
        "The lease of key \"k\" of scope \"alice\" in key space \"POST /orders\" was taken over.",
    ),
    (finished, "was taken over, and the request is finished."),
    (finished_at_once, "was taken over, and the request is finished."),
    (given_back, "was given back."),
];

/// Taken over by somebody whose own time is up too, which makes no difference.
fn taken_over(db: &Database<'_>, isolation: Isolation, token: Uuid) {
    run_out(db, token);
    let next = start(&mut db.session("next"), isolation, "k");
    run_out(db, next);
}

fn finished(db: &Database<'_>, isolation: Isolation, token: Uuid) {
    run_out(db, token);
    let mut next = db.session("next");
    let won = start(&mut next, isolation, "k");
    alone(&mut next, isolation, complete_by(won, 201)).expect("completed");
}

fn finished_at_once(db: &Database<'_>, isolation: Isolation, token: Uuid) {
    run_out(db, token);
    let mut next = db.session("next");
    next.begin(isolation);
    next.call(claim("k")).expect("claimed");
    next.call(complete(201)).expect("completed");
    next.run("COMMIT");
}

fn given_back(db: &Database<'_>, isolation: Isolation, token: Uuid) {
    alone_release(&mut db.session("elsewhere"), isolation, token);
}

fn alone_release(session: &mut Session, isolation: Isolation, token: Uuid) {
    session.begin(isolation);
    session.rows(release_by(token));
    session.run("COMMIT");
}

#[track_caller]
fn assert_lost(refusal: Refusal, detail: &str) {
    let hint = "Stop working on this request and roll back; send the answer that idempotency_replay \
                returns, if any.";
    assert_says(refusal, "IK005", ["lease lost", detail, hint]);
}

/// The whole phase sent at once, the way a worker does that looks at no answer in between.
fn a_stale_workers_phase_commits_nothing(db: &Database<'_>, isolation: Isolation) {
    for (lose, detail) in LOSSES {
        let mut worker = db.session("worker");
        let token = start(&mut worker, isolation, "k");
        lose(db, isolation, token);
        let before = everything(db);
        let phase = format!(
            "BEGIN ISOLATION LEVEL {}; SELECT * FROM idempotency_resume('{token}'); {WRITE}; COMMIT",
            isolation.sql()
        );
        assert_lost(worker.run_refused(&phase), detail);
        worker.run("ROLLBACK");
        assert_eq!((db.orders("k"), db.keys_held(), everything(db)), (0, 0, before));
        db.run("TRUNCATE idempotency.records, idempotency.leases");
    }
}

/// Who writes first and never resumes is fenced by whatever it calls by its token then.
fn a_stale_worker_that_did_not_resume_commits_nothing(db: &Database<'_>, isolation: Isolation) {
    for (lose, detail) in LOSSES {
        let mut worker = db.session("worker");
        let token = start(&mut worker, isolation, "k");
        lose(db, isolation, token);
        let before = everything(db);
        for (name, change) in changes(token) {
            worker.begin(isolation);
            worker.run(WRITE);
            assert_lost(worker.refused(change), detail);
            // A COMMIT of what has failed is a rollback.
            worker.run("COMMIT");
            assert_eq!((db.orders("k"), db.keys_held()), (0, 0), "{name}");
        }
        assert_eq!(everything(db), before);
        db.run("TRUNCATE idempotency.records, idempotency.leases");
    }
}

/// A worker with an old snapshot, of before it lost, sees what is true now.
fn an_old_snapshot_does_not_get_past_the_fence(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    worker.begin(isolation);
    assert_eq!(worker.value::<i64>("SELECT count(*) FROM orders"), 0);
    taken_over(db, isolation, token);
    assert_lost(worker.refused(resume(token)), "was taken over.");
    worker.run("ROLLBACK");
}

/// The other way round: what a worker with an old snapshot is handed is the latest.
fn an_old_snapshot_takes_over_the_latest_checkpoint(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    other.begin(isolation);
    assert_eq!(other.value::<i64>("SELECT count(*) FROM orders"), 0);
    let token = start(&mut worker, isolation, "k");
    other.call(claim("k")).expect("in_progress");
    alone(&mut worker, isolation, checkpoint(token, "half", json!(1)));
    run_out(db, token);
    let claimed = other.call(lease("k")).expect("claimed");
    assert_eq!((claimed.attempt, claimed.recovery_point.as_deref()), (Some(2), Some("half")));
    let won = claimed.token.expect("a token");
    other.call(checkpoint(won, "further", json!(2)));
    other.call(extend(won, LONG + 1));
    other.call(complete_by(won, 201)).expect("completed");
    other.run("COMMIT");
    db.session("reader").call(claim("k")).expect("replayed");
}

// ---- an open phase ---------------------------------------------------------------------------

/// What a worker does in its open phase and how it ends that; what the claimer that waits is
/// answered then, its attempt, and its recovery point.
type Phase =
    (fn(&Database<'_>, &mut Session, Uuid), &'static str, Option<i32>, Option<&'static str>);

const PHASES: [Phase; 7] = [
    (
        |_, worker, token| go_on(worker, checkpoint(token, "further", json!(2)), "COMMIT"),
        "claimed",
        Some(2),
        Some("further"),
    ),
    (
        |_, worker, token| go_on(worker, checkpoint(token, "further", json!(2)), "ROLLBACK"),
        "claimed",
        Some(2),
        Some("half"),
    ),
    (|_, worker, token| go_on(worker, extend(token, LONG), "COMMIT"), "in_progress", None, None),
    (
        |_, worker, token| go_on(worker, extend(token, LONG), "ROLLBACK"),
        "claimed",
        Some(2),
        Some("half"),
    ),
    (
        |_, worker, token| go_on(worker, complete_by(token, 201), "COMMIT"),
        "replayed",
        Some(1),
        None,
    ),
    (|db, worker, _| db.terminate(worker), "claimed", Some(2), Some("half")),
    (
        |_, worker, token| {
            worker.rows(release_by(token));
            worker.run("COMMIT")
        },
        "claimed",
        Some(1),
        None,
    ),
];

fn go_on(worker: &mut Session, change: Call, end: &str) {
    worker.run(WRITE);
    worker.call(change);
    worker.run(end);
}

/// A worker in a phase, after whose beginning its time has run out.
fn open_phase(db: &Database<'_>, isolation: Isolation) -> (Session, Uuid) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    alone(&mut worker, isolation, checkpoint(token, "half", json!(1)));
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    run_out(db, token);
    (worker, token)
}

/// Catches a take-over by the clock alone: the lease has run out, and yet nobody takes it while the
/// phase is open. Claimers wait for the phase, as they do for any transaction that has the key.
fn a_take_over_waits_for_an_open_phase(
    db: &Database<'_>,
    isolation: Isolation,
    again: fn() -> Call,
) {
    for (go_on, outcome, attempt, recovery_point) in PHASES {
        let (mut worker, token) = open_phase(db, isolation);
        let (mut impatient, mut claimer) = (db.session("impatient"), db.session("claimer"));
        let refused = impatient.call(again().with("wait_ms", 0)).expect("in_progress");
        assert_eq!(refused.retry_after, Some(1), "nobody knows how long the phase takes");
        impatient.call(again().with("wait_ms", 20)).expect("in_progress");
        claimer.begin(isolation);
        claimer.start(again().with("wait_ms", -1));
        db.wait_until_blocked(&claimer, &worker);
        go_on(db, &mut worker, token);
        let answered = claimer.finish_call().expect(outcome);
        assert_eq!(
            (answered.attempt, answered.recovery_point.as_deref()),
            (attempt, recovery_point)
        );
        claimer.run("ROLLBACK");
        db.run("TRUNCATE idempotency.records, idempotency.leases, orders");
    }
}

fn a_take_over_on_lease_waits_for_an_open_phase(db: &Database<'_>, isolation: Isolation) {
    a_take_over_waits_for_an_open_phase(db, isolation, || lease("k"));
}

fn a_transactional_take_over_waits_for_an_open_phase(db: &Database<'_>, isolation: Isolation) {
    a_take_over_waits_for_an_open_phase(db, isolation, || claim("k"));
}

/// The first phase is the claim's own transaction: there is no record yet to be seen.
fn a_claim_waits_for_the_first_phase(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut claimer) = (db.session("worker"), db.session("claimer"));
    worker.begin(isolation);
    worker.call(lease("k")).expect("claimed");
    claimer.begin(isolation);
    claimer.call(replay("k")).expect("unknown");
    claimer.start(lease("k").with("wait_ms", -1));
    db.wait_until_blocked(&claimer, &worker);
    worker.run("INSERT INTO orders (key) VALUES ('k'); COMMIT");
    claimer.finish_call().expect("in_progress");
    assert_eq!(db.keys_held(), 0);
    assert!(!claimer.has_transaction_id());
}

/// A stale worker that comes while its request is being taken over waits for the end of that.
fn a_resume_waits_for_an_open_take_over(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut next) = (db.session("worker"), db.session("next"));
    let token = start(&mut worker, isolation, "k");
    run_out(db, token);
    for end in ["ROLLBACK", "COMMIT"] {
        next.begin(isolation);
        next.call(claim("k")).expect("claimed");
        worker.begin(isolation);
        worker.start(resume(token));
        db.wait_until_blocked(&worker, &next);
        shop::work(&mut next, "k").expect("the work succeeds");
        next.run(end);
        if end == "ROLLBACK" {
            worker.finish_call().expect("claimed");
        } else {
            assert_lost(worker.finish_refused(), "was taken over, and the request is finished.");
        }
        worker.run("ROLLBACK");
    }
    assert_eq!(db.orders("k"), 1);
}

/// Drivers that set a savepoint for each statement catch the error by themselves. What was written
/// before it must not commit all the same.
fn a_stale_worker_that_catches_the_error_commits_nothing(db: &Database<'_>, isolation: Isolation) {
    for (lose, _) in LOSSES {
        let mut worker = db.session("worker");
        let token = start(&mut worker, isolation, "k");
        lose(db, isolation, token);
        let orders = db.orders("k");
        worker.begin(isolation);
        worker.run(WRITE);
        worker.run("SAVEPOINT s");
        worker.refused(complete_by(token, 201)).expect_ours("IK005");
        worker.run("ROLLBACK TO s");
        let refusal = worker.run_refused("COMMIT").expect_ours("IK003");
        refusal.mentions("was acted for on a lease that is lost");
        assert_eq!(db.orders("k"), orders);
        db.run("TRUNCATE idempotency.records, idempotency.leases");
    }
}

/// Whoever has taken over is not the one who lost as well.
fn a_taker_over_cannot_resume_by_the_old_token(db: &Database<'_>, isolation: Isolation) {
    for again in [claim("k"), lease("k")] {
        let mut worker = db.session("worker");
        let token = start(&mut worker, isolation, "k");
        run_out(db, token);
        let before = everything(db);
        worker.begin(isolation);
        worker.call(again).expect("claimed");
        let refusal = worker.refused(resume(token));
        assert!(matches!(refusal.code(), Some("IK004" | "IK005")), "{refusal:?}");
        worker.run("ROLLBACK");
        assert_eq!(everything(db), before);
        db.run("TRUNCATE idempotency.records, idempotency.leases");
    }
}

at_every_isolation!(
    a_stale_workers_phase_commits_nothing,
    a_stale_worker_that_did_not_resume_commits_nothing,
    a_stale_worker_that_catches_the_error_commits_nothing,
    an_old_snapshot_does_not_get_past_the_fence,
    an_old_snapshot_takes_over_the_latest_checkpoint,
    a_take_over_on_lease_waits_for_an_open_phase,
    a_transactional_take_over_waits_for_an_open_phase,
    a_claim_waits_for_the_first_phase,
    a_resume_waits_for_an_open_take_over,
    a_taker_over_cannot_resume_by_the_old_token,
);
