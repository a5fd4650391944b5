//! A wait that ends with an error: the ordinary error, and nothing left behind.
//!
//! The classic fault here is an internal subtransaction that is left half open: the session then
//! hangs on to its other locks in a transaction that nobody can end. Each way to be interrupted is
//! tried in a transaction block, in autocommit, in a savepoint, and inside an EXCEPTION block.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::wire::Wire;

/// A way to interrupt a waiting session, and the SQLSTATE that it gets.
#[derive(Clone, Copy, Debug)]
enum Interrupt {
    Cancel,
    StatementTimeout,
}

const INTERRUPTS: [Interrupt; 2] = [Interrupt::Cancel, Interrupt::StatementTimeout];

impl Interrupt {
    /// Starts `statement`, which waits for `holder`, and interrupts it.
    fn interrupt(
        self,
        db: &Database<'_>,
        waiter: &mut Session,
        holder: &Session,
        statement: impl Into<Statement>,
    ) {
        match self {
            Interrupt::Cancel => {
                waiter.start(statement);
                db.wait_until_blocked(waiter, holder);
                waiter.cancel();
            }
            Interrupt::StatementTimeout => {
                waiter.run("SET statement_timeout = '200ms'");
                waiter.start(statement);
            }
        }
    }
}

fn holder(db: &Database<'_>, key: &str) -> Session {
    let mut holder = db.session("holder");
    holder.run("BEGIN");
    holder.call(claim(key)).expect("claimed");
    holder
}

/// Holds nothing, waits for nothing, and can begin anew.
fn assert_clean(db: &Database<'_>, session: &mut Session) {
    assert_eq!(db.state_of(session), "idle");
    let locks = format!("SELECT count(*) FROM pg_locks WHERE pid = {}", session.pid());
    assert_eq!(db.value::<i64>(&locks), 0, "no lock is left");
    session.run("RESET statement_timeout; BEGIN; SAVEPOINT s");
    session.call(claim("fresh")).expect("claimed");
    session.call(complete(204)).expect("completed");
    session.run("RELEASE s; COMMIT");
    db.session("third").call(claim("fresh").with("wait_ms", 0)).expect("replayed");
}

#[test]
fn in_a_transaction_block() {
    for interrupt in INTERRUPTS {
        let db = Database::fresh();
        let (holder, mut waiter) = (holder(&db, "k"), db.session("waiter"));
        waiter.run("BEGIN");
        waiter.call(claim("a")).expect("claimed");
        interrupt.interrupt(&db, &mut waiter, &holder, claim("k").with("wait_ms", -1));
        waiter.finish_refused().expect("57014");
        assert_eq!(db.state_of(&waiter), "idle in transaction (aborted)");
        waiter.refused("SELECT 1").expect("25P02");
        db.session("third").call(claim("a").with("wait_ms", 0)).expect("claimed");
        waiter.run("ROLLBACK");
        assert_clean(&db, &mut waiter);
    }
}

#[test]
fn in_autocommit() {
    for interrupt in INTERRUPTS {
        let db = Database::fresh();
        let (holder, mut waiter) = (holder(&db, "k"), db.session("waiter"));
        interrupt.interrupt(&db, &mut waiter, &holder, claim("k").with("wait_ms", -1));
        waiter.finish_refused().expect("57014");
        assert_clean(&db, &mut waiter);
    }
}

#[test]
fn in_a_savepoint() {
    for interrupt in INTERRUPTS {
        let db = Database::fresh();
        let (holder, mut waiter) = (holder(&db, "k"), db.session("waiter"));
        waiter.run("BEGIN");
        waiter.call(claim("a")).expect("claimed");
        waiter.run("SAVEPOINT s");
        interrupt.interrupt(&db, &mut waiter, &holder, claim("k").with("wait_ms", -1));
        waiter.finish_refused().expect("57014");
        waiter.run("ROLLBACK TO s");
        assert_eq!(db.key_locks_of(&waiter), 1, "the claim before the savepoint is still held");
        waiter.call(complete(204)).expect("completed");
        waiter.run("COMMIT");
        assert_clean(&db, &mut waiter);
    }
}

#[test]
fn in_an_exception_block() {
    for interrupt in INTERRUPTS {
        let db = Database::fresh();
        let (holder, mut waiter) = (holder(&db, "k"), db.session("waiter"));
        waiter.run("BEGIN");
        waiter.call(claim("a")).expect("claimed");
        let catching = "DO $$ BEGIN
            PERFORM idempotency_claim('alice', 'POST /orders', 'k', wait_ms => -1);
            RAISE EXCEPTION 'it was not interrupted';
        EXCEPTION WHEN query_canceled THEN END $$";
        interrupt.interrupt(&db, &mut waiter, &holder, catching);
        assert!(waiter.finish().is_ok());
        assert_eq!(db.key_locks_of(&waiter), 1, "the claim before the block is still held");
        waiter.call(complete(204)).expect("completed");
        waiter.run("COMMIT");
        assert_clean(&db, &mut waiter);
    }
}

/// Two sessions claim what the other one holds; the order rule is off, so they may.
#[test]
fn by_a_deadlock() {
    let db = Database::fresh();
    let (mut victim, mut other) =
        (db.session_as(Role::Superuser, "victim"), db.session_as(Role::Superuser, "other"));
    // Only the victim looks for deadlocks, so the server always picks it.
    other.run("SET deadlock_timeout = '60s'; BEGIN");
    victim.run("SET pg_idempotency.lock_order = off; BEGIN");
    other.call(claim("a")).expect("claimed");
    victim.call(claim("b")).expect("claimed");
    other.start(claim("b").with("wait_ms", -1));
    db.wait_until_blocked(&other, &victim);
    victim.start(claim("a").with("wait_ms", -1));
    victim.finish_refused().expect("40P01");
    other.finish_call().expect("claimed");
    other.run("ROLLBACK");
    victim.run("ROLLBACK");
    assert_clean(&db, &mut victim);
}

#[test]
fn by_termination() {
    for begin in ["", "BEGIN", "BEGIN; SAVEPOINT s"] {
        let db = Database::fresh();
        let (holder, mut waiter) = (holder(&db, "k"), db.session("waiter"));
        waiter.run(begin);
        waiter.start(claim("k").with("wait_ms", -1));
        db.wait_until_blocked(&waiter, &holder);
        db.terminate(&waiter);
        waiter.finish_refused().expect_termination();
        assert_eq!(db.key_locks_of(&waiter), 0);
        assert_eq!(db.keys_held(), 1, "only the holder's");
    }
}

/// A client that hangs up in the middle of a wait leaves nothing that waits.
#[test]
fn by_a_client_that_hangs_up() {
    let db = Database::fresh();
    let _holder = holder(&db, "k");
    let mut client = Wire::open(db.server(), db.name(), Role::Backend);
    client.pipeline(&["SET client_connection_check_interval = '20ms'"]);
    client.start(&["SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k', wait_ms => -1)"]);
    db.wait_until_waiting(1);
    drop(client);
    db.wait_until_waiting(0);
    assert_eq!(db.keys_held(), 1, "only the holder's");
}
