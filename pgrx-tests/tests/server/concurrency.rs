//! One key, many callers: one effect, and the same answer for all.

use pg_idempotency_tests::outcome::Answer;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{shop, wait};
use std::sync::Barrier;
use std::thread;

const MANY: usize = 64;
const WAITERS: usize = 5;

fn sessions(db: &Database<'_>, count: usize) -> Vec<Session> {
    (0..count).map(|n| db.session(&format!("caller {n}"))).collect()
}

/// Starts a claim of `key` in each of the sessions and waits until all of them wait.
fn start_waiting(db: &Database<'_>, waiters: &mut [Session], isolation: Isolation, key: &str) {
    for waiter in waiters.iter_mut() {
        waiter.begin(isolation);
        waiter.start(claim(key).with("wait_ms", -1));
    }
    db.wait_until_waiting(waiters.len());
}

/// The waiter whose claim comes to an end first.
fn take_first_finished(waiters: &mut Vec<Session>) -> Session {
    let at =
        wait::until("one waiter gets an answer", || waiters.iter().position(Session::has_finished));
    waiters.swap_remove(at)
}

/// Whoever was first wins, does the work, and the others replay it.
fn let_the_next_one_win(db: &Database<'_>, mut waiters: Vec<Session>, key: &str) {
    let mut winner = take_first_finished(&mut waiters);
    winner.finish_call().expect("claimed");
    db.wait_until_waiting(waiters.len());
    let sent = shop::work(&mut winner, key).expect("the work succeeds").expect("completed");
    winner.run("COMMIT");
    for mut waiter in waiters {
        assert_eq!(waiter.finish_call().expect("replayed").answer(), sent.answer());
        waiter.run("COMMIT");
    }
    assert_eq!((db.orders(key), db.records()), (1, 1));
}

/// Catches a look-up that is not repeated after the wait (check-then-insert), one under the old
/// snapshot of REPEATABLE READ, and a lock that a replay does not give back: then the waiters behind
/// would wait for the replayer's COMMIT, which comes only after all have answered.
fn sixty_four_sessions_one_new_key_one_effect(db: &Database<'_>, isolation: Isolation) {
    let mut winner = db.session("winner");
    winner.begin(isolation);
    winner.call(claim("k")).expect("claimed");
    let mut waiters = sessions(db, MANY - 1);
    start_waiting(db, &mut waiters, isolation, "k");
    let sent = shop::work(&mut winner, "k").expect("the work succeeds");
    winner.run("COMMIT");
    for waiter in &mut waiters {
        assert_eq!(waiter.finish_call().expect("replayed").answer(), sent.answer());
    }
    assert_eq!((db.orders("k"), db.records(), db.keys_held()), (1, 1, 0));
}

/// The same without an order imposed: whoever comes first, at whatever moment.
fn sixty_four_sessions_race(db: &Database<'_>, isolation: Isolation) {
    let gate = Barrier::new(MANY);
    let race = |mut session: Session| {
        gate.wait();
        shop::create_order(&mut session, isolation, "k").expect("nobody gets an error")
    };
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let racers: Vec<_> =
            sessions(db, MANY).into_iter().map(|s| scope.spawn(|| race(s))).collect();
        racers.into_iter().map(|racer| racer.join().expect("no thread panics")).collect()
    });
    assert_one_effect(db, &outcomes);
}

fn assert_one_effect(db: &Database<'_>, outcomes: &[Outcome]) {
    let count = |word| outcomes.iter().filter(|outcome| outcome.outcome == word).count();
    assert_eq!((count("completed"), count("replayed")), (1, MANY - 1));
    let answers: Vec<Answer> = outcomes.iter().map(Outcome::answer).collect();
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "all answers are the same");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

/// Catches a lock that is not kept by the winner, or taken by all waiters at once.
fn winner_rolls_back_and_one_waiter_wins(db: &Database<'_>, isolation: Isolation) {
    let mut winner = db.session("winner");
    winner.begin(isolation);
    winner.call(claim("k")).expect("claimed");
    let mut waiters = sessions(db, WAITERS);
    start_waiting(db, &mut waiters, isolation, "k");
    shop::work(&mut winner, "k").expect("the work succeeds");
    winner.run("ROLLBACK");
    let_the_next_one_win(db, waiters, "k");
}

fn winner_is_terminated_and_one_waiter_wins(db: &Database<'_>, isolation: Isolation) {
    let mut winner = db.session("winner");
    winner.begin(isolation);
    winner.call(claim("k")).expect("claimed");
    let mut waiters = sessions(db, WAITERS);
    start_waiting(db, &mut waiters, isolation, "k");
    shop::work(&mut winner, "k").expect("the work succeeds");
    db.terminate(&winner);
    let_the_next_one_win(db, waiters, "k");
}

/// Catches a replay that keeps the lock it waited with.
fn a_replay_that_stays_open_holds_no_key(db: &Database<'_>, isolation: Isolation) {
    let (mut winner, mut waiter) = (db.session("winner"), db.session("waiter"));
    winner.begin(isolation);
    winner.call(claim("k")).expect("claimed");
    waiter.begin(isolation);
    waiter.start(claim("k"));
    db.wait_until_blocked(&waiter, &winner);
    shop::work(&mut winner, "k").expect("the work succeeds");
    winner.run("COMMIT");
    waiter.finish_call().expect("replayed");
    assert_eq!(db.key_locks_of(&waiter), 0);
    assert!(!waiter.has_transaction_id());
    let mut other = db.session("other");
    other.call(claim("k").with("wait_ms", 0)).expect("replayed");
}

/// Catches a lock that is given back when the answer is recorded, and not when that is committed.
fn a_completed_key_is_held_until_the_commit(db: &Database<'_>, isolation: Isolation) {
    let (mut holder, mut other) = (db.session("holder"), db.session("other"));
    for (end, seen) in [("ROLLBACK", "claimed"), ("COMMIT", "replayed")] {
        holder.begin(isolation);
        holder.call(claim("k")).expect("claimed");
        shop::work(&mut holder, "k").expect("the work succeeds").expect("completed");
        other.call(claim("k").with("wait_ms", 0)).expect("in_progress");
        holder.run(end);
        other.call(claim("k").with("wait_ms", 0)).expect(seen);
    }
}

/// Catches a comparison that is made on the fast path only, and one made too late: after a refused
/// request has already written.
fn mismatch_is_found_on_every_path(db: &Database<'_>, isolation: Isolation) {
    let (mut winner, mut waiter) = (db.session("winner"), db.session("waiter"));
    winner.begin(isolation);
    winner.call(claim("k").with("fingerprint", [1; 32])).expect("claimed");
    waiter.begin(isolation);
    waiter.start(claim("k").with("fingerprint", [2; 32]));
    db.wait_until_blocked(&waiter, &winner);
    shop::work(&mut winner, "k").expect("the work succeeds");
    winner.run("COMMIT");
    waiter.finish_call().expect("mismatch").expect_problem(422);
    assert_eq!(db.key_locks_of(&waiter), 0);
    waiter.call(claim("k").with("fingerprint", [2; 32])).expect("mismatch");
    waiter.call(claim("k").with("fingerprint", [1; 32])).expect("replayed");
    assert!(!waiter.has_transaction_id());
}

/// Catches a claim that writes, and a comparison of times: whoever began first has no precedence.
fn a_claim_a_replay_and_a_refusal_write_nothing(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    shop::create_order(&mut session, isolation, "done").expect("the first request succeeds");
    session.begin(isolation);
    session.call(claim("done")).expect("replayed");
    session.call(replay("done")).expect("replayed");
    session.call(claim("done").with("fingerprint", [1; 32])).expect("mismatch");
    session.call(claim("new")).expect("claimed");
    session.rows(release());
    assert!(!session.has_transaction_id(), "none of these is a write");
    session.run("COMMIT");
}

at_every_isolation!(
    sixty_four_sessions_one_new_key_one_effect,
    sixty_four_sessions_race,
    winner_rolls_back_and_one_waiter_wins,
    winner_is_terminated_and_one_waiter_wins,
    a_replay_that_stays_open_holds_no_key,
    a_completed_key_is_held_until_the_commit,
    mismatch_is_found_on_every_path,
    a_claim_a_replay_and_a_refusal_write_nothing,
);

/// EXPLAIN counts what this backend writes to the log.
#[test]
fn a_claim_and_a_replay_write_no_wal() {
    let db = Database::fresh();
    let mut session = db.session("session");
    shop::create_order(&mut session, Isolation::ReadCommitted, "done").expect("it succeeds");
    // The first look may set hint bits, which are written where checksums are on.
    session.call(claim("done")).expect("replayed");
    for key in ["done", "new"] {
        session.run("BEGIN");
        let plan: serde_json::Value = session.value(format!(
            "EXPLAIN (ANALYZE, WAL, FORMAT JSON)
             SELECT * FROM idempotency_claim('alice', 'POST /orders', '{key}')"
        ));
        session.run("ROLLBACK");
        assert_eq!(plan[0]["Plan"]["WAL Records"], 0, "{key}: {plan}");
    }
}

/// Catches a lock of too small a class: keys of others, or the application's own advisory locks,
/// must not be in the way.
#[test]
fn other_keys_scopes_operations_and_advisory_locks_do_not_wait() {
    let db = Database::fresh();
    let mut holder = db.session("holder");
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    let mut other = db.session("other");
    let identified = |scope: &str, operation: &str, key: &str| {
        let call = Call::new("idempotency_claim").with("scope", scope).with("wait_ms", 0);
        call.with("operation", operation).with("key", key)
    };
    other.call(identified("alice", "POST /orders", "l")).expect("claimed");
    other.call(identified("bob", "POST /orders", "k")).expect("claimed");
    other.call(identified("alice", "PUT /orders", "k")).expect("claimed");
    // Delimiter-joined identities would be the same.
    other.call(identified("alice", "POST ", "/ordersk")).expect("claimed");
    let lock = "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks JOIN pg_database d ON d.oid = database
                WHERE objsubid = 18763 AND datname = current_database()";
    let key_lock: i64 = db.value(lock);
    assert!(other.value::<bool>(&*format!("SELECT pg_try_advisory_lock({key_lock})")));
    other.call(claim("k").with("wait_ms", 0)).expect("in_progress");
}
