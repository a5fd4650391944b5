//! The same key again in one transaction, in one statement, in one row after the other: a right
//! answer or a clear error, never two claims.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

const CALL: &str = "idempotency_claim('alice', 'POST /orders', 'k')";

fn a_key_held_is_refused_a_second_time(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    session.run("SAVEPOINT s");
    session.refused(claim("k")).expect_ours("IK004");
    session.run("ROLLBACK TO s");
    shop::work(&mut session, "k").expect("the first claim holds").expect("completed");
    session.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

/// Catches an order check, or a look for the lock, that comes before what the transaction itself
/// has completed: it has a transaction id, holds the lock, and holds greater keys.
fn a_key_completed_is_replayed(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    session.begin(isolation);
    let token = session.call(claim("k").with("fingerprint", [1; 32])).expect("claimed").token;
    session.call(claim("later")).expect("claimed");
    let sent = session.call(complete(201).with("body", "x").with("token", token));
    let again = session.call(claim("k").with("fingerprint", [1; 32])).expect("replayed");
    assert_eq!(again.answer(), sent.answer());
    assert_eq!(session.call(replay("k")).expect("replayed").answer(), sent.answer());
    session.call(claim("k").with("fingerprint", [2; 32])).expect("mismatch");
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
    assert_eq!(db.records(), 2);
}

/// A replay looks for records; a claim that is not completed is none, one's own included.
fn a_key_held_is_unknown_to_replay(db: &Database<'_>, isolation: Isolation) {
    let (mut holder, mut other) = (db.session("holder"), db.session("other"));
    holder.begin(isolation);
    holder.call(claim("k")).expect("claimed");
    holder.call(replay("k")).expect("unknown");
    other.begin(isolation);
    other.call(replay("k")).expect("unknown");
    holder.call(complete(204)).expect("completed");
    other.call(replay("k")).expect("unknown");
}

at_every_isolation!(
    a_key_held_is_refused_a_second_time,
    a_key_completed_is_replayed,
    a_key_held_is_unknown_to_replay,
);

/// PostgreSQL calls the function once for each column; the second call is a second claim.
#[test]
fn a_star_behind_the_call_is_refused_with_the_way_out() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let star = format!("SELECT ({CALL}).*");
    session.refused(&*star).expect_ours("IK004").hints("SELECT * FROM");
    assert_eq!(db.keys_held(), 0);
    shop::create_order(&mut session, Isolation::ReadCommitted, "k").expect("it succeeds");
    // Whatever the first call answers: else the mistake shows only in production.
    session.refused(&*star).expect_ours("IK004").hints("SELECT * FROM");
    session.call(claim("k")).expect("replayed");
}

#[test]
fn a_call_for_each_of_many_rows_is_refused() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let many =
        format!("SELECT count(*) FROM generate_series(1, 100) WHERE ({CALL}).outcome = 'claimed'");
    session.refused(&*many).expect_ours("IK004");
    let twice = format!("SELECT outcome FROM {CALL} UNION ALL SELECT outcome FROM {CALL}");
    session.refused(&*twice).expect_ours("IK004");
    assert_eq!(db.keys_held(), 0);
    // With a record each call is a replay: none of the hundred claims.
    shop::create_order(&mut session, Isolation::ReadCommitted, "k").expect("it succeeds");
    assert_eq!(session.value::<i64>(&*many), 0);
}

/// A volatile function in WHERE is called for each row that the other conditions leave.
#[test]
fn a_call_in_where_for_one_row_is_one_claim() {
    let db = Database::fresh();
    db.run("INSERT INTO orders (key) SELECT 'row ' || n FROM generate_series(1, 1000) n");
    let mut session = db.session("session");
    session.run("BEGIN");
    let found: i64 = session.value(format!(
        "SELECT count(*) FROM orders WHERE id = 500 AND ({CALL}).outcome = 'claimed'"
    ));
    assert_eq!((found, db.keys_held()), (1, 1));
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
}

#[test]
fn different_keys_in_one_statement_are_each_claimed() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    let claimed: i64 = session.value(
        "SELECT count(*) FROM generate_series(1, 9) n,
             LATERAL idempotency_claim('alice', 'POST /orders', 'k' || n) c
         WHERE c.outcome = 'claimed' AND c.token IS NOT NULL",
    );
    assert_eq!((claimed, db.keys_held()), (9, 9));
}

/// The same statement again, prepared or not, is another command: it may replay as often as it likes.
#[test]
fn a_statement_executed_again_is_no_repeat() {
    let db = Database::fresh();
    let mut session = db.session("session");
    shop::create_order(&mut session, Isolation::ReadCommitted, "k").expect("it succeeds");
    session.run(&format!("PREPARE again AS SELECT outcome FROM {CALL}; BEGIN"));
    for _ in 0..7 {
        assert_eq!(session.value::<String>("EXECUTE again"), "replayed");
    }
    session.run(&format!(
        "DO $$ BEGIN FOR n IN 1..7 LOOP
             ASSERT ({CALL}).outcome = 'replayed';
         END LOOP; END $$; COMMIT"
    ));
}

#[test]
fn claim_and_work_in_one_statement() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let both = format!(
        "WITH claimed AS MATERIALIZED (SELECT * FROM {CALL})
         INSERT INTO orders (key) SELECT 'k' FROM claimed WHERE outcome = 'claimed' RETURNING key"
    );
    session.run("BEGIN");
    assert_eq!(session.rows(&*both).len(), 1);
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    assert_eq!(session.rows(&*both).len(), 0, "the second time nothing is claimed");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

// ---- cursors -------------------------------------------------------------------------------

fn declare(session: &mut Session, kind: &str, query: &str) {
    session.run(&format!("BEGIN; DECLARE c {kind} CURSOR WITH HOLD FOR {query}"));
}

/// The commit runs the cursor to its end and keeps the rows: the claim is not made again.
#[test]
fn a_held_cursor_read_before_the_commit_claims_once() {
    let select = [format!("SELECT outcome FROM {CALL}"), format!("SELECT ({CALL}).outcome")];
    for query in &select {
        let db = Database::fresh();
        let mut session = db.session("session");
        declare(&mut session, "SCROLL", query);
        assert_eq!(session.value::<String>("FETCH NEXT FROM c"), "claimed");
        shop::work(&mut session, "k").expect("the claim is held").expect("completed");
        session.run("COMMIT");
        assert_eq!(session.value::<String>("FETCH ABSOLUTE 1 FROM c"), "claimed");
        assert_eq!((db.orders("k"), db.records(), db.keys_held()), (1, 1, 0));
    }
}

/// Run by the commit itself the claim comes behind the write.
#[test]
fn a_held_cursor_first_run_by_the_commit_is_out_of_order() {
    let db = Database::fresh();
    let mut session = db.session("session");
    declare(&mut session, "", &format!("SELECT outcome FROM {CALL}"));
    session.run("INSERT INTO orders (key) VALUES ('k')");
    session.run_refused("COMMIT").expect_ours("IK001");
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
}

/// Without a write it is like a claim alone in autocommit.
#[test]
fn a_held_cursor_first_run_by_a_commit_is_refused() {
    let db = Database::fresh();
    let mut session = db.session("session");
    declare(&mut session, "", &format!("SELECT outcome FROM {CALL}"));
    session.run_refused("COMMIT").expect_ours("IK003");
    assert_eq!(db.keys_held(), 0);
    session.refused(complete(201)).expect_ours("IK002");
    let mut other = db.session("other");
    shop::create_order(&mut other, Isolation::ReadCommitted, "k")
        .expect("it succeeds")
        .expect("completed");
}

// ---- parallel workers ----------------------------------------------------------------------

/// Its name until 15, and its name since.
const PARALLEL: &str = "SELECT set_config(name, 'on', false) FROM pg_settings
        WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
    SET parallel_setup_cost = 0;
    SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
    SET max_parallel_workers_per_gather = 2; SET parallel_leader_participation = off";

fn with_many_rows(db: &Database<'_>) -> Session {
    db.run(
        "CREATE TABLE many AS SELECT n FROM generate_series(1, 20000) n; ANALYZE many;
         GRANT SELECT ON many TO backend",
    );
    let mut session = db.session("session");
    session.run(PARALLEL);
    session
}

fn plan_of(session: &mut Session, query: &str) -> String {
    let lines = session.rows(format!("EXPLAIN {query}"));
    lines.iter().map(|line| line.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

/// The functions are PARALLEL UNSAFE: a query that calls one has no parallel plan, and is right.
#[test]
fn a_query_that_could_run_in_parallel_claims_once() {
    let db = Database::fresh();
    let mut session = with_many_rows(&db);
    let count = "SELECT count(*) FROM many WHERE n % 2 = 0";
    assert!(plan_of(&mut session, count).contains("Gather"), "without a claim it is parallel");
    let query =
        format!("SELECT count(*) FROM many, {CALL} c WHERE n % 2 = 0 AND c.outcome = 'claimed'");
    assert!(!plan_of(&mut session, &query).contains("Gather"));
    session.run("BEGIN");
    assert_eq!(session.value::<i64>(&*query), 10_000);
    assert_eq!(db.keys_held(), 1);
    session.call(complete(204)).expect("completed");
    session.run("COMMIT");
}

/// A wrapper that says it is safe brings the claim into a worker. A worker's locks and state are
/// not the transaction's: so a clear error, and no crash.
#[test]
fn a_claim_in_a_parallel_worker_is_refused() {
    let db = Database::fresh();
    let mut session = with_many_rows(&db);
    db.run(
        "CREATE FUNCTION lying(n integer) RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS
         $$ BEGIN RETURN (SELECT outcome FROM idempotency_claim('alice', 'POST /orders', to_char(n, 'FM00000'))); END $$",
    );
    let query = "SELECT count(lying(n)) FROM many";
    assert!(plan_of(&mut session, query).contains("Gather"), "the wrapper is believed");
    session.refused(query).expect("25000");
    assert_eq!((db.keys_held(), db.records()), (0, 0));
}
