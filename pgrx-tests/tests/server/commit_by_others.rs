//! The rule about commits where it is not the client's COMMIT: deferred triggers, procedures,
//! pipelines.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::wire::{Pipelined, Wire};

/// A deferred trigger on `orders` that runs `body` once, for the order noted as `trigger`.
fn deferred_trigger(db: &Database<'_>, body: &str) {
    db.run(&format!(
        "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN {body} RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.note = 'trigger') EXECUTE FUNCTION at_commit()"
    ));
}

const FIRE: &str = "INSERT INTO orders (key, note) VALUES ('k', 'trigger')";

/// A trigger's writes are the transaction's.
#[test]
fn a_deferred_trigger_may_write_behind_a_completed_claim() {
    let db = Database::fresh();
    deferred_trigger(&db, "INSERT INTO orders (key) VALUES ('by trigger');");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run(FIRE);
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    assert_eq!((db.orders("k"), db.orders("by trigger"), db.records()), (1, 1, 1));
}

/// Catches a guard that decides before the deferred triggers have run.
#[test]
fn a_deferred_trigger_may_complete_the_claim() {
    let db = Database::fresh();
    deferred_trigger(&db, "PERFORM idempotency_complete(201, body => 'by trigger');");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run(FIRE);
    session.run("COMMIT");
    assert_eq!(session.call(claim("k")).expect("replayed").text(), "by trigger");
}

#[test]
fn a_claim_by_a_deferred_trigger_is_out_of_order() {
    let db = Database::fresh();
    deferred_trigger(&db, "PERFORM idempotency_claim('alice', 'POST /orders', 't');");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.run(FIRE);
    session.run_refused("COMMIT").expect_ours("IK001");
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
}

/// Catches a guard that is registered by the first claim and run before the triggers: this claim
/// is made when the commit is under way.
#[test]
fn a_claim_by_a_deferred_trigger_is_guarded_too() {
    let db = Database::fresh();
    deferred_trigger(&db, "PERFORM idempotency_claim('alice', 'POST /orders', 't');");
    let mut session = db.session("session");
    session.run("SET pg_idempotency.lock_order = off; BEGIN");
    session.run(FIRE);
    session.run_refused("COMMIT").expect_ours("IK003");
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
}

#[test]
fn a_deferred_trigger_may_claim_and_complete_where_the_order_is_off() {
    let db = Database::fresh();
    deferred_trigger(
        &db,
        "PERFORM idempotency_claim('alice', 'POST /orders', 't'); PERFORM idempotency_complete(204);",
    );
    let mut session = db.session("session");
    session.run("SET pg_idempotency.lock_order = off; BEGIN");
    session.run(FIRE);
    session.run("COMMIT");
    session.call(claim("t")).expect("replayed");
    assert_eq!(db.orders("k"), 1);
}

/// A trigger that undoes its own completion leaves the claim unsettled.
#[test]
fn a_completion_undone_by_a_deferred_trigger_does_not_count() {
    let db = Database::fresh();
    deferred_trigger(
        &db,
        "BEGIN PERFORM idempotency_complete(201); RAISE 'undo'; EXCEPTION WHEN raise_exception THEN END;",
    );
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run(FIRE);
    session.run_refused("COMMIT").expect_ours("IK003");
    assert_eq!((db.orders("k"), db.records()), (0, 0));
}

/// A procedure that claims `key`, inserts an order, completes where told to, and commits.
fn procedure(db: &Database<'_>) {
    db.run(
        "CREATE PROCEDURE place(key text, completes boolean) LANGUAGE plpgsql AS $$
         DECLARE found idempotency_outcome := idempotency_claim('alice', 'POST /orders', key);
         BEGIN
             IF found.outcome = 'claimed' THEN
                 INSERT INTO orders (key) VALUES (place.key);
                 IF completes THEN PERFORM idempotency_complete(201, body => key); END IF;
             END IF;
             COMMIT;
         END $$;
         CREATE PROCEDURE place_both() LANGUAGE plpgsql AS
             $$ BEGIN CALL place('b', true); CALL place('a', true); CALL place('b', true); END $$",
    );
}

#[test]
fn commit_in_a_procedure_is_guarded() {
    let db = Database::fresh();
    procedure(&db);
    let mut session = db.session("session");
    session.run_refused("CALL place('k', false)").expect_ours("IK003");
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
    session.run("CALL place('k', true)");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

/// Each COMMIT begins a transaction that holds nothing: so b, a, b again is no descending order.
#[test]
fn a_procedure_may_claim_in_one_transaction_after_the_other() {
    let db = Database::fresh();
    procedure(&db);
    db.session("session").run("CALL place_both()");
    assert_eq!((db.orders("a"), db.orders("b"), db.records()), (1, 1, 2));
}

const CLAIM: &str = "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k')";
const INSERT: &str = "INSERT INTO orders (key) VALUES ('k')";
const COMPLETE: &str = "SELECT * FROM idempotency_complete(201)";

fn pipelined(db: &Database<'_>, statements: &[&str]) -> Pipelined {
    Wire::open(db.server(), db.name(), Role::Backend).pipeline(statements)
}

/// Without BEGIN a pipeline is one implicit transaction, committed by its Sync.
#[test]
fn an_implicit_transaction_of_a_pipeline_is_guarded() {
    let db = Database::fresh();
    assert_eq!(pipelined(&db, &[CLAIM, INSERT]).code.as_deref(), Some("IK003"));
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
    assert_eq!(pipelined(&db, &[CLAIM, INSERT, COMPLETE]).code, None);
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

#[test]
fn a_transaction_block_in_a_pipeline_is_guarded() {
    let db = Database::fresh();
    let refused = pipelined(&db, &["BEGIN", CLAIM, INSERT, "COMMIT"]);
    assert_eq!(refused.code.as_deref(), Some("IK003"));
    assert_eq!((db.orders("k"), db.keys_held()), (0, 0));
    let done = pipelined(&db, &["BEGIN", CLAIM, INSERT, COMPLETE, "COMMIT"]);
    assert_eq!(done.tags, ["BEGIN", "SELECT 1", "INSERT 0 1", "SELECT 1", "COMMIT"]);
}

/// Work pipelined behind a claim that turned out to be a replay: complete finds no claim, and the
/// work is rolled back with it.
#[test]
fn work_pipelined_behind_a_replay_is_rolled_back() {
    let db = Database::fresh();
    let unit = ["BEGIN", CLAIM, INSERT, COMPLETE, "COMMIT"];
    assert_eq!(pipelined(&db, &unit).code, None);
    assert_eq!(pipelined(&db, &unit).code.as_deref(), Some("IK002"));
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}
