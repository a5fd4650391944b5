//! A BEFORE trigger on our tables that returns NULL has PostgreSQL skip the row. A record that is not
//! written would let its request be executed again: nothing commits then.

use pg_idempotency_tests::lease::lease;
use pg_idempotency_tests::prelude::*;

/// From now on the table skips what this event is about to do.
fn skip(db: &Database<'_>, event: &str, table: &str) {
    db.run(&format!(
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER skip BEFORE {event} ON idempotency.{table} FOR EACH ROW EXECUTE FUNCTION skip()"
    ));
}

fn execute(session: &mut Session) -> Result<Outcome, Refusal> {
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('k')");
    session.attempt(complete(201)).map(|rows| Outcome::only(&rows))
}

fn expire(db: &Database<'_>) {
    db.run("UPDATE idempotency.records SET expires_at = clock_timestamp() - interval '1 second'");
}

/// A session that has left a record, which has expired by now.
fn with_expired(db: &Database<'_>) -> Session {
    let mut session = db.session("session");
    execute(&mut session).expect("completed");
    session.run("COMMIT");
    expire(db);
    session
}

#[test]
fn a_record_that_is_not_written_is_an_error() {
    let db = Database::fresh();
    skip(&db, "INSERT", "records");
    let mut session = db.session("session");
    execute(&mut session).expect_err("the row is skipped").expect("55000");
    session.run("ROLLBACK");
    assert_eq!((db.orders("k"), db.records()), (0, 0));
}

/// Catches a completion that is forgotten where its error is caught.
#[test]
fn a_caught_error_does_not_let_the_work_commit() {
    let db = Database::fresh();
    skip(&db, "INSERT", "records");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('k'); SAVEPOINT s");
    session.refused(complete(201)).expect("55000");
    session.run("ROLLBACK TO s");
    session.refused("COMMIT").expect("IK003");
    assert_eq!(db.orders("k"), 0);
}

#[test]
fn an_expired_record_that_stays_is_not_replaced() {
    let db = Database::fresh();
    let mut session = with_expired(&db);
    skip(&db, "DELETE", "records");
    execute(&mut session).expect_err("the row is kept").expect("55000");
    session.run("ROLLBACK");
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

#[test]
fn a_lease_that_is_not_written_is_an_error() {
    let db = Database::fresh();
    skip(&db, "INSERT", "leases");
    let mut session = db.session("session");
    session.refused(lease("k")).expect("55000");
    assert_eq!(db.records(), 0);
}

/// Who configures would be told of settings that nobody goes by.
#[test]
fn settings_that_are_not_written_are_an_error() {
    let configure = "SELECT idempotency_configure('POST /orders', '{\"wait_ms\": 1}')";
    let register = "SELECT idempotency_register_resource('order', 'public.orders', 'key')";
    for event in ["INSERT", "UPDATE"] {
        for (table, call) in [("operations", configure), ("resource_types", register)] {
            let db = Database::fresh();
            let mut owner = db.session_as(Role::Superuser, "owner");
            if event == "UPDATE" {
                owner.run(call);
            }
            skip(&db, event, table);
            owner.refused(call).expect("55000");
        }
    }
}

/// A purge counts what is gone, so that a loop until 0 ends; an erasure has to be whole.
#[test]
fn who_keeps_records_keeps_them_from_purge_and_not_silently_from_erasure() {
    let db = Database::fresh();
    with_expired(&db);
    skip(&db, "DELETE", "records");
    let mut owner = db.session_as(Role::Superuser, "owner");
    assert_eq!(owner.value::<i64>("SELECT idempotency_purge()"), 0);
    owner.refused("SELECT idempotency_forget('alice')").expect("55000");
    owner.refused("SELECT idempotency_forget('alice', 'POST /orders', 'k')").expect("55000");
    assert_eq!(db.records(), 1);
}

/// Catches a purge that keeps the page of each kept record pinned: the pages are more than there are buffers.
#[test]
fn a_purge_that_may_delete_nothing_leaves_buffers_to_others() {
    let cluster = Cluster::start("few-buffers", &["shared_buffers = 512kB"]);
    let db = cluster.database();
    db.run(
        "DO $$ BEGIN
             FOR n IN 1..400 LOOP
                 PERFORM idempotency_claim('alice', 'POST /orders', n::text);
                 PERFORM idempotency_complete(200, body => repeat('x', 1800));
                 COMMIT;
             END LOOP;
         END $$",
    );
    expire(&db);
    skip(&db, "DELETE", "records");
    assert!(db.value::<i64>("SELECT pg_relation_size('idempotency.records') / 8192") > 64);
    assert_eq!(db.value::<i64>("SELECT idempotency_purge()"), 0);
    assert_eq!(db.records(), 400);
}
