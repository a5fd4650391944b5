//! `idempotency_forget` and requests on lease.

use pg_idempotency_tests::erasure::{OTHER, fill, forced, forget, forget_key, operator};
use pg_idempotency_tests::lease::{
    alone, checkpoint, complete_by, lease, open_leases, resume, run_out, start,
};
use pg_idempotency_tests::operation::{ORDERS, assert_says, claim_by};
use pg_idempotency_tests::prelude::*;
use serde_json::json;

fn a_live_lease_is_refused(db: &Database<'_>, isolation: Isolation) {
    fill(db);
    start(&mut db.session("worker"), isolation, "leased");
    let mut operator = operator(db);
    for call in [
        forget("alice"),
        forget("alice").with("operation", ORDERS),
        forget("alice").with("key", "leased"),
        forget_key("leased"),
    ] {
        operator.begin(isolation);
        let refusal = operator.refused(call);
        let says = [
            "cannot erase a request on a live lease",
            "a live lease on key \"leased\"",
            "force => true",
        ];
        assert_says(refusal, "55006", says);
        operator.run("ROLLBACK");
    }
    assert_eq!((db.records(), open_leases(db)), (9, 1));
    assert_eq!(operator.value::<i64>(forget("alice").with("operation", OTHER)), 2);
}

/// Its worker learns that it lost, and nothing of it commits, even where it catches the error.
fn a_live_lease_is_taken_by_force(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let call = lease("leased").with("data", json!({"card": "4711"}));
    let token = alone(&mut worker, isolation, call).token.expect("a token");
    alone(&mut worker, isolation, checkpoint(token, "charged", json!({"card": "4711"})));
    assert_eq!(operator(db).value::<i64>(forced(forget("alice"))), 1);
    assert_eq!((db.records(), open_leases(db)), (0, 0));
    let known: String = db.value("SELECT l::text FROM idempotency.leases AS l");
    assert!(
        !known.contains("alice") && !known.contains("4711") && !known.contains("leased"),
        "{known}"
    );
    worker.begin(isolation);
    worker.run("INSERT INTO orders (key) VALUES ('leased')");
    for call in [resume(token), complete_by(token, 201)] {
        let refusal = worker.refused_inside_savepoint(call, "IK005");
        assert_says(
            refusal,
            "IK005",
            ["lease lost", "The request of this lease was erased.", "roll back"],
        );
    }
    worker.run_refused("COMMIT").expect_ours("IK003");
    assert_eq!(db.orders("leased"), 0);
    start(&mut worker, isolation, "leased");
}

/// An abandoned request needs no force; the leases that it went through are emptied too.
fn abandoned_and_ended_leases_are_erased(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let first = start(&mut worker, isolation, "k");
    run_out(db, first);
    let second = start(&mut worker, isolation, "k");
    run_out(db, second);
    let finished = start(&mut worker, isolation, "done");
    alone(&mut worker, isolation, complete_by(finished, 201));
    let bobs = alone(&mut worker, isolation, claim_by("bob", ORDERS, "k").with("lease_ms", 60_000));
    assert_eq!(operator(db).value::<i64>(forget("alice")), 2);
    for token in [first, second, finished] {
        worker.refused(resume(token)).expect_ours("IK005");
    }
    let named: i64 =
        db.value("SELECT count(*) FROM idempotency.leases WHERE scope <> '' OR key <> ''");
    assert_eq!(named, 1);
    alone(&mut worker, isolation, complete_by(bobs.token.expect("a token"), 201))
        .expect("completed");
}

/// A worker at work holds its key: it is waited for, and its phase commits.
fn force_waits_for_a_phase(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut operator) = (db.session("worker"), operator(db));
    let token = start(&mut worker, isolation, "k");
    worker.begin(isolation);
    worker.call(resume(token)).expect("claimed");
    operator.start(forced(forget("alice")));
    db.wait_until_blocked(&operator, &worker);
    worker.run("INSERT INTO orders (key) VALUES ('k')");
    worker.run("COMMIT");
    assert_eq!(operator.finish().expect("it succeeds")[0].get::<_, i64>(0), 1);
    worker.refused(resume(token)).expect_ours("IK005");
    assert_eq!(db.orders("k"), 1);
}

/// The worker completes while it is waited for: then there is an answer, and it is erased.
fn a_request_that_is_finished_meanwhile_is_erased(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut operator) = (db.session("worker"), operator(db));
    let token = start(&mut worker, isolation, "k");
    worker.begin(isolation);
    worker.call(complete_by(token, 201)).expect("completed");
    operator.begin(isolation);
    operator.start(forget("alice"));
    db.wait_until_blocked(&operator, &worker);
    worker.run("COMMIT");
    assert_eq!(operator.finish().expect("it succeeds")[0].get::<_, i64>(0), 1);
    operator.run("COMMIT");
    assert_eq!(db.records(), 0);
}

/// A worker's own claim in this transaction stays, with its lease.
fn the_transactions_own_lease_stays(db: &Database<'_>, isolation: Isolation) {
    let mut operator = operator(db);
    operator.begin(isolation);
    let token = operator.call(lease("k")).token.expect("a token");
    assert_eq!(operator.value::<i64>(forget("alice")), 0);
    operator.run("COMMIT");
    alone(&mut operator, isolation, complete_by(token, 201)).expect("completed");
}

at_every_isolation!(
    a_live_lease_is_refused,
    a_live_lease_is_taken_by_force,
    abandoned_and_ended_leases_are_erased,
    force_waits_for_a_phase,
    a_request_that_is_finished_meanwhile_is_erased,
    the_transactions_own_lease_stays,
);

/// Catches a slot for each row: PostgreSQL notes each use of a table's descriptor, and looks through all
/// notes of the same one, so a scope of a million leases would take hours. The notes are in the memory
/// that outlives transactions.
#[test]
fn each_lease_is_erased_at_the_same_cost() {
    let db = Database::fresh();
    db.run(&format!(
        "INSERT INTO idempotency.leases
             SELECT gen_random_uuid(), gen_random_uuid(), 'alice', '{ORDERS}', n::text, now(), NULL, NULL, NULL, true
             FROM generate_series(1, 3000) AS n;
         CREATE TABLE noted (row integer GENERATED ALWAYS AS IDENTITY, bytes bigint);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.noted (bytes)
                 SELECT used_bytes FROM pg_backend_memory_contexts WHERE name = 'TopMemoryContext';
             RETURN NEW;
         END $$;
         CREATE TRIGGER note BEFORE INSERT ON idempotency.leases FOR EACH ROW EXECUTE FUNCTION note()"
    ));
    assert_eq!(operator(&db).value::<i64>(forget("alice")), 0);
    let after = |row: i32| db.value::<i64>(&format!("SELECT bytes FROM noted WHERE row = {row}"));
    // The list of notes doubles at powers of two: in each of these spans. What the other tests on this
    // server have this session do (an invalidation, say) takes memory in one of them.
    let spans = [(100, 300), (300, 700), (700, 1500), (1500, 3000)];
    let more = spans.map(|(from, to)| after(to) - after(from));
    assert!(more.iter().any(|bytes| *bytes < 1024), "{more:?} bytes more in {spans:?}");
}
