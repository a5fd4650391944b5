//! `idempotency_purge`: what it deletes and what it never touches.

use pg_idempotency_tests::lease::{
    alone, complete_by, everything, lease, open_leases, release_by, resume, run_out, set_deadline,
    start,
};
use pg_idempotency_tests::operation::{assert_says, configure, execute, expire_all};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::purge::{purge, purge_once, purger};
use serde_json::json;

/// Records of these keys, each finished; they expire `ago` seconds ago, in their order.
fn fill(db: &Database<'_>, keys: usize) {
    let mut session = db.session("filler");
    for n in 0..keys {
        execute(&mut session, claim(format!("k{n:03}")), complete(201));
    }
    db.run("UPDATE idempotency.records SET expires_at = clock_timestamp() - interval '1 s' * (1000 - substr(key, 2)::int)");
}

fn keys_left(db: &Database<'_>) -> Vec<String> {
    db.value("SELECT coalesce(array_agg(key ORDER BY key), '{}') FROM idempotency.records")
}

#[test]
fn what_has_expired_is_deleted_and_nothing_else() {
    let db = Database::fresh();
    fill(&db, 4);
    db.run("UPDATE idempotency.records SET expires_at = NULL WHERE key = 'k000'");
    db.run("UPDATE idempotency.records SET expires_at = clock_timestamp() + interval '1 h' WHERE key = 'k001'");
    assert_eq!(purge_once(&mut purger(&db)), 2);
    assert_eq!(keys_left(&db), ["k000", "k001"]);
    assert_eq!(purge_once(&mut purger(&db)), 0);
}

#[test]
fn a_batch_takes_the_oldest_and_no_more_than_it_may() {
    let db = Database::fresh();
    fill(&db, 10);
    let mut session = purger(&db);
    assert_eq!(session.value::<i64>(purge(4)), 4);
    assert_eq!(
        keys_left(&db),
        ["k004", "k005", "k006", "k007", "k008", "k009"],
        "as they were written"
    );
    assert_eq!(session.value::<i64>(purge(4)), 4);
    assert_eq!(session.value::<i64>(purge(4)), 2);
    assert_eq!(session.value::<i64>(purge(4)), 0);
    assert_eq!(db.records(), 0);
}

#[test]
fn a_purged_key_can_be_claimed() {
    let db = Database::fresh();
    configure(&db, json!({"retention": "1 hour"}));
    let mut session = db.session("session");
    execute(&mut session, claim("k"), complete(201));
    session.call(claim("k")).expect("replayed");
    expire_all(&db);
    purge_once(&mut purger(&db));
    session.call(replay("k")).expect("unknown");
    execute(&mut session, claim("k"), complete(202));
    assert_eq!(session.call(replay("k")).expect("replayed").status, Some(202));
}

// ---- leases --------------------------------------------------------------------------------

/// Live or abandoned, an open lease stays, whatever its record says about a time.
#[test]
fn an_open_lease_is_never_touched() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    start(&mut worker, Isolation::ReadCommitted, "live");
    let abandoned = start(&mut worker, Isolation::ReadCommitted, "abandoned");
    set_deadline(&db, abandoned, "clock_timestamp() - interval '10 years'");
    db.run("UPDATE idempotency.records SET expires_at = clock_timestamp() - interval '1 year'");
    let before = everything(&db);
    assert_eq!(purge_once(&mut purger(&db)), 0);
    assert_eq!(everything(&db), before);
    assert_eq!(open_leases(&db), 2);
}

/// A late worker learns IK005 for 30 days after its deadline, and IK002 from then on.
#[test]
fn the_row_of_an_ended_lease_stays_for_30_days() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    let token = start(&mut worker, Isolation::ReadCommitted, "k");
    worker.rows(release_by(token));
    set_deadline(&db, token, "clock_timestamp() - interval '30 days' + interval '1 minute'");
    assert_eq!(purge_once(&mut purger(&db)), 0);
    worker.refused(resume(token)).expect_ours("IK005");
    set_deadline(&db, token, "clock_timestamp() - interval '30 days'");
    assert_eq!(purge_once(&mut purger(&db)), 1);
    worker.refused(resume(token)).expect_ours("IK002");
}

#[test]
fn records_and_leases_share_the_batch() {
    let db = Database::fresh();
    fill(&db, 3);
    let mut worker = db.session("worker");
    for key in ["a", "b", "c"] {
        let token = start(&mut worker, Isolation::ReadCommitted, key);
        alone(&mut worker, Isolation::ReadCommitted, complete_by(token, 201));
        set_deadline(&db, token, "clock_timestamp() - interval '31 days'");
    }
    let mut session = purger(&db);
    assert_eq!(session.value::<i64>(purge(4)), 4);
    assert_eq!(db.value::<i64>("SELECT count(*) FROM idempotency.leases"), 2);
    assert_eq!(session.value::<i64>(purge(4)), 2);
    assert_eq!(keys_left(&db), ["a", "b", "c"]);
}

#[test]
fn a_request_that_was_taken_over_goes_on_after_a_purge() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    let first = start(&mut worker, Isolation::ReadCommitted, "k");
    run_out(&db, first);
    let second = alone(&mut worker, Isolation::ReadCommitted, lease("k")).token.expect("a token");
    set_deadline(&db, first, "clock_timestamp() - interval '31 days'");
    assert_eq!(purge_once(&mut purger(&db)), 1);
    alone(&mut worker, Isolation::ReadCommitted, complete_by(second, 201)).expect("completed");
}

// ---- where it runs -------------------------------------------------------------------------

#[test]
fn it_runs_by_itself_only() {
    let db = Database::fresh();
    fill(&db, 1);
    let mut session = purger(&db);
    let refuse = |session: &mut Session, script: &str| {
        let refusal = session.run_refused(script);
        assert_says(
            refusal,
            "25001",
            [
                "idempotency_purge() cannot run inside a transaction block",
                "What it does would stay locked until the transaction ends.",
                "outside of BEGIN and COMMIT",
            ],
        );
        session.run("ROLLBACK");
    };
    for before in ["BEGIN", "BEGIN; SAVEPOINT s", "BEGIN; SELECT idempotency_claim('a', 'o', 'k')"]
    {
        refuse(&mut session, &format!("{before}; SELECT idempotency_purge()"));
    }
    // One message of the simple protocol is one transaction.
    refuse(&mut session, "SELECT 1; SELECT idempotency_purge()");
    for before in [
        "PERFORM idempotency_claim('alice', 'POST /orders', 'k')",
        "INSERT INTO orders (key) VALUES ('k')",
        "BEGIN PERFORM idempotency_purge(); EXCEPTION WHEN division_by_zero THEN END",
    ] {
        refuse(&mut session, &format!("DO $$ BEGIN {before}; PERFORM idempotency_purge(); END $$"));
    }
    assert_eq!(db.records(), 1);
}

/// What pg_cron can be given, and a way to purge all from any client.
#[test]
fn a_block_with_commits_purges_batch_by_batch() {
    let db = Database::fresh();
    fill(&db, 10);
    db.run("DO $$ BEGIN WHILE idempotency_purge(3) > 0 LOOP COMMIT; END LOOP; END $$");
    assert_eq!(db.records(), 0);
}

/// Whatever transactions are by default.
#[test]
fn it_works_at_every_isolation_level() {
    let db = Database::fresh();
    let mut session = purger(&db);
    for isolation in Isolation::ALL {
        fill(&db, 3);
        let default = isolation.sql().to_lowercase();
        session.run(&format!("SET default_transaction_isolation = '{default}'"));
        assert_eq!(purge_once(&mut session), 3);
    }
}

#[test]
fn nothing_is_purged_where_nothing_may_be_written() {
    let db = Database::fresh();
    fill(&db, 1);
    let mut session = purger(&db);
    session.run("SET default_transaction_read_only = on");
    session.refused("SELECT idempotency_purge()").expect("25006");
    assert_eq!(db.records(), 1);
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let db = Database::fresh();
    let mut session = purger(&db);
    session.refused("SELECT idempotency_purge(NULL)").expect_ours("22004").mentions("max_rows");
    for max_rows in [0, -1, i32::MIN, 100_001, i32::MAX] {
        let refusal = session.refused(purge(max_rows));
        let detail = format!("It is {max_rows}.");
        assert_says(refusal, "22023", ["max_rows must be from 1 to 100000", &detail, "batches"]);
    }
    assert_eq!(session.value::<i64>(purge(100_000)), 0);
}

#[test]
fn only_the_owner_may() {
    let db = Database::fresh();
    for role in [Role::Backend, Role::Outsider] {
        db.session_as(role, "other").refused("SELECT idempotency_purge()").expect("42501");
    }
    db.run("GRANT EXECUTE ON FUNCTION idempotency_purge(integer) TO backend");
    fill(&db, 1);
    assert_eq!(purge_once(&mut db.session("backend")), 1);
}

/// Row triggers on the table fire for each row, as the table's owner.
#[test]
fn row_triggers_fire() {
    let db = Database::fresh();
    db.run(
        "CREATE TABLE seen (key text, who text);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO public.seen VALUES (OLD.key, current_user); RETURN OLD; END $$;
         CREATE TRIGGER before BEFORE DELETE ON idempotency.records FOR EACH ROW EXECUTE FUNCTION note();
         CREATE TRIGGER after AFTER DELETE ON idempotency.records FOR EACH ROW EXECUTE FUNCTION note();
         GRANT EXECUTE ON FUNCTION idempotency_purge(integer) TO backend",
    );
    fill(&db, 2);
    assert_eq!(purge_once(&mut db.session("backend")), 2);
    let seen: Vec<String> = db.value("SELECT array_agg(key || ' ' || who ORDER BY key) FROM seen");
    assert_eq!(seen, ["k000 postgres", "k000 postgres", "k001 postgres", "k001 postgres"]);
}
