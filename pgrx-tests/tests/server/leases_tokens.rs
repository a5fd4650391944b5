//! Tokens: a caller brings its own to tell its own claim from others', after a lost answer too.

use pg_idempotency_tests::lease::{
    LONG, alone, changes, checkpoint, complete_by, everything, lease, open_leases, release_by,
    resume, run_out, start, token_of,
};
use pg_idempotency_tests::operation::assert_says;
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use uuid::Uuid;

const OWN: Uuid = Uuid::from_u128(0x0199_0000_0000_7000_8000_0000_0000_0001);
const OTHER: Uuid = Uuid::from_u128(0x0199_0000_0000_7000_8000_0000_0000_0002);

fn own(key: &str) -> Call {
    lease(key).with("token", OWN)
}

/// The commit succeeded and its answer was lost: the claim that is sent again meets itself.
fn a_claim_repeated_with_its_own_token_resumes(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut again) = (db.session("worker"), db.session("again"));
    let first = alone(&mut worker, isolation, own("k")).expect("claimed");
    assert_eq!((first.token, first.attempt), (Some(OWN), Some(1)));
    alone(&mut worker, isolation, checkpoint(OWN, "half", json!(1)));
    for expired in [false, true] {
        if expired {
            run_out(db, OWN);
        }
        for call in [own("k"), own("k").with("wait_ms", 0), own("k").with("wait_ms", -1)] {
            let resumed = alone(&mut again, isolation, call).expect("claimed");
            assert_eq!((resumed.token, resumed.attempt), (Some(OWN), Some(1)));
            assert_eq!(resumed.recovery_point.as_deref(), Some("half"));
            assert_eq!(resumed.recovery_data, Some(json!(1)));
        }
    }
    assert_eq!((db.records(), open_leases(db), db.keys_held()), (1, 1, 0));
    again.begin(isolation);
    again.call(own("k")).expect("claimed");
    assert_eq!(db.key_locks_of(&again), 1, "whoever resumes holds the key");
    again.call(complete_by(OWN, 201)).expect("completed");
    again.run("COMMIT");
    assert_eq!((db.records(), open_leases(db)), (1, 0));
}

/// The commit failed, or never came: then it is the first claim.
fn a_claim_that_was_not_committed_is_made_again(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    worker.begin(isolation);
    worker.call(own("k")).expect("claimed");
    db.terminate(&worker);
    let mut again = db.session("again");
    again.refused(resume(OWN)).expect_ours("IK002");
    let first = alone(&mut again, isolation, own("k")).expect("claimed");
    assert_eq!((first.token, first.attempt), (Some(OWN), Some(1)));
}

/// Nobody knows yet: the connection is lost, the transaction is not over.
fn a_repeated_claim_waits_for_itself(db: &Database<'_>, isolation: Isolation) {
    for (end, orders) in [("COMMIT", 1), ("ROLLBACK", 0)] {
        let (mut worker, mut again) = (db.session("worker"), db.session("again"));
        worker.begin(isolation);
        worker.call(own("k")).expect("claimed");
        worker.run("INSERT INTO orders (key) VALUES ('k')");
        again.begin(isolation);
        again.start(own("k").with("wait_ms", -1));
        db.wait_until_blocked(&again, &worker);
        worker.run(end);
        let resumed = again.finish_call().expect("claimed");
        assert_eq!((resumed.token, resumed.attempt), (Some(OWN), Some(1)));
        again.run("COMMIT");
        assert_eq!((db.orders("k"), db.records(), open_leases(db)), (orders, 1, 1));
        db.run("TRUNCATE orders, idempotency.records, idempotency.leases");
    }
}

/// A token that lost is like none, as long as somebody else has the request.
fn a_repeated_claim_that_has_lost_is_anybodys(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut next) = (db.session("worker"), db.session("next"));
    alone(&mut worker, isolation, own("k")).expect("claimed");
    run_out(db, OWN);
    let won = start(&mut next, isolation, "k");
    alone(&mut worker, isolation, own("k")).expect("in_progress");
    run_out(db, won);
    let before = everything(db);
    assert_lost(worker.refused(own("k")));
    assert_eq!((everything(db), db.keys_held()), (before, 0));
    alone(&mut next, isolation, complete_by(won, 201).with("body", "the next one's"));
    let told = alone(&mut worker, isolation, own("k")).expect("replayed");
    assert_eq!(told.text(), "the next one's");
}

#[track_caller]
fn assert_lost(refusal: Refusal) {
    let hint = "Stop working on this request and roll back";
    assert_says(refusal, "IK005", ["lease lost", "was taken over or given back.", hint]);
}

/// Given back is given back: what came after it must not be taken for what came before.
fn a_released_token_is_used_up(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    alone(&mut worker, isolation, own("k")).expect("claimed");
    worker.rows(release_by(OWN));
    assert_lost(worker.refused(own("k")));
    assert_eq!((db.records(), db.keys_held()), (0, 0));
    alone(&mut worker, isolation, lease("k").with("token", OTHER)).expect("claimed");
}

/// One token, two requests: then it says nothing about either.
fn a_token_of_another_claim_is_refused(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    alone(&mut worker, isolation, own("k")).expect("claimed");
    let before = everything(db);
    let others = [
        own("l"),
        own("l").with("wait_ms", 0),
        Call::new("idempotency_claim")
            .with("scope", "bob")
            .with("operation", "POST /orders")
            .with("key", "k")
            .with("lease_ms", LONG)
            .with("token", OWN),
    ];
    for call in others {
        worker.begin(isolation);
        assert_in_use(worker.refused(call));
        worker.run("ROLLBACK");
        assert_eq!((everything(db), db.keys_held()), (before.clone(), 0));
    }
    // A lease that is over has had its token all the same.
    alone(&mut worker, isolation, complete_by(OWN, 201)).expect("completed");
    assert_in_use(worker.refused(own("l")));
}

#[track_caller]
fn assert_in_use(refusal: Refusal) {
    let hint = "Make a new UUID for each claim.";
    assert_says(refusal, "22023", ["token is in use", "Another claim has this token.", hint]);
}

/// A claim without a lease has a token too, and it too must be the only one.
fn a_transactional_claim_does_not_take_a_leases_token(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    alone(&mut worker, isolation, own("k")).expect("claimed");
    worker.begin(isolation);
    assert_in_use(worker.refused(claim("l").with("token", OWN)));
    worker.run("ROLLBACK");
    assert_eq!((db.records(), db.keys_held()), (1, 0));
}

/// Two claims of one transaction by one token: the second could never be completed.
fn two_claims_of_a_transaction_have_two_tokens(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k").with("token", OWN)).expect("claimed");
    assert_in_use(session.refused(claim("l").with("token", OWN)));
    session.run("ROLLBACK");
}

/// A savepoint took the claim back: the token is as unused as the key is.
fn a_claim_rolled_back_can_be_made_again_with_its_token(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    for lease_ms in [None, Some(LONG)] {
        session.run("SET pg_idempotency.lock_order = off");
        session.begin(isolation);
        session.run("SAVEPOINT s");
        session.call(claim("k").with("lease_ms", lease_ms).with("token", OWN)).expect("claimed");
        session.run("ROLLBACK TO s");
        session.call(claim("k").with("lease_ms", lease_ms).with("token", OWN)).expect("claimed");
        session.run("ROLLBACK");
    }
}

/// Unknown tokens: never given out, or of claims that were no leases.
fn an_unknown_token_is_refused(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    let transactional = token_of(&session.call(claim("k")).expect("claimed"));
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
    for token in [OWN, Uuid::nil(), Uuid::max(), transactional] {
        session.begin(isolation);
        assert_unknown(session.refused_inside_savepoint(resume(token), "IK002"));
        for (_, call) in changes(token) {
            assert_unknown(session.refused_inside_savepoint(call, "IK002"));
        }
        // Nothing was held: the transaction may write and commit.
        session.run("INSERT INTO orders (key) VALUES ('unguarded'); COMMIT");
    }
    assert_eq!((db.orders("unguarded"), db.records(), db.keys_held()), (4, 1, 0));
}

#[track_caller]
fn assert_unknown(refusal: Refusal) {
    let hint = "Pass the token that idempotency_claim returned for a claim with lease_ms.";
    assert_says(refusal, "IK002", ["claim not held", "No lease has this token.", hint]);
}

at_every_isolation!(
    a_claim_repeated_with_its_own_token_resumes,
    a_claim_that_was_not_committed_is_made_again,
    a_repeated_claim_waits_for_itself,
    a_repeated_claim_that_has_lost_is_anybodys,
    a_released_token_is_used_up,
    a_token_of_another_claim_is_refused,
    a_transactional_claim_does_not_take_a_leases_token,
    two_claims_of_a_transaction_have_two_tokens,
    a_claim_rolled_back_can_be_made_again_with_its_token,
    an_unknown_token_is_refused,
);
