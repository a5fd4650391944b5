//! Claims, completions and releases belong to their savepoint.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

/// Catches state that outlives its savepoint: the lock went with the rollback, another session has
/// won since, and the first one must not complete, nor commit what it wrote.
fn a_claim_rolled_back_is_lost(db: &Database<'_>, isolation: Isolation) {
    let (mut first, mut second) = (db.session("first"), db.session("second"));
    first.begin(isolation);
    first.run("SAVEPOINT s");
    first.call(claim("k")).expect("claimed");
    first.run("ROLLBACK TO s");
    assert_eq!(db.key_locks_of(&first), 0);
    let sent =
        shop::create_order(&mut second, isolation, "k").expect("it succeeds").expect("completed");
    first.run("SAVEPOINT t");
    first.refused(complete(201)).expect_ours("IK002");
    first.run("ROLLBACK TO t; INSERT INTO orders (key) VALUES ('k')");
    first.run_refused("COMMIT").expect_ours("IK003");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
    assert_eq!(first.call(claim("k")).expect("replayed").answer(), sent.answer());
}

/// The recipe for a final error whose effects must vanish.
fn a_final_error_is_recorded_and_its_work_is_gone(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    session.run("SAVEPOINT work; INSERT INTO orders (key) VALUES ('k'); ROLLBACK TO work");
    let sent =
        session.call(complete(409).with("body", r#"{"error":"sold out"}"#)).expect("completed");
    session.run("COMMIT");
    let replayed = db.session("other").call(claim("k")).expect("replayed");
    assert_eq!((replayed.status, replayed.text()), (Some(409), r#"{"error":"sold out"}"#));
    assert_eq!(replayed.answer(), sent.answer());
    assert_eq!((db.orders("k"), db.records()), (0, 1));
}

/// Catches a guard that believes a completion which the rollback has undone.
fn a_completion_rolled_back_is_unsettled_again(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('k'); SAVEPOINT s");
    session.call(complete(201)).expect("completed");
    session.run("ROLLBACK TO s");
    session.run_refused("COMMIT").expect_ours("IK003");
    assert_eq!((db.orders("k"), db.records()), (0, 0));
}

fn a_completion_rolled_back_can_be_made_again(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    session.run("SAVEPOINT s");
    session.call(complete(201).with("body", "first")).expect("completed");
    session.run("ROLLBACK TO s");
    session.refused_inside_savepoint(claim("k"), "IK004");
    session.call(complete(409).with("body", "second")).expect("completed");
    session.run("COMMIT");
    let replayed = db.session("other").call(claim("k")).expect("replayed");
    assert_eq!((replayed.status, replayed.text()), (Some(409), "second"));
}

fn a_release_rolled_back_leaves_the_claim_held(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    session.run("SAVEPOINT s");
    session.rows(release());
    session.run("ROLLBACK TO s");
    shop::work(&mut session, "k").expect("the claim is held").expect("completed");
    session.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

/// What was done inside a released savepoint belongs to the one around it.
fn a_released_savepoint_hands_its_claim_up(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.run("SAVEPOINT a; SAVEPOINT b");
    session.call(claim("k")).expect("claimed");
    session
        .run("RELEASE b; SAVEPOINT c; INSERT INTO orders (key) VALUES ('undone'); ROLLBACK TO c");
    shop::work(&mut session, "k").expect("the claim is held").expect("completed");
    session.run("RELEASE a; COMMIT");
    assert_eq!((db.orders("k"), db.orders("undone"), db.records()), (1, 0, 1));
}

/// Catches levels that are not lowered when a savepoint is released.
fn a_claim_handed_up_goes_with_the_outer_savepoint(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.run("SAVEPOINT a; SAVEPOINT b");
    session.call(claim("k")).expect("claimed");
    session.run("RELEASE b; SAVEPOINT c");
    session.call(complete(204)).expect("completed");
    session.run("RELEASE c; ROLLBACK TO a");
    assert_eq!(db.key_locks_of(&session), 0);
    session.refused(complete(204)).expect_ours("IK002");
    session.run("ROLLBACK");
    assert_eq!(db.records(), 0);
}

/// Nothing was written, so the second claim is a fresh one and the first is forgotten.
fn a_key_dropped_before_any_write_can_be_claimed_again(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.run("SAVEPOINT s");
    session.call(claim("k")).expect("claimed");
    session.run("ROLLBACK TO s");
    session.call(claim("k")).expect("claimed");
    shop::work(&mut session, "k").expect("the claim is held").expect("completed");
    session.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

/// The writes in between were made by nobody's claim: a transaction keeps its id after ROLLBACK TO.
fn a_key_dropped_after_a_write_cannot(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.run("SAVEPOINT s");
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('k'); ROLLBACK TO s");
    session.refused(claim("k")).expect_ours("IK001");
    session.run("ROLLBACK");
}

/// PL/pgSQL's EXCEPTION blocks are savepoints too.
fn a_claim_in_an_exception_block_goes_with_it(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.run(
        "DO $$ BEGIN
        PERFORM idempotency_claim('alice', 'POST /orders', 'k');
        RAISE EXCEPTION 'the work fails';
    EXCEPTION WHEN raise_exception THEN END $$",
    );
    assert_eq!(db.key_locks_of(&session), 0);
    session.refused(complete(201)).expect_ours("IK002");
    session.run("ROLLBACK");
}

/// A key given up stays locked to the end: whoever comes next must see what was committed.
fn a_released_key_is_free_only_after_the_end(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    session.rows(release());
    session.refused_inside_savepoint(claim("k"), "IK004");
    let mut other = db.session("other");
    other.call(claim("k").with("wait_ms", 0)).expect("in_progress");
    session.run("COMMIT");
    other.call(claim("k").with("wait_ms", 0)).expect("claimed");
}

at_every_isolation!(
    a_claim_rolled_back_is_lost,
    a_final_error_is_recorded_and_its_work_is_gone,
    a_completion_rolled_back_is_unsettled_again,
    a_completion_rolled_back_can_be_made_again,
    a_release_rolled_back_leaves_the_claim_held,
    a_released_savepoint_hands_its_claim_up,
    a_claim_handed_up_goes_with_the_outer_savepoint,
    a_key_dropped_before_any_write_can_be_claimed_again,
    a_key_dropped_after_a_write_cannot,
    a_claim_in_an_exception_block_goes_with_it,
    a_released_key_is_free_only_after_the_end,
);
