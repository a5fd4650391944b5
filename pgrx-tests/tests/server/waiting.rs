//! How long a claim waits, and what is left when it must not wait on.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use std::time::{Duration, Instant};

/// A session that holds `k` in an open transaction.
fn holder(db: &Database<'_>) -> Session {
    let mut holder = db.session("holder");
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    holder
}

/// The transaction that was told `in_progress` goes on as if nothing had happened.
fn assert_usable(db: &Database<'_>, session: &mut Session) {
    assert!(!session.has_transaction_id(), "waiting is not a write");
    assert_eq!(db.key_locks_of(session), 0, "no lock is left");
    session.run("INSERT INTO orders (key) VALUES ('after the wait'); COMMIT");
    assert_eq!(db.orders("after the wait"), 1);
}

fn wait_of_0_answers_in_progress_at_once(db: &Database<'_>, isolation: Isolation) {
    let _holder = holder(db);
    let mut session = db.session("session");
    session.begin(isolation);
    let started = Instant::now();
    let outcome = session.call(claim("k").with("wait_ms", 0)).expect("in_progress");
    assert!(started.elapsed() < Duration::from_secs(5), "no default wait");
    outcome.expect_problem(409);
    assert_usable(db, &mut session);
}

fn wait_of_200_answers_in_progress_after_that(db: &Database<'_>, isolation: Isolation) {
    let _holder = holder(db);
    let mut session = db.session("session");
    session.begin(isolation);
    let started = Instant::now();
    session.call(claim("k").with("wait_ms", 200)).expect("in_progress").expect_problem(409);
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(200) && waited < Duration::from_secs(5), "{waited:?}");
    assert_usable(db, &mut session);
}

fn wait_of_minus_1_has_no_limit(db: &Database<'_>, isolation: Isolation) {
    let mut holder = holder(db);
    let mut session = db.session("session");
    session.run("SET pg_idempotency.wait_ms = 20");
    session.begin(isolation);
    session.start(claim("k").with("wait_ms", -1));
    db.wait_until_blocked(&session, &holder);
    let waits = format!(
        "SELECT clock_timestamp() - waitstart > '200 ms' FROM pg_locks WHERE pid = {} AND NOT granted",
        session.pid()
    );
    db.wait_until(&format!("coalesce(({waits}), false)"));
    holder.run("ROLLBACK");
    session.finish_call().expect("claimed");
}

/// A transaction that saw `in_progress` may claim the key again later, and then wins it or replays.
fn after_in_progress_the_key_can_be_claimed(db: &Database<'_>, isolation: Isolation) {
    let mut holder = holder(db);
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k").with("wait_ms", 0)).expect("in_progress");
    shop::work(&mut holder, "k").expect("the work succeeds");
    holder.run("COMMIT");
    session.call(claim("k").with("wait_ms", 0)).expect("replayed");
}

at_every_isolation!(
    wait_of_0_answers_in_progress_at_once,
    wait_of_200_answers_in_progress_after_that,
    wait_of_minus_1_has_no_limit,
    after_in_progress_the_key_can_be_claimed,
);

#[test]
fn in_progress_says_when_to_come_again() {
    let db = Database::fresh();
    let _holder = holder(&db);
    let outcome = db.session("session").call(claim("k").with("wait_ms", 0)).expect("in_progress");
    let seconds = outcome.retry_after.expect("seconds");
    assert!(seconds >= 1, "{seconds}");
    assert_eq!(outcome.header("Retry-After"), Some(&seconds.to_string().into()));
    assert_eq!(outcome.header("Idempotent-Replayed"), None, "nothing is replayed");
}

#[test]
fn without_an_argument_the_setting_says_how_long() {
    let db = Database::fresh();
    let _holder = holder(&db);
    let mut session = db.session("session");
    session.run("SET pg_idempotency.wait_ms = 50");
    session.call(claim("k")).expect("in_progress");
    let null: Option<i32> = None;
    session.call(claim("k").with("wait_ms", null)).expect("in_progress");
}

/// Catches a wait that is the claim's alone: `lock_timeout` is the caller's word too.
#[test]
fn a_shorter_lock_timeout_gives_the_row_sooner() {
    let db = Database::fresh();
    let _holder = holder(&db);
    for wait_ms in [60_000, -1] {
        let mut session = db.session("session");
        session.run("BEGIN; SET LOCAL lock_timeout = '50ms'");
        let started = Instant::now();
        session.call(claim("k").with("wait_ms", wait_ms)).expect("in_progress");
        assert!(started.elapsed() < Duration::from_secs(5), "sooner: {:?}", started.elapsed());
        assert!(!session.has_transaction_id());
    }
}

/// Catches a wait that overwrites the caller's timeouts, or leaves its own behind.
#[test]
fn the_callers_lock_timeout_is_as_before_after_a_wait() {
    let db = Database::fresh();
    let mut holder = holder(&db);
    holder.run("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE");
    let mut session = db.session("session");
    session.run("BEGIN; SET LOCAL lock_timeout = '300ms'");
    session.call(claim("k").with("wait_ms", 20)).expect("in_progress");
    assert_eq!(session.value::<String>("SELECT current_setting('lock_timeout')"), "300ms");
    session.refused("SELECT * FROM orders").expect("55P03");
}

/// The other way round: a wait must not make a later, unlimited wait time out.
#[test]
fn no_timeout_is_left_behind() {
    let db = Database::fresh();
    let mut holder = holder(&db);
    holder.run("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k").with("wait_ms", 20)).expect("in_progress");
    session.start("SELECT count(*) FROM orders");
    db.wait_until_blocked(&session, &holder);
    let pid = session.pid();
    db.wait_until(&format!("EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted AND clock_timestamp() - waitstart > '100 ms')"));
    holder.run("ROLLBACK");
    assert!(session.finish().is_ok());
}

#[test]
fn a_statement_timeout_still_holds_after_a_wait() {
    let db = Database::fresh();
    let _holder = holder(&db);
    let mut session = db.session("session");
    session.run("BEGIN; SET LOCAL statement_timeout = '400ms'");
    let refusal = session.refused(
        "SELECT c.outcome, pg_sleep(60)
         FROM idempotency_claim('alice', 'POST /orders', 'k', wait_ms => 20) c",
    );
    refusal.expect("57014");
}

/// Catches a wait inside an internal subtransaction that is left open, or that dies with it.
#[test]
fn a_wait_inside_a_savepoint_leaves_the_savepoint_alone() {
    let db = Database::fresh();
    let _holder = holder(&db);
    let mut session = db.session("session");
    session.run("BEGIN; SAVEPOINT s");
    session.call(claim("k").with("wait_ms", 20)).expect("in_progress");
    session.run("INSERT INTO orders (key) VALUES ('inside'); ROLLBACK TO s");
    session.run("INSERT INTO orders (key) VALUES ('after'); COMMIT");
    assert_eq!((db.orders("inside"), db.orders("after")), (0, 1));
}

/// Catches a wait that leaves the query with another resource owner: the scan around it holds pages
/// that it could then not give back.
#[test]
fn a_wait_in_the_middle_of_a_scan_leaves_the_scan_alone() {
    let db = Database::fresh();
    let keys: Vec<String> = (0..40).map(|n| format!("k{n:02}")).collect();
    let mut holder = db.session("holder");
    holder.run("BEGIN");
    holder.rows(claim_many(&keys.iter().map(String::as_str).collect::<Vec<_>>()));
    db.run(
        "INSERT INTO orders (key, note)
         SELECT to_char(n, '\"k\"FM00'), repeat('x', 1000) FROM generate_series(0, 39) n",
    );
    let waited: i64 = db.session("session").value(
        "SELECT count(*) FROM orders o,
             LATERAL idempotency_claim('alice', 'POST /orders', o.key, wait_ms => 5) c
         WHERE c.outcome = 'in_progress'",
    );
    assert_eq!(waited, 40);
}

/// Catches a wait whose subtransaction takes the lock with it: what was won must be held to the
/// end of the transaction.
#[test]
fn what_was_won_by_waiting_is_held() {
    let db = Database::fresh();
    let mut holder = holder(&db);
    let mut session = db.session("session");
    session.run("BEGIN");
    session.start(claim("k"));
    db.wait_until_blocked(&session, &holder);
    holder.run("ROLLBACK");
    session.finish_call().expect("claimed");
    db.session("third").call(claim("k").with("wait_ms", 0)).expect("in_progress");
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
    db.session("third").call(claim("k").with("wait_ms", 0)).expect("replayed");
}

/// The clock is read after the lock is won; a clock read before the wait, or that of the
/// transaction's start, is the classic fault.
#[test]
fn the_claim_is_dated_after_the_wait() {
    let db = Database::fresh();
    let mut holder = holder(&db);
    let mut session = db.session("session");
    session.run("BEGIN; SELECT now()");
    session.start(claim("k"));
    db.wait_until_blocked(&session, &holder);
    let during_the_wait: std::time::SystemTime = db.value("SELECT clock_timestamp()");
    holder.run("ROLLBACK");
    let claimed = session.finish_call().expect("claimed");
    assert!(claimed.created_at.expect("a time") > during_the_wait, "dated when it was won");
}
