//! What settings make of answers: which are kept, in what format, how large, how they are marked.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use serde_json::json;

/// Completes with a status and says whether the answer was kept. What was not is claimed again.
#[track_caller]
fn is_kept(session: &mut Session, status: i32) -> bool {
    let key = status.to_string();
    let sent = execute(session, claim(&key), complete(status).with("body", "\"x\""));
    assert_eq!((sent.status, sent.text()), (Some(status), "\"x\""), "sent as given, kept or not");
    let again = session.call(claim(&key));
    match &*sent.outcome {
        "completed" => assert_eq!(again.expect("replayed").answer(), sent.answer()),
        _ => drop(again.expect("claimed")),
    }
    sent.outcome == "completed"
}

// ---- kept_statuses -------------------------------------------------------------------------

#[test]
fn kept_statuses_by_default_are_final_answers() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for status in [200, 201, 204, 299, 302, 400, 403, 404, 407, 409, 424, 426, 428, 430, 499] {
        assert!(is_kept(&mut session, status), "{status}");
    }
    for status in [408, 425, 429, 500, 503, 599] {
        assert!(!is_kept(&mut session, status), "{status}");
    }
}

#[test]
fn kept_statuses_are_what_they_are_set_to() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for (set, kept, others) in [
        ("{[200,300)}", vec![200, 299], vec![300, 404, 500]),
        ("{[201,201],[404,404],[500,)}", vec![201, 404, 500, 599], vec![200, 202, 403, 405, 499]),
        ("{(,)}", vec![200, 429, 503], vec![]),
        ("{}", vec![], vec![200, 404, 500]),
    ] {
        configure(&db, json!({"kept_statuses": set}));
        db.run("TRUNCATE idempotency.records");
        for status in kept {
            assert!(is_kept(&mut session, status), "{status} in {set}");
        }
        for status in others {
            assert!(!is_kept(&mut session, status), "{status} not in {set}");
        }
    }
}

/// Released: roll back, then send. Who commits instead learns that its writes must not stay.
#[test]
fn writes_behind_an_answer_that_is_not_kept_cannot_commit() {
    let db = Database::fresh();
    configure(&db, json!({"kept_statuses": "{[200,300)}"}));
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('k')");
    session.call(complete(404)).expect("released");
    let says = [
        "cannot commit with an unsettled claim",
        "completed with a status that is not kept",
        "Roll the transaction back",
    ];
    assert_says(session.run_refused("COMMIT"), "IK003", says);
    assert_eq!((db.orders("k"), db.records()), (0, 0));
}

// ---- body_format ---------------------------------------------------------------------------

#[test]
fn any_body_will_do_by_default() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for (at, body) in
        ["not JSON", "", "{\"a\":1,\"a\":null}", "[null, 9007199254740993]"].iter().enumerate()
    {
        let key = at.to_string();
        let sent = execute(&mut session, claim(&key), complete(200).with("body", *body))
            .expect("completed");
        assert_eq!(
            (sent.text(), session.call(claim(&key)).expect("replayed").text()),
            (*body, *body)
        );
    }
}

/// A success whose replay could not be what the operation promises is not kept: the unit rolls back.
#[test]
fn json_refuses_a_success_that_is_none() {
    let db = Database::fresh();
    configure(&db, json!({"body_format": "json"}));
    let mut session = db.session("session");
    let bodies = ["", " ", "not JSON", "{\"a\":1} x", "{a:1}", "01", "\u{feff}{}"];
    let texts = bodies.map(|body| complete(201).with("body", body));
    let bytes =
        [b"\xff".to_vec(), b"{".to_vec()].map(|body| complete(201).with("body_bytes", body));
    for completion in texts.into_iter().chain(bytes) {
        let refusal = execute_refused(&db, &mut session, claim("k"), completion);
        let says =
            ["answer refused", "The body is not one JSON value", "Roll the transaction back"];
        assert_says(refusal, "IK006", says);
    }
    for (key, status) in [("redirect", 302), ("not found", 404)] {
        let sent = execute(&mut session, claim(key), complete(status).with("body", "not JSON"));
        assert_eq!((&*sent.outcome, sent.text()), ("released", "not JSON"));
        session.call(claim(key)).expect("claimed");
    }
    assert_eq!(db.records(), 0);
}

#[test]
fn json_keeps_json_byte_for_byte_and_no_body_at_all() {
    let db = Database::fresh();
    configure(&db, json!({"body_format": "json"}));
    let mut session = db.session("session");
    let odd = "{ \"a\" : 1.0, \"a\":null, \"b\":[null, 9007199254740993] }\n";
    for (key, completion, body) in [
        ("odd", complete(200).with("body", odd), Some(odd)),
        ("bytes", complete(200).with("body_bytes", odd.as_bytes()), Some(odd)),
        ("scalar", complete(404).with("body", "null"), Some("null")),
        ("nothing", complete(204), None),
        ("no error", complete(404), None),
    ] {
        execute(&mut session, claim(key), completion).expect("completed");
        let replayed = session.call(claim(key)).expect("replayed");
        assert_eq!(replayed.body.as_deref(), body.map(str::as_bytes), "{key}");
    }
}

/// What complete returns is what is kept: the sanitised body.
#[test]
fn strict_json_takes_null_members_out() {
    let db = Database::fresh();
    configure(&db, json!({"body_format": "strict_json"}));
    let mut session = db.session("session");
    for (at, (given, sent)) in [
        ("{\"a\": null}", "{}"),
        (
            "{\"id\": 1, \"note\": null, \"list\": [{\"x\": null, \"y\": 1.50}]}",
            "{\"id\":1,\"list\":[{\"y\":1.50}]}",
        ),
        ("{\"n\\u0061me\": \"\\u00e9\", \"gone\": null}", "{\"n\\u0061me\":\"\\u00e9\"}"),
        ("{ \"nothing\" : [ \"to do\" ] }", "{ \"nothing\" : [ \"to do\" ] }"),
        ("null", "null"),
        (
            "[9007199254740991, -9007199254740991, 1e300, 9007199254740993.5]",
            "[9007199254740991, -9007199254740991, 1e300, 9007199254740993.5]",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let key = at.to_string();
        let completed = execute(&mut session, claim(&key), complete(200).with("body", given))
            .expect("completed");
        assert_eq!(completed.text(), sent);
        assert_eq!(session.call(claim(&key)).expect("replayed").text(), sent);
    }
    let body = json!({"a": null, "b": {"c": null}});
    let completed = execute(&mut session, claim("jsonb"), complete(201).with("body_json", body));
    assert_eq!(completed.expect("completed").text(), "{\"b\":{}}");
    let call = complete(404).with("body", "{\"title\":\"no\",\"hint\":null}");
    assert_eq!(
        execute(&mut session, claim("error"), call).expect("completed").text(),
        "{\"title\":\"no\"}"
    );
}

#[test]
fn strict_json_refuses_what_readers_take_differently() {
    let db = Database::fresh();
    configure(&db, json!({"body_format": "strict_json"}));
    let mut session = db.session("session");
    for (body, detail) in [
        ("[null]", "null element"),
        ("{\"a\":[1,{\"b\":[null]}]}", "null element"),
        ("{\"a\":9007199254740992}", "9007199254740992"),
        ("[-9007199254740992]", "-9007199254740992"),
        ("{\"a\":1,\"a\":2}", "two members named \"a\""),
        ("{\"a\":1,\"\\u0061\":2}", "two members named \"a\""),
        ("{\"x\":{\"a\":null,\"a\":1}}", "two members named \"a\""),
        ("not JSON", "not one JSON value"),
        ("{\"a\":1}{}", "not one JSON value"),
    ] {
        let refusal =
            execute_refused(&db, &mut session, claim("k"), complete(200).with("body", body));
        assert_says(refusal, "IK006", ["answer refused", detail, "Roll the transaction back"]);
        let sent = execute(&mut session, claim("error"), complete(409).with("body", body));
        assert_eq!(
            (&*sent.outcome, sent.text()),
            ("released", body),
            "an error is sent and not kept"
        );
    }
}

/// A body nested without end must not take the server's stack.
#[test]
fn strict_json_has_a_limit_to_its_depth() {
    let db = Database::fresh();
    configure(&db, json!({"body_format": "strict_json"}));
    let mut session = db.session("session");
    let nested = |depth: usize| complete(200).with("body", "[".repeat(depth) + &"]".repeat(depth));
    execute(&mut session, claim("fine"), nested(10_000)).expect("completed");
    session.run("BEGIN");
    session.call(claim("deep")).expect("claimed");
    session.refused_inside_savepoint(nested(10_001), "IK006").mentions("10000 levels");
    session.refused_inside_savepoint(nested(1_000_000), "IK006");
}

// ---- withhold and max_body -----------------------------------------------------------------

/// Sent now, in full; later callers are told that it was not kept, and why.
#[track_caller]
fn assert_withheld(session: &mut Session, key: &str, reason: &str, hint: &str) {
    for call in [claim(key), replay(key)] {
        let withheld = session.call(call).expect("withheld");
        let problem = withheld.expect_problem(409);
        assert_eq!(problem["reason"], reason);
        assert!(problem["hint"].as_str().is_some_and(|text| text.contains(hint)), "{problem}");
        assert_eq!(withheld.header("Idempotent-Replayed"), Some(&json!("true")));
        assert_eq!(withheld.header("Location"), None, "nothing of the answer");
    }
}

#[test]
fn a_withheld_answer_is_sent_once_and_never_stored() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for (reason, hint) in [("one_time_secret", "create a new one"), ("streamed", "")] {
        let call = complete(201).with("body", "{\"token\":\"s3cr3t\"}").with("withhold", reason);
        let call = call.with("headers", json!({"Location": "/tokens/s3cr3t"}));
        let sent = execute(&mut session, claim(reason), call).expect("completed");
        assert_eq!((sent.status, sent.text()), (Some(201), "{\"token\":\"s3cr3t\"}"));
        assert_eq!(sent.header("Location"), Some(&json!("/tokens/s3cr3t")));
        assert_withheld(&mut session, reason, reason, hint);
    }
    let kept =
        "SELECT count(*) FROM idempotency.records WHERE body IS NOT NULL OR headers IS NOT NULL
                OR records::text LIKE '%s3cr3t%' OR records::text LIKE '%733363723374%'";
    assert_eq!((db.records(), db.value::<i64>(kept)), (2, 0));
}

#[test]
fn withhold_does_not_make_a_bad_answer_good() {
    let db = Database::fresh();
    configure(&db, json!({"body_format": "json", "kept_statuses": "{[200,300)}"}));
    let mut session = db.session("session");
    let bad = complete(201).with("body", "not JSON").with("withhold", "one_time_secret");
    execute_refused(&db, &mut session, claim("k"), bad).expect_ours("IK006");
    let call = complete(404).with("withhold", "one_time_secret");
    execute(&mut session, claim("k"), call).expect("released");
    session.call(claim("k")).expect("claimed");
}

#[test]
fn an_answer_that_is_too_large_is_sent_once() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let mut send = |key: &str, size: usize| {
        let call = complete(200).with("body", "a".repeat(size));
        assert_eq!(execute(&mut session, claim(key), call).expect("completed").text().len(), size);
        session.call(claim(key)).outcome
    };
    configure(&db, json!({"max_body": 10}));
    assert_eq!((send("10", 10), send("11", 11)), ("replayed".into(), "withheld".into()));
    configure(&db, json!({"max_body": 0}));
    assert_eq!((send("0", 0), send("1", 1)), ("replayed".into(), "withheld".into()));
    configure(&db, json!({"max_body": null}));
    assert_eq!(
        (send("1 MiB", 1 << 20), send("more", (1 << 20) + 1)),
        ("replayed".into(), "withheld".into())
    );
    assert_withheld(&mut session, "more", "response_too_large", "Read the result");
    db.set("pg_idempotency.max_body", "5");
    let mut session = db.session("another");
    execute(&mut session, claim("by the session's"), complete(200).with("body", "123456"));
    session.call(claim("by the session's")).expect("withheld");
    configure(&db, json!({"max_body": 6}));
    execute(&mut session, claim("by the operation's"), complete(200).with("body", "123456"));
    session.call(claim("by the operation's")).expect("replayed");
}

/// What is measured is what would be kept.
#[test]
fn the_size_is_that_of_the_sanitised_body() {
    let db = Database::fresh();
    configure(&db, json!({"body_format": "strict_json", "max_body": 7}));
    let mut session = db.session("session");
    let call = complete(200).with("body", "{\"a\":1, \"long\": null}");
    assert_eq!(execute(&mut session, claim("k"), call).expect("completed").text(), "{\"a\":1}");
    assert_eq!(session.call(claim("k")).expect("replayed").text(), "{\"a\":1}");
}

// ---- marks and statuses --------------------------------------------------------------------

#[test]
fn the_replay_header_has_the_name_it_is_set_to() {
    let db = Database::fresh();
    configure(&db, json!({"replay_header": "X-Again"}));
    let mut session = db.session("session");
    let call = complete(201).with("headers", json!({"Location": "/1"}));
    let sent = execute(&mut session, claim("k"), call);
    execute(&mut session, claim("secret"), complete(200).with("withhold", "one_time_secret"));
    let replayed = session.call(claim("k")).expect("replayed");
    assert_eq!(replayed.headers, Some(json!({"Location": "/1", "X-Again": "true"})));
    assert_eq!(sent.header("X-Again"), None, "it is the first answer");
    let withheld = session.call(claim("secret")).expect("withheld");
    assert_eq!(
        (withheld.header("X-Again"), withheld.header("Idempotent-Replayed")),
        (Some(&json!("true")), None)
    );
    configure(&db, json!({"replay_header": null}));
    let replayed = session.call(claim("secret")).expect("withheld");
    assert_eq!(replayed.header("Idempotent-Replayed"), Some(&json!("true")));
}

/// Names are one whatever their case (RFC 9110): a replay that says both true and false says nothing.
#[test]
fn the_mark_replaces_a_header_of_its_name() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for name in ["Idempotent-Replayed", "idempotent-replayed"] {
        let call = complete(201).with("headers", json!({name: "false"}));
        execute(&mut session, claim(name), call);
        let replayed = session.call(claim(name)).expect("replayed");
        assert_eq!(replayed.headers, Some(json!({"Idempotent-Replayed": "true"})));
    }
}

#[test]
fn refusals_have_the_statuses_they_are_set_to() {
    let db = Database::fresh();
    configure(
        &db,
        json!({"invalid_status": 422, "mismatch_status": 409, "in_progress_status": 425, "mode": "required"}),
    );
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    execute(&mut session, claim("k").with("fingerprint", [1; 32]), complete(204));
    session.call(claim("")).expect("invalid").expect_problem(422);
    session.call(claim("k").with("fingerprint", [2; 32])).expect("mismatch").expect_problem(409);
    holder.run("BEGIN");
    holder.call(claim("held")).expect("claimed");
    let in_progress = session.call(claim("held").with("wait_ms", 0)).expect("in_progress");
    in_progress.expect_problem(425);
    assert!(in_progress.header("Retry-After").is_some() && in_progress.retry_after > Some(0));
}
