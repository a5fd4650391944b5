//! Bad arguments: a clear error, and nothing stored.

use pg_idempotency_tests::call::Argument;
use pg_idempotency_tests::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

fn identified(function: &'static str, scope: impl Argument, operation: impl Argument) -> Call {
    let call = Call::new(function).with("scope", scope);
    call.with("operation", operation).with("key", "k")
}

/// Makes the call in a transaction that has not claimed, and asserts the error and its traces: none.
fn assert_refused_claim(db: &Database<'_>, what: &str, call: Call, code: &str) {
    let mut session = db.session(what);
    session.run("BEGIN");
    session.refused(call).expect_ours(code);
    session.run("ROLLBACK");
    assert_eq!((db.records(), db.keys_held()), (0, 0), "{what}");
}

/// Makes the call behind a claim, and asserts the error, that nothing was stored, and that the
/// claim is as good as before.
fn assert_refused_completion(db: &Database<'_>, what: &str, call: Call, code: &str) {
    let mut session = db.session(what);
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("SAVEPOINT s");
    session.refused(call).expect_ours(code);
    session.run("ROLLBACK TO s");
    assert_eq!((db.records(), db.keys_held()), (0, 1), "{what}");
    session.call(complete(204)).expect("completed");
    session.run("ROLLBACK");
}

#[test]
fn scope_and_operation() {
    let db = Database::fresh();
    let long = "x".repeat(256);
    // 256 bytes, though only 128 characters.
    let wide = "\u{e9}".repeat(128);
    for function in ["idempotency_claim", "idempotency_replay"] {
        let null: Option<&str> = None;
        let call = |scope, operation| identified(function, scope, operation);
        assert_refused_claim(&db, "NULL operation", identified(function, "alice", null), "22004");
        assert_refused_claim(&db, "long scope", call(&*long, "POST /orders"), "22023");
        assert_refused_claim(&db, "wide scope", call(&*wide, "POST /orders"), "22023");
        assert_refused_claim(&db, "long operation", call("alice", &*long), "22023");
        assert_refused_claim(&db, "wide operation", call("alice", &*wide), "22023");
    }
}

/// Catches a principal that got lost on its way, as the empty text, and shares answers with all others who
/// got lost.
#[test]
fn an_empty_scope() {
    let db = Database::fresh();
    let modes = ["optional", "required", "ignored", "forbidden"].map(|mode| json!({"mode": mode}));
    let anonymous = ["bypass", "error"].map(|rule| json!({"mode": "optional", "anonymous": rule}));
    for settings in modes.into_iter().chain(anonymous) {
        let what = settings.to_string();
        pg_idempotency_tests::operation::configure(&db, settings);
        let refused = |call| assert_refused_claim(&db, &what, call, "22023");
        refused(identified("idempotency_claim", "", "POST /orders"));
        refused(identified("idempotency_replay", "", "POST /orders"));
        let many = Call::new("idempotency_claim_many").with("scope", "");
        refused(many.with("operation", "POST /orders").with("keys", vec!["k".to_owned()]));
        let mut operator = db.session_as(Role::Superuser, "operator");
        let refusal = operator.refused(identified("idempotency_settle", "", "POST /orders"));
        refusal.expect_ours("22023").hints("NULL for nobody, and a constant for everybody");
    }
}

/// What an older version may have written can be erased.
#[test]
fn an_empty_scope_can_be_forgotten() {
    let db = Database::fresh();
    let mut operator = db.session_as(Role::Superuser, "operator");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
    db.run("UPDATE idempotency.records SET scope = ''");
    assert_eq!(operator.value::<i64>("SELECT idempotency_forget('')"), 1);
    assert_eq!(db.records(), 0);
}

/// At the limit is within it.
#[test]
fn scope_operation_and_key_of_255_bytes_are_fine() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let longest = "x".repeat(255);
    session.run("BEGIN");
    let call = Call::new("idempotency_claim").with("scope", &longest);
    session.call(call.with("operation", &longest).with("key", &longest)).expect("claimed");
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
    assert_eq!(db.records(), 1);
}

#[test]
fn fingerprint() {
    let db = Database::fresh();
    for length in [0, 1, 31, 33, 64] {
        let what = format!("fingerprint of {length} bytes");
        for call in [claim("k"), replay("k")] {
            assert_refused_claim(&db, &what, call.with("fingerprint", vec![7; length]), "22023");
        }
    }
}

#[test]
fn wait_ms() {
    let db = Database::fresh();
    for wait_ms in [-2, i32::MIN] {
        let what = format!("wait_ms {wait_ms}");
        assert_refused_claim(&db, &what, claim("k").with("wait_ms", wait_ms), "22023");
        assert_refused_claim(&db, &what, claim_many(&["k"]).with("wait_ms", wait_ms), "22023");
    }
    db.session("longest").call(claim("k").with("wait_ms", i32::MAX)).expect("claimed");
}

/// Catches 0 taken for "no lease", and a lease that has ended before it begins.
#[test]
fn lease_ms() {
    let db = Database::fresh();
    for lease_ms in [0, -1, i32::MIN] {
        let what = format!("lease_ms {lease_ms}");
        assert_refused_claim(&db, &what, claim("k").with("lease_ms", lease_ms), "22023");
    }
}

#[test]
fn keys_of_claim_many() {
    let db = Database::fresh();
    let refused = |what, call| assert_refused_claim(&db, what, call, "22023");
    refused("a key twice", claim_many(&["a", "b", "a"]));
    refused("a key twice in two spellings", claim_many(&["a", " \"a\" "]));
    let many: Vec<String> = (0..1001).map(|n| format!("k{n}")).collect();
    refused("1,001 keys", claim_many(&many.iter().map(String::as_str).collect::<Vec<_>>()));
    let one_of_two = vec![vec![7; 32]];
    refused(
        "fingerprints of another number",
        claim_many(&["a", "b"]).with("fingerprints", one_of_two),
    );
    let short = vec![vec![7; 31]];
    refused("a short fingerprint", claim_many(&["a"]).with("fingerprints", short));
}

#[test]
fn status() {
    let db = Database::fresh();
    for status in [i32::MIN, -1, 0, 99, 100, 199, 600, i32::MAX] {
        assert_refused_completion(&db, &format!("status {status}"), complete(status), "22023");
    }
    assert_refused_completion(&db, "NULL status", complete(None::<i32>), "22004");
}

#[test]
fn two_bodies_at_once() {
    let db = Database::fresh();
    let with = |body: bool, body_json: bool, body_bytes: bool| {
        let call = complete(200).with("body", body.then_some("x"));
        let call = call.with("body_json", body_json.then_some(Value::Null));
        call.with("body_bytes", body_bytes.then(Vec::<u8>::new))
    };
    assert_refused_completion(&db, "body, body_json", with(true, true, false), "22023");
    assert_refused_completion(&db, "body, body_bytes", with(true, false, true), "22023");
    assert_refused_completion(&db, "body_json, body_bytes", with(false, true, true), "22023");
    assert_refused_completion(&db, "all three", with(true, true, true), "22023");
}

#[test]
fn headers() {
    let db = Database::fresh();
    let refused = |headers: Value| {
        let what = headers.to_string();
        assert_refused_completion(&db, &what, complete(200).with("headers", headers), "22023");
    };
    for no_object in [json!([]), json!("Location: /"), json!(1), json!(true), Value::Null] {
        refused(no_object);
    }
    for no_value in [json!(true), Value::Null, json!({"a": "b"}), json!([["a"]]), json!([null])] {
        refused(json!({"X": no_value}));
    }
    for no_name in ["", "a b", "a:b", "a\nb", "\u{e9}"] {
        refused(json!({no_name: "value"}));
    }
    // A line break would let a value pose as another header.
    refused(json!({"X": "a\r\nSet-Cookie: sid=1"}));
}

#[test]
fn content_type_twice_and_different() {
    let db = Database::fresh();
    let typed = complete(200).with("body", "x").with("content_type", "text/plain");
    let both = typed.with("headers", json!({"content-type": "text/html"}));
    assert_refused_completion(&db, "argument and header", both, "22023");
    let list = complete(200).with("headers", json!({"Content-Type": ["text/plain", "text/html"]}));
    assert_refused_completion(&db, "a list", list, "22023");
    let spellings = json!({"Content-Type": "text/plain", "content-type": "text/html"});
    assert_refused_completion(
        &db,
        "two spellings",
        complete(200).with("headers", spellings),
        "22023",
    );
    let broken = complete(200).with("content_type", "text/plain\r\nX: y");
    assert_refused_completion(&db, "a line break", broken, "22023");
}

/// It becomes a header, and those are read into Rust's memory, where a failed allocation ends the server.
#[test]
fn content_type_beyond_its_limit() {
    let db = Database::fresh();
    let of_length = |length| complete(200).with("content_type", "x".repeat(length));
    assert_refused_completion(&db, "1,025 bytes", of_length(1025), "22023");
    let wide = complete(200).with("content_type", "\u{e9}".repeat(513));
    assert_refused_completion(&db, "513 wide characters", wide, "22023");
    let mut session = db.session("at the limit");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.call(of_length(1024)).expect("completed");
    session.run("COMMIT");
}

/// Any user may set it, and it goes into Rust's memory too.
#[test]
fn problem_type_base_beyond_its_limit() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(claim("k")).expect("claimed");
    session.run(&format!("SET pg_idempotency.problem_type_base = '{}'", "x".repeat(255)));
    let long = format!("SET pg_idempotency.problem_type_base = '{}'", "x".repeat(256));
    let refusal = session.attempt_script(&long).expect_err("refused");
    assert_eq!(refusal.code(), Some("22023"), "{refusal:?}");
}

#[test]
fn unknown_token() {
    let db = Database::fresh();
    let token = Uuid::from_u128(7);
    assert_refused_completion(&db, "complete", complete(200).with("token", token), "IK002");
    assert_refused_completion(&db, "release", release().with("token", token), "IK002");
}

#[test]
fn no_claim_at_all() {
    let db = Database::fresh();
    assert_refused_claim(&db, "complete", complete(200), "IK002");
    assert_refused_claim(&db, "release", release(), "IK002");
}

#[test]
fn a_claim_settled_already() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    let token = session.call(claim("k")).expect("claimed").token;
    session.call(complete(201).with("body", "first")).expect("completed");
    for call in [complete(409), complete(409).with("token", token), release()] {
        session.run("SAVEPOINT s");
        session.refused(call).expect_ours("IK002");
        session.run("ROLLBACK TO s");
    }
    session.run("COMMIT");
    assert_eq!(session.call(claim("k")).expect("replayed").text(), "first");
}

/// Which of them is meant must be said; with the token it is.
#[test]
fn several_claims_and_no_token() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    let token = session.call(claim("a")).expect("claimed").token;
    session.call(claim("b")).expect("claimed");
    for call in [complete(204), release()] {
        session.run("SAVEPOINT s");
        session.refused(call).expect_ours("22023").hints("token");
        session.run("ROLLBACK TO s");
    }
    session.call(complete(204).with("token", token)).expect("completed");
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
    assert_eq!(db.records(), 2);
}

/// Catches what would break a line of a header, a log or a page that it comes to stand in.
#[test]
fn control_characters() {
    let db = Database::fresh();
    for name in ["resource_type", "resource_id", "withhold", "content_type"] {
        for value in ["a\r\nSet-Cookie: b=c", "a\u{7f}", "\u{85}", "\u{1b}[2J"] {
            let what = format!("{name} {value:?}");
            assert_refused_completion(&db, &what, complete(200).with(name, value), "22023");
        }
    }
    for headers in [json!({"X": "a\nb"}), json!({"X\n": "a"}), json!({"X": ["a", "\u{7}"]})] {
        let what = headers.to_string();
        assert_refused_completion(&db, &what, complete(200).with("headers", headers), "22023");
    }
    let mut operator = db.session_as(Role::Superuser, "operator");
    let register = "SELECT idempotency_register_resource(E'a\\nb', 'public.orders', 'id')";
    operator.refused(register).expect_ours("22023");
}

/// A header's bytes stand for the characters up to U+00FF. Catches U+010D and U+010A: a server that cuts
/// characters to bytes makes a line break of them.
#[test]
fn characters_that_no_header_carries() {
    let db = Database::fresh();
    for value in ["a\u{10d}\u{10a}Set-Cookie: b=c", "\u{100}", "\u{1f600}"] {
        let refused = |call| assert_refused_completion(&db, value, call, "22023");
        refused(complete(200).with("headers", json!({"X": value})));
        refused(complete(200).with("headers", json!({"X": ["a", value]})));
        refused(complete(200).with("body", "a").with("content_type", value));
    }
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    let refusal = session.refused(complete(200).with("headers", json!({"X-Name": "\u{10d}"})));
    refusal.expect_ours("22023").mentions("\"X-Name\" has the character U+010D").hints("RFC 8187");
}
