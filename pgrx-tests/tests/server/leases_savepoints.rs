//! Phases and savepoints, the order of keys, and what the guard of commits makes of leases.

use pg_idempotency_tests::lease::{
    LONG, alone, checkpoint, complete_by, everything, extend, lease, open_leases, release_by,
    resume, run_out, start, token_of,
};
use pg_idempotency_tests::operation::assert_says;
use pg_idempotency_tests::prelude::*;
use serde_json::json;

const WRITE: &str = "INSERT INTO orders (key) VALUES ('k')";

#[track_caller]
fn assert_dropped(db: &Database<'_>, session: &mut Session, action: &str, sql: &str) {
    let message = format!("cannot {action} with an unsettled claim");
    let detail = "was claimed after a savepoint that has been rolled back.";
    let refusal = session.run_refused(sql);
    assert_says(refusal, "IK003", [&message, detail, "oll the transaction back"]);
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
}

/// The lock went with the savepoint: whatever is written now is not fenced any more.
fn a_resume_rolled_back_is_lost(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let before = everything(db);
    worker.begin(isolation);
    worker.run("SAVEPOINT s");
    worker.call(resume(token)).expect("claimed");
    worker.run("ROLLBACK TO s");
    assert_eq!(db.key_locks_of(&worker), 0);
    worker.run(WRITE);
    assert_dropped(db, &mut worker, "commit", "COMMIT");
    assert_eq!(everything(db), before);
}

/// A lease whose record went with the savepoint is none.
fn a_lease_rolled_back_is_lost(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    worker.begin(isolation);
    worker.run("SAVEPOINT s");
    let token = token_of(&worker.call(lease("k")).expect("claimed"));
    worker.run("ROLLBACK TO s");
    worker.refused_inside_savepoint(complete(201), "IK002").mentions("rolled back");
    worker.refused_inside_savepoint(checkpoint(token, "x", json!(1)), "IK002");
    worker.run(WRITE);
    assert_dropped(db, &mut worker, "commit", "COMMIT");
    worker.refused(resume(token)).expect_ours("IK002");
    assert_eq!((db.records(), open_leases(db)), (0, 0));
}

fn a_dropped_phase_cannot_be_prepared(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    worker.begin(isolation);
    worker.run("SAVEPOINT s");
    worker.call(resume(token)).expect("claimed");
    worker.run("ROLLBACK TO s");
    worker.run(WRITE);
    assert_dropped(db, &mut worker, "prepare", &format!("PREPARE TRANSACTION '{}'", db.name()));
}

/// Nothing was written without the fence, so it can be put up again.
fn a_resume_rolled_back_can_be_made_again(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    worker.begin(isolation);
    worker.run("SAVEPOINT s");
    worker.call(resume(token)).expect("claimed");
    worker.run("ROLLBACK TO s");
    worker.call(resume(token)).expect("claimed");
    worker.run(WRITE);
    worker.run("COMMIT");
    assert_eq!(db.orders("k"), 1);
}

/// Somebody took over between the two: the second resume must see that.
fn a_resume_made_again_looks_again(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let token = start(&mut worker, isolation, "k");
    run_out(db, token);
    worker.begin(isolation);
    worker.run("SAVEPOINT s");
    worker.call(resume(token)).expect("claimed");
    worker.run("ROLLBACK TO s");
    start(&mut other, isolation, "k");
    worker.refused(resume(token)).expect_ours("IK005");
    worker.run("ROLLBACK");
}

/// The recipe for a final error whose effects must vanish, in the last phase.
fn what_a_savepoint_undoes_is_undone(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let before = everything(db);
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    for change in
        [checkpoint(token, "half", json!(1)), extend(token, 2 * LONG), complete_by(token, 201)]
    {
        worker.run("SAVEPOINT s");
        worker.run(WRITE);
        worker.call(change);
        worker.run("ROLLBACK TO s");
    }
    worker.run("SAVEPOINT s");
    worker.rows(release_by(token));
    worker.run("ROLLBACK TO s");
    worker.run("COMMIT");
    assert_eq!(
        (db.orders("k"), everything(db)),
        (0, before),
        "the phase goes on as if nothing was"
    );
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    worker.run("SAVEPOINT s");
    worker.run(WRITE);
    worker.run("ROLLBACK TO s");
    worker.call(complete_by(token, 402)).expect("completed");
    worker.run("COMMIT");
    assert_eq!((db.orders("k"), open_leases(db)), (0, 0));
}

/// What one savepoint did is the business of the one around it.
fn a_released_savepoint_hands_its_phase_up(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    worker.begin(isolation);
    worker.run("SAVEPOINT a; SAVEPOINT b");
    worker.call(resume(token)).expect("claimed");
    worker.call(checkpoint(token, "half", json!(1)));
    worker.run("RELEASE b");
    worker.run(WRITE);
    worker.run("RELEASE a; COMMIT");
    let resumed = alone(&mut worker, isolation, resume(token));
    assert_eq!((db.orders("k"), resumed.recovery_point.as_deref()), (1, Some("half")));
    worker.begin(isolation);
    worker.run("SAVEPOINT a; SAVEPOINT b");
    worker.call(resume(token)).expect("claimed");
    worker.run("RELEASE b; ROLLBACK TO a");
    worker.run("INSERT INTO orders (key) VALUES ('unfenced')");
    worker.run_refused("COMMIT").expect_ours("IK003");
}

/// Several changes in one phase: the last one counts.
fn changes_add_up(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    worker.begin(isolation);
    let token = token_of(&worker.call(lease("k")).expect("claimed"));
    for n in 0..3 {
        let told = worker.call(checkpoint(token, &format!("point {n}"), json!(n)));
        assert_eq!(told.recovery_data, Some(json!(n)));
        worker.call(extend(token, LONG + n)).expect("claimed");
    }
    worker.run("COMMIT");
    let resumed = alone(&mut worker, isolation, resume(token));
    assert_eq!(
        (resumed.recovery_point.as_deref(), resumed.recovery_data),
        (Some("point 2"), Some(json!(2)))
    );
    assert_eq!((db.records(), open_leases(db)), (1, 1));
}

/// Whoever writes `(f(...)).*` has PostgreSQL call it once per column. Either that is harmless or it
/// is told what it did; it must not end in an error of PostgreSQL's innards.
fn one_command_calls_twice(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    for calls in [
        format!("SELECT (idempotency_resume('{token}')).*"),
        format!("SELECT (idempotency_extend('{token}', {LONG})).*"),
        format!("SELECT (idempotency_checkpoint('{token}', 'point')).*"),
        format!(
            "SELECT idempotency_extend('{token}', {LONG}), idempotency_checkpoint('{token}', 'point')"
        ),
        format!(
            "SELECT idempotency_checkpoint('{token}', 'point ' || n) FROM generate_series(1, 3) AS n"
        ),
    ] {
        worker.begin(isolation);
        match worker.attempt(calls.as_str()) {
            Ok(_) => worker.run("COMMIT"),
            Err(refusal) => {
                assert_eq!(refusal.code(), Some("IK004"), "{calls}: {refusal:?}");
                worker.run("ROLLBACK");
            }
        }
    }
    assert_eq!((db.records(), open_leases(db), db.keys_held()), (1, 1, 0));
}

/// Claimed and completed at once: a lease that nobody else ever saw.
fn a_lease_can_be_completed_where_it_began(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    worker.begin(isolation);
    let token = token_of(&worker.call(lease("k")).expect("claimed"));
    worker.run(WRITE);
    worker.call(complete(201).with("body", "done")).expect("completed");
    worker.run("COMMIT");
    assert_eq!(worker.call(resume(token)).expect("replayed").text(), "done");
    assert_eq!((db.orders("k"), db.records(), open_leases(db)), (1, 1, 0));
}

// ---- order -----------------------------------------------------------------------------------

/// A resume is the first thing in its transaction, as a claim is: else keys and rows could deadlock.
fn a_resume_comes_first(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let [a, b] = ["a", "b"].map(|key| start(&mut worker, isolation, key));
    worker.begin(isolation);
    worker.run(WRITE);
    assert_out_of_order(worker.refused(resume(a)), "has already written or locked rows");
    worker.run("ROLLBACK");
    worker.begin(isolation);
    worker.call(resume(b)).expect("claimed");
    assert_out_of_order(worker.refused(resume(a)), "holds a greater key");
    worker.run("ROLLBACK");
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
    worker.begin(isolation);
    worker.call(resume(a)).expect("claimed");
    worker.call(resume(b)).expect("claimed");
    worker.call(resume(a)).expect("claimed");
    worker.run(WRITE);
    worker.call(complete_by(a, 204)).expect("completed");
    worker.run("COMMIT");
    assert_eq!((db.orders("k"), open_leases(db)), (1, 1));
}

#[track_caller]
fn assert_out_of_order(refusal: Refusal, why: &str) {
    let message = format!("claim out of order: this transaction {why}");
    assert_says(refusal, "IK001", [&message, "key \"a\" of scope \"alice\"", "laim"]);
}

#[test]
fn a_resume_obeys_lock_order() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    let token = start(&mut worker, Isolation::ReadCommitted, "k");
    for (setting, warnings) in [("warning", 1), ("off", 0)] {
        worker.run(&format!("SET pg_idempotency.lock_order = {setting}; BEGIN"));
        worker.run(WRITE);
        worker.take_notices();
        worker.call(resume(token)).expect("claimed");
        assert_eq!(worker.take_notices().len(), warnings);
        worker.run("COMMIT");
    }
    assert_eq!(db.orders("k"), 2);
}

/// A transaction may hold a lease and an ordinary claim; only the latter has to be completed.
fn the_guard_knows_a_lease_from_a_claim(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "a");
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    worker.call(claim("k")).expect("claimed");
    worker.run(WRITE);
    let refusal = worker.run_refused("COMMIT").expect_ours("IK003");
    refusal.mentions("key \"k\" of scope \"alice\"").mentions("claimed and not completed");
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    let second = token_of(&worker.call(claim("k")).expect("claimed"));
    worker.run(WRITE);
    worker.refused_inside_savepoint(complete(201), "22023").mentions("2 claims");
    worker.call(complete_by(second, 201)).expect("completed");
    worker.run("COMMIT");
    assert_eq!((db.orders("k"), open_leases(db)), (1, 1));
}

at_every_isolation!(
    a_resume_rolled_back_is_lost,
    a_lease_rolled_back_is_lost,
    a_dropped_phase_cannot_be_prepared,
    a_resume_rolled_back_can_be_made_again,
    a_resume_made_again_looks_again,
    what_a_savepoint_undoes_is_undone,
    a_released_savepoint_hands_its_phase_up,
    changes_add_up,
    one_command_calls_twice,
    a_lease_can_be_completed_where_it_began,
    a_resume_comes_first,
    the_guard_knows_a_lease_from_a_claim,
);
