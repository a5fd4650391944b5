//! Two-phase commit: a phase that is prepared keeps its key, and nobody takes over meanwhile.

use pg_idempotency_tests::lease::{
    alone, checkpoint, complete_by, everything, lease, open_leases, resume, run_out, start,
    token_of,
};
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use uuid::Uuid;

/// Writes in a phase, leaves it as `change` says and prepares it; the worker's session is gone then
/// and its time is up.
fn prepare_phase(db: &Database<'_>, isolation: Isolation, change: fn(Uuid) -> Call) -> Uuid {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    run_out(db, token);
    worker.run("INSERT INTO orders (key) VALUES ('k')");
    worker.call(change(token));
    worker.run(&format!("PREPARE TRANSACTION '{}'", db.name()));
    token
}

fn further(token: Uuid) -> Call {
    checkpoint(token, "further", json!(1))
}

/// A claimer that waits for the prepared transaction: on lease, so that its attempt shows.
fn start_waiting(db: &Database<'_>, isolation: Isolation) -> Session {
    let mut claimer = db.session("claimer");
    claimer.call(lease("k").with("wait_ms", 0)).expect("in_progress");
    claimer.begin(isolation);
    claimer.start(lease("k").with("wait_ms", -1));
    db.wait_until_blocked_by_prepared(&claimer);
    claimer
}

fn end(db: &Database<'_>, how: &str) {
    db.run(&format!("{how} PREPARED '{}'", db.name()));
}

fn a_prepared_phase_is_not_taken_over(db: &Database<'_>, isolation: Isolation) {
    prepare_phase(db, isolation, further);
    let mut claimer = start_waiting(db, isolation);
    end(db, "COMMIT");
    let claimed = claimer.finish_call().expect("claimed");
    assert_eq!((claimed.attempt, claimed.recovery_point.as_deref()), (Some(2), Some("further")));
    assert_eq!(db.orders("k"), 1);
}

fn a_prepared_phase_may_come_to_nothing(db: &Database<'_>, isolation: Isolation) {
    let token = prepare_phase(db, isolation, further);
    let mut claimer = start_waiting(db, isolation);
    end(db, "ROLLBACK");
    let claimed = claimer.finish_call().expect("claimed");
    assert_eq!((claimed.attempt, &claimed.recovery_point), (Some(2), &None));
    claimer.run("ROLLBACK");
    assert_eq!(db.orders("k"), 0);
    alone(&mut db.session("worker"), isolation, resume(token)).expect("claimed");
}

fn a_completion_may_be_prepared(db: &Database<'_>, isolation: Isolation) {
    prepare_phase(db, isolation, |token| complete_by(token, 201).with("body", "done"));
    let mut claimer = start_waiting(db, isolation);
    end(db, "COMMIT");
    assert_eq!(claimer.finish_call().expect("replayed").text(), "done");
    assert_eq!((db.orders("k"), db.records(), open_leases(db)), (1, 1, 0));
}

/// The first phase too: there is no lease before it is committed.
fn a_lease_may_be_prepared(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    worker.begin(isolation);
    let token = token_of(&worker.call(lease("k")).expect("claimed"));
    worker.run("INSERT INTO orders (key) VALUES ('k')");
    worker.run(&format!("PREPARE TRANSACTION '{}'", db.name()));
    worker.refused(resume(token)).expect_ours("IK002");
    let mut claimer = start_waiting(db, isolation);
    end(db, "COMMIT");
    claimer.finish_call().expect("in_progress");
    alone(&mut worker, isolation, resume(token)).expect("claimed");
    assert_eq!(db.orders("k"), 1);
}

fn an_unsettled_phase_is_not_prepared(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let before = everything(db);
    worker.begin(isolation);
    worker.run("INSERT INTO orders (key) VALUES ('k')");
    worker.call(complete_by(token, 503)).expect("released");
    let refusal = worker.run_refused(&format!("PREPARE TRANSACTION '{}'", db.name()));
    refusal.expect_ours("IK003").mentions("cannot prepare with an unsettled claim");
    assert_eq!((db.orders("k"), db.keys_held(), everything(db)), (0, 0, before));
}

/// Prepared means no longer in this session: neither held nor guarded.
fn the_session_holds_nothing_afterwards(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    worker.run(&format!("PREPARE TRANSACTION '{}'", db.name()));
    worker.run("SET pg_idempotency.wait_ms = 0");
    worker.refused(resume(token)).expect_ours("55P03");
    worker.run("INSERT INTO orders (key) VALUES ('unguarded')");
    end(db, "COMMIT");
    worker.call(resume(token)).expect("claimed");
    assert_eq!(db.orders("unguarded"), 1);
}

at_every_isolation!(
    a_prepared_phase_is_not_taken_over,
    a_prepared_phase_may_come_to_nothing,
    a_completion_may_be_prepared,
    a_lease_may_be_prepared,
    an_unsettled_phase_is_not_prepared,
    the_session_holds_nothing_afterwards,
);

/// A prepared phase survives a crash of the server, and is still in everybody's way then.
#[test]
fn a_prepared_phase_keeps_its_key_over_a_crash() {
    let cluster = Cluster::start("leases-prepared", &[]);
    let db = cluster.database();
    prepare_phase(&db, Isolation::ReadCommitted, further);
    cluster.end("KILL");
    cluster.start();
    db.reconnect();
    let mut claimer = start_waiting(&db, Isolation::ReadCommitted);
    end(&db, "COMMIT");
    let claimed = claimer.finish_call().expect("claimed");
    assert_eq!((claimed.attempt, claimed.recovery_point.as_deref()), (Some(2), Some("further")));
    assert_eq!(db.orders("k"), 1);
}
