//! Whether a key counts at all, where, and for what: mode, anonymous callers, bypassed calls, key
//! spaces, fingerprints.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use serde_json::json;

const V7: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

// ---- mode ----------------------------------------------------------------------------------

/// Outcomes of claim and replay for a key and for none.
fn outcomes(session: &mut Session) -> [String; 4] {
    [claim("k"), replay("k"), claim(None::<&str>), replay(None::<&str>)]
        .map(|call| session.call(call).outcome)
}

#[test]
fn mode_says_what_a_key_and_its_absence_mean() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for (mode, expected) in [
        ("optional", ["claimed", "unknown", "bypassed", "bypassed"]),
        ("required", ["claimed", "unknown", "invalid", "invalid"]),
        ("ignored", ["bypassed"; 4]),
    ] {
        configure(&db, json!({"mode": mode}));
        assert_eq!(outcomes(&mut session), expected, "{mode}");
    }
    configure(&db, json!({"mode": "required"}));
    assert_invalid(&session.call(claim(None::<&str>)), 400, "missing");
}

#[test]
fn ignored_keys_have_no_effect_whatever_they_are() {
    let db = Database::fresh();
    configure(&db, json!({"mode": "ignored", "key_format": "uuidv7", "fingerprint": "required"}));
    let mut session = db.session("session");
    for key in ["abc", "", V7, &"a".repeat(1000)] {
        session.run("BEGIN");
        session.call(claim(key)).expect("bypassed");
        session.run("INSERT INTO orders (key) VALUES ('k')");
        session.call(complete(201)).expect("bypassed");
        session.run("COMMIT");
    }
    assert_eq!((db.orders("k"), db.records()), (4, 0));
}

#[test]
fn forbidden_is_an_error_only_where_a_key_is_given() {
    let db = Database::fresh();
    configure(&db, json!({"mode": "forbidden"}));
    let mut session = db.session("session");
    for call in [claim("k"), replay("k"), claim_many(&["k"]), claim("not \u{7} valid")] {
        let says = [
            "operation not keyed",
            "\"POST /orders\" must not be called with an idempotency key",
            "without the key",
        ];
        assert_says(session.refused(call), "IK007", says);
    }
    session.run("BEGIN; INSERT INTO orders (key) VALUES ('k')");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.call(replay(None::<&str>)).expect("bypassed");
    session.call(complete(201).with("body", "x")).expect("bypassed");
    session.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 0));
}

// ---- anonymous callers ---------------------------------------------------------------------

fn anonymous(
    function: fn(Option<&'static str>, &str, Option<&'static str>) -> Call,
    key: Option<&'static str>,
) -> Call {
    function(None, ORDERS, key)
}

/// Looked at before the key: there is nobody whose key it could be.
#[test]
fn a_key_of_an_anonymous_caller_has_no_effect() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for mode in ["optional", "required", "ignored"] {
        configure(&db, json!({"mode": mode, "key_format": "uuidv7", "fingerprint": "required"}));
        for key in [None, Some("abc"), Some(V7), Some("")] {
            session.call(anonymous(claim_by, key)).expect("bypassed");
            session.call(anonymous(replay_by, key)).expect("bypassed");
        }
    }
    configure(&db, json!({"mode": "required"}));
    assert_invalid(&session.call(claim("abc")), 400, "invalid_format");
}

/// The mode comes first: a client that sends keys where they are forbidden learns of it, logged in
/// or not.
#[test]
fn forbidden_holds_for_anonymous_callers_too() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for anonymous_callers in ["bypass", "error"] {
        configure(&db, json!({"mode": "forbidden", "anonymous": anonymous_callers}));
        for function in [claim_by, replay_by] {
            session.refused(anonymous(function, Some("k"))).expect_ours("IK007");
        }
    }
    session.refused(anonymous(claim_by, None)).expect_ours("22004");
    configure(&db, json!({"anonymous": "bypass"}));
    session.call(anonymous(claim_by, None)).expect("bypassed");
}

#[test]
fn anonymous_callers_can_be_refused() {
    let db = Database::fresh();
    configure(&db, json!({"anonymous": "error"}));
    let mut session = db.session("session");
    for key in [None, Some("k"), Some("")] {
        for function in [claim_by, replay_by] {
            let refusal = session.refused(anonymous(function, key));
            let says = [
                "scope must not be null",
                "\"POST /orders\" does not take anonymous calls",
                "principal",
            ];
            assert_says(refusal, "22004", says);
        }
    }
    session.call(claim("k")).expect("claimed");
}

// ---- bypassed ------------------------------------------------------------------------------

/// A completion behind it passes its arguments through and stores nothing, whatever the settings.
#[test]
fn a_bypassed_completion_passes_its_arguments_through() {
    let db = Database::fresh();
    configure(
        &db,
        json!({"body_format": "strict_json", "form": "resource", "kept_statuses": "{}", "max_body": 1}),
    );
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim(None::<&str>)).expect("bypassed");
    let call = complete(503).with("body", "{\"a\":null} or so").with("content_type", "text/x");
    let call = call.with("headers", json!({"Set-Cookie": "a=b", "Date": "today"}));
    let call = call
        .with("resource_type", "order")
        .with("resource_id", "no such")
        .with("withhold", "secret");
    let sent = session.call(call).expect("bypassed");
    assert_eq!((sent.status, sent.text()), (Some(503), "{\"a\":null} or so"));
    let headers = json!({"Set-Cookie": "a=b", "Date": "today", "Content-Type": "text/x"});
    assert_eq!((sent.headers, sent.token), (Some(headers), None));
    assert_eq!(
        (sent.resource_type.as_deref(), sent.resource_id.as_deref()),
        (Some("order"), Some("no such"))
    );
    assert!(!session.has_transaction_id() && db.key_locks_of(&session) == 0);
    session.run("COMMIT");
    assert_eq!(db.records(), 0);
}

/// No order check, no guard, no lock; fine where nothing can be written.
#[test]
fn a_bypassed_call_may_come_anywhere() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN; INSERT INTO orders (key) VALUES ('k')");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.run("COMMIT; BEGIN READ ONLY");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.call(complete(200).with("body", "x")).expect("bypassed");
    session.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 0));
    session.refused(complete(200)).expect_ours("IK002");
}

#[test]
fn a_completion_belongs_to_the_claim_where_there_is_one_too() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim_by("alice", "POST /other", None::<&str>)).expect("bypassed");
    session.call(claim("k")).expect("claimed");
    session.call(complete(201).with("body", "of k")).expect("completed");
    session.call(complete(202).with("body", "of the other")).expect("bypassed");
    session.run("COMMIT");
    assert_eq!(session.call(claim("k")).expect("replayed").text(), "of k");
}

// ---- key spaces ----------------------------------------------------------------------------

#[test]
fn a_key_of_a_shared_space_is_another_operations_mismatch() {
    let db = Database::fresh();
    for operation in [ORDERS, "POST /returns"] {
        let settings =
            json!({"key_space": "trade", "fingerprint": "ignored", "mismatch_status": 409});
        configure_operation(&db, operation, settings);
    }
    let mut session = db.session("session");
    execute(&mut session, claim("k"), complete(204));
    let mismatch = session.call(claim_by("alice", "POST /returns", "k")).expect("mismatch");
    let problem = mismatch.expect_problem(409);
    assert!(
        problem["detail"].as_str().is_some_and(|detail| detail.contains("another operation")),
        "{problem}"
    );
    assert_eq!(session.call(replay_by("alice", "POST /returns", "k")), mismatch);
    session.call(claim("k")).expect("replayed");
    session.call(claim_by("bob", "POST /returns", "k")).expect("claimed");
    session.call(claim_by("alice", "POST /orders elsewhere", "k")).expect("claimed");
    // An operation of the space's own name has this space too.
    session.call(claim_by("alice", "trade", "k")).expect("mismatch");
}

#[test]
fn a_key_of_a_shared_space_is_one_lock() {
    let db = Database::fresh();
    for operation in [ORDERS, "POST /returns"] {
        configure_operation(
            &db,
            operation,
            json!({"key_space": "trade", "in_progress_status": 425}),
        );
    }
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    let other = || claim_by("alice", "POST /returns", "k");
    session.call(other().with("wait_ms", 0)).expect("in_progress").expect_problem(425);
    session.start(other());
    db.wait_until_blocked(&session, &holder);
    holder.call(complete(204)).expect("completed");
    holder.run("COMMIT");
    session.finish_call().expect("mismatch").expect_problem(422);
}

#[test]
fn operations_with_spaces_of_their_own_do_not_meet() {
    let db = Database::fresh();
    let (mut one, mut other) = (db.session("one"), db.session("other"));
    one.run("BEGIN");
    one.call(claim("k")).expect("claimed");
    other.run("BEGIN");
    other.call(claim_by("alice", "POST /returns", "k").with("wait_ms", 0)).expect("claimed");
    for session in [&mut one, &mut other] {
        session.call(complete(204)).expect("completed");
        session.run("COMMIT");
    }
    assert_eq!(db.records(), 2);
}

// ---- fingerprints --------------------------------------------------------------------------

#[test]
fn a_required_fingerprint_must_be_there() {
    let db = Database::fresh();
    configure(&db, json!({"fingerprint": "required"}));
    let mut session = db.session("session");
    for call in [claim("k"), claim_many(&["k"])] {
        let says = [
            "fingerprint must not be null",
            "\"POST /orders\" requires a fingerprint",
            "idempotency_fingerprint",
        ];
        assert_says(session.refused(call), "22004", says);
    }
    session.call(claim(None::<&str>)).expect("bypassed");
    execute(&mut session, claim("k").with("fingerprint", [1; 32]), complete(204));
    session.call(claim("k").with("fingerprint", [1; 32])).expect("replayed");
    session.call(claim("k").with("fingerprint", [2; 32])).expect("mismatch");
    session.refused(claim("k")).expect_ours("22004");
    session.call(replay("k")).expect("replayed");
}

#[test]
fn an_ignored_fingerprint_is_neither_recorded_nor_compared() {
    let db = Database::fresh();
    configure(&db, json!({"fingerprint": "ignored"}));
    let mut session = db.session("session");
    execute(&mut session, claim("k").with("fingerprint", [1; 32]), complete(204));
    for other in [Some(vec![1; 32]), Some(vec![2; 32]), None] {
        let found = session.call(claim("k").with("fingerprint", other.clone())).expect("replayed");
        assert_eq!(found.fingerprint, None);
        session.call(replay("k").with("fingerprint", other)).expect("replayed");
    }
}
