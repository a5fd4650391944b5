//! How long records last, what becomes of late retries, and who waits for whom.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use std::time::{Duration, Instant, SystemTime};

/// Claims the only key of the test, does the work, completes; the transaction stays open.
fn take_over(session: &mut Session) -> Outcome {
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('k')");
    session.call(complete(201).with("body", session.name().to_owned())).expect("completed")
}

// ---- retention -----------------------------------------------------------------------------

#[test]
fn a_record_expires_that_long_after_its_completion() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for (retention, interval) in
        [("30 days", "30 days"), ("P1M", "1 month"), ("00:00:01.5", "1500 ms")]
    {
        configure(&db, json!({"retention": retention}));
        let sent = execute(&mut session, claim(retention), complete(204));
        let (expires, completed) =
            (sent.expires_at.expect("a time"), sent.completed_at.expect("a time"));
        assert!(expires > completed && completed > sent.created_at.expect("a time"));
        let right = format!(
            "SELECT expires_at = completed_at + interval '{interval}' FROM idempotency.records WHERE key = '{retention}'"
        );
        assert!(db.value::<bool>(&right), "{retention}");
    }
    let replayed = session.call(claim("30 days")).expect("replayed");
    assert!(replayed.expires_at > Some(SystemTime::now() + Duration::from_secs(29 * 86_400)));
    configure(&db, json!({"retention": "forever"}));
    assert_eq!(execute(&mut session, claim("forever"), complete(204)).expires_at, None);
}

/// Changing the setting changes no record.
#[test]
fn a_record_keeps_the_retention_it_was_made_with() {
    let db = Database::fresh();
    configure(&db, json!({"retention": "1 day"}));
    let mut session = db.session("session");
    let sent = execute(&mut session, claim("k"), complete(204));
    for retention in [json!("1 microsecond"), json!("forever"), json!(null)] {
        configure(&db, json!({"retention": retention}));
        assert_eq!(session.call(claim("k")).expect("replayed").expires_at, sent.expires_at);
    }
}

/// The table holds one record per key: the new one takes the place of the old.
fn an_expired_record_gives_way(db: &Database<'_>, isolation: Isolation) {
    configure(db, json!({"retention": "1 day"}));
    let mut session = db.session("session");
    let first = execute(&mut session, claim("k").with("fingerprint", [1; 32]), complete(200));
    session.begin(isolation);
    session.rows("SELECT FROM orders");
    session.call(claim("k").with("fingerprint", [1; 32])).expect("replayed");
    // Expired while this transaction has a snapshot; the clock counts, not the snapshot.
    expire_all(db);
    session.call(replay("k")).expect("unknown");
    let claimed = session.call(claim("k").with("fingerprint", [2; 32])).expect("claimed");
    assert_eq!(claimed.attempt, Some(1));
    session.run("INSERT INTO orders (key) VALUES ('k')");
    let second = session.call(complete(201)).expect("completed");
    assert!(second.completed_at > first.completed_at && second.token != first.token);
    session.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
    session.call(claim("k").with("fingerprint", [2; 32])).expect("replayed");
    session.call(claim("k").with("fingerprint", [1; 32])).expect("mismatch");
}

fn of_two_that_find_it_expired_one_wins(db: &Database<'_>, isolation: Isolation) {
    let (mut one, mut other) = (db.session("one"), db.session("other"));
    execute(&mut one, claim("k"), complete(200));
    for session in [&mut one, &mut other] {
        session.begin(isolation);
        session.rows("SELECT FROM orders");
    }
    expire_all(db);
    one.call(claim("k")).expect("claimed");
    other.start(claim("k"));
    db.wait_until_blocked(&other, &one);
    one.run("INSERT INTO orders (key) VALUES ('k')");
    one.call(complete(201).with("body", "one")).expect("completed");
    one.run("COMMIT");
    assert_eq!(other.finish_call().expect("replayed").text(), "one");
    other.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

/// The winner rolls back: the expired record is there again, and gives way to the waiter.
fn a_waiter_takes_over_from_a_winner_that_rolled_back(db: &Database<'_>, isolation: Isolation) {
    let (mut one, mut other) = (db.session("one"), db.session("other"));
    execute(&mut one, claim("k"), complete(200));
    other.begin(isolation);
    other.rows("SELECT FROM orders");
    expire_all(db);
    one.begin(isolation);
    take_over(&mut one);
    other.start(claim("k"));
    db.wait_until_blocked(&other, &one);
    one.run("ROLLBACK");
    other.finish_call().expect("claimed");
    other.run("INSERT INTO orders (key) VALUES ('k')");
    other.call(complete(201).with("body", "other")).expect("completed");
    other.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
    assert_eq!(one.call(claim("k")).expect("replayed").text(), "other");
}

/// Others' expired records are none of a transaction's business.
fn replacing_neighbours_do_not_get_in_each_others_way(db: &Database<'_>, isolation: Isolation) {
    let mut sessions = [db.session("k1"), db.session("k2")];
    for session in &mut sessions {
        let key = session.name().to_owned();
        execute(session, claim(key), complete(200));
    }
    expire_all(db);
    for session in &mut sessions {
        session.begin(isolation);
        session.call(claim(session.name().to_owned())).expect("claimed");
    }
    for session in &mut sessions {
        session.call(complete(201)).expect("completed");
    }
    for session in &mut sessions {
        session.run("COMMIT");
    }
    assert_eq!(db.value::<i64>("SELECT count(*) FROM idempotency.records WHERE status = 201"), 2);
}

/// A completion undone by a savepoint puts the expired record back; the next one replaces it.
fn a_replacement_can_be_undone_and_done_again(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    execute(&mut session, claim("k"), complete(200));
    expire_all(db);
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    session.run("SAVEPOINT s");
    session.call(complete(500)).expect("released");
    session.run("ROLLBACK TO s");
    session.call(complete(201)).expect("completed");
    session.run("ROLLBACK TO s");
    session.call(complete(202)).expect("completed");
    session.run("COMMIT");
    assert_eq!(session.call(claim("k")).expect("replayed").status, Some(202));
    assert_eq!(db.records(), 1);
}

at_every_isolation!(
    an_expired_record_gives_way,
    of_two_that_find_it_expired_one_wins,
    a_waiter_takes_over_from_a_winner_that_rolled_back,
    replacing_neighbours_do_not_get_in_each_others_way,
    a_replacement_can_be_undone_and_done_again,
);

// ---- late retries --------------------------------------------------------------------------

fn late_retries_refused(retention: &str) -> Database<'static> {
    let db = Database::fresh();
    configure(&db, json!({"key_format": "uuidv7", "late_retry": "refuse", "retention": retention}));
    db
}

/// Where there is no record, nobody knows any more whether the request was executed.
#[test]
fn a_key_older_than_the_retention_is_expired() {
    let db = late_retries_refused("1 day");
    let mut session = db.session("session");
    for (age, word) in [
        ("-25 hours", "expired"),
        ("-10 years", "expired"),
        ("-23 hours", "claimed"),
        ("0", "claimed"),
        ("4 minutes", "claimed"),
    ] {
        let key = uuid_v7(&db, age);
        assert_eq!(session.call(claim(&key)).outcome, word, "{age}");
        session.call(replay(&key)).expect("unknown");
    }
    let expired = session.call(claim(uuid_v7(&db, "-2 days"))).expect("expired");
    let problem = expired.expect_problem(410);
    assert!(problem["hint"].as_str().is_some_and(|hint| hint.contains("new key")), "{problem}");
    assert_eq!(
        (expired.header("Idempotent-Replayed"), expired.token, db.records(), db.keys_held()),
        (None, None, 0, 0)
    );
}

#[test]
fn a_key_from_the_future_is_invalid() {
    let db = late_retries_refused("1 day");
    let mut session = db.session("session");
    for ahead in ["6 minutes", "10 years"] {
        let key = uuid_v7(&db, ahead);
        let invalid = session.call(claim(&key));
        assert_invalid(&invalid, 400, "invalid_format");
        assert!(invalid.text().contains("future"), "{invalid}");
        assert_eq!(session.call(replay(&key)), invalid);
    }
    // A key that is older than a change keeps the shorter retention.
    configure(&db, json!({"retention": "forever"}));
    assert_invalid(&session.call(claim(uuid_v7(&db, "6 minutes"))), 400, "invalid_format");
    session.call(claim(uuid_v7(&db, "-10 years"))).expect("expired");
    let db = late_retries_refused("forever");
    let mut session = db.session("session");
    session.call(claim(uuid_v7(&db, "-10 years"))).expect("claimed");
}

#[test]
fn by_default_a_late_retry_is_executed() {
    let db = Database::fresh();
    configure(&db, json!({"key_format": "uuidv7", "retention": "1 day"}));
    let mut session = db.session("session");
    for age in ["-10 years", "-25 hours", "6 minutes", "10 years"] {
        session.call(claim(uuid_v7(&db, age))).expect("claimed");
    }
}

/// Else a key from the future would outlive its record, and its late retry be executed.
#[test]
fn a_record_lasts_from_the_later_of_completion_and_key_time() {
    let db = late_retries_refused("1 day");
    let mut session = db.session("session");
    let (ahead, behind) = (uuid_v7(&db, "4 minutes"), uuid_v7(&db, "-20 hours"));
    for key in [&ahead, &behind] {
        execute(&mut session, claim(key), complete(204)).expect("completed");
    }
    let lasts = |key: &str, from: &str| {
        let sql = format!(
            "SELECT expires_at = {from} + interval '1 day' FROM idempotency.records WHERE key = '{key}'"
        );
        db.value::<bool>(&sql)
    };
    let millis = u128::from_str_radix(&ahead.replace('-', ""), 16).expect("a UUID") >> 80;
    assert!(lasts(&ahead, &format!("timestamptz 'epoch' + {millis} * interval '1 ms'")));
    assert!(lasts(&behind, "completed_at"));
}

/// The whole story of one key: executed, replayed, expired, and never executed again.
#[test]
fn a_late_retry_is_never_executed_twice() {
    let db = late_retries_refused("1 day");
    let mut session = db.session("session");
    let key = uuid_v7(&db, "-23 hours");
    execute(&mut session, claim(&key), complete(204));
    session.call(claim(&key)).expect("replayed");
    configure(&db, json!({"retention": "1 hour"}));
    session.call(claim(&key)).expect("replayed");
    expire_all(&db);
    session.call(claim(&key)).expect("expired");
    db.run("DELETE FROM idempotency.records");
    session.call(claim(&key)).expect("expired");
}

// ---- waiting -------------------------------------------------------------------------------

fn holder(db: &Database<'_>) -> Session {
    let mut holder = db.session("holder");
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    holder
}

/// The call's own argument goes first, then the operation's setting, then the session's.
#[test]
fn wait_ms_is_the_calls_or_the_operations_or_the_sessions() {
    let db = Database::fresh();
    let mut holder = holder(&db);
    let mut session = db.session("session");
    session.run("SET pg_idempotency.wait_ms = -1");
    let mut waits = |setting: i32, call: Call| {
        configure(&db, json!({"wait_ms": setting}));
        let started = Instant::now();
        session.start(call);
        session.finish_call().expect("in_progress");
        session.finished_after(started)
    };
    waits(0, claim("k"));
    assert!(waits(150, claim("k")) >= Duration::from_millis(150));
    waits(-1, claim("k").with("wait_ms", 0));
    session.run("SET pg_idempotency.wait_ms = 0");
    session.run("BEGIN");
    session.start(claim("k"));
    db.wait_until_blocked(&session, &holder);
    holder.run("ROLLBACK");
    session.finish_call().expect("claimed");
}

#[test]
fn no_more_wait_than_max_waiters() {
    let db = Database::fresh();
    configure(&db, json!({"max_waiters": 1, "wait_ms": -1}));
    let mut holder = holder(&db);
    let (mut waiter, mut third) = (db.session("waiter"), db.session("third"));
    waiter.run("BEGIN");
    waiter.start(claim("k"));
    db.wait_until_blocked(&waiter, &holder);
    for _ in 0..2 {
        // At once, though it would wait without end; and asking does not take a place.
        third.start(claim("k").with("wait_ms", -1));
        third.finish_call().expect("in_progress").expect_problem(409);
    }
    third.call(claim("other")).expect("claimed");
    assert_eq!(db.key_locks_of(&third), 0);
    // With the holder gone there is room for one again.
    holder.run("ROLLBACK");
    waiter.finish_call().expect("claimed");
    waiter.run("ROLLBACK");
    third.call(claim("k")).expect("claimed");
}

#[test]
fn max_waiters_can_be_none_and_any_number() {
    let db = Database::fresh();
    configure(&db, json!({"max_waiters": 0, "wait_ms": -1}));
    let mut holder = holder(&db);
    let mut sessions: Vec<Session> = (0..4).map(|n| db.session(&format!("waiter {n}"))).collect();
    sessions[0].start(claim("k"));
    sessions[0].finish_call().expect("in_progress");
    configure(&db, json!({"max_waiters": 3}));
    for (at, session) in sessions[..3].iter_mut().enumerate() {
        session.start(claim("k"));
        db.wait_until_waiting(at + 1);
    }
    sessions[3].start(claim("k"));
    sessions[3].finish_call().expect("in_progress");
    configure(&db, json!({"max_waiters": null}));
    sessions[3].start(claim("k"));
    db.wait_until_waiting(4);
    holder.call(complete(204)).expect("completed");
    holder.run("COMMIT");
    for session in &mut sessions {
        session.finish_call().expect("replayed");
    }
}
