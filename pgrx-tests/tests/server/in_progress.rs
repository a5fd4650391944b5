//! `idempotency.in_progress`: who holds which key, and who waits for it.

use pg_idempotency_tests::lease::{alone, checkpoint, complete_by, lease, resume, start};
use pg_idempotency_tests::operation::{ORDERS, claim_by, configure_operation};
use pg_idempotency_tests::prelude::*;
use postgres::Row;
use serde_json::json;
use std::time::SystemTime;
use uuid::Uuid;

const ALICES_K: &str = "SELECT * FROM idempotency.in_progress
    WHERE key_lock = idempotency_key_lock('alice', 'POST /orders', 'k')";

fn operator(db: &Database<'_>) -> Session {
    db.session_as(Role::Superuser, "operator")
}

/// The only row about alice's key `k`.
#[track_caller]
fn shown(db: &Database<'_>) -> Row {
    let mut rows = operator(db).rows(ALICES_K);
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

#[track_caller]
fn text(row: &Row, column: &str) -> Option<String> {
    row.get(column)
}

#[test]
fn a_held_key_is_shown_with_its_session() {
    let db = Database::fresh();
    assert_eq!(operator(&db).rows("SELECT * FROM idempotency.in_progress").len(), 0);
    let mut holder = db.session("the holder");
    holder.run("BEGIN");
    let began: SystemTime = holder.value("SELECT now()");
    holder.call(claim("k")).expect("claimed");
    let row = shown(&db);
    assert_eq!(
        (row.get::<_, i32>("pid"), row.get::<_, SystemTime>("since")),
        (holder.pid(), began)
    );
    let texts = ["holder", "usename", "application_name", "state"].map(|column| text(&row, column));
    let texts: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
    assert_eq!(texts, ["session", "backend", "the holder", "idle in transaction"]);
    assert!(text(&row, "query").is_some_and(|query| query.contains("idempotency_claim")));
    assert_eq!(
        (row.get::<_, i32>("waiting"), row.get::<_, Option<Vec<i32>>>("waiting_pids")),
        (0, None)
    );
    for column in ["gid", "scope", "operation", "key_space", "key", "recovery_point"] {
        assert_eq!(text(&row, column), None, "{column}");
    }
    let long_ago: bool =
        operator(&db).value(format!("SELECT age >= '0' AND age < '1 h' FROM ({ALICES_K}) AS k"));
    assert!(long_ago);
    holder.run("ROLLBACK");
    assert_eq!(operator(&db).rows("SELECT * FROM idempotency.in_progress").len(), 0);
}

#[test]
fn who_waits_is_counted_first_come_first() {
    let db = Database::fresh();
    let (mut holder, mut other) = (db.session("holder"), db.session("other"));
    let mut waiters: Vec<Session> = (0..3).map(|n| db.session(&format!("waiter {n}"))).collect();
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    other.run("BEGIN");
    other.call(claim_by("bob", ORDERS, "k")).expect("claimed");
    for (already, waiter) in waiters.iter_mut().enumerate() {
        waiter.run("BEGIN");
        waiter.start(claim("k"));
        db.wait_until_waiting(already + 1);
    }
    let row = shown(&db);
    let pids: Vec<i32> = waiters.iter().map(Session::pid).collect();
    assert_eq!((row.get::<_, i32>("waiting"), row.get::<_, Vec<i32>>("waiting_pids")), (3, pids));
    let waits: bool =
        operator(&db).value(format!("SELECT longest_wait > '0' FROM ({ALICES_K}) AS k"));
    assert!(waits);
    assert_eq!(operator(&db).rows("SELECT * FROM idempotency.in_progress").len(), 2);
    holder.run("ROLLBACK");
    for waiter in &mut waiters {
        waiter.finish_call().expect("claimed");
        waiter.run("ROLLBACK");
    }
}

#[test]
fn a_prepared_transaction_is_shown_by_its_name() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.call(complete(204)).expect("completed");
    let gid = format!("in_progress of {}", db.name());
    session.run(&format!("PREPARE TRANSACTION '{gid}'"));
    let row = shown(&db);
    assert_eq!(
        (text(&row, "holder").as_deref(), text(&row, "gid")),
        (Some("prepared"), Some(gid.clone()))
    );
    assert_eq!((row.get::<_, Option<i32>>("pid"), row.get::<_, i32>("waiting")), (None, 0));
    let prepared: SystemTime =
        db.value(&format!("SELECT prepared FROM pg_prepared_xacts WHERE gid = '{gid}'"));
    assert_eq!(row.get::<_, SystemTime>("since"), prepared);
    session.run(&format!("ROLLBACK PREPARED '{gid}'"));
    assert_eq!(operator(&db).rows(ALICES_K).len(), 0);
}

/// A lease that nobody works on at the moment, one that somebody does, and one that has run out.
#[test]
fn leases_are_shown_with_their_request() {
    let db = Database::fresh();
    configure_operation(&db, ORDERS, json!({"key_space": "orders"}));
    let mut worker = db.session("worker");
    let claimed = alone(&mut worker, Isolation::ReadCommitted, lease("k"));
    let token = claimed.token.expect("a token");
    alone(&mut worker, Isolation::ReadCommitted, checkpoint(token, "charged", json!({})));
    let by_key_space = ALICES_K.replace("POST /orders", "orders");
    let see = || operator(&db).rows(&*by_key_space).remove(0);
    let row = see();
    assert_request(&row, token);
    assert_eq!(
        (text(&row, "holder").as_deref(), row.get::<_, Option<i32>>("pid")),
        (Some("lease"), None)
    );
    assert_eq!(Some(row.get::<_, SystemTime>("since")), claimed.created_at);
    worker.run("BEGIN");
    worker.call(resume(token)).expect("claimed");
    let row = see();
    assert_request(&row, token);
    assert_eq!(
        (text(&row, "holder").as_deref(), row.get::<_, i32>("pid")),
        (Some("session"), worker.pid())
    );
    worker.run("COMMIT");
    db.run("UPDATE idempotency.leases SET deadline = clock_timestamp() - interval '1 s'");
    assert_request(&see(), token);
    alone(&mut worker, Isolation::ReadCommitted, complete_by(token, 201)).expect("completed");
    assert_eq!(operator(&db).rows("SELECT * FROM idempotency.in_progress").len(), 0);
}

#[track_caller]
fn assert_request(row: &Row, token: Uuid) {
    let texts = ["scope", "operation", "key_space", "key", "recovery_point"]
        .map(|column| text(row, column));
    let texts: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
    assert_eq!(texts, ["alice", "POST /orders", "orders", "k", "charged"]);
    assert_eq!((row.get::<_, Uuid>("token"), row.get::<_, i32>("attempt")), (token, 1));
    assert!(row.get::<_, Option<SystemTime>>("deadline").is_some());
}

/// Keys of other databases, and advisory locks of others, are none of ours.
#[test]
fn only_keys_of_this_database_are_shown() {
    let (db, elsewhere) = (Database::fresh(), Database::fresh());
    let (mut one, mut two) = (db.session("one"), elsewhere.session("two"));
    one.run("BEGIN; SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock(1, 2)");
    two.run("BEGIN");
    two.call(claim("k")).expect("claimed");
    assert_eq!(operator(&db).rows("SELECT * FROM idempotency.in_progress").len(), 0);
    assert_eq!(operator(&elsewhere).rows("SELECT * FROM idempotency.in_progress").len(), 1);
}

/// The number is that of pg_locks, whatever its sign.
#[test]
fn the_number_of_a_key_is_that_of_its_lock() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for key in ["k", "k1", "k2", "k3", "k4", "Ω ☃", "'"] {
        session.run("BEGIN");
        session.call(claim(key)).expect("claimed");
        let number = Call::new("idempotency_key_lock").with("scope", "alice");
        let number: i64 = session.value(number.with("key_space", ORDERS).with("key", key));
        let lock = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE objsubid = 18763 AND pid = pg_backend_pid()";
        assert_eq!(session.value::<i64>(lock), number);
        let shown: (i64, bool) = {
            let rows = operator(&db).rows("SELECT key_lock, (classid::bigint << 32) | objid::bigint = key_lock FROM idempotency.in_progress");
            (rows[0].get(0), rows[0].get(1))
        };
        assert_eq!(shown, (number, true));
        session.run("ROLLBACK");
    }
    let mut outsider = db.session_as(Role::Outsider, "outsider");
    let known: i64 = outsider.value("SELECT idempotency_key_lock('alice', 'POST /orders', 'k1')");
    assert_eq!(known, 0x1a28_b385_8e74_7743);
    assert!(outsider.value::<bool>("SELECT idempotency_key_lock('alice', NULL, 'k1') IS NULL"));
    outsider
        .refused("SELECT idempotency_key_lock('a', 'b', repeat('x', 256))")
        .expect_ours("22023");
}

/// By default the owner only; with a grant, what pg_stat_activity hides from a role stays hidden.
#[test]
fn who_may_look_sees_no_more_than_in_pg_stat_activity() {
    let db = Database::fresh();
    let mut holder = db.session("holder");
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    let mut outsider = db.session_as(Role::Outsider, "outsider");
    for role in [Role::Backend, Role::Outsider] {
        db.session_as(role, "other")
            .refused("SELECT * FROM idempotency.in_progress")
            .expect("42501");
    }
    db.run("GRANT USAGE ON SCHEMA idempotency TO outsider; GRANT SELECT ON idempotency.in_progress TO outsider");
    let row = outsider.rows(ALICES_K).remove(0);
    assert_eq!(
        (row.get::<_, i32>("pid"), text(&row, "query").as_deref()),
        (holder.pid(), Some("<insufficient privilege>"))
    );
    assert_eq!((text(&row, "state"), row.get::<_, Option<SystemTime>>("since")), (None, None));
    outsider.refused("SELECT * FROM idempotency.records").expect("42501");
}

/// Catches names that are looked up when the view is read.
#[test]
fn a_hostile_search_path_changes_nothing() {
    let db = Database::fresh();
    db.run(
        "CREATE SCHEMA evil;
         CREATE VIEW evil.pg_locks AS SELECT 1 AS nothing;
         CREATE VIEW evil.pg_stat_activity AS SELECT 1 AS nothing;
         CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
         CREATE FUNCTION evil.idempotency_key_lock(text, text, text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
         CREATE FUNCTION evil.equal(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
         CREATE OPERATOR evil.= (FUNCTION = evil.equal, LEFTARG = bigint, RIGHTARG = bigint)",
    );
    let mut holder = db.session("holder");
    start(&mut holder, Isolation::ReadCommitted, "leased");
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    let mut operator = operator(&db);
    operator.run("SET search_path = evil, pg_catalog, public");
    assert_eq!(operator.rows("SELECT * FROM idempotency.in_progress").len(), 2);
    assert_eq!(operator.rows("SELECT * FROM idempotency.abandoned").len(), 0);
}
