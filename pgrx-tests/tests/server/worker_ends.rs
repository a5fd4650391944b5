//! Automatic purge when something ends: a database, a worker, the launcher, the server.

use pg_idempotency_tests::preloaded::{
    self, alter_system, expired_are, fill_with_expired, has_finished_since,
};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{process, standby::Standby};

/// Has each DELETE of a record take this long: it is the worker's work, which the tests look for and end.
/// (A lock that a test holds would not do: the worker does not wait for one longer than a second.)
fn slow_down(db: &Database<'_>, seconds: f64) {
    db.run(&format!(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep({seconds}); RETURN OLD; END $$;
         CREATE TRIGGER slow BEFORE DELETE ON idempotency.records FOR EACH ROW EXECUTE FUNCTION slow()"
    ));
}

/// A cluster that purges every second, and a listed database with something to do.
fn purging(name: &str) -> (Cluster, impl Fn(&Database<'_>)) {
    let cluster = preloaded::cluster(name, &["pg_idempotency.purge_interval = 1s"]);
    (cluster, |db| alter_system(db, "pg_idempotency.purge_databases", db.name()))
}

const AT_WORK: &str = "EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pg_idempotency purge' AND state = 'active')";

fn wait_until_at_work(db: &Database<'_>) {
    db.wait_until(AT_WORK);
}

fn pid_of(db: &Database<'_>, kind: &str) -> i32 {
    db.value(&format!(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_idempotency {kind}'"
    ))
}

/// DROP DATABASE waits five seconds for sessions to leave. A worker with a lot to do leaves in
/// between, and lets it through. (Without a limit of its stay this fails.)
#[test]
fn a_busy_worker_does_not_keep_a_database_from_being_dropped() {
    let (cluster, list) = purging("worker-drop");
    let (db, outside) = (cluster.database(), cluster.database());
    slow_down(&db, 0.001);
    fill_with_expired(&db, 8000);
    list(&db);
    wait_until_at_work(&db);
    let shown: (String, String) = (
        db.value("SELECT application_name FROM pg_stat_activity WHERE backend_type = 'pg_idempotency purge'"),
        db.value("SELECT query FROM pg_stat_activity WHERE backend_type = 'pg_idempotency purge'"),
    );
    assert_eq!(shown, ("pg_idempotency purge".into(), "SELECT idempotency_purge(1000)".into()));
    let name = db.name().to_owned();
    drop(db);
    outside.run(&format!("DROP DATABASE {name}"));
    // And the launcher goes on with others.
    fill_with_expired(&outside, 5);
    list(&outside);
    outside.wait_until(&expired_are(0));
}

#[test]
fn a_stuck_worker_can_be_forced_out_and_terminated() {
    let (cluster, list) = purging("worker-force");
    let (db, outside) = (cluster.database(), cluster.database());
    slow_down(&db, 1000.0);
    fill_with_expired(&db, 1);
    list(&db);
    wait_until_at_work(&db);
    let first = pid_of(&db, "purge");
    db.run(&format!("SELECT pg_terminate_backend({first})"));
    db.wait_until(&format!(
        "EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pg_idempotency purge' AND state = 'active' AND pid <> {first})"
    ));
    let name = db.name().to_owned();
    drop(db);
    outside.run(&format!("DROP DATABASE {name} WITH (FORCE)"));
    list(&outside);
    outside.wait_until(&has_finished_since("'-infinity'"));
}

#[test]
fn a_cancelled_worker_says_so_and_comes_again() {
    let (cluster, list) = purging("worker-cancel");
    let db = cluster.database();
    slow_down(&db, 1000.0);
    fill_with_expired(&db, 1);
    list(&db);
    wait_until_at_work(&db);
    let worker = pid_of(&db, "purge");
    db.run(&format!("SELECT pg_cancel_backend({worker})"));
    db.wait_until(
        "(SELECT last_error LIKE '%canceling statement%' FROM idempotency.automatic_purge)",
    );
    db.wait_until(AT_WORK);
}

#[test]
fn a_terminated_launcher_comes_again_and_leaves_workers_alone() {
    let (cluster, list) = purging("worker-launcher");
    let db = cluster.database();
    slow_down(&db, 1000.0);
    fill_with_expired(&db, 1);
    list(&db);
    wait_until_at_work(&db);
    let (launcher, worker) = (pid_of(&db, "launcher"), pid_of(&db, "purge"));
    db.run(&format!("SELECT pg_terminate_backend({launcher})"));
    db.wait_until(&format!(
        "EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'pg_idempotency launcher' AND pid <> {launcher})"
    ));
    assert_eq!(pid_of(&db, "purge"), worker, "it is not disturbed, and no second one comes");
    db.run(&format!("SELECT pg_terminate_backend({worker})"));
    db.wait_until(&format!("(SELECT pid <> {worker} FROM idempotency.automatic_purge)"));
}

#[test]
fn the_server_shuts_down_whatever_is_at_work() {
    let (cluster, list) = purging("worker-shutdown");
    let db = cluster.database();
    list(&db);
    db.wait_until(&has_finished_since("'-infinity'"));
    let name = db.name().to_owned();
    // A smart shutdown waits for all sessions.
    drop(db);
    for signal in ["TERM", "INT"] {
        let db = Database::open(&cluster, name.clone());
        if signal == "INT" {
            slow_down(&db, 1000.0);
            fill_with_expired(&db, 1);
            wait_until_at_work(&db);
        }
        drop(db);
        cluster.end(signal);
        let log = cluster.log_from(0);
        assert!(log.trim_end().ends_with("database system is shut down"), "{log}");
        cluster.start();
    }
    let db = Database::open(&cluster, name);
    wait_until_at_work(&db);
}

#[test]
fn after_a_crash_it_goes_on() {
    let (cluster, list) = purging("worker-crash");
    let db = cluster.database();
    db.expect_crash();
    list(&db);
    db.wait_until(&has_finished_since("'-infinity'"));
    let victim = db.session("victim");
    assert!(process::signal(u32::try_from(victim.pid()).expect("a pid"), "KILL"));
    db.reconnect();
    fill_with_expired(&db, 5);
    db.wait_until(&expired_are(0));
    db.wait_until("(SELECT purged = 5 FROM idempotency.automatic_purge)");
}

/// Nothing can be purged on a standby; its primary does. Once it is promoted, it does it itself.
#[test]
fn a_standby_begins_when_it_is_promoted() {
    let (cluster, list) = purging("worker-primary");
    let db = cluster.database();
    let standby = Standby::of(&cluster, "worker-standby");
    fill_with_expired(&db, 5);
    standby.catch_up_with(&cluster);
    let mut there = standby.session_as(db.name(), Role::Superuser, "there");
    there.run(&format!("ALTER SYSTEM SET pg_idempotency.purge_databases = '{}'", db.name()));
    there.run("SELECT pg_reload_conf()");
    let condition = "(SELECT reason = 'the server is a standby' FROM idempotency.automatic_purge)";
    pg_idempotency_tests::wait::until(condition, || {
        there.value::<bool>(format!("SELECT {condition}")).then_some(())
    });
    assert_eq!(
        there.value::<i64>(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_idempotency%'"
        ),
        0
    );
    there.rows("SELECT pg_promote()");
    let condition = expired_are(0);
    pg_idempotency_tests::wait::until(&condition, || {
        there.value::<bool>(format!("SELECT {condition}")).then_some(())
    });
    assert_eq!(db.records(), 5, "the primary was never told to purge");
    list(&db);
    db.wait_until(&expired_are(0));
}
