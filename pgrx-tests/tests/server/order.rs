//! Claims come first, and in one order: so keys and rows never deadlock.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

/// What gives a transaction its id. Each is one statement of ordinary work.
const MAKES_A_TRANSACTION_ID: [&str; 7] = [
    "INSERT INTO orders (key) VALUES ('before')",
    "SELECT * FROM orders WHERE key = 'row' FOR UPDATE",
    "SELECT * FROM orders WHERE key = 'row' FOR KEY SHARE",
    "SELECT nextval('unused')",
    "CREATE TEMPORARY TABLE t (x int)",
    "SELECT pg_current_xact_id()",
    "SAVEPOINT s; INSERT INTO orders (key) VALUES ('undone'); ROLLBACK TO s",
];

fn with_a_row(db: &Database<'_>) {
    // A sequence writes, and so makes a transaction id, at its first call and now and then later.
    db.run(
        "INSERT INTO orders (key) VALUES ('row');
         CREATE SEQUENCE unused; GRANT ALL ON SEQUENCE unused TO backend",
    );
}

/// Catches a check that comes after the wait: the claim would wait for ever here, and in real life
/// for somebody who waits for our row.
fn a_claim_after_a_row_lock_is_refused_before_any_wait(db: &Database<'_>, isolation: Isolation) {
    with_a_row(db);
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    holder.begin(isolation);
    holder.call(claim("k")).expect("claimed");
    session.begin(isolation);
    session.rows("SELECT * FROM orders WHERE key = 'row' FOR UPDATE");
    session.start(claim("k").with("wait_ms", -1));
    session.finish_refused().expect_ours("IK001");
    session.run("ROLLBACK");
    assert_eq!(db.key_locks_of(&session), 0);
}

fn a_claim_after_any_write_is_refused(db: &Database<'_>, isolation: Isolation) {
    with_a_row(db);
    let mut session = db.session("session");
    for work in MAKES_A_TRANSACTION_ID {
        session.begin(isolation);
        session.run(work);
        assert!(session.has_transaction_id(), "{work}");
        session.refused(claim("k")).expect_ours("IK001").hints("BEGIN").hints("nextval");
        session.run("ROLLBACK");
    }
}

/// A finished record does not make the order right: the next time there may be none.
fn a_replayed_key_does_not_excuse_the_order(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    shop::create_order(&mut session, isolation, "done").expect("it succeeds").expect("completed");
    session.begin(isolation);
    session.run("INSERT INTO orders (key) VALUES ('before')");
    session.refused(claim("done")).expect_ours("IK001");
    session.run("ROLLBACK");
}

fn keys_in_ascending_order_are_claimed_and_descending_refused(
    db: &Database<'_>,
    isolation: Isolation,
) {
    let mut session = db.session("session");
    session.begin(isolation);
    for key in ["B", "a", "b", "ba"] {
        session.call(claim(key)).expect("claimed");
    }
    // In front of the greatest held, though behind the first: still descending.
    session.refused(claim("aa")).expect_ours("IK001").mentions("aa").mentions("ba");
    session.run("ROLLBACK");
    assert_eq!(db.key_locks_of(&session), 0);
}

/// Neither does a finished record excuse a descending claim.
fn a_replayed_key_does_not_excuse_a_descending_claim(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    shop::create_order(&mut session, isolation, "a").expect("it succeeds").expect("completed");
    session.begin(isolation);
    session.call(claim("b")).expect("claimed");
    session.refused(claim("a")).expect_ours("IK001");
    session.run("ROLLBACK");
}

/// A replayed key is no held key: it sets no order.
fn only_held_keys_set_the_order(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    shop::create_order(&mut session, isolation, "z").expect("it succeeds").expect("completed");
    session.begin(isolation);
    session.call(claim("z")).expect("replayed");
    session.call(claim("a")).expect("claimed");
    session.run("ROLLBACK");
}

at_every_isolation!(
    a_claim_after_a_row_lock_is_refused_before_any_wait,
    a_claim_after_any_write_is_refused,
    a_replayed_key_does_not_excuse_the_order,
    keys_in_ascending_order_are_claimed_and_descending_refused,
    a_replayed_key_does_not_excuse_a_descending_claim,
    only_held_keys_set_the_order,
);

/// The order is that of (scope, key space, key), each compared byte for byte.
#[test]
fn scope_comes_before_operation_and_operation_before_key() {
    let db = Database::fresh();
    let identified = |(scope, operation, key): (&str, &str, &str)| {
        let call = Call::new("idempotency_claim").with("scope", scope);
        call.with("operation", operation).with("key", key)
    };
    let mut session = db.session("session");
    for (first, then, fits) in [
        (("a", "x", "z"), ("b", "a", "a"), true),
        (("b", "a", "a"), ("a", "x", "z"), false),
        (("a", "x", "z"), ("a", "y", "a"), true),
        (("a", "y", "a"), ("a", "x", "z"), false),
        (("a", "bc", "d"), ("ab", "c", "d"), true),
        (("ab", "c", "d"), ("a", "bc", "d"), false),
    ] {
        session.run("BEGIN");
        session.call(identified(first)).expect("claimed");
        if fits {
            session.call(identified(then)).expect("claimed");
        } else {
            session.refused(identified(then)).expect_ours("IK001");
        }
        session.run("ROLLBACK");
    }
}

/// Under a linguistic collation `a` comes before `B`; bytes say otherwise, in every database.
#[test]
fn the_order_is_that_of_bytes_under_icu() {
    let db = Cluster::shared().database_with_icu("en-US");
    db.run("CREATE EXTENSION pg_idempotency");
    assert!(db.value::<bool>("SELECT 'a' < 'B'"), "the database's own order is another");
    let mut session = db.session_as(Role::Superuser, "session");
    session.run("BEGIN");
    session.call(claim("B")).expect("claimed");
    session.call(claim("a")).expect("claimed");
    session.refused(claim("C")).expect_ours("IK001");
}

/// With the rule switched off PostgreSQL is as it always was: the deadlock is found by its own
/// detector, and passed on as its own error.
#[test]
fn with_the_order_off_row_and_key_deadlock() {
    let db = Database::fresh();
    with_a_row(&db);
    let (mut victim, mut other) = (db.session("victim"), db.session_as(Role::Superuser, "other"));
    let lock_row = "SELECT * FROM orders WHERE key = 'row' FOR UPDATE";
    victim.run("SET pg_idempotency.lock_order = off; BEGIN");
    victim.rows(lock_row);
    // Only the victim looks for deadlocks, so the server always picks it.
    other.run("SET deadlock_timeout = '60s'; BEGIN");
    other.call(claim("k")).expect("claimed");
    other.start(lock_row);
    db.wait_until_blocked(&other, &victim);
    victim.start(claim("k").with("wait_ms", -1));
    victim.finish_refused().expect("40P01");
    assert!(other.finish().is_ok());
}

#[test]
fn with_the_order_off_claims_after_writes_and_descending_claims_work() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN; SET LOCAL pg_idempotency.lock_order = off");
    session.run("INSERT INTO orders (key) VALUES ('before')");
    for key in ["b", "a"] {
        session.call(claim(key)).expect("claimed");
        session.call(complete(204)).expect("completed");
    }
    session.run("COMMIT");
    assert_eq!((db.orders("before"), db.records()), (1, 2));
    assert_eq!(session.take_notices().len(), 0);
}

#[test]
fn with_the_order_at_warning_the_claim_is_won_and_warned_of() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN; SET LOCAL pg_idempotency.lock_order = warning");
    session.run("INSERT INTO orders (key) VALUES ('before')");
    session.call(claim("k")).expect("claimed");
    let warnings = session.take_notices();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].severity(), "WARNING");
    assert!(warnings[0].message().starts_with("claim out of order"), "{warnings:?}");
    assert!(warnings[0].detail().is_some(), "{warnings:?}");
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
}

#[test]
fn the_order_can_be_set_to_nothing_else() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(replay("k")).expect("unknown");
    session.run_refused("SET pg_idempotency.lock_order = sometimes").expect("22023");
    let order: String = session.value("SELECT current_setting('pg_idempotency.lock_order')");
    assert_eq!(order, "error");
}
