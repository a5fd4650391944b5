//! Writes on other servers, which PostgreSQL does not count as the transaction's own.

use pg_idempotency_tests::prelude::*;

/// A table `elsewhere`, which postgres_fdw writes through a connection to the same server.
fn with_foreign_table() -> Database<'static> {
    let db = Database::fresh();
    db.run(
        "CREATE EXTENSION postgres_fdw;
         CREATE TABLE elsewhere (key text);
         DO $$ BEGIN EXECUTE format('CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L)',
             current_setting('unix_socket_directories'), current_setting('port'), current_database()); END $$;
         CREATE USER MAPPING FOR CURRENT_USER SERVER loopback;
         CREATE FOREIGN TABLE there (key text) SERVER loopback OPTIONS (table_name 'elsewhere')",
    );
    db
}

fn written_elsewhere(db: &Database<'_>) -> i64 {
    db.value("SELECT count(*) FROM elsewhere")
}

/// A transaction without a completion, whose only write is a foreign one.
fn forget_behind_a_foreign_write(session: &mut Session) {
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO there VALUES ('k')");
    assert!(!session.has_transaction_id());
    session.run_refused("COMMIT").expect_ours("IK003");
}

/// Catches a rule about commits that looks for writes only.
#[test]
fn a_foreign_write_is_not_committed_where_the_wrapper_was_used_before_the_first_claim() {
    let db = with_foreign_table();
    let mut session = db.session_as(Role::Superuser, "session");
    session.run("INSERT INTO there VALUES ('before')");
    forget_behind_a_foreign_write(&mut session);
    assert_eq!(written_elsewhere(&db), 1, "the first one");
}

/// PostgreSQL calls the wrapper's callback first, for it was registered last: it has committed by the time that ours
/// refuses. The reference says so.
#[test]
fn a_foreign_write_is_committed_where_the_wrapper_is_used_for_the_first_time_behind_the_claim() {
    let db = with_foreign_table();
    let mut session = db.session_as(Role::Superuser, "session");
    forget_behind_a_foreign_write(&mut session);
    assert_eq!((written_elsewhere(&db), db.keys_held()), (1, 0));
}
