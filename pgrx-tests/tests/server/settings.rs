//! The settings `pg_idempotency.*` that any user may set.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

#[test]
fn defaults_are_those_of_the_contract() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(replay("k")).expect("unknown");
    for (name, value) in [
        ("lock_order", "error"),
        ("unlisted", "optional"),
        ("wait_ms", "10000"),
        ("max_body", "1048576"),
        ("problem_type_base", ""),
    ] {
        let setting = format!(
            "SELECT CASE unit WHEN 'B' THEN setting WHEN 'kB' THEN (setting::bigint * 1024)::text ELSE setting END
             FROM pg_settings WHERE name = 'pg_idempotency.{name}' AND context = 'user'"
        );
        assert_eq!(session.value::<String>(setting), value, "{name}");
    }
}

#[test]
fn a_misspelt_setting_is_refused() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(replay("k")).expect("unknown");
    session.run_refused("SET pg_idempotency.lock_oder = off").expect("42602");
    for bad in ["wait_ms = -2", "max_body = -1", "unlisted = never", "lock_order = maybe"] {
        session.run_refused(&format!("SET pg_idempotency.{bad}")).expect("22023");
    }
}

#[test]
fn problems_have_a_type_of_ones_own() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let type_of = |session: &mut Session| {
        session.call(claim("")).expect("invalid").expect_problem(400)["type"].clone()
    };
    assert_eq!(type_of(&mut session), "about:blank");
    session.run("SET pg_idempotency.problem_type_base = 'https://example.com/problems/'");
    let given = type_of(&mut session);
    assert!(
        given.as_str().is_some_and(|kind| kind.starts_with("https://example.com/problems/")),
        "{given}"
    );
}

#[test]
fn operations_that_are_not_listed_can_be_ignored() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session
        .run("SET pg_idempotency.unlisted = ignored; BEGIN; INSERT INTO orders (key) VALUES ('k')");
    session.call(claim("k")).expect("bypassed");
    session.call(replay("k")).expect("bypassed");
    session.call(complete(201)).expect("bypassed");
    session.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 0));
}

#[test]
fn operations_that_are_not_listed_can_be_forbidden() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("SET pg_idempotency.unlisted = forbidden");
    for call in [claim("k"), replay("k"), claim_many(&["k"])] {
        session.refused(call).expect_ours("IK007").mentions("POST /orders");
    }
    session.run("SET pg_idempotency.unlisted = optional");
    shop::create_order(&mut session, Isolation::ReadCommitted, "k")
        .expect("it succeeds")
        .expect("completed");
}

/// Settings are the transaction's where it says LOCAL, and are read at each call.
#[test]
fn settings_are_read_at_each_call() {
    let db = Database::fresh();
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    session.run("BEGIN; SET LOCAL pg_idempotency.wait_ms = 0");
    session.call(claim("k")).expect("in_progress");
    session.run("SET LOCAL pg_idempotency.wait_ms = -1");
    session.start(claim("k"));
    db.wait_until_blocked(&session, &holder);
    holder.run("COMMIT");
    session.finish_call().expect("claimed");
}
