//! The harness itself, on plain PostgreSQL: what it says about blocking, errors and crashes is true.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::standby::Standby;
use pg_idempotency_tests::wire::Wire;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn plain(cluster: &Cluster) -> Database<'_> {
    cluster.database_with("TEMPLATE template0")
}

fn superuser(db: &Database<'_>, name: &str) -> Session {
    db.session_as(Role::Superuser, name)
}

#[test]
fn a_blocked_session_is_seen_and_finishes() {
    let db = plain(Cluster::shared());
    let (mut holder, mut waiter) = (superuser(&db, "holder"), superuser(&db, "waiter"));
    holder.run("BEGIN; SELECT pg_advisory_xact_lock(1)");
    waiter.start("SELECT pg_advisory_lock(1)");
    db.wait_until_blocked(&waiter, &holder);
    assert!(!waiter.has_finished());
    holder.run("COMMIT");
    assert!(waiter.finish().is_ok());
}

#[test]
fn an_error_keeps_all_its_fields() {
    let db = plain(Cluster::shared());
    let mut session = superuser(&db, "session");
    let refusal = session.run_refused(
        "DO $$ BEGIN RAISE EXCEPTION 'no luck' USING ERRCODE = 'XY123', DETAIL = 'A detail.',
                     HINT = 'A hint.', TABLE = 'a_table'; END $$",
    );
    let refusal = refusal.expect_ours("XY123").hints("A hint").mentions("no luck");
    assert_eq!(refusal.db().table(), Some("a_table"));
}

/// The driver must read on to the end of the exchange: an error at an implicit commit comes after
/// the row and the command tag.
#[test]
fn an_error_at_an_implicit_commit_is_seen() {
    let db = plain(Cluster::shared());
    let mut session = superuser(&db, "session");
    session.run(
        "CREATE TABLE a (x int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO a VALUES (1)",
    );
    session.refused("INSERT INTO a VALUES (1) RETURNING x").expect("23505");
}

#[test]
fn a_cancelled_statement_fails_and_the_session_lives() {
    let db = plain(Cluster::shared());
    let mut session = superuser(&db, "session");
    session.start("SELECT pg_sleep(60)");
    db.wait_until(&format!(
        "(SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {})",
        session.pid()
    ));
    session.cancel();
    session.finish_refused().expect("57014");
    assert_eq!(session.value::<i32>("SELECT 1"), 1);
}

#[test]
fn a_terminated_session_says_so() {
    let db = plain(Cluster::shared());
    let mut session = superuser(&db, "session");
    session.start("SELECT pg_sleep(60)");
    db.terminate(&session);
    session.finish_refused().expect_termination();
}

/// Only a server that has gone is the end that a terminated session meets: neither another error of
/// the server's nor a connection that never was.
#[test]
fn no_other_end_passes_for_a_termination() {
    let db = plain(Cluster::shared());
    let mut session = superuser(&db, "session");
    let mut nowhere = postgres::Config::new();
    nowhere.host_path("/nowhere").user(Role::Superuser.name());
    let nowhere = Session::try_connect(nowhere, "nowhere").err();
    let others = [session.refused("SELECT 1 / 0"), nowhere.expect("nobody listens there")];
    for refusal in others {
        assert!(catch_unwind(AssertUnwindSafe(|| refusal.expect_termination())).is_err());
    }
}

#[test]
fn statements_of_a_pipeline_share_a_transaction() {
    let db = plain(Cluster::shared());
    db.run("CREATE TABLE a (x int)");
    let mut wire = Wire::open(db.server(), db.name(), Role::Superuser);
    let seen =
        wire.pipeline(&["INSERT INTO a VALUES (1)", "SELECT 1 / (SELECT count(*) - 1 FROM a)"]);
    assert_eq!(seen.tags, ["INSERT 0 1"]);
    assert_eq!(seen.code.as_deref(), Some("22012"));
    assert_eq!(db.value::<i64>("SELECT count(*) FROM a"), 0);
}

#[test]
fn notices_arrive() {
    let db = plain(Cluster::shared());
    let mut session = superuser(&db, "session");
    session.run("DO $$ BEGIN RAISE WARNING 'careful'; END $$");
    let notices = session.take_notices();
    assert_eq!(notices.iter().map(|notice| notice.message()).collect::<Vec<_>>(), ["careful"]);
}

#[test]
fn a_standby_shows_what_its_primary_wrote() {
    let cluster = Cluster::start("harness-primary", &[]);
    let db = plain(&cluster);
    db.run(
        "CREATE ROLE backend LOGIN; CREATE TABLE a AS SELECT 7 AS x; GRANT SELECT ON a TO backend",
    );
    let standby = Standby::of(&cluster, "harness-standby");
    db.run("INSERT INTO a VALUES (8)");
    standby.catch_up_with(&cluster);
    let mut reader = standby.session(db.name(), "reader");
    assert_eq!(reader.value::<i64>("SELECT count(*) FROM a"), 2);
}

#[test]
fn a_crash_fails_the_test_that_meets_it() {
    let cluster = Cluster::start("harness-crash", &[]);
    let db = plain(&cluster);
    let victim = superuser(&db, "victim");
    let pid = u32::try_from(victim.pid()).expect("a pid is positive");
    assert!(pg_idempotency_tests::process::signal(pid, "KILL"));
    db.reconnect();
    let told = catch_unwind(AssertUnwindSafe(|| drop(db)));
    assert!(told.is_err(), "a crash must not pass unseen");
}

#[test]
fn a_killed_postmaster_starts_again_with_what_was_committed() {
    let cluster = Cluster::start("harness-restart", &[]);
    let db = plain(&cluster);
    db.run("CREATE TABLE a AS SELECT 7 AS x");
    cluster.end("KILL");
    cluster.start();
    db.reconnect();
    assert_eq!(db.value::<i32>("SELECT x FROM a"), 7);
}
