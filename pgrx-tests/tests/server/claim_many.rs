//! Several keys at once: claimed in the right order, answered in the caller's.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use postgres::Row;
use std::time::{Duration, Instant};

fn words(rows: &[Row]) -> Vec<(i32, String)> {
    rows.iter().map(|row| (row.get("ordinal"), row.get("outcome"))).collect()
}

fn expect_words(rows: &[Row], expected: &[&str]) {
    let expected: Vec<_> = (1..).zip(expected.iter().map(|&word| word.to_owned())).collect();
    assert_eq!(words(rows), expected);
}

/// Completes every claim among the rows with the key's place as its body.
fn complete_all(session: &mut Session, rows: &[Row]) {
    for row in rows {
        let ordinal: i32 = row.get("ordinal");
        let call = complete(201).with("body", ordinal.to_string());
        session.call(call.with("token", Outcome::from(row).token)).expect("completed");
    }
}

fn keys_come_back_in_the_callers_order(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    let rows = session.rows(claim_many(&["c", "a", "B", "b"]));
    expect_words(&rows, &["claimed"; 4]);
    assert!(!session.has_transaction_id());
    complete_all(&mut session, &rows);
    session.run("COMMIT");
    for (key, place) in [("c", "1"), ("a", "2"), ("B", "3"), ("b", "4")] {
        assert_eq!(session.call(claim(key)).expect("replayed").text(), place);
    }
}

/// Catches claims made in the caller's order: two callers with opposite orders would deadlock.
fn opposite_orders_do_not_deadlock(db: &Database<'_>, isolation: Isolation) {
    let (mut one, mut two) = (db.session("one"), db.session("two"));
    one.begin(isolation);
    let rows = one.rows(claim_many(&["a", "b", "c"]));
    two.begin(isolation);
    two.start(claim_many(&["c", "b", "a"]));
    db.wait_until_blocked(&two, &one);
    complete_all(&mut one, &rows);
    one.run("COMMIT");
    expect_words(&two.finish().expect("no deadlock"), &["replayed"; 3]);
    assert_eq!(db.key_locks_of(&two), 0);
}

at_every_isolation!(keys_come_back_in_the_callers_order, opposite_orders_do_not_deadlock);

#[test]
fn outcomes_may_be_mixed() {
    let db = Database::fresh();
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    shop::create_order(&mut session, Isolation::ReadCommitted, "done").expect("it succeeds");
    holder.run("BEGIN");
    holder.call(claim("held")).expect("claimed");
    session.run("BEGIN");
    let rows = session.rows(claim_many(&["new", "held", "", "done"]).with("wait_ms", 0));
    expect_words(&rows, &["claimed", "in_progress", "invalid", "replayed"]);
    Outcome::from(&rows[1]).expect_problem(409);
    Outcome::from(&rows[2]).expect_problem(400);
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
    assert_eq!(db.records(), 2);
}

/// One deadline for all of them: ten keys held by others take no ten waits.
#[test]
fn all_keys_share_one_deadline() {
    let db = Database::fresh();
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    holder.run("BEGIN");
    expect_words(&holder.rows(claim_many(&keys)), &["claimed"; 10]);
    let started = Instant::now();
    let rows = session.rows(claim_many(&keys).with("wait_ms", 300));
    let waited = started.elapsed();
    expect_words(&rows, &["in_progress"; 10]);
    assert!(
        waited >= Duration::from_millis(300) && waited < Duration::from_millis(2000),
        "{waited:?}"
    );
    assert!(!session.has_transaction_id());
}

/// Each fingerprint belongs to the key at its own place, however the keys are sorted.
#[test]
fn fingerprints_go_with_their_keys() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let fingerprints = vec![vec![2; 32], vec![1; 32]];
    session.run("BEGIN");
    let rows = session.rows(claim_many(&["b", "a"]).with("fingerprints", fingerprints));
    complete_all(&mut session, &rows);
    session.run("COMMIT");
    session.call(claim("a").with("fingerprint", [1; 32])).expect("replayed");
    session.call(claim("b").with("fingerprint", [2; 32])).expect("replayed");
    session.call(claim("b").with("fingerprint", [1; 32])).expect("mismatch");
}

#[test]
fn the_order_rule_holds_for_all_of_them() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("m")).expect("claimed");
    session.refused_inside_savepoint(claim_many(&["z", "a"]), "IK001");
    assert_eq!(db.key_locks_of(&session), 1, "nothing of a refused call is kept");
    expect_words(&session.rows(claim_many(&["z", "n"])), &["claimed"; 2]);
    session.refused_inside_savepoint(claim_many(&["zz", "z"]), "IK004");
    session.run("ROLLBACK; BEGIN; INSERT INTO orders (key) VALUES ('before')");
    session.refused(claim_many(&["k"])).expect_ours("IK001");
}

#[test]
fn every_claim_of_them_is_guarded() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    let rows = session.rows(claim_many(&["a", "b", "c"]));
    complete_all(&mut session, &rows[..2]);
    session.run_refused("COMMIT").expect_ours("IK003").mentions("\"c\"");
    assert_eq!(db.records(), 0);
}

#[test]
fn none_and_a_thousand_are_fine() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    assert_eq!(session.rows(claim_many(&[])).len(), 0);
    let keys: Vec<String> = (0..1000).map(|n| format!("k{n}")).collect();
    let rows = session.rows(claim_many(&keys.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(words(&rows).iter().filter(|(_, word)| word == "claimed").count(), 1000);
    assert_eq!(db.keys_held(), 1000);
    session.run("ROLLBACK");
    assert_eq!(db.keys_held(), 0);
}

#[test]
fn without_a_scope_they_are_bypassed() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let call = Call::new("idempotency_claim_many").with("scope", None::<&str>);
    let keys = vec!["a".to_owned(), "b".to_owned()];
    let call = call.with("operation", "POST /orders").with("keys", keys);
    expect_words(&session.rows(call), &["bypassed"; 2]);
}
