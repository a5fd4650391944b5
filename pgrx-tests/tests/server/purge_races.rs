//! `idempotency_purge` next to claims and other purges: it waits for nobody, makes nobody fail, and
//! keeps nobody waiting longer than its own short transaction.

use pg_idempotency_tests::cluster::Cluster;
use pg_idempotency_tests::lease::{alone, complete_by, lease};
use pg_idempotency_tests::operation::{configure, execute, expire_all};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::purge::{Gate, purge_once, purger};
use pg_idempotency_tests::shop;
use serde_json::json;

/// An expired record for each key.
fn expired(db: &Database<'_>, keys: &[&str]) {
    configure(db, json!({"retention": "1 day"}));
    let mut session = db.session("filler");
    for key in keys {
        execute(&mut session, claim(*key), complete(204));
    }
    expire_all(db);
}

/// Begins, and claims a key whose record has expired.
fn begin_claim(db: &Database<'_>, isolation: Isolation) -> Session {
    let mut claimer = db.session("claimer");
    claimer.begin(isolation);
    claimer.call(claim("k")).expect("claimed");
    claimer
}

#[track_caller]
fn assert_replaced(db: &Database<'_>) {
    assert_eq!((db.records(), db.orders("k"), db.keys_held()), (1, 1, 0));
    let sent = db.session("later").call(replay("k")).expect("replayed");
    assert_eq!(sent.status, Some(201));
}

/// The purge has the record in hand, locked or deleted, when the claim comes to complete: the claim
/// waits for it and goes on. Catches a deletion that takes a row that is gone for an error.
fn a_completion_waits_for_the_purge(db: &Database<'_>, isolation: Isolation, when: &str) {
    expired(db, &["k"]);
    let mut gate = Gate::closed(db, when);
    let mut claimer = begin_claim(db, isolation);
    let mut purger = purger(db);
    gate.hold(db, &mut purger);
    claimer.run("INSERT INTO orders (key) VALUES ('k')");
    claimer.start(complete(201));
    db.wait_until_blocked(&claimer, &purger);
    gate.open();
    assert_eq!(purger.finish().expect("it succeeds")[0].get::<_, i64>(0), 1);
    claimer.finish_call().expect("completed");
    claimer.run("COMMIT");
    assert_replaced(db);
}

fn a_completion_meets_a_row_that_is_being_deleted(db: &Database<'_>, isolation: Isolation) {
    a_completion_waits_for_the_purge(db, isolation, "AFTER");
}

fn a_completion_meets_a_row_that_is_locked_for_it(db: &Database<'_>, isolation: Isolation) {
    a_completion_waits_for_the_purge(db, isolation, "BEFORE");
}

/// The same, but the purge comes to nothing.
fn a_completion_waits_for_a_purge_that_dies(db: &Database<'_>, isolation: Isolation) {
    expired(db, &["k"]);
    let gate = Gate::closed(db, "AFTER");
    let mut claimer = begin_claim(db, isolation);
    let mut purger = purger(db);
    gate.hold(db, &mut purger);
    claimer.run("INSERT INTO orders (key) VALUES ('k')");
    claimer.start(complete(201));
    db.wait_until_blocked(&claimer, &purger);
    db.terminate(&purger);
    claimer.finish_call().expect("completed");
    claimer.run("COMMIT");
    assert_replaced(db);
}

/// The purge begins and ends while the claim is at work.
fn a_completion_finds_the_row_gone(db: &Database<'_>, isolation: Isolation) {
    expired(db, &["k"]);
    let mut claimer = begin_claim(db, isolation);
    assert_eq!(purge_once(&mut purger(db)), 1);
    shop::work(&mut claimer, "k").expect("it succeeds").expect("completed");
    claimer.run("COMMIT");
    assert_replaced(db);
}

/// The other order: the claim has put its record in the old one's place, and the purge passes by.
fn a_purge_passes_by_a_row_that_is_being_replaced(db: &Database<'_>, isolation: Isolation) {
    expired(db, &["k", "other"]);
    let mut claimer = begin_claim(db, isolation);
    shop::work(&mut claimer, "k").expect("it succeeds").expect("completed");
    assert_eq!(purge_once(&mut purger(db)), 1, "the other one");
    claimer.run("COMMIT");
    assert_eq!(purge_once(&mut purger(db)), 0);
    assert_replaced(db);
}

/// The same where the replacement is rolled back: the next batch has the row.
fn what_was_passed_by_is_purged_later(db: &Database<'_>, isolation: Isolation) {
    expired(db, &["k"]);
    let mut claimer = begin_claim(db, isolation);
    shop::work(&mut claimer, "k").expect("it succeeds").expect("completed");
    assert_eq!(purge_once(&mut purger(db)), 0);
    claimer.run("ROLLBACK");
    assert_eq!(purge_once(&mut purger(db)), 1);
    assert_eq!(db.records(), 0);
}

/// A claim on lease replaces the record at once.
fn a_lease_waits_for_the_purge(db: &Database<'_>, isolation: Isolation) {
    expired(db, &["k"]);
    let mut gate = Gate::closed(db, "AFTER");
    let (mut worker, mut purger) = (db.session("worker"), purger(db));
    gate.hold(db, &mut purger);
    worker.begin(isolation);
    worker.start(lease("k"));
    db.wait_until_blocked(&worker, &purger);
    gate.open();
    purger.finish().expect("it succeeds");
    let token = worker.finish_call().expect("claimed").token.expect("a token");
    worker.run("COMMIT");
    alone(&mut worker, isolation, complete_by(token, 201)).expect("completed");
    assert_eq!(db.records(), 1);
}

/// No key is held by a purge: who does not wait is not told that his key is in progress.
fn a_claim_does_not_notice_the_purge(db: &Database<'_>, isolation: Isolation) {
    expired(db, &["k"]);
    let mut gate = Gate::closed(db, "AFTER");
    let (mut claimer, mut purger) = (db.session("claimer"), purger(db));
    gate.hold(db, &mut purger);
    assert_eq!(db.keys_held(), 0);
    claimer.begin(isolation);
    claimer.call(claim("k").with("wait_ms", 0)).expect("claimed");
    claimer.run("ROLLBACK");
    gate.open();
    purger.finish().expect("it succeeds");
}

/// Catches a purge that reads under an MVCC snapshot: at SERIALIZABLE its predicate locks, and the
/// rows that it deletes, would abort claims.
fn a_purge_and_claims_never_abort_each_other(db: &Database<'_>, isolation: Isolation) {
    let names: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut purger = purger(db);
    let default = isolation.sql().to_lowercase();
    purger.run(&format!("SET default_transaction_isolation = '{default}'"));
    for round in 0..5 {
        expired(db, &keys);
        let mut claimers: Vec<Session> = names.iter().map(|name| db.session(name)).collect();
        for (claimer, key) in claimers.iter_mut().zip(&keys).filter(|(_, key)| **key < "k4") {
            claimer.begin(isolation);
            claimer.call(replay(*key)).expect("unknown");
            claimer.call(claim(*key)).expect("claimed");
        }
        for (claimer, key) in claimers.iter_mut().zip(&keys).filter(|(_, key)| **key < "k2") {
            shop::work(claimer, key).expect("nobody is aborted").expect("completed");
        }
        assert_eq!(purge_once(&mut purger), 6, "round {round}");
        for (claimer, key) in claimers.iter_mut().zip(&keys).filter(|(_, key)| **key < "k4") {
            if *key >= "k2" {
                shop::work(claimer, key).expect("nobody is aborted").expect("completed");
            }
            claimer.run("COMMIT");
        }
        assert_eq!(db.records(), 4);
        db.run("DELETE FROM idempotency.records");
    }
}

/// Two purges at once do not wait for each other, and none does the other's work.
fn two_purges_share_the_work(db: &Database<'_>, isolation: Isolation) {
    expired(db, &["k1", "k2", "k3"]);
    let mut gate = Gate::closed(db, "AFTER");
    let mut one = purger(db);
    let mut two = db.session_as(Role::Superuser, "another");
    let default = isolation.sql().to_lowercase();
    for session in [&mut one, &mut two] {
        session.run(&format!("SET default_transaction_isolation = '{default}'"));
    }
    gate.hold(db, &mut one);
    assert_eq!(purge_once(&mut two), 0, "the first has all of them in hand");
    gate.open();
    let first = one.finish().expect("it succeeds")[0].get::<_, i64>(0);
    assert_eq!((first, db.records()), (3, 0));
}

at_every_isolation!(
    a_completion_meets_a_row_that_is_being_deleted,
    a_completion_meets_a_row_that_is_locked_for_it,
    a_completion_waits_for_a_purge_that_dies,
    a_completion_finds_the_row_gone,
    a_purge_passes_by_a_row_that_is_being_replaced,
    what_was_passed_by_is_purged_later,
    a_lease_waits_for_the_purge,
    a_claim_does_not_notice_the_purge,
    a_purge_and_claims_never_abort_each_other,
    two_purges_share_the_work,
);

/// An erasure that meets a row in a purge's hand waits for it, so that nothing is left; a purge
/// passes by what an erasure has in hand.
#[test]
fn a_purge_and_an_erasure_meet() {
    let db = Database::fresh();
    let mut operator = db.session_as(Role::Superuser, "operator");
    expired(&db, &["k"]);
    operator.run("BEGIN");
    assert_eq!(operator.value::<i64>("SELECT idempotency_forget('alice')"), 1);
    assert_eq!(purge_once(&mut purger(&db)), 0);
    operator.run("ROLLBACK");
    let mut gate = Gate::closed(&db, "AFTER");
    let mut purger = purger(&db);
    gate.hold(&db, &mut purger);
    operator.start("SELECT idempotency_forget('alice')");
    db.wait_until_blocked(&operator, &purger);
    gate.open();
    let counts = [purger, operator]
        .map(|mut session| session.finish().expect("it succeeds")[0].get::<_, i64>(0));
    assert_eq!((counts, db.records()), ([1, 0], 0));
}

/// A purge holds nothing that a claim's lock could be short of.
#[test]
fn a_purge_holds_no_locks_of_keys() {
    let db = Database::fresh();
    expired(&db, &["k1", "k2"]);
    let mut gate = Gate::closed(&db, "AFTER");
    let mut purger = purger(&db);
    gate.hold(&db, &mut purger);
    assert_eq!((db.keys_held(), db.key_locks_of(&purger)), (0, 0));
    let predicate_locks = format!(
        "SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid = {}",
        purger.pid()
    );
    assert_eq!(db.value::<i64>(&predicate_locks), 0);
    gate.open();
    purger.finish().expect("it succeeds");
}

/// A cancelled purge has done nothing, and the session goes on.
#[test]
fn a_purge_can_be_cancelled() {
    let db = Database::fresh();
    expired(&db, &["k1", "k2"]);
    let mut gate = Gate::closed(&db, "AFTER");
    let mut purger = purger(&db);
    gate.hold(&db, &mut purger);
    purger.cancel();
    purger.finish_refused().expect("57014");
    assert_eq!(db.records(), 2);
    gate.open();
    assert_eq!(purge_once(&mut purger), 2);
}

/// Who reads the changes by logical decoding sees the purge.
#[test]
fn what_is_purged_is_decoded_by_test_decoding() {
    let cluster = Cluster::start("purge", &["wal_level = logical"]);
    let db = cluster.database();
    expired(&db, &["k1", "k2"]);
    db.run("SELECT pg_create_logical_replication_slot('purge', 'test_decoding')");
    assert_eq!(purge_once(&mut purger(&db)), 2);
    let deletes: i64 = db.value(
        "SELECT count(*) FROM pg_logical_slot_get_changes('purge', NULL, NULL)
         WHERE data LIKE 'table idempotency.records: DELETE: %'",
    );
    assert_eq!(deletes, 2);
    db.run("SELECT pg_drop_replication_slot('purge')");
}
