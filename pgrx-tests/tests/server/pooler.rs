//! Through PgBouncer in transaction mode: the same results, whoever serves the next transaction.

use pg_idempotency_tests::pooler::Pooler;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use pg_idempotency_tests::storm::{self, Storm};
use std::thread;

/// Fewer server connections than clients: transactions of many clients share a backend.
const CONNECTIONS: u32 = 4;
const CLIENTS: usize = 16;

fn pooler(db: &Database<'_>, name: &str) -> Pooler {
    Pooler::before(db.server(), name, CONNECTIONS)
}

#[test]
fn a_claim_a_retry_and_a_refusal() {
    let db = Database::fresh();
    let pooler = pooler(&db, "pooler-story");
    let mut client = pooler.session(db.name(), "client");
    for isolation in Isolation::ALL {
        let key = isolation.sql();
        let sent = shop::create_order(&mut client, isolation, key).expect("it succeeds");
        let mut other = pooler.session(db.name(), "other");
        let again = shop::create_order(&mut other, isolation, key).expect("it succeeds");
        assert_eq!(again.expect("replayed").answer(), sent.expect("completed").answer());
        client.begin(isolation);
        client.call(claim("forgotten")).expect("claimed");
        client.run("INSERT INTO orders (key) VALUES ('forgotten')");
        client.run_refused("COMMIT").expect_ours("IK003");
    }
    assert_eq!((db.orders("forgotten"), db.records()), (0, 3));
}

/// Catches state that stays in a backend for the next client's transaction. Both clients have one
/// name, or the pooler would set `application_name` in between, in a transaction of its own.
#[test]
fn a_backend_carries_nothing_over_to_the_next_client() {
    let db = Database::fresh();
    let pooler = Pooler::before(db.server(), "pooler-one", 1);
    let [mut one, mut two] = [(), ()].map(|()| pooler.session(db.name(), "client"));
    for end in ["SELECT idempotency_release(); COMMIT", "ROLLBACK"] {
        one.run("BEGIN");
        one.call(claim("z")).expect("claimed");
        one.call(claim(None::<&str>)).expect("bypassed");
        one.run(end);
        two.run("BEGIN");
        let serving: i32 = two.value("SELECT pg_backend_pid()");
        assert_eq!(serving, one.pid(), "one backend serves both");
        two.refused_inside_savepoint(complete(201), "IK002").mentions("holds no claim");
        two.call(claim("a")).expect("claimed");
        two.run("ROLLBACK");
    }
}

/// A client that goes away in the middle frees its key with its backend's transaction.
#[test]
fn a_client_that_hangs_up_frees_its_key() {
    let db = Database::fresh();
    let pooler = pooler(&db, "pooler-hangup");
    let mut owner = pooler.session(db.name(), "owner");
    owner.run("BEGIN");
    owner.call(claim("k")).expect("claimed");
    let mut waiter = pooler.session(db.name(), "waiter");
    waiter.run("BEGIN");
    waiter.start(claim("k").with("wait_ms", -1));
    db.wait_until_waiting(1);
    drop(owner);
    waiter.finish_call().expect("claimed");
}

#[test]
fn many_clients_one_new_key_one_effect() {
    let db = Database::fresh();
    let pooler = pooler(&db, "pooler-race");
    let request = |n: usize| {
        let mut client = pooler.session(db.name(), &format!("client {n}"));
        shop::create_order(&mut client, Isolation::ReadCommitted, "k")
            .expect("nobody gets an error")
    };
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let request = &request;
        let clients: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(move || request(n))).collect();
        clients.into_iter().map(|client| client.join().expect("no thread panics")).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.outcome == "completed").count(), 1);
    assert!(outcomes.iter().all(|outcome| outcome.answer() == outcomes[0].answer()));
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

#[test]
fn a_storm_of_retries_disconnects_and_aborts() {
    let db = Database::fresh();
    let pooler = pooler(&db, "pooler-storm");
    let plan = Storm { connections: CLIENTS, requests: 600, keys: 150, seed: 7 };
    let seen = storm::run(&plan, |name| pooler.session(db.name(), name));
    seen.assert_consistent(&plan);
    assert_eq!(db.value::<i64>("SELECT count(*) FROM orders"), 150);
    assert_eq!(db.value::<i64>("SELECT count(DISTINCT key) FROM orders"), 150);
    assert_eq!(db.records(), 150);
}
