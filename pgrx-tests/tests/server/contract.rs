//! What each outcome is made of.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use serde_json::{Value, json};
use std::time::SystemTime;

const MARK: &str = "Idempotent-Replayed";

fn clock(db: &Database<'_>) -> SystemTime {
    db.value("SELECT clock_timestamp()")
}

#[test]
fn claimed_says_who_holds_the_key_since_when() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    let before = clock(&db);
    let claimed = session.call(claim("k").with("fingerprint", [1; 32])).expect("claimed");
    assert_eq!((claimed.status, &claimed.headers, &claimed.body), (None, &None, &None));
    assert_eq!((claimed.resource_type, claimed.resource_id), (None, None));
    assert_eq!((claimed.recovery_point, claimed.recovery_data), (None, None));
    assert_eq!((claimed.attempt, claimed.retry_after), (Some(1), None));
    assert_eq!(claimed.token.expect("a token").get_version_num(), 7);
    assert_eq!((claimed.completed_at, claimed.expires_at), (None, None));
    let created = claimed.created_at.expect("a time");
    assert!(before <= created && created <= clock(&db), "the clock's time, not the transaction's");
}

#[test]
fn each_claim_has_a_token_of_its_own() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let mut tokens: Vec<_> =
        (0..50).map(|_| session.call(claim("k")).expect("claimed").token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 50);
}

#[test]
fn completed_is_what_replayed_will_be() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    let claimed = session.call(claim("k").with("fingerprint", [1; 32])).expect("claimed");
    let call = complete(201).with("body", "{\"a\":1}").with("headers", json!({"Location": "/1"}));
    let call = call.with("resource_type", "order").with("resource_id", "1");
    let sent = session.call(call).expect("completed");
    session.run("COMMIT");
    let replayed = session.call(claim("k").with("fingerprint", [1; 32])).expect("replayed");
    assert_eq!((sent.status, sent.text()), (Some(201), "{\"a\":1}"));
    assert_eq!(replayed.answer(), sent.answer());
    let mut marked = sent.headers.clone().expect("headers");
    assert_eq!(marked, json!({"Location": "/1", "Content-Type": "application/json"}));
    marked[MARK] = "true".into();
    assert_eq!(replayed.headers, Some(marked));
    for outcome in [&sent, &replayed] {
        assert_eq!(outcome.resource_type.as_deref(), Some("order"));
        assert_eq!(outcome.resource_id.as_deref(), Some("1"));
        assert_eq!(outcome.created_at, claimed.created_at);
        assert!(outcome.completed_at > outcome.created_at);
        assert_eq!((outcome.expires_at, outcome.retry_after), (None, None), "kept for ever");
    }
    assert_eq!(replayed.fingerprint.as_deref(), Some(&[1; 32][..]));
    assert_eq!(session.call(replay("k")).expect("replayed"), replayed, "replay says the same");
}

/// Catches `=` for `IS DISTINCT FROM`: an absent fingerprint is another one.
#[test]
fn fingerprints_are_compared_and_absent_is_a_value() {
    let db = Database::fresh();
    let (none, one, two): (Option<Vec<u8>>, _, _) = (None, Some(vec![1; 32]), Some(vec![2; 32]));
    let mut session = db.session("session");
    for (key, recorded) in [("without", &none), ("with", &one)] {
        session.run("BEGIN");
        session.call(claim(key).with("fingerprint", recorded.clone())).expect("claimed");
        session.call(complete(204)).expect("completed");
        session.run("COMMIT");
        for given in [&none, &one, &two] {
            let expected = if given == recorded { "replayed" } else { "mismatch" };
            let found =
                session.call(claim(key).with("fingerprint", given.clone())).expect(expected);
            assert_eq!(found.status, Some(if given == recorded { 204 } else { 422 }));
            // Replay does not compare where it is given none.
            let compared = if given.is_none() { "replayed" } else { expected };
            session.call(replay(key).with("fingerprint", given.clone())).expect(compared);
        }
    }
}

#[test]
fn mismatch_is_a_whole_answer() {
    let db = Database::fresh();
    let mut session = db.session("session");
    shop::create_order(&mut session, Isolation::ReadCommitted, "k").expect("it succeeds");
    let mismatch = session.call(claim("k").with("fingerprint", [1; 32])).expect("mismatch");
    mismatch.expect_problem(422);
    assert_eq!(mismatch.header(MARK), None, "nothing is replayed");
    assert_eq!(
        (mismatch.resource_id, mismatch.token),
        (None, None),
        "nothing of the other request"
    );
}

#[test]
fn unknown_is_no_answer() {
    let db = Database::fresh();
    let unknown = db.session("session").call(replay("k")).expect("unknown");
    assert_eq!((unknown.status, unknown.body, unknown.token), (None, None, None));
}

// ---- keys ----------------------------------------------------------------------------------

#[test]
fn a_key_is_the_same_raw_quoted_and_with_space_around_it() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let sent =
        shop::create_order(&mut session, Isolation::ReadCommitted, "a\\\"b").expect("it succeeds");
    for spelling in ["a\\\"b", "  a\\\"b\t", "\"a\\\\\\\"b\"", "\t\"a\\\\\\\"b\" "] {
        assert_eq!(
            session.call(claim(spelling)).expect("replayed").answer(),
            sent.answer(),
            "{spelling}"
        );
    }
}

#[test]
fn keys_are_compared_byte_for_byte_under_icu() {
    let db = Cluster::shared().database_with_icu("en-US-u-ks-level1");
    db.run("CREATE EXTENSION pg_idempotency");
    let mut session = db.session_as(Role::Superuser, "session");
    for key in ["K1", "k1", "k1 x", "k1x", "\u{e9}", "e\u{301}", "e", "\u{ff4b}1"] {
        session.run("BEGIN");
        session.call(claim(key)).expect("claimed");
        session.call(complete(204)).expect("completed");
        session.run("COMMIT");
    }
    assert_eq!(db.records(), 8);
}

/// Malformed keys are the client's fault: an answer for it, nothing stored, nothing locked.
#[test]
fn malformed_keys_are_invalid() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    let long = "x".repeat(256);
    let wide = "\u{e9}".repeat(128);
    for (key, code) in [
        ("", "too_short"),
        (" \t ", "too_short"),
        ("\"\"", "too_short"),
        ("\"  \"", "too_short"),
        (&*long, "too_long"),
        (&*wide, "too_long"),
        ("\"open", "invalid_format"),
        ("\"a\"b\"", "invalid_format"),
        ("\"a\\b\"", "invalid_format"),
        ("\"a\";p=", "invalid_format"),
        ("a, b", "invalid_format"),
        ("\"\u{e9}\"", "invalid_format"),
        ("a\nb", "invalid_format"),
        ("a\u{7f}b", "invalid_format"),
    ] {
        for call in [claim(key), replay(key)] {
            let problem = session.call(call).expect("invalid").expect_problem(400);
            assert_eq!(problem["errors"][0]["pointer"], "#header/Idempotency-Key", "{key:?}");
            assert_eq!(problem["errors"][0]["code"], code, "{key:?}: {problem}");
        }
    }
    assert_eq!((db.records(), db.keys_held()), (0, 0));
}

// ---- no key, no scope ----------------------------------------------------------------------

/// Makes a claim that is bypassed: without a key, or of nobody.
fn bypassing() -> [Call; 3] {
    let anonymous = |key: &str| {
        let call = Call::new("idempotency_claim").with("scope", None::<&str>);
        call.with("operation", "POST /orders").with("key", key)
    };
    // A malformed key of an anonymous caller has no effect either.
    [claim(None::<&str>), anonymous("k"), anonymous("\"open")]
}

/// Exactly as without the extension: no order, no guard, no lock; complete passes through.
#[test]
fn bypassed_work_is_as_without_the_extension() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for (n, call) in bypassing().into_iter().enumerate() {
        session.run(&format!("BEGIN; INSERT INTO orders (key) VALUES ('bypass {n}')"));
        let bypassed = session.call(call).expect("bypassed");
        assert_eq!((bypassed.status, bypassed.body, bypassed.token), (None, None, None));
        let call = complete(503).with("body", "as given").with("headers", json!({"X": "y"}));
        let passed = session.call(call).expect("bypassed");
        assert_eq!((passed.status, passed.text()), (Some(503), "as given"));
        assert_eq!(passed.header("x"), Some(&json!("y")));
        assert_eq!(db.keys_held(), 0);
        session.run("COMMIT");
        assert_eq!(db.orders(&format!("bypass {n}")), 1);
    }
    assert_eq!(db.records(), 0);
}

#[test]
fn bypassed_work_may_be_committed_without_a_completion() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.run("INSERT INTO orders (key) VALUES ('k'); COMMIT");
    assert_eq!(db.orders("k"), 1);
}

/// A bypass does not hide a claim that the transaction also holds.
#[test]
fn a_completion_goes_to_the_claim_and_not_to_the_bypass() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.run("INSERT INTO orders (key) VALUES ('k')");
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    session.call(claim("k")).expect("replayed");
}

/// Catches a bypass that is remembered longer than its transaction.
#[test]
fn a_bypass_ends_with_its_transaction() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.run("COMMIT; BEGIN");
    session.refused(complete(201)).expect_ours("IK002");
}

// ---- statuses ------------------------------------------------------------------------------

/// By default 200 to 499 are kept, without the three that ask for a retry.
#[test]
fn statuses_are_kept_or_released() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for status in [200, 201, 204, 301, 304, 400, 404, 407, 409, 422, 424, 426, 428, 430, 499] {
        let key = format!("kept {status}");
        session.run("BEGIN");
        session.call(claim(&key)).expect("claimed");
        session.call(complete(status)).expect("completed");
        session.run("COMMIT");
        assert_eq!(session.call(claim(&key)).expect("replayed").status, Some(status));
    }
    for status in [408, 425, 429, 500, 502, 503, 599] {
        session.run("BEGIN");
        session.call(claim("released")).expect("claimed");
        let sent = session.call(complete(status).with("body", "later")).expect("released");
        assert_eq!((sent.status, sent.text()), (Some(status), "later"));
        session.run("ROLLBACK");
        session.call(claim("released")).expect("claimed");
    }
    assert_eq!(db.records(), 15);
}

// ---- several -------------------------------------------------------------------------------

#[test]
fn tokens_tell_several_claims_apart() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    let tokens = ["a", "b"].map(|key| session.call(claim(key)).expect("claimed").token);
    session.call(complete(201).with("body", "b").with("token", tokens[1])).expect("completed");
    session.call(complete(201).with("body", "a").with("token", tokens[0])).expect("completed");
    session.run("COMMIT");
    for key in ["a", "b"] {
        assert_eq!(session.call(claim(key)).expect("replayed").text(), key);
    }
}

#[test]
fn a_released_key_is_claimed_by_the_next() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    let answer = session.rows(release());
    assert_eq!(answer.len(), 1);
    session.run("COMMIT");
    session.call(claim("k")).expect("claimed");
    assert_eq!(db.records(), 0);
}

/// Positional arguments are in the order of the contract.
#[test]
fn arguments_have_the_order_of_the_contract() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    let claimed = session.rows(
        "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k', decode(repeat('01', 32), 'hex'),
                                         0, NULL, NULL, NULL)",
    );
    Outcome::only(&claimed).expect("claimed");
    let completed = session.rows(
        "SELECT * FROM idempotency_complete(201, 'body', NULL, NULL, 'text/x', '{\"X\": \"y\"}', 'order', '1',
                                            NULL, NULL)",
    );
    Outcome::only(&completed).expect("completed");
    session.run("COMMIT");
    let replayed = session.call(claim("k").with("fingerprint", [1; 32])).expect("replayed");
    let headers: Value = json!({"X": "y", "Content-Type": "text/x", MARK: "true"});
    assert_eq!((replayed.text(), replayed.headers.as_ref()), ("body", Some(&headers)));
    assert_eq!(replayed.resource_type.as_deref(), Some("order"));
}
