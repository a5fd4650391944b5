//! What drivers do with statements: prepare them on the server, send several in one message, several
//! between two Syncs; and what PgBouncer makes of it.

use pg_idempotency_tests::pooler::Pooler;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::wire::Wire;

const PREPARE: &str = "
    PREPARE claim (text, bytea) AS
        SELECT * FROM idempotency_claim('alice', 'POST /orders', $1, fingerprint => $2);
    PREPARE work (text) AS INSERT INTO orders (key) VALUES ($1);
    PREPARE complete (integer, bytea) AS SELECT * FROM idempotency_complete($1, body_bytes => $2)";

/// Claims `key` by the prepared statement; works and completes where that is to be done.
fn prepared_unit(session: &mut Session, key: &str) -> Outcome {
    session.run("BEGIN");
    let claim = format!("EXECUTE claim ('{key}', sha256('{key}'))");
    let mut outcome = Outcome::only(&session.rows(claim.as_str()));
    if outcome.outcome == "claimed" {
        session.run(&format!("EXECUTE work ('{key}')"));
        outcome = Outcome::only(&session.rows("EXECUTE complete (201, 'made')"));
    }
    session.run("COMMIT");
    outcome
}

/// Catches a call that counts on being planned anew, with its constants: after five executions a plan
/// knows no values.
fn prepared_statements_serve_many_transactions(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.run(&format!("SET default_transaction_isolation = '{}'", isolation.sql()));
    session.run(PREPARE);
    for n in 0..8 {
        prepared_unit(&mut session, &format!("k{n}")).expect("completed");
        assert_eq!(prepared_unit(&mut session, &format!("k{n}")).expect("replayed").text(), "made");
    }
    let generic = "SELECT min(generic_plans) > 0 FROM pg_prepared_statements";
    assert!(session.value::<bool>(generic), "the plans are general ones");
    let claims = db.value::<i64>("SELECT count(*) FROM orders");
    assert_eq!((claims, db.records()), (8, 8));
}

at_every_isolation!(prepared_statements_serve_many_transactions);

/// Several statements in one message of the simple protocol are one transaction, without BEGIN.
#[test]
fn a_message_of_several_statements_is_one_transaction() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let claim = "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k')";
    let insert = "INSERT INTO orders (key) VALUES ('k')";
    session.run_refused(&format!("{claim}; {insert}")).expect_ours("IK003");
    assert_eq!((db.orders("k"), db.records(), db.keys_held()), (0, 0, 0));
    let unit = format!("{claim}; {insert}; SELECT * FROM idempotency_complete(201)");
    session.run(&unit);
    session.run_refused(&unit).expect_ours("IK002");
    assert_eq!((db.orders("k"), db.records(), db.keys_held()), (1, 1, 0));
}

/// What a driver may put together: BEGIN with the claim, complete with COMMIT. Two round trips, and
/// the outcome of the claim is known in between.
#[test]
fn begin_with_the_claim_and_complete_with_commit() {
    let db = Database::fresh();
    let mut wire = Wire::open(db.server(), db.name(), Role::Backend);
    let claim = "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k')";
    assert_eq!(wire.pipeline(&["BEGIN", claim]).code, None);
    let behind = wire.pipeline(&[
        "INSERT INTO orders (key) VALUES ('k')",
        "SELECT * FROM idempotency_complete(201)",
        "COMMIT",
    ]);
    assert_eq!(behind.tags, ["INSERT 0 1", "SELECT 1", "COMMIT"]);
    assert_eq!((db.orders("k"), db.records(), db.keys_held()), (1, 1, 0));
}

/// A COMMIT that was sent before anybody read `released` is refused, so the effects go with it.
#[test]
fn a_commit_pipelined_behind_a_release_is_refused() {
    let db = Database::fresh();
    let mut wire = Wire::open(db.server(), db.name(), Role::Backend);
    let seen = wire.pipeline(&[
        "BEGIN",
        "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k')",
        "INSERT INTO orders (key) VALUES ('k')",
        "SELECT * FROM idempotency_complete(503)",
        "COMMIT",
    ]);
    assert_eq!(seen.code.as_deref(), Some("IK003"));
    assert_eq!((db.orders("k"), db.records(), db.keys_held()), (0, 0, 0));
}

/// PgBouncer before 1.21, in transaction mode, knows nothing of prepared statements: they stay in the
/// connection that they were made in. A transaction that meets another one fails, and nothing else.
#[test]
fn a_statement_prepared_in_another_connection_of_the_pooler_is_missing() {
    let db = Database::fresh();
    let pooler = Pooler::before(db.server(), "pooler-prepared", 2);
    let [mut one, mut two] = [(), ()].map(|()| pooler.session(db.name(), "client"));
    two.run("BEGIN");
    one.run(PREPARE);
    one.run("BEGIN");
    assert_eq!(one.value::<i64>("SELECT count(*) FROM pg_prepared_statements WHERE from_sql"), 3);
    one.run("COMMIT");
    two.run_refused("EXECUTE claim ('k', NULL)").expect("26000");
    two.run("ROLLBACK");
    assert_eq!((db.records(), db.keys_held()), (0, 0));
}

/// What is prepared in the transaction that uses it is always there.
#[test]
fn a_statement_prepared_in_its_transaction_works_behind_the_pooler() {
    let db = Database::fresh();
    let pooler = Pooler::before(db.server(), "pooler-prepares", 2);
    let mut clients = [(), (), (), ()].map(|()| pooler.session(db.name(), "client"));
    for key in ["a", "b", "a", "b"] {
        for client in &mut clients {
            client.run("BEGIN");
            client.run(PREPARE);
            let claim = format!("EXECUTE claim ('{key}', NULL)");
            let mut outcome = Outcome::only(&client.rows(claim.as_str()));
            if outcome.outcome == "claimed" {
                client.run(&format!("EXECUTE work ('{key}')"));
                outcome = Outcome::only(&client.rows("EXECUTE complete (201, 'made')"));
            }
            assert_eq!(outcome.text(), "made");
            client.run("DEALLOCATE ALL; COMMIT");
        }
    }
    assert_eq!((db.orders("a"), db.orders("b"), db.records()), (1, 1, 2));
}
