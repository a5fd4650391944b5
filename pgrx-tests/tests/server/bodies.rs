//! Bodies: replayed byte for byte, whatever they are.

use pg_idempotency_tests::prelude::*;
use serde_json::{Value, json};

/// A megabyte that does not compress, from a generator that needs no crate.
fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(step).collect()
}

/// Claims `key`, completes it with `call`, commits, and returns what is to be sent.
fn record(session: &mut Session, key: &str, call: Call) -> Outcome {
    session.run("BEGIN");
    session.call(claim(key)).expect("claimed");
    let sent = session.call(call).expect("completed");
    session.run("COMMIT");
    sent
}

/// Records a body and asserts that every later caller gets it: catches a body that counts as
/// absent because it is falsy, and text that passes through a conversion.
fn assert_replayed(db: &Database<'_>, key: &str, call: Call, body: Option<&[u8]>) {
    let mut session = db.session("session");
    let sent = record(&mut session, key, call);
    assert_eq!(sent.body.as_deref(), body, "{key}: what is sent");
    for call in [claim(key), replay(key), claim(key)] {
        let later = session.call(call).expect("replayed");
        assert_eq!((later.status, later.body.as_deref()), (Some(200), body), "{key}");
    }
}

#[test]
fn bytes_are_replayed_as_they_were() {
    let db = Database::fresh();
    let every_byte: Vec<u8> = (0..=255).collect();
    let cases: [(&str, &[u8]); 7] = [
        ("0x00 to 0xFF", &every_byte),
        ("empty", b""),
        ("null", b"null"),
        ("0", b"0"),
        ("false", b"false"),
        ("{}", b"{}"),
        ("not JSON", b"{\"a\": 1, \"a\": 1.0e400,}\r\n"),
    ];
    for (key, body) in cases {
        assert_replayed(&db, key, complete(200).with("body_bytes", body), Some(body));
    }
}

#[test]
fn text_is_replayed_as_it_was() {
    let db = Database::fresh();
    let bodies = [
        "",
        "null",
        "0",
        "false",
        "{}",
        "\"\"",
        " { \"b\" : 1.0, \"a\" : 2e0 } ",
        "é \u{1F600} \\x00",
    ];
    for (n, body) in bodies.iter().enumerate() {
        let call = complete(200).with("body", *body);
        assert_replayed(&db, &format!("text {n}"), call, Some(body.as_bytes()));
    }
}

#[test]
fn no_body_is_replayed_as_no_body() {
    let db = Database::fresh();
    assert_replayed(&db, "left out", complete(200), None);
    let null: Option<&str> = None;
    assert_replayed(&db, "null", complete(200).with("body", null), None);
    let nulls = complete(200).with("body", null).with("body_json", None::<Value>);
    assert_replayed(&db, "nulls", nulls.with("body_bytes", None::<Vec<u8>>), None);
}

#[test]
fn json_is_sent_and_replayed_as_the_same_bytes() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let values =
        [Value::Null, json!(0), json!(false), json!({}), json!({"b": [1, 2.50], "a": "é"})];
    for (n, value) in values.into_iter().enumerate() {
        let key = format!("json {n}");
        let sent = record(&mut session, &key, complete(200).with("body_json", value.clone()));
        assert_eq!(serde_json::from_str::<Value>(sent.text()).expect("JSON"), value);
        assert_eq!(session.call(claim(&key)).expect("replayed").answer(), sent.answer());
    }
}

/// A server that stores text in another encoding still sends UTF-8.
#[test]
fn text_is_stored_as_utf_8_in_a_latin1_database() {
    let db = Cluster::shared().database_with("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'");
    db.run("CREATE EXTENSION pg_idempotency");
    let mut session = db.session_as(Role::Superuser, "session");
    let sent = record(&mut session, "k", complete(200).with("body", "caf\u{e9}"));
    assert_eq!(sent.text(), "caf\u{e9}");
    assert_eq!(session.call(claim("k")).expect("replayed").text(), "caf\u{e9}");
}

#[test]
fn the_content_type_goes_by_the_form() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let json_type = Some(Value::from("application/json"));
    let cases = [
        ("JSON text", complete(200).with("body", "{\"a\":1}"), json_type.clone()),
        ("a JSON scalar", complete(200).with("body", "null"), json_type.clone()),
        ("other text", complete(200).with("body", "hello"), None),
        ("empty text", complete(200).with("body", ""), None),
        ("jsonb", complete(200).with("body_json", json!([])), json_type),
        ("bytes", complete(200).with("body_bytes", *b"{}"), None),
        ("nothing", complete(204), None),
        (
            "said",
            complete(200).with("body", "{}").with("content_type", "text/x"),
            Some("text/x".into()),
        ),
    ];
    for (key, call, expected) in cases {
        let sent = record(&mut session, key, call);
        assert_eq!(sent.header("content-type"), expected.as_ref(), "{key}");
        let replayed = session.call(claim(key)).expect("replayed");
        assert_eq!(replayed.header("content-type"), expected.as_ref(), "{key}");
    }
}

const MEBIBYTE: usize = 1024 * 1024;

/// An answer that is too large is sent, not kept, and the request never runs again.
#[test]
fn a_mebibyte_is_kept_and_one_byte_more_is_withheld() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let body = noise(MEBIBYTE + 1);
    assert_replayed(&db, "fits", complete(200).with("body_bytes", &body[1..]), Some(&body[1..]));
    let sent = record(&mut session, "large", complete(200).with("body_bytes", &body[..]));
    assert_eq!(sent.body.as_deref(), Some(&body[..]));
    let later = session.call(claim("large")).expect("withheld");
    assert_eq!(later.expect_problem(409)["reason"], "response_too_large");
    assert_eq!(later.header("Idempotent-Replayed"), Some(&"true".into()));
}

#[test]
fn the_largest_body_is_a_setting() {
    let db = Database::fresh();
    db.set("pg_idempotency.max_body", "10");
    let mut session = db.session("session");
    record(&mut session, "fits", complete(200).with("body", "0123456789"));
    record(&mut session, "large", complete(200).with("body", "0123456789a"));
    session.call(claim("fits")).expect("replayed");
    session.call(claim("large")).expect("withheld");
    session.call(replay("large")).expect("withheld");
}

/// The secret is sent now and is nowhere in the table.
#[test]
fn a_withheld_answer_is_sent_and_never_stored() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for reason in ["one_time_secret", "streamed"] {
        let headers = json!({"X-Secret": "hunter2"});
        let call = complete(201).with("body", "hunter2").with("headers", headers);
        let sent = record(&mut session, reason, call.with("withhold", reason));
        assert_eq!((sent.text(), sent.status), ("hunter2", Some(201)));
        let later = session.call(claim(reason)).expect("withheld");
        assert_eq!(later.expect_problem(409)["reason"], reason);
        assert_eq!(session.call(replay(reason)).expect("withheld").answer(), later.answer());
    }
    let kept = "SELECT count(*) FROM idempotency.records r WHERE r::text LIKE '%hunter2%'
                OR convert_from(body, 'UTF8') LIKE '%hunter2%'";
    assert_eq!((db.value::<i64>(kept), db.records()), (0, 2));
}

/// PostgreSQL's own bounds are met before a row of the outcome is made, which would be an internal error.
#[test]
fn a_body_that_fits_into_no_row_is_refused() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("SAVEPOINT s");
    let refusal =
        session.run_refused("SELECT idempotency_complete(200, body => repeat('x', 1000000001))");
    refusal.expect_ours("22023").mentions("1000000001 bytes");
    session.run("ROLLBACK TO s");
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
}
