//! What takes locks beside the claims: erasures, purges, REINDEX. None of them deadlocks with a request that
//! claims first, works and completes.

use pg_idempotency_tests::lease::{complete_by, lease, resume};
use pg_idempotency_tests::operation::{claim_by, configure};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use uuid::Uuid;

fn owner(db: &Database<'_>, name: &str) -> Session {
    db.session_as(Role::Superuser, name)
}

fn forget(key: &str) -> String {
    format!("SELECT idempotency_forget('alice', 'POST /orders', '{key}')")
}

/// Catches a lock that is kept although it protects nothing: claims would not know of it.
#[test]
fn an_erasure_of_nothing_keeps_no_key() {
    let db = Database::fresh();
    let (mut eraser, mut other) = (owner(&db, "eraser"), db.session("other"));
    eraser.run("BEGIN");
    assert_eq!(eraser.value::<i64>(forget("z")), 0);
    assert!(!eraser.has_transaction_id());
    assert_eq!(db.keys_held(), 0);
    other.run("BEGIN");
    other.call(claim("a")).expect("claimed");
    other.call(claim("z").with("wait_ms", 0)).expect("claimed");
    eraser.start(claim("a").with("wait_ms", -1));
    db.wait_until_blocked(&eraser, &other);
    other.run("ROLLBACK");
    eraser.finish_call().expect("claimed");
}

/// The holder of the key will want the row. Catches an erasure that waits for a key behind a write.
#[test]
fn an_erasure_behind_a_write_waits_for_no_key() {
    let db = Database::fresh();
    db.run("INSERT INTO orders (key) VALUES ('row')");
    let (mut eraser, mut holder) = (owner(&db, "eraser"), db.session("holder"));
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    eraser.run("SET pg_idempotency.wait_ms = -1; BEGIN; UPDATE orders SET key = 'row'");
    eraser.refused(forget("k").as_str()).expect_ours("55P03");
    eraser.run("ROLLBACK");
    holder.run("UPDATE orders SET key = 'row'");
    holder.call(complete(201)).expect("completed");
    holder.run("COMMIT");
    assert_eq!(eraser.value::<i64>(forget("k")), 1);
}

/// The same of a key out of order; one that comes in order is waited for.
#[test]
fn an_erasure_behind_a_claim_waits_for_greater_keys_only() {
    let db = Database::fresh();
    let (mut eraser, mut holder) = (owner(&db, "eraser"), db.session("holder"));
    holder.run("BEGIN");
    holder.call(claim("a")).expect("claimed");
    holder.call(claim("z")).expect("claimed");
    eraser.run("SET pg_idempotency.wait_ms = -1; BEGIN");
    eraser.call(claim("m")).expect("claimed");
    eraser.refused_inside_savepoint(forget("a").as_str(), "55P03");
    eraser.start(forget("z").as_str());
    db.wait_until_blocked(&eraser, &holder);
    holder.run("ROLLBACK");
    eraser.finish().expect("erased");
    eraser.call(complete(200)).expect("completed");
    eraser.run("COMMIT");
}

/// Two records that have expired are replaced, the second one first. Catches an erasure that waits for a
/// row while it holds another one.
#[test]
fn an_erasure_waits_for_rows_while_it_holds_none() {
    let db = Database::fresh();
    let (mut eraser, mut holder) = (owner(&db, "eraser"), db.session("holder"));
    for key in ["a", "b"] {
        shop::create_order(&mut holder, Isolation::ReadCommitted, key).expect("done");
    }
    db.run("UPDATE idempotency.records SET expires_at = '2001-01-01'");
    holder.run("BEGIN");
    let claimed = holder.rows(claim_many(&["a", "b"]));
    let token = |at: usize| claimed[at].get::<_, Uuid>("token");
    holder.call(complete(200).with("token", token(1))).expect("completed");
    eraser.start("SELECT idempotency_forget('alice')");
    db.wait_until_blocked(&eraser, &holder);
    holder.call(complete(200).with("token", token(0))).expect("completed");
    holder.run("COMMIT");
    let rows = eraser.finish().expect("erased");
    assert_eq!((rows[0].get::<_, i64>(0), db.records(), db.keys_held()), (2, 0, 0));
}

/// Behind an erasure, the same is an error at once. What is free is erased all the same.
#[test]
fn two_scopes_are_erased_in_one_transaction() {
    let db = Database::fresh();
    let (mut eraser, mut holder) = (owner(&db, "eraser"), db.session("holder"));
    for (scope, key) in [("alice", "a"), ("bob", "b"), ("carol", "c")] {
        holder.run("BEGIN");
        holder.call(claim_by(scope, "POST /orders", key)).expect("claimed");
        holder.call(complete(201)).expect("completed");
        holder.run("COMMIT");
    }
    db.run("UPDATE idempotency.records SET expires_at = '2001-01-01' WHERE scope = 'carol'");
    holder.run("BEGIN");
    holder.call(claim_by("carol", "POST /orders", "c")).expect("claimed");
    eraser.run("SET pg_idempotency.wait_ms = -1; BEGIN");
    for scope in ["alice", "bob"] {
        assert_eq!(
            eraser.value::<i64>(format!("SELECT idempotency_forget('{scope}')").as_str()),
            1
        );
    }
    eraser.refused_inside_savepoint("SELECT idempotency_forget('carol')", "55P03");
    eraser.run("COMMIT");
    holder.call(complete(201)).expect("completed");
    holder.run("COMMIT");
    assert_eq!(db.records(), 1);
}

/// A deletion by hand that goes on. Catches a row that is waited for behind a write, and a wait without end.
#[test]
fn a_row_in_hand_is_waited_for_as_long_as_is_set() {
    let db = Database::fresh();
    let (mut eraser, mut other) = (owner(&db, "eraser"), owner(&db, "other"));
    shop::create_order(&mut other, Isolation::ReadCommitted, "k").expect("done");
    other.run("BEGIN; DELETE FROM idempotency.records");
    configure(&db, json!({ "wait_ms": 1 }));
    for erasure in [forget("k"), "SELECT idempotency_forget('alice', 'POST /orders')".into()] {
        eraser.refused(erasure.as_str()).expect_ours("55P03");
    }
    other.run("ROLLBACK");
    assert_eq!(eraser.value::<i64>("SELECT idempotency_forget('alice')"), 1);
}

/// Catches stretches that are read before it is certain that nobody adds any.
#[test]
fn purges_beside_each_other_add_no_row_twice() {
    let db = Database::fresh();
    const PURGES: usize = 2500;
    let running = AtomicUsize::new(4);
    let purge = |name: &str| {
        let mut session = owner(&db, name);
        session.run("SET synchronous_commit = off");
        for _ in 0..PURGES {
            session.rows("SELECT idempotency_purge()");
        }
        running.fetch_sub(1, Relaxed);
    };
    thread::scope(|scope| {
        for name in ["one", "two", "three", "four"] {
            scope.spawn(move || purge(name));
        }
        let mut other = owner(&db, "other");
        other.run("SET synchronous_commit = off");
        while running.load(Relaxed) > 0 {
            other.run("DELETE FROM idempotency.stretches");
        }
    });
}

/// REINDEX locks a table against writers and then its indexes against everybody. Catches a claim that
/// locks the table for reading, and only later for writing.
#[test]
fn a_plain_reindex_waits_for_the_open_claim() {
    let db = Database::fresh();
    let (mut session, mut reindex) = (db.session("session"), owner(&db, "reindex"));
    for what in ["TABLE idempotency.records", "INDEX idempotency.records_pkey"] {
        session.run("BEGIN");
        session.call(claim(what)).expect("claimed");
        reindex.start(format!("REINDEX {what}").as_str());
        db.wait_until_blocked(&reindex, &session);
        session.call(complete(201)).expect("completed");
        session.run("COMMIT");
        reindex.finish().expect("indexed");
    }
}

#[test]
fn a_plain_reindex_waits_for_the_open_phase() {
    let db = Database::fresh();
    let (mut session, mut reindex) = (db.session("session"), owner(&db, "reindex"));
    session.run("BEGIN");
    let token = session.call(lease("k")).expect("claimed").token.expect("a token");
    session.run("COMMIT; BEGIN");
    session.call(resume(token)).expect("claimed");
    reindex.start("REINDEX TABLE idempotency.leases");
    db.wait_until_blocked(&reindex, &session);
    session.call(complete_by(token, 201)).expect("completed");
    session.run("COMMIT");
    reindex.finish().expect("indexed");
}
