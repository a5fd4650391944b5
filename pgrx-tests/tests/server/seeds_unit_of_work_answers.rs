//! Design A, decision by decision, second half: what is kept of an answer, and what rolls the unit
//! back. The tests carry the numbers of the design's decisions.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::stage::*;
use serde_json::{Value, json};

/// A request with a key of its own.
fn request(db: &Database<'_>) -> Request {
    Request::create_group(&uuid_v7(db, "0"), "{\"name\":\"a\"}")
}

/// Serves a request whose handler creates a group and answers like this.
fn serve_with(session: &mut Session, request: &Request, answer: impl Fn(&mut Buffer)) -> Served {
    let mut handler = |session: &mut Session, buffer: &mut Buffer| {
        create_group(session, &mut Buffer::default())?;
        answer(buffer);
        Ok(())
    };
    serve(session, request, &mut handler)
}

/// Sends a request that must not be executed, and returns what came instead.
#[track_caller]
fn resend(session: &mut Session, request: &Request) -> Outcome {
    serve(session, request, &mut |_, _| panic!("the handler ran again")).expect("an answer")
}

/// Serves a request that must be answered 500; nothing of it is left, and the next one is executed.
#[track_caller]
fn assert_rolled_back(db: &Database<'_>, code: &str, answer: impl Fn(&mut Buffer)) -> Refusal {
    let mut session = db.session("session");
    let (request, groups, records) = (request(db), db.orders("group"), db.records());
    let served = serve_with(&mut session, &request, answer);
    assert_eq!(status(&served), 500);
    let refusal = served.expect_err("the answer is refused").expect_ours(code);
    assert_eq!((db.orders("group"), db.records(), db.keys_held()), (groups, records, 0));
    serve(&mut session, &request, &mut create_group)
        .expect("the next is executed")
        .expect("completed");
    refusal
}

// ---- 6: files and answers that are not JSON ------------------------------------------------

/// A replay could not repeat an upload, so its operation takes no key.
#[test]
fn decision_6_a_keyed_operation_with_a_file_body_answers_500() {
    let db = database();
    configure_operation(
        &db,
        "uploadAvatar",
        json!({"preset": "unit_of_work", "mode": "forbidden"}),
    );
    let mut session = db.session("session");
    let keyed = Request { operation: "uploadAvatar", ..request(&db) };
    let served = serve(&mut session, &keyed, &mut create_group);
    assert_eq!(status(&served), 500);
    let says = [
        "operation not keyed",
        "\"uploadAvatar\" must not be called with an idempotency key",
        "without the key",
    ];
    assert_says(served.expect_err("it takes no key"), "IK007", says);
    assert_eq!((db.orders("group"), db.records()), (0, 0));
    let served = serve(&mut session, &Request { key: None, ..keyed }, &mut create_group);
    assert_eq!((status(&served), db.orders("group")), (201, 1), "without a key it works as ever");
}

#[test]
fn decision_6_a_success_whose_body_is_not_json_rolls_back_and_answers_500() {
    let db = database();
    for body in ["created", "", "{\"id\":1", "<html>"] {
        let refusal = assert_rolled_back(&db, "IK006", |buffer| buffer.write(201, body));
        assert_says(
            refusal,
            "IK006",
            ["answer refused", "not one JSON value", "Roll the transaction back"],
        );
    }
}

#[test]
fn decision_6_a_final_error_without_json_is_sent_and_not_stored() {
    let db = database();
    let mut session = db.session("session");
    for (status, body) in [(404, "not here"), (409, "<html>"), (403, "")] {
        let request = request(&db);
        let sent = serve_with(&mut session, &request, |buffer| buffer.write(status, body));
        let sent = sent.expect("it is sent").expect("released");
        assert_eq!((sent.status, sent.text()), (Some(status), body));
        assert_eq!((db.orders("group"), db.records()), (0, 0), "its effect is gone too");
    }
}

/// With a JSON body, or with none at all, it is final: stored and replayed.
#[test]
fn decision_6_a_final_error_with_json_is_stored() {
    let db = database();
    let mut session = db.session("session");
    let refuse = |status: i32, body: Option<Value>| {
        move |_: &mut Session, buffer: &mut Buffer| {
            match &body {
                Some(body) => buffer.write_json(status, body),
                None => buffer.write_nothing(status),
            }
            Ok(())
        }
    };
    for body in [Some(json!({"title": "gone"})), None] {
        let request = request(&db);
        let sent = serve(&mut session, &request, &mut refuse(404, body)).expect("it is sent");
        assert_eq!(resend(&mut session, &request).expect("replayed").answer(), sent.answer());
    }
}

// ---- 7: one-time secrets -------------------------------------------------------------------

#[test]
fn decision_7_a_one_time_secret_is_sent_once() {
    let db = database();
    let mut session = db.session("session");
    let request = request(&db);
    let sent = serve_with(&mut session, &request, |buffer| {
        buffer.write_json(201, &json!({"id": 1, "secret": "s3cr3t"}));
        buffer.has_secret();
    });
    let sent = sent.expect("it is sent").expect("completed");
    assert_eq!((sent.status, sent.text()), (Some(201), "{\"id\":1,\"secret\":\"s3cr3t\"}"));
    for _ in 0..2 {
        let withheld = resend(&mut session, &request).expect("withheld");
        let problem = withheld.expect_problem(409);
        assert_eq!(problem["reason"], "one_time_secret");
        assert!(
            problem["hint"].as_str().is_some_and(|hint| hint.contains("create a new one")),
            "{problem}"
        );
        assert_eq!(withheld.header("Idempotent-Replay"), Some(&json!("true")));
    }
    let other = Request { body: Some(b"{}".to_vec()), ..request };
    resend(&mut session, &other).expect("mismatch");
    let bodies: i64 = db.value("SELECT count(body) FROM idempotency.records");
    assert_eq!((db.orders("group"), bodies), (1, 0));
}

/// The placeholder of the original table is an ordinary answer here: nobody is fooled by a body.
#[test]
fn decision_7_an_answer_that_looks_like_the_placeholder_is_an_answer() {
    let db = database();
    let mut session = db.session("session");
    let request = request(&db);
    let body = json!({"one_time_secret": true});
    let sent = serve_with(&mut session, &request, |buffer| buffer.write_json(200, &body));
    let replayed = resend(&mut session, &request).expect("replayed");
    assert_eq!(replayed.answer(), sent.expect("it is sent").answer());
}

// ---- 8: replays can be rebuilt -------------------------------------------------------------

#[test]
fn decision_8_the_replayed_answer_carries_the_etag() {
    let db = database();
    let mut session = db.session("session");
    let request = request(&db);
    let sent = serve_with(&mut session, &request, |buffer| {
        buffer.write_json(201, &json!({"id": 7, "version": 3}));
        buffer.set_headers(json!({"ETag": "\"3\"", "Location": "/api/v1/groups/7",
                                  "Content-Type": "application/json"}));
    });
    let sent = sent.expect("it is sent").expect("completed");
    let replayed = resend(&mut session, &request).expect("replayed");
    assert_eq!(replayed.answer(), sent.answer());
    for (name, value) in [
        ("ETag", "\"3\""),
        ("Location", "/api/v1/groups/7"),
        ("Content-Type", "application/json"),
        ("Idempotent-Replay", "true"),
    ] {
        assert_eq!(replayed.header(name), Some(&json!(value)), "{name}");
    }
    assert_eq!(sent.header("Idempotent-Replay"), None);
}

#[test]
fn decision_8_a_success_without_content_is_replayed_without_content() {
    let db = database();
    let mut session = db.session("session");
    let request = request(&db);
    serve_with(&mut session, &request, |buffer| buffer.write_nothing(204)).expect("it is sent");
    let replayed = resend(&mut session, &request).expect("replayed");
    assert_eq!(
        (replayed.status, &replayed.body, replayed.header("Content-Type")),
        (Some(204), &None, None)
    );
}

// ---- 10: a claim is no transaction ---------------------------------------------------------

/// Claim, not Begin: the unit of work is the caller's. The claim begins none and ends none.
#[test]
fn decision_10_the_claim_begins_no_transaction() {
    let db = database();
    let mut session = db.session("session");
    let call = |key: &str| claim_by("alice", CREATE_GROUP, key).with("fingerprint", [1; 32]);
    let (one, other) = (uuid_v7(&db, "0"), uuid_v7(&db, "1 second"));
    session.call(call(&one)).expect("claimed");
    assert_eq!(
        (&*db.state_of(&session), db.keys_held()),
        ("idle", 0),
        "on its own it is over at once"
    );
    session.run("BEGIN; SAVEPOINT s");
    session.call(call(&one)).expect("claimed");
    assert!(!session.has_transaction_id());
    session.run("ROLLBACK TO s");
    assert_eq!(db.keys_held(), 0, "the caller's savepoint takes it back");
    session.call(call(&other)).expect("claimed");
    assert_eq!((&*db.state_of(&session), db.keys_held()), ("idle in transaction", 1));
    session.run("ROLLBACK");
    assert_eq!((db.keys_held(), db.records()), (0, 0));
}

// ---- 11: sanitised bodies ------------------------------------------------------------------

/// What is stored is what is sent: without null members.
#[test]
fn decision_11_the_stored_body_is_the_one_that_is_sent() {
    let db = database();
    let mut session = db.session("session");
    let request = request(&db);
    let body =
        "{\"id\":1,\"note\":null,\"owner\":{\"name\":\"a\",\"mail\":null},\"tags\":[{\"x\":null}]}";
    let sent = serve_with(&mut session, &request, |buffer| buffer.write(201, body));
    let sent = sent.expect("it is sent").expect("completed");
    assert_eq!(sent.text(), "{\"id\":1,\"owner\":{\"name\":\"a\"},\"tags\":[{}]}");
    assert_eq!(resend(&mut session, &request).expect("replayed").text(), sent.text());
    let stored: Vec<u8> = db.value("SELECT body FROM idempotency.records");
    assert_eq!(Some(stored), sent.body);
}

#[test]
fn decision_11_a_body_that_would_be_refused_rolls_the_unit_back() {
    let db = database();
    for (body, detail) in [
        ("{\"tags\":[null]}", "null element"),
        ("{\"n\":9007199254740992}", "9007199254740992"),
        ("{\"n\":-9007199254740992}", "-9007199254740992"),
        ("{\"a\":1,\"a\":2}", "two members"),
        ("plain text", "not one JSON value"),
    ] {
        let refusal = assert_rolled_back(&db, "IK006", |buffer| buffer.write(200, body));
        assert_says(refusal, "IK006", ["answer refused", detail, "Roll the transaction back"]);
    }
}

// ---- 12: answers that nobody was proven to be allowed to get -------------------------------

fn create_unchecked(session: &mut Session, buffer: &mut Buffer) -> Result<(), Refusal> {
    session.attempt("INSERT INTO orders (key) VALUES ('group')")?;
    buffer.write_json(201, &json!({"id": 1, "version": 1}));
    Ok(())
}

#[test]
fn decision_12_a_success_without_a_check_rolls_back_and_is_not_stored() {
    let db = database();
    let mut session = db.session("session");
    let request = request(&db);
    let mut handlers: [(&str, Box<Handler<'_>>); 3] = [
        ("no check at all", Box::new(create_unchecked)),
        (
            "a check of another action",
            Box::new(|session: &mut Session, buffer: &mut Buffer| {
                check_right(session, "deleteGroup")?;
                create_unchecked(session, buffer)
            }),
        ),
        (
            "a check that was rolled back",
            Box::new(|session: &mut Session, buffer: &mut Buffer| {
                session.run("SAVEPOINT nested");
                check_right(session, CREATE_GROUP)?;
                session.run("ROLLBACK TO nested");
                create_unchecked(session, buffer)
            }),
        ),
    ];
    for (what, handler) in &mut handlers {
        let served = serve(&mut session, &request, handler);
        assert_eq!(status(&served), 500, "{what}");
        let says = [
            "answer refused",
            "The completion check app.is_proven did not agree.",
            "Roll the transaction back",
        ];
        assert_says(served.expect_err("it is refused"), "IK006", says);
        assert_eq!((db.orders("group"), db.records(), db.keys_held()), (0, 0, 0), "{what}");
    }
    serve(&mut session, &request, &mut create_group)
        .expect("proven, it is executed")
        .expect("completed");
    resend(&mut session, &request).expect("replayed");
}

/// Each unit proves for itself: what an earlier one has checked does not count.
#[test]
fn decision_12_a_check_of_an_earlier_unit_proves_nothing() {
    let db = database();
    let mut session = db.session("session");
    serve(&mut session, &request(&db), &mut create_group).expect("it succeeds");
    let served = serve(&mut session, &request(&db), &mut create_unchecked);
    assert_says(
        served.expect_err("it is refused"),
        "IK006",
        ["answer refused", "app.is_proven", "Roll"],
    );
    assert_eq!((db.orders("group"), db.records()), (1, 1));
}

/// An error gives nothing away that would need a right.
#[test]
fn decision_12_an_error_needs_no_check() {
    let db = database();
    let mut session = db.session("session");
    let request = request(&db);
    let mut refuse = |_: &mut Session, buffer: &mut Buffer| {
        buffer.write_json(403, &json!({"title": "forbidden"}));
        Ok(())
    };
    let sent = serve(&mut session, &request, &mut refuse).expect("it is sent").expect("completed");
    assert_eq!(resend(&mut session, &request).expect("replayed").answer(), sent.answer());
}

// What of the design does not concern a database:
//
// 6, 8: checks of a code generator over the API's description (no query parameter, JSON bodies, a
//    member `version` beside an ETag). What they protect, a replay that can be rebuilt, is above.
// 9, 13: from which branch the work was merged, the number of its migration, titles of chapters.
// 10: the names of methods in the server's own language; what the name says is above.
// 14: which files count towards test coverage.
