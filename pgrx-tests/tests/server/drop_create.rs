//! The extension dropped and made again under living sessions.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

const AGAIN: &str = "DROP EXTENSION pg_idempotency; CREATE EXTENSION pg_idempotency;
                     SELECT idempotency_grant('backend')";

/// The whole story, once for each key.
fn assert_works(db: &Database<'_>, session: &mut Session, key: &str) {
    let records = db.records();
    let sent = shop::create_order(session, Isolation::ReadCommitted, key).expect("it succeeds");
    let sent = sent.expect("completed");
    assert_eq!(session.call(claim(key)).expect("replayed").answer(), sent.answer());
    assert_eq!(session.call(replay(key)).expect("replayed").answer(), sent.answer());
    assert_eq!((db.orders(key), db.records()), (1, records + 1));
}

/// Catches relations and plans remembered by OID.
#[test]
fn dropped_and_made_again_in_the_same_session() {
    let db = Database::fresh();
    let mut session = db.session_as(Role::Superuser, "session");
    for key in ["first", "second", "third"] {
        assert_works(&db, &mut session, key);
        session.run(AGAIN);
        assert_eq!(db.records(), 0);
    }
    assert_works(&db, &mut session, "first again after a drop: nothing was remembered");
}

#[test]
fn dropped_and_made_again_under_another_session() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for key in ["first", "second", "third"] {
        assert_works(&db, &mut session, key);
        db.run(AGAIN);
    }
    assert_works(&db, &mut session, "last");
}

/// A dropped extension is an ordinary error, and so is a statement prepared before.
#[test]
fn while_it_is_gone_calls_fail_and_the_session_lives() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run(
        "PREPARE again AS SELECT outcome FROM idempotency_claim('alice', 'POST /orders', 'k')",
    );
    session.run("BEGIN");
    assert_eq!(session.value::<String>("EXECUTE again"), "claimed");
    session.run("ROLLBACK");
    db.run("DROP EXTENSION pg_idempotency");
    session.refused(claim("k")).expect("42883");
    assert!(matches!(session.refused("EXECUTE again").code(), Some("42883" | "XX000" | "0A000")));
    session.run("BEGIN; INSERT INTO orders (key) VALUES ('work without it'); COMMIT");
    db.run("CREATE EXTENSION pg_idempotency; SELECT idempotency_grant('backend')");
    session.run("BEGIN");
    assert_eq!(session.value::<String>("EXECUTE again"), "claimed");
    session.run("ROLLBACK");
    assert_works(&db, &mut session, "back");
}

/// A drop that is rolled back has not happened.
#[test]
fn a_drop_rolled_back_changes_nothing() {
    let db = Database::fresh();
    let mut session = db.session_as(Role::Superuser, "session");
    assert_works(&db, &mut session, "before");
    session.run("BEGIN; DROP EXTENSION pg_idempotency; CREATE EXTENSION pg_idempotency; ROLLBACK");
    session.call(claim("before")).expect("replayed");
    assert_works(&db, &mut session, "after");
}

/// The guard is the transaction's: it does not fall with the extension.
#[test]
fn a_claim_is_guarded_even_when_the_extension_is_dropped_under_it() {
    let db = Database::fresh();
    let mut session = db.session_as(Role::Superuser, "session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("DROP EXTENSION pg_idempotency");
    session.run_refused("COMMIT").expect_ours("IK003");
    session.call(claim("k")).expect("claimed");
}

#[test]
fn the_functions_may_live_in_a_schema_of_their_own() {
    let db = Database::fresh();
    db.run(
        "DROP EXTENSION pg_idempotency; CREATE SCHEMA keys; CREATE EXTENSION pg_idempotency SCHEMA keys;
         SELECT keys.idempotency_grant('backend')",
    );
    let mut session = db.session("session");
    session.run("SET search_path = keys, public");
    assert_works(&db, &mut session, "k");
    let elsewhere = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'idempotency%' AND pronamespace <> 'keys'::regnamespace";
    assert_eq!(db.value::<i64>(elsewhere), 0);
}

#[test]
fn nothing_is_left_behind_by_a_drop() {
    let db = Database::fresh();
    let mut session = db.session("session");
    assert_works(&db, &mut session, "k");
    db.run("DROP EXTENSION pg_idempotency");
    let left = "SELECT (SELECT count(*) FROM pg_proc WHERE proname LIKE 'idempotency%')
                     + (SELECT count(*) FROM pg_type WHERE typname LIKE 'idempotency%')
                     + (SELECT count(*) FROM pg_namespace WHERE nspname = 'idempotency')";
    assert_eq!(db.value::<i64>(left), 0);
}
