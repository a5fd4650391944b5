//! SERIALIZABLE and old snapshots: keys conflict with themselves only.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

const NEIGHBOURS: usize = 8;
const MANY_RECORDS: i64 = 20_000;

/// All begin and claim before any of them writes, and all write before any of them commits: with
/// predicate locks on the index each would be a reader that the others write over.
fn neighbours_claim_work_and_commit(db: &Database<'_>, prefix: &str) {
    let names: Vec<String> = (0..NEIGHBOURS).map(|n| format!("{prefix}-{n}")).collect();
    let mut sessions: Vec<Session> = names.iter().map(|name| db.session(name)).collect();
    for (session, key) in sessions.iter_mut().zip(&names) {
        session.begin(Isolation::Serializable);
        session.call(claim(key)).expect("claimed");
    }
    for (session, key) in sessions.iter_mut().zip(&names) {
        shop::work(session, key).expect("nobody is aborted").expect("completed");
    }
    for session in &mut sessions {
        session.run("COMMIT");
    }
    for key in &names {
        assert_eq!(db.orders(key), 1);
    }
}

/// Catches a look-up under an MVCC snapshot, which takes predicate locks.
#[test]
fn neighbouring_keys_in_an_empty_table_never_abort_each_other() {
    let db = Database::fresh();
    for round in 0..20 {
        neighbours_claim_work_and_commit(&db, &format!("round-{round:02}"));
    }
}

#[test]
fn neighbouring_keys_in_a_table_of_20_000_never_abort_each_other() {
    let db = Database::fresh();
    fill(&db);
    for round in 0..20 {
        neighbours_claim_work_and_commit(&db, &format!("{:05}", round * 1_000 + 500));
    }
}

fn fill(db: &Database<'_>) {
    db.run(&format!(
        "DO $$ BEGIN FOR n IN 1..{MANY_RECORDS} LOOP
             PERFORM idempotency_claim('alice', 'POST /orders', to_char(n, 'FM00000'));
             PERFORM idempotency_complete(204);
             COMMIT;
         END LOOP; END $$"
    ));
    db.run("ANALYZE idempotency.records");
    assert_eq!(db.records(), MANY_RECORDS);
}

/// A reader of one key and a writer of its neighbour, the other way round too: with predicate
/// locks this is the write skew that one of them is aborted for.
#[test]
fn a_replay_and_a_new_neighbour_never_abort_each_other() {
    let db = Database::fresh();
    let (mut one, mut two) = (db.session("one"), db.session("two"));
    for session in [&mut one, &mut two] {
        shop::create_order(session, Isolation::ReadCommitted, "done").expect("it succeeds");
        session.begin(Isolation::Serializable);
        session.call(claim("done")).expect("replayed");
    }
    one.call(claim("new-1")).expect("claimed");
    two.call(claim("new-2")).expect("claimed");
    shop::work(&mut one, "new-1").expect("nobody is aborted");
    shop::work(&mut two, "new-2").expect("nobody is aborted");
    one.run("COMMIT");
    two.run("COMMIT");
    assert_eq!(db.records(), 3);
}

#[test]
fn a_claim_and_a_replay_take_no_predicate_locks() {
    let db = Database::fresh();
    let mut session = db.session("session");
    shop::create_order(&mut session, Isolation::Serializable, "done").expect("it succeeds");
    session.begin(Isolation::Serializable);
    session.call(claim("done")).expect("replayed");
    session.call(replay("done")).expect("replayed");
    session.call(claim("new")).expect("claimed");
    session.call(complete(204)).expect("completed");
    let locks = "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                                        JOIN pg_database d ON d.oid = l.database
                 WHERE mode = 'SIReadLock' AND datname = current_database()
                   AND relnamespace = 'idempotency'::regnamespace";
    assert_eq!(db.value::<i64>(locks), 0);
}

/// Catches a look-up under the transaction's own snapshot: it is older than the record.
fn with_an_old_snapshot_a_replay_is_a_replay(db: &Database<'_>, isolation: Isolation) {
    let (mut old, mut other) = (db.session("old"), db.session("other"));
    old.begin(isolation);
    assert_eq!(old.value::<i64>("SELECT count(*) FROM orders"), 0);
    let sent = shop::create_order(&mut other, isolation, "k").expect("it succeeds");
    assert_eq!(old.call(claim("k")).expect("replayed").answer(), sent.answer());
    assert_eq!(old.call(replay("k")).expect("replayed").answer(), sent.answer());
    old.run("COMMIT");
}

/// A loser whose snapshot is older than the winner's commit: neither 40001 nor 23505 from us.
fn a_waiter_with_an_old_snapshot_replays(db: &Database<'_>, isolation: Isolation) {
    let (mut winner, mut waiter) = (db.session("winner"), db.session("waiter"));
    waiter.begin(isolation);
    waiter.rows("SELECT * FROM orders");
    winner.begin(isolation);
    winner.call(claim("k")).expect("claimed");
    waiter.start(claim("k"));
    db.wait_until_blocked(&waiter, &winner);
    let sent = shop::work(&mut winner, "k").expect("it succeeds");
    winner.run("COMMIT");
    assert_eq!(waiter.finish_call().expect("replayed").answer(), sent.answer());
    waiter.run("COMMIT");
}

/// A waiter that wins on an old snapshot completes; the insert must not trip over its snapshot.
fn a_waiter_with_an_old_snapshot_wins_and_completes(db: &Database<'_>, isolation: Isolation) {
    let (mut first, mut waiter) = (db.session("first"), db.session("waiter"));
    waiter.begin(isolation);
    waiter.rows("SELECT * FROM orders");
    first.begin(isolation);
    first.call(claim("k")).expect("claimed");
    waiter.start(claim("k"));
    db.wait_until_blocked(&waiter, &first);
    first.run("ROLLBACK");
    waiter.finish_call().expect("claimed");
    shop::work(&mut waiter, "k").expect("it succeeds").expect("completed");
    waiter.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

at_every_isolation!(
    with_an_old_snapshot_a_replay_is_a_replay,
    a_waiter_with_an_old_snapshot_replays,
    a_waiter_with_an_old_snapshot_wins_and_completes,
);

/// 40001 of the caller's own work passes through as it is, and a retry starts clean.
#[test]
fn a_serialization_failure_of_the_work_passes_and_the_retry_claims_again() {
    let db = Database::fresh();
    db.run("INSERT INTO orders (key) VALUES ('stock')");
    let (mut one, mut two) = (db.session("one"), db.session("two"));
    one.begin(Isolation::RepeatableRead);
    one.call(claim("k")).expect("claimed");
    one.rows("SELECT * FROM orders");
    two.run("UPDATE orders SET note = 'changed'");
    one.refused("UPDATE orders SET note = 'mine'").expect("40001");
    one.run("ROLLBACK");
    let again = shop::create_order(&mut one, Isolation::RepeatableRead, "k");
    again.expect("the retry succeeds").expect("completed");
}
