//! A transaction that holds a claim does not commit; one that ever held a claim commits writes only if every claim
//! it held was completed.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

/// Every way to hold a claim and not to complete it.
const UNSETTLED: [fn(&mut Session); 5] = [forgotten, released, not_kept, dropped, one_of_two];

fn forgotten(session: &mut Session) {
    session.call(claim("k")).expect("claimed");
}

fn released(session: &mut Session) {
    session.call(claim("k")).expect("claimed");
    session.rows(release());
}

fn not_kept(session: &mut Session) {
    session.call(claim("k")).expect("claimed");
    session.call(complete(503)).expect("released");
}

fn dropped(session: &mut Session) {
    session.run("SAVEPOINT s");
    session.call(claim("k")).expect("claimed");
    session.run("ROLLBACK TO s");
}

fn one_of_two(session: &mut Session) {
    let token = session.call(claim("j")).expect("claimed").token;
    session.call(claim("k")).expect("claimed");
    session.call(complete(204).with("token", token)).expect("completed");
}

/// Catches a guard that looks only at claims still held.
fn a_commit_of_writes_is_refused(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    for leave_unsettled in UNSETTLED {
        session.begin(isolation);
        leave_unsettled(&mut session);
        session.run("INSERT INTO orders (key) VALUES ('k')");
        session.run_refused("COMMIT").expect_ours("IK003").hints("Roll the transaction back");
        assert_eq!(db.state_of(&session), "idle", "the transaction is over");
        assert_eq!((db.orders("k"), db.records(), db.keys_held()), (0, 0, 0));
    }
    shop::create_order(&mut session, isolation, "k").expect("a fresh start").expect("completed");
}

fn a_commit_without_writes_passes(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    for leave_unsettled in [released, not_kept, dropped] {
        session.begin(isolation);
        leave_unsettled(&mut session);
        assert!(!session.has_transaction_id());
        session.run("COMMIT");
        assert_eq!((db.records(), db.keys_held()), (0, 0));
    }
}

/// What was done under the claim may lie elsewhere, where PostgreSQL sees no write.
fn a_commit_of_a_held_claim_is_refused(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    for leave_held in [forgotten, one_of_two_without_writes] {
        session.begin(isolation);
        leave_held(&mut session);
        assert!(!session.has_transaction_id());
        let refusal = session.run_refused("COMMIT");
        refusal.expect_ours("IK003").mentions("was claimed and not completed").hints("BEGIN");
        assert_eq!((db.state_of(&session), db.keys_held()), ("idle".into(), 0));
    }
}

/// One is given up, the other held.
fn one_of_two_without_writes(session: &mut Session) {
    let token = session.call(claim("j")).expect("claimed").token;
    session.call(claim("k")).expect("claimed");
    session.rows(release().with("token", token));
}

/// The way out is ROLLBACK: a transaction keeps its id when its writes are rolled back.
fn writes_rolled_back_still_count(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    session.run("SAVEPOINT s; INSERT INTO orders (key) VALUES ('k'); ROLLBACK TO s");
    session.run_refused("COMMIT").expect_ours("IK003");
}

/// What is answered without a claim is no claim: the transaction may write and commit.
fn answers_that_hold_nothing_guard_nothing(db: &Database<'_>, isolation: Isolation) {
    let mut holder = db.session("holder");
    holder.run("BEGIN");
    holder.call(claim("held")).expect("claimed");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("done").with("fingerprint", [1; 32])).expect("claimed");
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    session.begin(isolation);
    session.call(claim("done").with("fingerprint", [1; 32])).expect("replayed");
    session.call(claim("done").with("fingerprint", [2; 32])).expect("mismatch");
    session.call(claim("held").with("wait_ms", 0)).expect("in_progress");
    session.call(claim("")).expect("invalid");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.call(replay("new")).expect("unknown");
    session.run("INSERT INTO orders (key) VALUES ('unguarded'); COMMIT");
    assert_eq!(db.orders("unguarded"), 1);
}

/// However the transaction ends, the next one of the session holds nothing.
fn the_next_transaction_starts_clean(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    for end in ["COMMIT", "ROLLBACK", "INSERT INTO orders (key) VALUES ('k'); COMMIT", "SELECT 1/0"]
    {
        session.begin(isolation);
        session.call(claim("z")).expect("claimed");
        let _passes_or_fails = session.attempt_script(end);
        session.run("ROLLBACK");
        session.begin(isolation);
        session.refused_inside_savepoint(complete(201), "IK002").mentions("holds no claim");
        session.call(claim("a")).expect("claimed");
        session.run("ROLLBACK");
        session.run("BEGIN; INSERT INTO orders (key) VALUES ('unguarded'); COMMIT");
    }
    assert_eq!((db.orders("unguarded"), db.keys_held()), (4, 0));
}

at_every_isolation!(
    the_next_transaction_starts_clean,
    a_commit_of_writes_is_refused,
    a_commit_without_writes_passes,
    a_commit_of_a_held_claim_is_refused,
    writes_rolled_back_still_count,
    answers_that_hold_nothing_guard_nothing,
);

/// Replication roles skip triggers; a guard made of a trigger would be skipped with them.
#[test]
fn a_replication_role_does_not_get_around_the_guard() {
    let db = Database::fresh();
    let mut session = db.session_as(Role::Superuser, "session");
    session.run("BEGIN; SET LOCAL session_replication_role = replica");
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('k')");
    session.run_refused("COMMIT").expect_ours("IK003");
}

#[test]
fn commit_and_chain_is_refused_and_starts_nothing() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    forgotten(&mut session);
    session.run("INSERT INTO orders (key) VALUES ('k')");
    session.run_refused("COMMIT AND CHAIN").expect_ours("IK003");
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
    session.run("ROLLBACK");
}

/// Catches state that is carried over the end of a transaction.
#[test]
fn the_chained_transaction_starts_clean() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    shop::work(&mut session, "k").expect("it succeeds").expect("completed");
    session.run("COMMIT AND CHAIN");
    assert_eq!(db.keys_held(), 0);
    session.refused_inside_savepoint(complete(201), "IK002");
    session.run("INSERT INTO orders (key) VALUES ('chained'); COMMIT");
    assert_eq!((db.orders("k"), db.orders("chained"), db.records()), (1, 1, 1));
}

/// The whole message is one transaction, committed without a COMMIT.
#[test]
fn an_implicit_transaction_of_several_statements_is_guarded() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let claim_and_insert = "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k');
                            INSERT INTO orders (key) VALUES ('k')";
    session.run_refused(claim_and_insert).expect_ours("IK003");
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
    session.run(&format!("{claim_and_insert}; SELECT * FROM idempotency_complete(201)"));
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

/// In autocommit a claim would be over with its own statement, and protect nothing.
#[test]
fn a_claim_alone_in_autocommit_is_refused() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.refused(claim("k")).expect_ours("IK003").hints("BEGIN before the claim");
    assert_eq!(db.keys_held(), 0);
    session.refused(complete(201)).expect_ours("IK002").hints("BEGIN");
    assert_eq!(db.records(), 0);
}

/// A statement that claims and writes by itself is a transaction too.
#[test]
fn a_single_statement_that_claims_and_writes_is_guarded() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run(
        "CREATE FUNCTION pg_temp.forgetful() RETURNS void LANGUAGE sql AS $$
            SELECT idempotency_claim('alice', 'POST /orders', 'k');
            INSERT INTO orders (key) VALUES ('k') $$",
    );
    session.refused("SELECT pg_temp.forgetful()").expect_ours("IK003");
    assert_eq!(db.orders("k"), 0);
}
