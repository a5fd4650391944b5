//! Crashes between phases: the lease and how far the work has come survive, open phases do not.

use pg_idempotency_tests::lease::{
    alone, checkpoint, complete_by, deadline, everything, lease, open_leases, resume, run_out,
    start, token_of,
};
use pg_idempotency_tests::operation::copy_by_dump;
use pg_idempotency_tests::pooler::Pooler;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::process;
use serde_json::json;
use uuid::Uuid;

const RC: Isolation = Isolation::ReadCommitted;

/// One request between two phases, one in a phase that has written, one that is being claimed, one
/// that is being taken over, one whose completion is not committed.
struct Before {
    between: Uuid,
    in_phase: Uuid,
    completing: Uuid,
    committed: String,
    open: Vec<Session>,
}

fn leave_open(db: &Database<'_>) -> Before {
    let mut worker = db.session("worker");
    let [between, in_phase, lost, completing] =
        ["between", "in phase", "lost", "completing"].map(|key| start(&mut worker, RC, key));
    alone(&mut worker, RC, checkpoint(between, "charged", json!({ "charge": 7 })));
    alone(&mut worker, RC, checkpoint(in_phase, "charged", json!({ "charge": 8 })));
    run_out(db, lost);
    let committed = everything(db);
    let calls = [
        vec![resume(in_phase), checkpoint(in_phase, "shipped", json!(1))],
        vec![lease("claiming")],
        vec![lease("lost")],
        vec![complete_by(completing, 201)],
    ];
    let open = calls.into_iter().map(|calls| open_phase(db, calls)).collect();
    Before { between, in_phase, completing, committed, open }
}

fn open_phase(db: &Database<'_>, calls: Vec<Call>) -> Session {
    let mut session = db.session("open");
    session.run("BEGIN");
    for call in calls {
        session.call(call);
    }
    session.run("INSERT INTO orders (key) VALUES ('uncommitted')");
    session
}

fn assert_recovered(db: &Database<'_>, before: &Before) {
    assert_eq!((everything(db), db.keys_held()), (before.committed.clone(), 0));
    assert_eq!(db.orders("uncommitted"), 0);
    let mut worker = db.session("after");
    for (token, charge) in [(before.between, 7), (before.in_phase, 8)] {
        let resumed = alone(&mut worker, RC, resume(token)).expect("claimed");
        assert_eq!(resumed.recovery_point.as_deref(), Some("charged"));
        assert_eq!(resumed.recovery_data, Some(json!({ "charge": charge })));
        assert_eq!(resumed.expires_at, Some(deadline(db, token)), "time went on meanwhile");
    }
    worker.call(replay("between")).expect("in_progress");
    assert_eq!(alone(&mut worker, RC, lease("claiming")).expect("claimed").attempt, Some(1));
    assert_eq!(alone(&mut worker, RC, lease("lost")).expect("claimed").attempt, Some(2));
    for token in [before.between, before.in_phase, before.completing] {
        alone(&mut worker, RC, complete_by(token, 201)).expect("completed");
    }
}

/// The server restarts all its backends when one of them is killed.
#[test]
fn a_workers_backend_is_killed() {
    let cluster = Cluster::start("leases-backend", &[]);
    let db = cluster.database();
    db.expect_crash();
    let before = leave_open(&db);
    let pid = u32::try_from(before.open[0].pid()).expect("a pid is positive");
    assert!(process::signal(pid, "KILL"), "the backend is there to be killed");
    db.reconnect();
    assert_recovered(&db, &before);
}

#[test]
fn the_postmaster_is_killed_and_started_again() {
    let cluster = Cluster::start("leases-postmaster", &[]);
    let db = cluster.database();
    let before = leave_open(&db);
    cluster.end("KILL");
    cluster.start();
    db.reconnect();
    assert_recovered(&db, &before);
}

/// Only the workers' connections go; everybody else goes on at once.
#[test]
fn the_workers_connections_are_cut() {
    let db = Database::fresh();
    let mut before = leave_open(&db);
    for session in &mut before.open {
        session.hang_up();
        db.wait_until_gone(session);
    }
    assert_recovered(&db, &before);
}

/// A dump is a crash of another kind: leases go with their records.
#[test]
fn leases_are_dumped_and_restored() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    let call = lease("k").with("data", json!({ "to": "airport" }));
    let token = token_of(&alone(&mut worker, RC, call).expect("claimed"));
    alone(&mut worker, RC, checkpoint(token, "charged", json!({ "charge": 7 })));
    let copy = Cluster::shared().database_with("TEMPLATE template0");
    copy_by_dump(&db, &copy);
    assert_eq!(everything(&copy), everything(&db));
    let mut worker = copy.session("worker");
    worker.call(claim("k")).expect("in_progress");
    let resumed = alone(&mut worker, RC, resume(token)).expect("claimed");
    assert_eq!(resumed.recovery_point.as_deref(), Some("charged"));
    alone(&mut worker, RC, complete_by(token, 201)).expect("completed");
}

/// Each phase is a transaction, and each transaction may be another backend's.
fn every_phase_has_another_backend(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker 1");
    let token = start(&mut worker, isolation, "k");
    for n in 2..6 {
        let mut worker = db.session(&format!("worker {n}"));
        worker.begin(isolation);
        let resumed = worker.call(resume(token)).expect("claimed");
        let last = (n > 2).then(|| format!("by worker {}", n - 1));
        assert_eq!(resumed.recovery_point, last);
        worker.call(checkpoint(token, &format!("by worker {n}"), json!(n)));
        worker.run("COMMIT");
    }
    alone(&mut worker, isolation, complete_by(token, 201)).expect("completed");
}

at_every_isolation!(every_phase_has_another_backend);

/// One server connection for both clients: what a phase holds must not stay behind in it.
#[test]
fn a_transaction_pooler_may_serve_the_phases() {
    let db = Database::fresh();
    let pooler = Pooler::before(db.server(), "leases-pooler", 1);
    let [mut one, mut two] = [(), ()].map(|()| pooler.session(db.name(), "client"));
    let token = start(&mut one, RC, "k");
    two.call(claim("k")).expect("in_progress");
    two.run("BEGIN");
    two.call(resume(token)).expect("claimed");
    two.call(checkpoint(token, "half", json!(1)));
    two.run("COMMIT; BEGIN");
    two.refused_inside_savepoint(complete(201), "IK002").mentions("holds no claim");
    two.run("INSERT INTO orders (key) VALUES ('unguarded'); COMMIT");
    alone(&mut one, RC, complete_by(token, 201)).expect("completed");
    two.call(claim("k")).expect("replayed");
    assert_eq!((db.orders("unguarded"), open_leases(&db), db.keys_held()), (1, 0, 0));
}
