//! Headers: what is kept, what is never kept, and what a replay adds.

use pg_idempotency_tests::prelude::*;
use serde_json::{Value, json};

/// Sends `headers` with a completion; returns those sent and those replayed.
fn round_trip(db: &Database<'_>, headers: Value) -> (Value, Value) {
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    let sent = session.call(complete(200).with("headers", headers)).expect("completed");
    session.run("COMMIT");
    let replayed = session.call(claim("k")).expect("replayed");
    (sent.headers.unwrap_or(json!({})), replayed.headers.expect("the replay header at least"))
}

#[test]
fn strings_numbers_and_arrays_are_kept_as_strings() {
    let db = Database::fresh();
    let given =
        json!({"Location": "/orders/1", "X-Count": 5, "Link": ["<a>", "<b>"], "ETag": ["\"x\""]});
    let (sent, replayed) = round_trip(&db, given);
    let kept =
        json!({"Location": "/orders/1", "X-Count": "5", "Link": ["<a>", "<b>"], "ETag": "\"x\""});
    assert_eq!(sent, kept);
    let mut with_mark = kept;
    with_mark["Idempotent-Replayed"] = "true".into();
    assert_eq!(replayed, with_mark);
}

/// Catches a list that looks at names in one spelling only.
#[test]
fn what_belongs_to_one_connection_or_client_is_never_kept() {
    let db = Database::fresh();
    let (sent, replayed) = round_trip(
        &db,
        json!({
            "Set-Cookie": "sid=1", "set-cookie": "sid=2", "AUTHORIZATION": "Bearer x",
            "WWW-Authenticate": "Basic", "Proxy-Authenticate": "Basic", "proxy-anything": "x",
            "Content-Length": 5, "Date": "now", "Connection": "close, X-Hop", "X-Hop": "x",
            "Keep-Alive": "x", "TE": "x", "Trailer": "x", "Transfer-Encoding": "chunked",
            "Upgrade": "x", "X-Kept": "yes"
        }),
    );
    assert_eq!(sent, json!({"X-Kept": "yes"}), "what is sent is what is replayed");
    assert_eq!(replayed, json!({"X-Kept": "yes", "Idempotent-Replayed": "true"}));
    let stored =
        "SELECT count(*) FROM idempotency.records r WHERE r::text ~* 'sid=|Bearer|Basic|chunked'";
    assert_eq!(db.value::<i64>(stored), 0);
}

#[test]
fn the_spelling_of_a_name_is_the_callers() {
    let db = Database::fresh();
    let (sent, replayed) = round_trip(&db, json!({"x-rate-LIMIT": 7}));
    assert_eq!((&sent["x-rate-LIMIT"], &replayed["x-rate-LIMIT"]), (&json!("7"), &json!("7")));
}

#[test]
fn names_that_differ_in_case_are_one_header() {
    let db = Database::fresh();
    let (sent, _) = round_trip(&db, json!({"Link": "<a>", "link": "<b>"}));
    let members: Vec<&Value> = sent.as_object().expect("an object").values().collect();
    assert_eq!(members.len(), 1, "{sent}");
    let mut values: Vec<&str> =
        members[0].as_array().expect("both").iter().filter_map(Value::as_str).collect();
    values.sort_unstable();
    assert_eq!(values, ["<a>", "<b>"]);
}

#[test]
fn a_content_type_given_twice_and_the_same_is_one() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    let call = complete(200).with("body", "a,b").with("content_type", "text/csv");
    let sent = session.call(call.with("headers", json!({"content-type": "text/csv"})));
    session.run("COMMIT");
    let replayed = session.call(claim("k")).expect("replayed");
    for outcome in [sent, replayed] {
        assert_eq!(outcome.header("Content-Type"), Some(&json!("text/csv")));
        let names = outcome.headers.as_ref().and_then(Value::as_object).expect("an object").keys();
        assert_eq!(names.filter(|name| name.eq_ignore_ascii_case("content-type")).count(), 1);
    }
}

/// A fresh answer cannot pass for a replay, nor a replay for a fresh one.
#[test]
fn only_replays_carry_the_replay_header() {
    let db = Database::fresh();
    let (sent, replayed) = round_trip(&db, json!({"idempotent-replayed": "false"}));
    let mark = |headers: &Value| {
        let object = headers.as_object().expect("an object").clone();
        let named = |(name, _): &(String, Value)| name.eq_ignore_ascii_case("idempotent-replayed");
        object.into_iter().filter(named).map(|(_, value)| value).collect::<Vec<_>>()
    };
    assert_ne!(mark(&sent), [json!("true")]);
    assert_eq!(mark(&replayed), [json!("true")]);
}

#[test]
fn no_headers_is_fine() {
    let db = Database::fresh();
    let (sent, replayed) = round_trip(&db, json!({}));
    assert_eq!(sent, json!({}));
    assert_eq!(replayed, json!({"Idempotent-Replayed": "true"}));
}
