//! Waiting inside calls on leases, and what a transaction sees of the lease that it holds itself.

use pg_idempotency_tests::lease::{
    LONG, checkpoint, complete_by, extend, lease, open_leases, release_by, resume, run_out, start,
    token_of,
};
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use uuid::Uuid;

/// Two workers by one token, say a worker and its restart: one phase after the other.
fn phases_by_one_token_come_one_after_the_other(db: &Database<'_>, isolation: Isolation) {
    let (mut one, mut two) = (db.session("one"), db.session("two"));
    let token = start(&mut one, isolation, "k");
    for (change, seen) in
        [(resume as fn(Uuid) -> Call, "claimed"), (|t| extend(t, LONG), "claimed")]
    {
        one.begin(isolation);
        one.call(resume(token)).expect("claimed");
        two.begin(isolation);
        two.start(change(token));
        db.wait_until_blocked(&two, &one);
        one.call(checkpoint(token, "by the first", json!(1)));
        one.run("COMMIT");
        let told = two.finish_call().expect(seen);
        assert_eq!(told.recovery_point.as_deref(), Some("by the first"));
        two.run("ROLLBACK");
    }
    assert_eq!(db.keys_held(), 0);
}

/// One of the two completes while the other waits: it is told the answer.
fn a_resume_that_waited_may_find_it_finished(db: &Database<'_>, isolation: Isolation) {
    let (mut one, mut two, mut three) = (db.session("one"), db.session("two"), db.session("three"));
    let token = start(&mut one, isolation, "k");
    one.begin(isolation);
    one.call(complete_by(token, 201).with("body", "done")).expect("completed");
    two.begin(isolation);
    two.start(resume(token));
    db.wait_until_blocked(&two, &one);
    three.begin(isolation);
    three.run("INSERT INTO orders (key) VALUES ('k')");
    three.start(complete_by(token, 201));
    db.wait_until_waiting(2);
    one.run("COMMIT");
    assert_eq!(two.finish_call().expect("replayed").text(), "done");
    three.finish_refused().expect_ours("IK002").mentions("already completed");
    three.run("ROLLBACK");
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
}

/// A worker that waits is cancelled, or killed by its own time limit: nothing is left behind.
fn a_wait_for_a_phase_can_be_cancelled(db: &Database<'_>, isolation: Isolation) {
    let (mut one, mut two) = (db.session("one"), db.session("two"));
    let token = start(&mut one, isolation, "k");
    one.begin(isolation);
    one.call(resume(token)).expect("claimed");
    two.run("SET pg_idempotency.wait_ms = -1");
    two.begin(isolation);
    two.start(resume(token));
    db.wait_until_blocked(&two, &one);
    two.cancel();
    two.finish_refused().expect("57014");
    assert_eq!(db.key_locks_of(&two), 0);
    two.run("ROLLBACK; SET statement_timeout = 50");
    two.refused(extend(token, LONG)).expect("57014");
    assert_eq!(db.key_locks_of(&two), 0);
    two.run("RESET statement_timeout");
    one.run("COMMIT");
    two.call(resume(token)).expect("claimed");
}

/// Who does not resume first may deadlock, with rows of the trade's; PostgreSQL finds out.
fn a_deadlock_passes_as_it_is(db: &Database<'_>, isolation: Isolation) {
    db.run("INSERT INTO orders (id, key) VALUES (1, 'stock')");
    let (mut one, mut two) = (db.session("one"), db.session("two"));
    let token = start(&mut one, isolation, "k");
    let take = "UPDATE orders SET note = 'taken' WHERE id = 1";
    one.begin(isolation);
    one.call(resume(token)).expect("claimed");
    two.begin(isolation);
    two.run(take);
    two.start(extend(token, LONG));
    db.wait_until_blocked(&two, &one);
    // Whoever waits longest finds it; the other one then goes on.
    let taken = one.attempt(take);
    match two.finish() {
        Ok(_) => drop(taken.expect_err("one of the two is aborted").expect("40P01")),
        Err(refusal) => {
            refusal.expect("40P01");
            assert!(taken.is_ok(), "the other one goes on: {taken:?}");
        }
    }
    for session in [&mut one, &mut two] {
        session.run("ROLLBACK");
    }
    assert_eq!((open_leases(db), db.keys_held()), (1, 0));
}

/// A transaction meets its own lease: it holds it, so it does not claim it again.
fn a_phase_sees_its_own_lease(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    worker.begin(isolation);
    let token = token_of(&worker.call(lease("k")).expect("claimed"));
    assert_sees_its_own(&mut worker, token);
    worker.run("COMMIT");
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    assert_sees_its_own(&mut worker, token);
    worker.call(complete_by(token, 201).with("body", "done")).expect("completed");
    assert_eq!(worker.call(replay("k")).expect("replayed").text(), "done");
    assert_eq!(worker.call(claim("k")).expect("replayed").text(), "done");
    worker.refused_inside_savepoint(resume(token), "IK002").mentions("already completed");
    worker.run("COMMIT");
}

fn assert_sees_its_own(worker: &mut Session, token: Uuid) {
    worker.call(replay("k")).expect("in_progress");
    worker.call(resume(token)).expect("claimed");
    for again in [claim("k"), lease("k"), lease("k").with("token", token)] {
        worker.refused_inside_savepoint(again, "IK004");
    }
}

/// Given back and begun anew are two transactions.
fn a_released_lease_is_held_to_the_end(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let token = start(&mut worker, isolation, "k");
    run_out(db, token);
    worker.begin(isolation);
    worker.rows(release_by(token));
    worker.refused_inside_savepoint(claim("k"), "IK004");
    other.call(claim("k").with("wait_ms", 0)).expect("in_progress");
    worker.run("COMMIT");
    assert_eq!(other.call(claim("k")).expect("claimed").attempt, Some(1));
}

at_every_isolation!(
    phases_by_one_token_come_one_after_the_other,
    a_resume_that_waited_may_find_it_finished,
    a_wait_for_a_phase_can_be_cancelled,
    a_deadlock_passes_as_it_is,
    a_phase_sees_its_own_lease,
    a_released_lease_is_held_to_the_end,
);
