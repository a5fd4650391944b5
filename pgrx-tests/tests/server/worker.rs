//! Automatic purge in a server that goes on: who is purged, what is logged and shown, and whom it
//! leaves alone. What happens when a server or a database goes is in worker_ends.rs.

use pg_idempotency_tests::operation::execute;
use pg_idempotency_tests::preloaded::{
    self, alter_system, expired_are, fill_with_expired, has_finished_since,
};
use pg_idempotency_tests::prelude::*;
use serde_json::{Value, json};
use std::sync::{LazyLock, Mutex};

static PURGED: LazyLock<Cluster> =
    LazyLock::new(|| preloaded::cluster("worker-rounds", &["pg_idempotency.purge_interval = 1s"]));

/// The tests share a cluster, and so its list.
static LISTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn change_list(db: &Database<'_>, change: impl FnOnce(&mut Vec<String>)) {
    let mut listed = LISTED.lock().unwrap_or_else(|broken| broken.into_inner());
    change(&mut listed);
    alter_system(db, "pg_idempotency.purge_databases", &listed.join(", "));
}

fn list(db: &Database<'_>) {
    change_list(db, |listed| listed.push(db.name().to_owned()));
}

fn unlist(db: &Database<'_>) {
    change_list(db, |listed| listed.retain(|name| name != db.name()));
}

fn state(db: &Database<'_>) -> Value {
    db.value("SELECT to_jsonb(p) FROM idempotency.automatic_purge AS p")
}

/// Waits until two more rounds have ended: one may be under way, which does not know what was done
/// just now.
fn wait_for_rounds(db: &Database<'_>) {
    for _ in 0..2 {
        let now: String = db.value("SELECT clock_timestamp()::text");
        db.wait_until(&has_finished_since(&format!("'{now}'")));
    }
}

/// How often the log says something about a database.
fn times_logged(db: &Database<'_>, what: &str) -> usize {
    let line = format!("automatic purge of database \"{}\" {what}", db.name());
    db.server().log_from(0).lines().filter(|logged| logged.contains(&line)).count()
}

// ---- on and off ----------------------------------------------------------------------------------

#[test]
fn the_view_says_why_a_database_is_not_purged() {
    let reason = |db: &Database<'_>| {
        let state = state(db);
        assert_eq!(state["is_on"], state["reason"].is_null(), "{state}");
        state["reason"].as_str().map(str::to_owned)
    };
    let not_preloaded = Database::fresh();
    let why = "pg_idempotency is not in shared_preload_libraries";
    assert_eq!(reason(&not_preloaded).as_deref(), Some(why));

    let cluster = preloaded::cluster("worker-off", &[]);
    let db = cluster.database();
    assert_eq!(reason(&db).as_deref(), Some("pg_idempotency.purge_interval is 0"));
    alter_system(&db, "pg_idempotency.purge_interval", "1h");
    db.wait_until("current_setting('pg_idempotency.purge_interval') = '1h'");
    let why = "pg_idempotency.purge_databases does not have this database";
    assert_eq!(reason(&db).as_deref(), Some(why));
    alter_system(&db, "pg_idempotency.purge_databases", &format!("other, \"{}\"", db.name()));
    // At once, and not only after the interval.
    db.wait_until(&has_finished_since("'-infinity'"));
    assert_eq!(reason(&db), None);
    alter_system(&db, "pg_idempotency.purge_interval", "0");
    db.wait_until("(SELECT NOT is_on FROM idempotency.automatic_purge)");
}

#[test]
fn a_list_that_is_none_is_refused() {
    let db = PURGED.database();
    let mut session = db.session_as(Role::Superuser, "admin");
    for list in ["a b", "a,,b", "\"a"] {
        let refusal =
            session.refused(format!("ALTER SYSTEM SET pg_idempotency.purge_databases = '{list}'"));
        refusal.expect("22023").mentions("separated by commas");
    }
    let long: Vec<String> = (0..65).map(|n| format!("d{n}")).collect();
    let refusal = session
        .refused(format!("ALTER SYSTEM SET pg_idempotency.purge_databases = '{}'", long.join(",")));
    refusal.expect("22023").mentions("At most 64");
}

#[test]
fn listed_databases_are_purged_and_no_others() {
    let (db, other) = (PURGED.database(), PURGED.database());
    let mut session = db.session("client");
    execute(&mut session, claim("kept for ever"), complete(204));
    fill_with_expired(&db, 2500);
    fill_with_expired(&other, 10);
    list(&db);
    db.wait_until(&expired_are(0));
    wait_for_rounds(&db);
    assert_eq!((db.records(), other.records()), (1, 10));
    let shown = state(&db);
    assert_eq!((&shown["is_on"], &shown["purged"]), (&json!(true), &json!(2500)), "{shown}");
    assert_eq!((&shown["last_error"], &shown["last_error_at"]), (&Value::Null, &Value::Null));
    assert_eq!(state(&other)["purged"], Value::Null);

    // What expires later goes in a later round.
    fill_with_expired(&db, 3);
    db.wait_until(&expired_are(0));

    // Both the list and the interval can change at any time.
    unlist(&db);
    list(&other);
    other.wait_until(&expired_are(0));
    fill_with_expired(&db, 3);
    wait_for_rounds(&other);
    assert_eq!(db.records(), 4);
    assert_eq!(state(&db)["is_on"], false);
    unlist(&other);
}

// ---- manners -------------------------------------------------------------------------------------

#[test]
fn nobody_stays_in_a_database_and_nobody_holds_up_vacuum() {
    let db = PURGED.database();
    list(&db);
    wait_for_rounds(&db);
    let launcher: Value = db.value(
        "SELECT jsonb_agg(jsonb_build_object('name', application_name, 'database', datname, 'xmin', backend_xmin,
                                             'transaction', xact_start, 'query', query))
         FROM pg_stat_activity WHERE backend_type = 'pg_idempotency launcher'",
    );
    assert_eq!(
        launcher,
        json!([{"name": "pg_idempotency launcher", "database": null, "xmin": null, "transaction": null, "query": ""}])
    );
    db.wait_until(&format!(
        "NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = '{}' AND backend_type LIKE 'pg_idempotency%')",
        db.name()
    ));
    unlist(&db);
}

/// It is the extension's function that is called, wherever it is, and not one that looks like it.
#[test]
fn a_function_of_somebody_elses_is_not_called() {
    let db = PURGED.database_with("TEMPLATE template0");
    db.run(
        "CREATE SCHEMA ext; CREATE EXTENSION pg_idempotency SCHEMA ext;
         CREATE TABLE calls ();
         CREATE FUNCTION public.idempotency_purge(integer) RETURNS bigint LANGUAGE sql AS 'INSERT INTO public.calls DEFAULT VALUES; SELECT 0::bigint';
         CREATE FUNCTION ext.idempotency_purge(bigint) RETURNS bigint LANGUAGE sql AS 'INSERT INTO public.calls DEFAULT VALUES; SELECT 0::bigint';",
    );
    db.run(&format!("ALTER DATABASE {} SET search_path = public", db.name()));
    list(&db);
    wait_for_rounds(&db);
    assert_eq!(db.value::<i64>("SELECT count(*) FROM calls"), 0);
    assert_eq!(times_logged(&db, ""), 0);
    unlist(&db);
}

/// Whatever a database sets for its sessions, purging goes on.
#[test]
fn settings_of_the_database_do_not_matter() {
    let db = PURGED.database();
    let name = db.name();
    db.run(&format!(
        "ALTER DATABASE {name} SET default_transaction_isolation = 'serializable';
         ALTER DATABASE {name} SET statement_timeout = 1;
         ALTER DATABASE {name} SET idle_in_transaction_session_timeout = 1;
         ALTER DATABASE {name} SET role = 'backend'"
    ));
    fill_with_expired(&db, 1500);
    list(&db);
    db.wait_until(&expired_are(0));
    assert_eq!(times_logged(&db, ""), 0);
    unlist(&db);
}

/// Tables may be given to a role that is no superuser. What its triggers defer to the commit would run as the
/// worker before 18, and so does not run at all.
#[test]
fn an_owner_who_is_no_superuser_runs_nothing_as_one() {
    let db = PURGED.database();
    db.run(
        "CREATE ROLE keeper;
         CREATE TABLE ran (by_whom text); GRANT INSERT ON ran TO PUBLIC;
         GRANT USAGE ON SCHEMA idempotency TO keeper;
         ALTER TABLE idempotency.records OWNER TO keeper;
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.ran VALUES (current_user); RETURN NULL; END $$;
         SET ROLE keeper;
         CREATE CONSTRAINT TRIGGER note AFTER DELETE ON idempotency.records
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
         RESET ROLE",
    );
    fill_with_expired(&db, 5);
    list(&db);
    db.wait_until("(SELECT last_error LIKE '%deferred trigger%' FROM idempotency.automatic_purge)");
    assert_eq!(db.value::<i64>("SELECT count(*) FROM ran"), 0);
    // At the end of the statement it runs as the table's owner.
    db.run(
        "DROP TRIGGER note ON idempotency.records;
         CREATE TRIGGER note AFTER DELETE ON idempotency.records FOR EACH ROW EXECUTE FUNCTION note()",
    );
    db.wait_until(&expired_are(0));
    assert_eq!(db.value::<String>("SELECT string_agg(DISTINCT by_whom, ', ') FROM ran"), "keeper");
    unlist(&db);
}

// ---- what goes wrong -----------------------------------------------------------------------------

#[test]
fn a_failure_is_shown_and_logged_once_and_ends() {
    let db = PURGED.database();
    db.run(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$;
         CREATE TRIGGER fail BEFORE DELETE ON idempotency.records FOR EACH ROW EXECUTE FUNCTION fail()",
    );
    fill_with_expired(&db, 5);
    list(&db);
    db.wait_until("(SELECT last_error IS NOT NULL FROM idempotency.automatic_purge)");
    for _ in 0..2 {
        let again: String = db.value("SELECT clock_timestamp()::text");
        db.wait_until(&format!(
            "(SELECT last_error_at > '{again}' FROM idempotency.automatic_purge)"
        ));
    }
    let shown = state(&db);
    assert_eq!(
        (&shown["last_error"], &shown["purged"]),
        (&json!("not today"), &json!(0)),
        "{shown}"
    );
    assert_eq!(shown["last_finished_at"], Value::Null, "nothing was finished");
    assert_eq!(times_logged(&db, "failed: not today"), 1);
    db.run("DROP TRIGGER fail ON idempotency.records");
    db.wait_until(&expired_are(0));
    wait_for_rounds(&db);
    assert_eq!(times_logged(&db, "works again"), 1);
    assert_eq!(times_logged(&db, ""), 2);
    assert_eq!(state(&db)["last_error"], "not today", "what was stays to be seen");
    unlist(&db);
}

/// Who has locked the whole table is not queued behind for long, with everybody else behind that.
#[test]
fn a_locked_table_is_left_alone_soon() {
    let db = PURGED.database();
    fill_with_expired(&db, 5);
    let mut admin = db.session_as(Role::Superuser, "admin");
    admin.run("BEGIN; LOCK TABLE idempotency.records");
    list(&db);
    db.wait_until("(SELECT last_error LIKE '%lock timeout%' AND pid IS NULL FROM idempotency.automatic_purge)");
    admin.run("COMMIT");
    db.wait_until(&expired_are(0));
    unlist(&db);
}

#[test]
fn an_extension_and_a_database_may_come_later_and_go() {
    let (db, other) = (PURGED.database_with("TEMPLATE template0"), PURGED.database());
    change_list(&db, |listed| listed.extend(["comes_later".into(), db.name().to_owned()]));
    list(&other);
    wait_for_rounds(&other);
    wait_for_rounds(&other);
    assert_eq!(times_logged(&db, "failed: the extension pg_idempotency is not created there"), 1);
    let log = db.server().log_from(0);
    let lines = log.lines().filter(|line| line.contains("comes_later"));
    let lines: Vec<_> = lines.filter(|line| !line.contains("parameter")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("cannot start: there is no such database"), "{lines:?}");

    for _ in 0..2 {
        db.run("CREATE EXTENSION pg_idempotency");
        fill_with_expired(&db, 5);
        db.wait_until(&expired_are(0));
        db.run("DROP EXTENSION pg_idempotency");
    }
    other.run("CREATE DATABASE comes_later");
    let later = Database::open(db.server(), "comes_later".into());
    later.run("CREATE EXTENSION pg_idempotency");
    fill_with_expired(&later, 5);
    later.wait_until(&expired_are(0));
    unlist(&later);
    unlist(&db);
    unlist(&other);
}

/// The server has no background worker to spare: that is said, and tried again.
#[test]
fn without_a_free_background_worker_it_waits_for_one() {
    let cluster = preloaded::cluster(
        "worker-none-free",
        &[
            "pg_idempotency.purge_interval = 1s",
            "max_worker_processes = 1",
            "max_logical_replication_workers = 0",
        ],
    );
    let db = cluster.database();
    alter_system(&db, "pg_idempotency.purge_databases", db.name());
    db.wait_until(
        "(SELECT last_error LIKE '%max_worker_processes%' FROM idempotency.automatic_purge)",
    );
    for _ in 0..2 {
        let again: String = db.value("SELECT clock_timestamp()::text");
        db.wait_until(&format!(
            "(SELECT last_error_at > '{again}' FROM idempotency.automatic_purge)"
        ));
    }
    assert_eq!(times_logged(&db, "cannot start"), 1);
}
