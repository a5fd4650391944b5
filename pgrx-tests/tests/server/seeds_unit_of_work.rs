//! Design A, decision by decision: one unit of work per keyed request, by the preset `unit_of_work`
//! and a completion check. The tests carry the numbers of the design's decisions.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::stage::*;
use pg_idempotency_tests::wait;
use serde_json::json;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

/// A key as the clients of this design make them.
fn key(db: &Database<'_>) -> String {
    uuid_v7(db, "0")
}

/// A handler that must not run.
fn nothing(_: &mut Session, _: &mut Buffer) -> Result<(), Refusal> {
    panic!("the handler ran again")
}

/// Sends a request that creates a group.
#[track_caller]
fn create(session: &mut Session, key: &str, body: &str) -> Outcome {
    let request = Request::create_group(key, body);
    serve(session, &request, &mut create_group).expect("it succeeds").expect("completed")
}

/// Sends a request that must not be executed, and returns what came instead.
#[track_caller]
fn resend(session: &mut Session, request: &Request) -> Outcome {
    serve(session, request, &mut nothing).expect("an answer")
}

fn groups(db: &Database<'_>) -> i64 {
    db.orders("group")
}

// ---- 1: the fingerprint --------------------------------------------------------------------

#[test]
fn decision_1_the_fingerprint_is_method_path_and_canonical_body() {
    let db = database();
    let mut session = db.session("session");
    let (key, body) = (key(&db), "{\"name\":\"caf\u{e9}\",\"size\":10}");
    let sent = create(&mut session, &key, body);
    let by_hand = "SELECT fingerprint = sha256(convert_to(E'POST\\n/api/v1/groups\\n{\"name\":\"caf\u{e9}\",\"size\":10}', 'UTF8'))
                   FROM idempotency.records";
    assert!(db.value::<bool>(by_hand));
    let request = Request::create_group(&key, body);
    let body_of = |body: &str| Request { body: Some(body.into()), ..request.clone() };
    for same in [
        Request { method: "post", ..request.clone() },
        Request { path: "/api/v1/groups?dry=1", ..request.clone() },
        body_of(" { \"size\" : 1e1 , \"name\" : \"caf\\u00e9\" } "),
    ] {
        let replayed = resend(&mut session, &same).expect("replayed");
        assert_eq!(replayed.answer(), sent.answer());
        assert_eq!(replayed.header("Idempotent-Replay"), Some(&json!("true")));
    }
    for other in [
        Request { method: "PUT", ..request.clone() },
        Request { path: "/api/v1/group%73", ..request.clone() },
        Request { body: None, ..request.clone() },
        body_of("{\"name\":\"caf\u{e9}\",\"size\":11}"),
        body_of("{\"name\":\"cafe\",\"size\":10}"),
    ] {
        resend(&mut session, &other).expect("mismatch").expect_problem(422);
    }
    assert_eq!(groups(&db), 1);
}

/// What is not one JSON value without a duplicate member is compared byte for byte, so a final 400
/// about it is replayed to the same bytes only.
#[test]
fn decision_1_a_malformed_body_is_compared_by_its_bytes() {
    let db = database();
    let mut session = db.session("session");
    let refuse = |_: &mut Session, buffer: &mut Buffer| {
        buffer.write_json(400, &json!({"title": "malformed"}));
        Ok(())
    };
    for (body, other) in
        [("{\"name\":", "{\"name\": "), ("{\"a\":1,\"a\":2}", "{\"a\":1, \"a\":2}")]
    {
        let request = Request::create_group(&key(&db), body);
        let sent = serve(&mut session, &request, &mut { refuse }).expect("an answer");
        let replayed = resend(&mut session, &request).expect("replayed");
        assert_eq!((sent.status, replayed.answer()), (Some(400), sent.answer()));
        let other = Request { body: Some(other.into()), ..request };
        resend(&mut session, &other).expect("mismatch").expect_problem(422);
    }
}

#[test]
fn decision_1_without_a_body_the_fingerprint_ends_after_the_path() {
    let db = database();
    let mut session = db.session("session");
    let request = Request { body: None, ..Request::create_group(&key(&db), "") };
    serve(&mut session, &request, &mut create_group).expect("it succeeds").expect("completed");
    resend(&mut session, &request).expect("replayed");
    resend(&mut session, &Request { body: Some(Vec::new()), ..request.clone() }).expect("replayed");
    resend(&mut session, &Request { body: Some(b"null".to_vec()), ..request }).expect("mismatch");
}

// ---- 2: where the header acts --------------------------------------------------------------

#[test]
fn decision_2_without_the_parameter_the_header_has_no_effect() {
    let db = database();
    configure_operation(&db, "listGroups", json!({"mode": "ignored"}));
    let mut session = db.session("session");
    for key in ["abc", &key(&db)] {
        let request = Request { operation: "listGroups", ..Request::create_group(key, "{}") };
        for _ in 0..2 {
            let sent = serve(&mut session, &request, &mut create_group).expect("an answer");
            assert_eq!((sent.status, sent.header("Idempotent-Replay")), (Some(201), None));
        }
    }
    assert_eq!((groups(&db), db.records()), (4, 0));
}

#[test]
fn decision_2_for_the_anonymous_actor_the_header_has_no_effect() {
    let db = database();
    let mut session = db.session("session");
    for key in ["abc", &key(&db)] {
        let request = Request { principal: None, ..Request::create_group(key, "{}") };
        for _ in 0..2 {
            serve(&mut session, &request, &mut create_group).expect("an answer").expect("bypassed");
        }
    }
    assert_eq!((groups(&db), db.records()), (4, 0));
}

#[test]
fn decision_2_a_value_that_is_not_one_uuidv7_is_400_and_nothing_is_stored() {
    let db = database();
    let mut session = db.session("session");
    let (v7, v4) = (key(&db), db.value::<String>("SELECT gen_random_uuid()::text"));
    for bad in ["abc", "", " ", &v4, &v7[1..], &v7.replace('-', ""), &format!("{v7},{v7}")] {
        let invalid = resend(&mut session, &Request::create_group(bad, "{}"));
        assert_invalid(&invalid, 400, "invalid_format");
    }
    assert_eq!((groups(&db), db.records()), (0, 0));
    create(&mut session, &v7, "{}");
}

#[test]
fn decision_2_without_the_header_the_request_runs_as_ever() {
    let db = database();
    let mut session = db.session("session");
    let request = Request { key: None, ..Request::create_group("", "{}") };
    for _ in 0..2 {
        serve(&mut session, &request, &mut create_group).expect("an answer").expect("bypassed");
    }
    assert_eq!((groups(&db), db.records()), (2, 0));
}

/// Per principal, not per operation.
#[test]
fn decision_2_a_key_is_the_principals_whatever_the_operation() {
    let db = database();
    keyed(&db, "createGrant");
    let mut session = db.session("session");
    let key = key(&db);
    create(&mut session, &key, "{}");
    let other = Request { operation: "createGrant", ..Request::create_group(&key, "{}") };
    resend(&mut session, &other).expect("mismatch").expect_problem(422);
    let bob = Request { principal: Some("bob"), ..Request::create_group(&key, "{}") };
    let mut as_bob = |session: &mut Session, buffer: &mut Buffer| {
        session.attempt("INSERT INTO app.check_log VALUES ('bob', 'createGroup')")?;
        create_group(session, buffer)
    };
    serve(&mut session, &bob, &mut as_bob).expect("an answer").expect("completed");
    assert_eq!(groups(&db), 2);
}

// ---- 3: integers ---------------------------------------------------------------------------

#[test]
fn decision_3_integers_that_a_double_cannot_hold_stay_different() {
    let db = database();
    let mut session = db.session("session");
    let key = key(&db);
    let body = |n: &str| format!("{{\"n\":{n}}}");
    let sent = create(&mut session, &key, &body("18446744073709551615"));
    let request = |n: &str| Request::create_group(&key, &body(n));
    let same = resend(&mut session, &request("18446744073709551615")).expect("replayed");
    assert_eq!(same.answer(), sent.answer());
    for other in ["18446744073709551614", " 18446744073709551615", "18446744073709551616"] {
        resend(&mut session, &request(other)).expect("mismatch");
    }
}

/// As RFC 8785 says.
#[test]
fn decision_3_fractions_and_exponents_are_rounded() {
    let db = database();
    let mut session = db.session("session");
    let request = |key: &str, n: &str| Request::create_group(key, &format!("[{n}]"));
    for (n, same, other) in [
        ("0.1", "0.1000000000000000055", "0.10000000000000002"),
        ("100.0", "1e2", "100.00000000000002"),
        ("18446744073709551615.0", "18446744073709551614.0", "1844674407370955e4"),
    ] {
        let key = key(&db);
        create(&mut session, &key, &format!("[{n}]"));
        resend(&mut session, &request(&key, same)).expect("replayed");
        resend(&mut session, &request(&key, other)).expect("mismatch");
    }
}

// ---- 4: changes of rights ------------------------------------------------------------------

/// The hook of a change of rights: takes the principal's permission version.
fn begin_rights_change(session: &mut Session) -> Result<(), Refusal> {
    session.attempt("SELECT FROM app.principals WHERE name = 'alice' FOR UPDATE").map(drop)
}

fn create_grant(session: &mut Session, buffer: &mut Buffer) -> Result<(), Refusal> {
    begin_rights_change(session)?;
    session.attempt("UPDATE app.principals SET permission_version = permission_version + 1 WHERE name = 'alice'")?;
    create_group(session, buffer)
}

fn permission_version(db: &Database<'_>) -> i32 {
    db.value("SELECT permission_version FROM app.principals WHERE name = 'alice'")
}

/// A nested unit may still run its hook: the claim before it has written nothing and locked no row.
#[test]
fn decision_4_the_claim_leaves_a_nested_rights_change_its_place() {
    let db = database();
    let mut session = db.session("session");
    let mut nested = |session: &mut Session, buffer: &mut Buffer| {
        assert!(!session.has_transaction_id(), "nothing was written before the hook");
        session.run("SAVEPOINT nested");
        create_grant(session, buffer)?;
        session.run("RELEASE nested");
        Ok(())
    };
    let request = Request::create_group(&key(&db), "{}");
    let sent = serve(&mut session, &request, &mut nested).expect("an answer").expect("completed");
    assert_eq!(resend(&mut session, &request).expect("replayed").answer(), sent.answer());
    assert_eq!((permission_version(&db), groups(&db)), (2, 1));
}

/// Key first, permission version after it: units that change the same rights queue up, duplicates
/// among them too, and never in a circle.
#[test]
fn decision_4_rights_changes_and_duplicates_cannot_close_a_cycle() {
    let db = database();
    let keys = [key(&db), key(&db)];
    let all_are_there = AtomicBool::new(false);
    let serve_one = |at: usize| {
        let mut session = db.session(&format!("client {at}"));
        let mut handler = |session: &mut Session, buffer: &mut Buffer| {
            wait::until("all clients are there", || all_are_there.load(SeqCst).then_some(()));
            create_grant(session, buffer)
        };
        let request = Request::create_group(&keys[at % 2], "{}");
        serve(&mut session, &request, &mut handler).expect("no deadlock").outcome
    };
    let mut outcomes: Vec<String> = thread::scope(|scope| {
        let mut clients: Vec<_> = (0..2).map(|at| scope.spawn(move || serve_one(at))).collect();
        wait::until("both keys are held", || (db.keys_held() == 2).then_some(()));
        clients.extend((2..6).map(|at| scope.spawn(move || serve_one(at))));
        db.wait_until_waiting(4);
        all_are_there.store(true, SeqCst);
        clients.into_iter().map(|client| client.join().expect("a client ends")).collect()
    });
    outcomes.sort();
    let expected = ["completed", "completed", "replayed", "replayed", "replayed", "replayed"];
    assert_eq!(outcomes, expected);
    assert_eq!((permission_version(&db), groups(&db)), (3, 2));
}

/// The other order is refused before it can wait for anything.
#[test]
fn decision_4_a_rights_change_before_the_claim_is_refused() {
    let db = database();
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    let request = Request::create_group(&key(&db), "{}");
    let call = || claim_by("alice", CREATE_GROUP, request.key.clone()).with("fingerprint", [1; 32]);
    holder.run("BEGIN");
    holder.call(call()).expect("claimed");
    session.run("BEGIN");
    begin_rights_change(&mut session).expect("the row is free");
    session
        .refused(call().with("wait_ms", -1))
        .expect_ours("IK001")
        .hints("Claim before anything else");
    session.run("ROLLBACK");
    begin_rights_change(&mut holder).expect("the row is free again");
}

// ---- 5: retries of the whole unit ----------------------------------------------------------

/// Counts one row up, as part of a group's creation.
fn touch(session: &mut Session, principal: &str) -> Result<(), Refusal> {
    let update = "UPDATE app.principals SET permission_version = permission_version + 1 WHERE name";
    session.attempt(format!("{update} = '{principal}'")).map(drop)
}

/// Two units lock two rows crosswise. The handler of the victim writes a problem as it always does;
/// the stage sees the deadlock behind it and runs the whole unit again, from the claim on, with an
/// empty buffer.
#[test]
fn decision_5_a_deadlock_retries_the_whole_unit() {
    let db = database();
    let (crossings, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let serve_one = |near: &'static str, far: &'static str| {
        let mut session = db.session(near);
        let mut again = false;
        let mut handler = |session: &mut Session, buffer: &mut Buffer| {
            // The victim leaves the crossing to the other, so that two are enough.
            if std::mem::replace(&mut again, true) {
                wait::until("the other is done", || done.load(SeqCst).then_some(()));
            }
            buffer.write(201, "{\"begun\":");
            touch(session, near)?;
            crossings.fetch_add(1, SeqCst);
            wait::until("both are there", || (crossings.load(SeqCst) >= 2).then_some(()));
            if let Err(refusal) = touch(session, far) {
                return buffer.write_problem(refusal);
            }
            check_right(session, CREATE_GROUP)?;
            session.attempt("INSERT INTO orders (key) VALUES ('group')")?;
            buffer.write(201, "true}");
            Ok(())
        };
        let request = Request::create_group(&key(&db), "{}");
        let sent = serve(&mut session, &request, &mut handler).expect("it succeeds in the end");
        done.store(true, SeqCst);
        assert_eq!(sent.text(), "{\"begun\":true}", "only what the last attempt wrote");
        assert_eq!(resend(&mut session, &request).expect("replayed").answer(), sent.answer());
    };
    thread::scope(|scope| {
        scope.spawn(|| serve_one("alice", "bob"));
        scope.spawn(|| serve_one("bob", "alice"));
    });
    assert_eq!(crossings.load(SeqCst), 3, "the victim's first attempt, and two that succeeded");
    assert_eq!((permission_version(&db), groups(&db), db.records()), (3, 2, 2));
}

#[test]
fn decision_5_a_lock_timeout_retries_the_whole_unit() {
    let db = database();
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    holder.run("BEGIN");
    touch(&mut holder, "alice").expect("the row is free");
    let attempts = Cell::new(0);
    let mut handler = |session: &mut Session, buffer: &mut Buffer| {
        attempts.set(attempts.get() + 1);
        if attempts.get() == 3 {
            holder.run("COMMIT");
        }
        session.run("SET LOCAL lock_timeout = '30ms'");
        touch(session, "alice").map_or_else(|refusal| buffer.write_problem(refusal), Ok)?;
        create_group(session, buffer)
    };
    let request = Request::create_group(&key(&db), "{}");
    serve(&mut session, &request, &mut handler).expect("the third succeeds").expect("completed");
    assert_eq!((attempts.get(), groups(&db), permission_version(&db)), (3, 1, 3));
}

/// The claim's own wait for a key is not the unit's affair: it ends in an answer, not in 55P03.
#[test]
fn decision_5_a_lock_timeout_while_waiting_for_the_key_is_an_answer() {
    let db = database();
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    let request = Request::create_group(&key(&db), "{}");
    holder.run("BEGIN");
    let call = claim_by("alice", CREATE_GROUP, request.key.clone());
    holder.call(call.with("fingerprint", [1; 32])).expect("claimed");
    session.run("SET lock_timeout = '30ms'");
    resend(&mut session, &request).expect("in_progress").expect_problem(409);
}

/// A handler that swallows the deadlock cannot have its answer recorded.
#[test]
fn decision_5_an_aborted_unit_records_nothing() {
    let db = database();
    let mut session = db.session("session");
    let mut swallows = |session: &mut Session, buffer: &mut Buffer| {
        create_group(session, buffer)?;
        session.refused("DO $$ BEGIN RAISE 'x' USING ERRCODE = '40P01'; END $$").expect("40P01");
        Ok(())
    };
    let request = Request::create_group(&key(&db), "{}");
    let served = serve(&mut session, &request, &mut swallows);
    served.expect_err("the transaction is aborted").expect("25P02");
    assert_eq!((groups(&db), db.records()), (0, 0));
}
