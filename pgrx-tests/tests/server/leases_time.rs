//! The time of a lease: by the database's clock, to the very instant, never shortened.

use pg_idempotency_tests::lease::{
    LONG, alone, complete_by, deadline, extend, lease, now, resume, run_out, set_deadline, start,
    token_of,
};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::wait;
use std::time::{Duration, SystemTime};

fn millis(lease_ms: i32) -> Duration {
    Duration::from_millis(lease_ms.unsigned_abs().into())
}

/// Runs `call`; returns its result and the clock before and after.
fn timed<R>(db: &Database<'_>, call: impl FnOnce() -> R) -> (SystemTime, R, SystemTime) {
    let before = now(db);
    let result = call();
    (before, result, now(db))
}

/// Whole seconds from `from` to `to`, rounded up.
fn seconds_up(from: SystemTime, to: SystemTime) -> i32 {
    let left = to.duration_since(from).unwrap_or_default();
    i32::try_from(left.as_micros().div_ceil(1_000_000)).expect("a short time")
}

/// Catches a deadline by another clock, or by that of the transaction's start.
fn a_lease_lasts_as_long_as_it_was_told(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    for (key, lease_ms) in [("shortest", 1), ("usual", 60_000), ("longest", i32::MAX)] {
        worker.begin(isolation);
        worker.rows("SELECT * FROM orders");
        let call = claim(key).with("lease_ms", lease_ms);
        let (before, claimed, after) = timed(db, || worker.call(call).expect("claimed"));
        worker.run("COMMIT");
        let until = deadline(db, token_of(&claimed));
        assert!((before + millis(lease_ms)..=after + millis(lease_ms)).contains(&until), "{key}");
        assert_eq!(claimed.expires_at, Some(until));
    }
}

/// Rounded down, a client that comes back in time would be sent away again.
fn retry_after_is_the_time_left_rounded_up(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let token = start(&mut worker, isolation, "k");
    for left in ["10 s", "60 s 1 us", "61 s 999999 us", "100 days"] {
        let until = set_deadline(db, token, &format!("clock_timestamp() + interval '{left}'"));
        for call in [claim("k"), lease("k"), replay("k")] {
            let (before, told, after) = timed(db, || alone(&mut other, isolation, call));
            let seconds = told.expect("in_progress").retry_after.expect("a time");
            let right = seconds_up(after, until)..=seconds_up(before, until);
            assert!(right.contains(&seconds), "{seconds} is not in {right:?}");
        }
    }
}

/// The same instant for everyone: before it the answer is `in_progress`, from it on the lease is to
/// be had. Each answer is held against the clock before and after it, so none may come too early
/// or too late, by whatever little.
fn a_lease_ends_at_its_instant(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let token = start(&mut worker, isolation, "k");
    let until = set_deadline(db, token, "clock_timestamp() + interval '300 ms'");
    let mut refusals = 0;
    wait::until("the lease is taken over", || {
        let (before, outcome, after) = timed(db, || alone(&mut other, isolation, lease("k")));
        if outcome.outcome == "in_progress" {
            assert!(before < until, "refused at {before:?}, after {until:?}");
            refusals += 1;
            return None;
        }
        assert!(after >= until, "taken over by {after:?}, before {until:?}");
        Some(outcome.expect("claimed"))
    });
    assert!(refusals > 0, "the lease was live at first");
}

/// The database's clock moves on in one transaction, however old its snapshot.
fn a_lease_runs_out_in_an_open_transaction(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let token = start(&mut worker, isolation, "k");
    other.begin(isolation);
    other.call(claim("k")).expect("in_progress");
    run_out(db, token);
    other.call(claim("k")).expect("claimed");
}

/// A short lease of which nobody tells the clock anything.
#[test]
fn a_short_lease_runs_out_by_itself() {
    let db = Database::fresh();
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let first = worker.call(claim("k").with("lease_ms", 50)).expect("claimed");
    db.wait_until("EXISTS (SELECT FROM idempotency.abandoned)");
    let second = other.call(lease("k")).expect("claimed");
    assert_eq!((first.attempt, second.attempt), (Some(1), Some(2)));
    worker.refused(resume(token_of(&first))).expect_ours("IK005");
}

/// Catches an extension counted from the old deadline, and one that shortens.
fn an_extension_never_shortens(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let until = deadline(db, token);
    for lease_ms in [1, LONG / 2] {
        let told = alone(&mut worker, isolation, extend(token, lease_ms)).expect("claimed");
        assert_eq!((told.expires_at, deadline(db, token)), (Some(until), until));
    }
    let call = extend(token, 2 * LONG);
    let (before, told, after) = timed(db, || alone(&mut worker, isolation, call));
    let later = deadline(db, token);
    assert!((before + millis(2 * LONG)..=after + millis(2 * LONG)).contains(&later));
    assert_eq!((told.token, told.attempt, told.expires_at), (Some(token), Some(1), Some(later)));
}

/// Whose time is up has lost nothing while nobody has taken over.
fn a_lease_that_ran_out_can_be_extended(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let token = start(&mut worker, isolation, "k");
    run_out(db, token);
    alone(&mut worker, isolation, extend(token, LONG)).expect("claimed");
    alone(&mut other, isolation, claim("k")).expect("in_progress");
    alone(&mut worker, isolation, complete_by(token, 201)).expect("completed");
}

fn a_lease_that_was_taken_over_cannot_be_extended(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let token = start(&mut worker, isolation, "k");
    run_out(db, token);
    let won = start(&mut other, isolation, "k");
    let until = deadline(db, won);
    worker.refused(extend(token, LONG)).expect_ours("IK005").mentions("was taken over");
    // Not even after the next one's time is up: there is no way back.
    run_out(db, won);
    worker.refused(extend(token, LONG)).expect_ours("IK005");
    assert!(deadline(db, won) < until);
    alone(&mut other, isolation, extend(won, LONG)).expect("claimed");
}

/// A claim repeated with its own token is an extension too.
fn a_repeated_claim_never_shortens(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let until = deadline(db, token);
    let again = |lease_ms| claim("k").with("token", token).with("lease_ms", lease_ms);
    for call in [again(1), claim("k").with("token", token)] {
        let told = alone(&mut worker, isolation, call).expect("claimed");
        assert_eq!((told.token, told.expires_at), (Some(token), Some(until)));
    }
    alone(&mut worker, isolation, again(2 * LONG)).expect("claimed");
    assert!(deadline(db, token) > until);
}

at_every_isolation!(
    a_lease_lasts_as_long_as_it_was_told,
    retry_after_is_the_time_left_rounded_up,
    a_lease_ends_at_its_instant,
    a_lease_runs_out_in_an_open_transaction,
    an_extension_never_shortens,
    a_lease_that_ran_out_can_be_extended,
    a_lease_that_was_taken_over_cannot_be_extended,
    a_repeated_claim_never_shortens,
);
