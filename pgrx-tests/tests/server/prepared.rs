//! Two-phase commit: a prepared transaction keeps its keys.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

/// Does the work for `k` and prepares it under the name of the database, unique in the cluster.
fn prepare(db: &Database<'_>, isolation: Isolation) -> Outcome {
    let mut session = db.session("preparing");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    let sent = shop::work(&mut session, "k").expect("the work succeeds");
    session.run(&format!("PREPARE TRANSACTION '{}'", db.name()));
    sent
}

/// Starts a claim of `k` that waits for the prepared transaction.
fn start_waiting(db: &Database<'_>, isolation: Isolation) -> Session {
    let mut waiter = db.session("waiter");
    waiter.begin(isolation);
    waiter.start(claim("k").with("wait_ms", -1));
    db.wait_until_blocked_by_prepared(&waiter);
    waiter
}

/// Catches a key lock that does not survive PREPARE: the client is long gone, the key is not free.
fn others_wait_for_a_prepared_transaction_and_replay(db: &Database<'_>, isolation: Isolation) {
    let sent = prepare(db, isolation);
    db.session("impatient").call(claim("k").with("wait_ms", 0)).expect("in_progress");
    let mut waiter = start_waiting(db, isolation);
    db.run(&format!("COMMIT PREPARED '{}'", db.name()));
    assert_eq!(waiter.finish_call().expect("replayed").answer(), sent.answer());
    assert_eq!((db.orders("k"), db.records(), db.keys_held()), (1, 1, 0));
}

fn after_a_rollback_of_the_prepared_the_next_one_claims(db: &Database<'_>, isolation: Isolation) {
    prepare(db, isolation);
    let mut waiter = start_waiting(db, isolation);
    db.run(&format!("ROLLBACK PREPARED '{}'", db.name()));
    waiter.finish_call().expect("claimed");
    shop::work(&mut waiter, "k").expect("the work succeeds").expect("completed");
    waiter.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

/// Catches a guard on COMMIT only.
fn a_prepare_of_writes_with_an_unsettled_claim_is_refused(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    let unsettled: [fn(&mut Session); 3] = [
        |_| {},
        |session| drop(session.rows(release())),
        |session| drop(session.call(complete(503)).expect("released")),
    ];
    for leave in unsettled {
        session.begin(isolation);
        session.call(claim("k")).expect("claimed");
        leave(&mut session);
        session.run("INSERT INTO orders (key) VALUES ('k')");
        let prepare = format!("PREPARE TRANSACTION '{}'", db.name());
        session.run_refused(&prepare).expect_ours("IK003");
        assert_nothing_prepared(db);
        assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
    }
}

fn a_prepare_of_writes_after_a_dropped_claim_is_refused(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.run("SAVEPOINT s");
    session.call(claim("k")).expect("claimed");
    session.run("ROLLBACK TO s; INSERT INTO orders (key) VALUES ('k')");
    session.run_refused(&format!("PREPARE TRANSACTION '{}'", db.name())).expect_ours("IK003");
    assert_nothing_prepared(db);
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
}

/// With or without writes: nobody could complete the claim any more, and the prepared transaction
/// would hold its key until somebody ends it.
fn a_prepare_without_writes_is_refused_too(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    let refusal = session.run_refused(&format!("PREPARE TRANSACTION '{}'", db.name()));
    refusal.expect_ours("IK003").mentions("cannot prepare with an unsettled claim");
    assert_nothing_prepared(db);
    assert_eq!((db.records(), db.keys_held()), (0, 0));
}

fn assert_nothing_prepared(db: &Database<'_>) {
    let count = "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()";
    assert_eq!(db.value::<i64>(count), 0);
}

/// Catches state that stays behind in the session: the claim went with the prepared transaction.
fn after_prepare_the_session_holds_nothing(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    shop::work(&mut session, "k").expect("the work succeeds");
    session.run(&format!("PREPARE TRANSACTION '{}'", db.name()));
    session.begin(isolation);
    session.refused_inside_savepoint(complete(201), "IK002");
    session.call(claim("a")).expect("claimed");
    shop::work(&mut session, "a").expect("the work succeeds").expect("completed");
    session.run("COMMIT");
    // Its own prepared transaction is another transaction.
    session.call(claim("k").with("wait_ms", 0)).expect("in_progress");
    session.run(&format!("ROLLBACK PREPARED '{}'", db.name()));
    session.call(claim("k").with("wait_ms", 0)).expect("claimed");
}

at_every_isolation!(
    others_wait_for_a_prepared_transaction_and_replay,
    after_a_rollback_of_the_prepared_the_next_one_claims,
    a_prepare_of_writes_with_an_unsettled_claim_is_refused,
    a_prepare_of_writes_after_a_dropped_claim_is_refused,
    a_prepare_without_writes_is_refused_too,
    after_prepare_the_session_holds_nothing,
);

/// Prepared transactions survive a crash of the server, with their keys.
#[test]
fn a_prepared_transaction_keeps_its_key_over_a_crash() {
    let cluster = Cluster::start("prepared-crash", &[]);
    let db = cluster.database();
    let sent = prepare(&db, Isolation::ReadCommitted);
    cluster.end("KILL");
    cluster.start();
    db.reconnect();
    let waiter = &mut start_waiting(&db, Isolation::ReadCommitted);
    db.run(&format!("COMMIT PREPARED '{}'", db.name()));
    assert_eq!(waiter.finish_call().expect("replayed").answer(), sent.answer());
}
