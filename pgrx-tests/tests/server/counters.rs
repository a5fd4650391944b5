//! What is counted, for whom, and what the view shows.

use pg_idempotency_tests::operation::{
    ORDERS, claim_by, configure, configure_operation, execute, replay_by,
};
use pg_idempotency_tests::preloaded::{self, nonzero, stats, stats_of_kind};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::resource::{create_order, register_orders};
use serde_json::{Value, json};
use std::sync::LazyLock;

static PRELOADED: LazyLock<Cluster> =
    LazyLock::new(|| preloaded::cluster("counters-preloaded", &[]));

const NONE: [String; 0] = [];

// ---- without preloading ------------------------------------------------------------------------

#[test]
fn without_preloading_the_views_say_why_nothing_is_counted() {
    let db = Database::fresh();
    let mut session = db.session("client");
    execute(&mut session, claim("k"), complete(204));
    let counting: Value = db.value("SELECT to_jsonb(c) FROM idempotency.counting AS c");
    assert_eq!(
        counting,
        json!({"is_on": false, "reason": "pg_idempotency is not in shared_preload_libraries",
               "operations": null, "max_operations": null})
    );
    assert_eq!(db.value::<i64>("SELECT count(*) FROM idempotency.stats"), 0, "no ANALYZE yet");
    db.run("SELECT idempotency_stats_reset()");
}

/// No figure is counted by looking at all rows; what ANALYZE has found serves.
#[test]
fn records_and_bytes_are_estimated_with_and_without_counters() {
    for db in [Database::fresh(), PRELOADED.database()] {
        let mut session = db.session("client");
        for (operation, count) in [("POST /a", 30), ("POST /b", 10)] {
            for n in 0..count {
                execute(&mut session, claim_by("alice", operation, format!("k{n}")), complete(204));
            }
        }
        assert_eq!(stats(&db, "POST /a")["records"], Value::Null, "nobody has looked yet");
        db.run("ANALYZE idempotency.records");
        let (a, b) = (stats(&db, "POST /a"), stats(&db, "POST /b"));
        assert_eq!((&a["kind"], &a["records"]), (&json!("operation"), &json!(30)));
        assert_eq!(b["records"], 10);
        let whole: i64 = db.value("SELECT pg_total_relation_size('idempotency.records')");
        let bytes = [a, b].map(|row| row["bytes"].as_i64().expect("an estimate"));
        assert!((bytes[0] + bytes[1] - whole).abs() <= 2, "{bytes:?} of {whole}");
        assert_eq!(bytes[0] / 3, bytes[1]);
    }
}

#[test]
fn counters_can_be_switched_off() {
    let cluster =
        preloaded::cluster("counters-off", &["pg_idempotency.max_counted_operations = 0"]);
    let db = cluster.database();
    let mut session = db.session("client");
    execute(&mut session, claim("k"), complete(204));
    let reason: String = db.value("SELECT reason FROM idempotency.counting WHERE NOT is_on");
    assert_eq!(reason, "pg_idempotency.max_counted_operations is 0");
    assert_eq!(db.value::<i64>("SELECT count(*) FROM idempotency.stats"), 0);
    db.run("SELECT idempotency_stats_reset()");
}

// ---- what is counted ---------------------------------------------------------------------------

#[test]
fn answers_are_counted_by_outcome() {
    let db = PRELOADED.database();
    register_orders(&db);
    configure(
        &db,
        json!({"mode": "required", "key_format": "uuidv7", "retention": "1 day", "late_retry": "refuse"}),
    );
    let mut session = db.session("client");
    let key = pg_idempotency_tests::operation::uuid_v7(&db, "0");
    let late = pg_idempotency_tests::operation::uuid_v7(&db, "-2 days");
    let withheld = pg_idempotency_tests::operation::uuid_v7(&db, "1 s");
    let released = pg_idempotency_tests::operation::uuid_v7(&db, "2 s");

    create_order(&mut session, &key);
    session.call(claim(&key)).expect("replayed");
    session.call(replay(&key)).expect("replayed");
    db.run("DELETE FROM orders");
    session.call(replay(&key)).expect("deleted");
    execute(&mut session, claim(&withheld), complete(404).with("withhold", "one_time_secret"));
    session.call(replay(&withheld)).expect("withheld");
    session.call(claim("no uuid")).expect("invalid");
    session.call(claim(&late)).expect("expired");
    session.call(replay(&released)).expect("unknown");
    session.run("BEGIN");
    session.call(claim(&released)).expect("claimed");
    session.run("SELECT idempotency_release(); ROLLBACK");
    session.call(claim_by(None::<String>, ORDERS, &key)).expect("bypassed");
    session.run("BEGIN");
    session.call(claim(&released)).expect("claimed");
    let mut other = db.session("other");
    other.call(claim(&released).with("wait_ms", 0)).expect("in_progress");
    session.call(complete(503)).expect("released");
    session.run("ROLLBACK");

    let expected = [
        "bypassed=1",
        "claimed=4",
        "completed=2",
        "deleted=1",
        "expired=1",
        "in_progress=1",
        "invalid=1",
        "released=2",
        "replayed=2",
        "unknown=1",
        "withheld=1",
    ];
    let row = stats(&db, ORDERS);
    assert_eq!(nonzero(&row), expected);
    assert_eq!(row["errors"], json!({}));
    assert!(row["counted_since"].is_string(), "{row}");
}

#[test]
fn claim_many_counts_every_key_and_mismatches_are_counted() {
    let db = PRELOADED.database();
    let mut session = db.session("client");
    session.run("BEGIN");
    session.rows(claim_many(&["a", "b", "c"]));
    session.run("ROLLBACK");
    execute(&mut session, claim("a").with("fingerprint", [1; 32]), complete(204));
    session.call(claim("a").with("fingerprint", [2; 32])).expect("mismatch");
    assert_eq!(nonzero(&stats(&db, ORDERS)), ["claimed=4", "completed=1", "mismatch=1"]);
}

/// What the caller was told is what is counted.
#[test]
fn a_rollback_takes_nothing_back() {
    let db = PRELOADED.database();
    let mut session = db.session("client");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.call(complete(204)).expect("completed");
    session.run("ROLLBACK");
    assert_eq!(nonzero(&stats(&db, ORDERS)), ["claimed=1", "completed=1"]);
}

#[test]
fn waits_are_counted_however_they_end() {
    let db = PRELOADED.database();
    let (mut holder, mut waiter) = (db.session("holder"), db.session("waiter"));
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    for ends in ["in time", "by a cancel", "by the deadline"] {
        let wait_ms = if ends == "by the deadline" { 50 } else { -1 };
        waiter.run("BEGIN");
        waiter.start(claim("k").with("wait_ms", wait_ms));
        if ends == "by a cancel" {
            db.wait_until_blocked(&waiter, &holder);
            waiter.cancel();
            waiter.finish_refused().expect("57014");
        } else if ends == "by the deadline" {
            waiter.finish_call().expect("in_progress");
        } else {
            db.wait_until_blocked(&waiter, &holder);
            holder.run("ROLLBACK");
            waiter.finish_call().expect("claimed");
            waiter.run("ROLLBACK");
            holder.run("BEGIN");
            holder.call(claim("k")).expect("claimed");
        }
        waiter.run("ROLLBACK");
    }
    let row = stats(&db, ORDERS);
    assert_eq!(nonzero(&row), ["claimed=3", "in_progress=1", "waits=3"]);
    let [waited, longest] =
        ["waited_ms", "longest_wait_ms"].map(|name| row[name].as_f64().expect("milliseconds"));
    assert!(
        (50.0..60_000.0).contains(&longest) && longest < waited && waited <= 3.0 * longest,
        "{row}"
    );
}

/// A claim that does not have to wait, or must not, has not waited.
#[test]
fn who_does_not_wait_is_not_counted_as_a_wait() {
    let db = PRELOADED.database();
    configure(&db, json!({"max_waiters": 0}));
    let (mut holder, mut other) = (db.session("holder"), db.session("other"));
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    other.call(claim("k")).expect("in_progress");
    other.call(claim("k").with("wait_ms", 0)).expect("in_progress");
    assert_eq!(nonzero(&stats(&db, ORDERS)), ["claimed=1", "in_progress=2"]);
}

#[test]
fn errors_are_counted_by_sqlstate_and_operation() {
    let db = PRELOADED.database();
    configure_operation(&db, "POST /no-keys", json!({"mode": "forbidden"}));
    let mut session = db.session("client");
    session.run("BEGIN; CREATE TEMPORARY TABLE written ()");
    session.refused(claim("k")).expect("IK001");
    session.run("ROLLBACK");
    session.refused(complete(204)).expect("IK002");
    session.run("BEGIN; SELECT idempotency_claim('alice', 'POST /orders', 'k'); CREATE TEMPORARY TABLE written ()");
    session.run_refused("COMMIT").expect("IK003");
    session.refused(claim("k").with("wait_ms", -2)).expect("22023");
    session.refused(claim("k").with("wait_ms", -3)).expect("22023");
    session.refused(claim_by("alice", "POST /no-keys", "k")).expect("IK007");
    session.refused("SELECT idempotency_canonicalize('{')").expect("22032");
    let errors = |row: Value| row["errors"].clone();
    assert_eq!(errors(stats(&db, ORDERS)), json!({"IK001": 1, "IK003": 1, "22023": 2}));
    assert_eq!(errors(stats(&db, "POST /no-keys")), json!({"IK007": 1}));
    assert_eq!(errors(stats_of_kind(&db, "none")), json!({"IK002": 1, "22032": 1}));
    assert_eq!(nonzero(&stats_of_kind(&db, "none")), NONE);
}

/// An operation may be called anything, nothing too: that is not the row of calls without one.
#[test]
fn names_of_any_kind_are_counted_apart() {
    let db = PRELOADED.database();
    let mut session = db.session("client");
    let longest = "ü".repeat(127) + "x";
    let as_long = "ü".repeat(127) + "y";
    for operation in ["", &longest, &as_long, &as_long[..254]] {
        session.call(replay_by("alice", operation, "k")).expect("unknown");
    }
    session.refused(replay_by("alice", &(longest.clone() + "x"), "k")).expect("22023");
    let rows: i64 =
        db.value("SELECT count(*) FROM idempotency.stats WHERE unknown = 1 AND kind = 'operation'");
    assert_eq!(rows, 4);
    assert_eq!(nonzero(&stats(&db, &longest)), ["unknown=1"]);
    assert_eq!(stats_of_kind(&db, "none")["errors"], json!({"22023": 1}));
}

#[test]
fn names_come_back_in_the_encoding_of_the_database() {
    let db = PRELOADED.database_with("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'");
    db.run("CREATE EXTENSION pg_idempotency");
    db.run("SELECT idempotency_replay('alice', 'POST /größe', 'k')");
    assert_eq!(nonzero(&stats(&db, "POST /größe")), ["unknown=1"]);
}

/// Counting is atomic: a lost update would show here (tried with a load and a store).
#[test]
fn nothing_is_lost_where_many_count_at_once() {
    const SESSIONS: i64 = 8;
    const CALLS: i64 = 2000;
    let db = PRELOADED.database();
    std::thread::scope(|scope| {
        for n in 0..SESSIONS {
            let mut session = db.session(&format!("client {n}"));
            scope.spawn(move || {
                session.rows(format!(
                    "SELECT (SELECT outcome FROM idempotency_replay('alice', 'POST /orders', 'k' || n)) FROM generate_series(1, {CALLS}) AS n"
                ));
            });
        }
    });
    assert_eq!(nonzero(&stats(&db, ORDERS)), [format!("unknown={}", SESSIONS * CALLS)]);
}

// ---- whose -------------------------------------------------------------------------------------

#[test]
fn databases_are_counted_apart_and_start_anew_by_themselves() {
    let (one, other) = (PRELOADED.database(), PRELOADED.database());
    let (mut here, mut there) = (one.session("here"), other.session("there"));
    here.call(replay("k")).expect("unknown");
    there.call(replay("k")).expect("unknown");
    there.call(replay("k")).expect("unknown");
    assert_eq!(nonzero(&stats(&one, ORDERS)), ["unknown=1"]);
    assert_eq!(nonzero(&stats(&other, ORDERS)), ["unknown=2"]);
    other.run("SELECT idempotency_stats_reset()");
    assert_eq!(stats(&other, ORDERS), Value::Null);
    assert_eq!(nonzero(&stats(&one, ORDERS)), ["unknown=1"]);
    // Sessions that have counted before go on, each with its own.
    there.call(replay("k")).expect("unknown");
    here.call(replay("k")).expect("unknown");
    assert_eq!(nonzero(&stats(&one, ORDERS)), ["unknown=2"]);
    assert_eq!(nonzero(&stats(&other, ORDERS)), ["unknown=1"]);
}

#[test]
fn who_monitors_may_look_and_nobody_else() {
    let db = PRELOADED.database();
    db.run("CREATE ROLE watchman; GRANT pg_monitor TO watchman");
    let mut session = db.session_as(Role::Superuser, "watchman");
    session.run("SET ROLE watchman");
    for view in ["stats", "counting", "automatic_purge"] {
        session.rows(format!("SELECT * FROM idempotency.{view}"));
        for role in [Role::Backend, Role::Outsider] {
            let refusal = db.session_as(role, "other").refused(format!("TABLE idempotency.{view}"));
            refusal.expect("42501");
        }
    }
    session.refused("SELECT idempotency_stats_reset()").expect("42501");
    session.refused("TABLE idempotency.records").expect("42501");
}

// ---- a table that is full ----------------------------------------------------------------------

/// A client that invents names does harm to nobody: the names share one row, no call fails, and
/// what is in the settings still has a place.
#[test]
fn invented_names_do_not_push_out_those_with_settings() {
    let cluster =
        preloaded::cluster("counters-full", &["pg_idempotency.max_counted_operations = 16"]);
    let db = cluster.database();
    let mut hostile = db.session("hostile");
    for n in 0..100 {
        hostile.call(replay_by("alice", &format!("POST /orders/{n}"), "k")).expect("unknown");
    }
    let of = |sql: &str| db.value::<i64>(&format!("SELECT {sql}::bigint FROM idempotency.stats"));
    assert_eq!(of("count(*) FILTER (WHERE kind = 'operation')"), 8, "half of the places");
    assert_eq!(nonzero(&stats_of_kind(&db, "others")), ["unknown=92"]);
    assert_eq!(of("sum(unknown)"), 100, "every call is counted once");

    let mut honest = db.session("honest");
    honest.call(replay("k")).expect("unknown");
    assert_eq!(stats(&db, ORDERS), Value::Null, "it has no settings, and comes too late");
    configure(&db, json!({"wait_ms": 5}));
    honest.call(replay("k")).expect("unknown");
    assert_eq!(nonzero(&stats(&db, ORDERS)), ["unknown=1"]);
    for n in 0..20 {
        configure_operation(&db, &format!("PUT /{n}"), json!({"wait_ms": 5}));
        honest.call(replay_by("alice", &format!("PUT /{n}"), "k")).expect("unknown");
    }
    let full: i32 =
        db.value("SELECT operations FROM idempotency.counting WHERE max_operations = 16");
    assert_eq!(full, 16);
    assert_eq!(of("sum(unknown)"), 122, "every call is counted once");

    // A database that is gone leaves room, and so does a reset.
    let second = cluster.database();
    assert_eq!(second.value::<i64>("SELECT count(*) FROM idempotency.stats"), 1, "the others");
    drop(hostile);
    drop(honest);
    let name = db.name().to_owned();
    drop(db);
    second.run(&format!("DROP DATABASE {name} WITH (FORCE)"));
    second.run("SELECT idempotency_stats_reset()");
    second.session("client").call(replay("k")).expect("unknown");
    let left: Value = second.value("SELECT to_jsonb(c) FROM idempotency.counting AS c");
    assert_eq!(left, json!({"is_on": true, "reason": null, "operations": 1, "max_operations": 16}));
    assert_eq!(nonzero(&stats(&second, ORDERS)), ["unknown=1"]);
    assert_eq!(nonzero(&stats_of_kind(&second, "others")), NONE);
}

// ---- the end of a server -----------------------------------------------------------------------

#[test]
fn a_crash_begins_the_counters_anew() {
    let cluster = preloaded::cluster("counters-crash", &[]);
    let db = cluster.database();
    db.expect_crash();
    let mut session = db.session("client");
    session.call(replay("k")).expect("unknown");
    assert_eq!(nonzero(&stats(&db, ORDERS)), ["unknown=1"]);
    let pid = u32::try_from(session.pid()).expect("a pid is positive");
    assert!(pg_idempotency_tests::process::signal(pid, "KILL"));
    db.reconnect();
    assert_eq!(stats(&db, ORDERS), Value::Null);
    db.session("client").call(replay("k")).expect("unknown");
    assert_eq!(nonzero(&stats(&db, ORDERS)), ["unknown=1"]);
}

/// Calls on a hot standby are counted there.
#[test]
fn a_standby_counts_its_own_calls() {
    let cluster = preloaded::cluster("counters-primary", &[]);
    let db = cluster.database();
    let standby = pg_idempotency_tests::standby::Standby::of(&cluster, "counters-standby");
    standby.catch_up_with(&cluster);
    standby.session(db.name(), "reader").call(replay("k")).expect("unknown");
    let mut watcher = standby.session_as(db.name(), Role::Superuser, "watcher");
    assert_eq!(
        watcher
            .value::<i64>("SELECT unknown FROM idempotency.stats WHERE operation = 'POST /orders'"),
        1
    );
    assert_eq!(stats(&db, ORDERS), Value::Null);
}

/// What is counted can be seen: the view has a column for each outcome that the function tells.
#[test]
fn the_view_shows_every_counter() {
    let db = PRELOADED.database();
    db.session("client").call(replay("k")).expect("unknown");
    let mut session = db.session_as(Role::Superuser, "superuser");
    let names = |rows: Vec<postgres::Row>| rows.iter().map(|row| row.get(0)).collect();
    let counted: Vec<String> = names(session.rows(
        "SELECT DISTINCT jsonb_object_keys(outcomes) COLLATE \"C\" FROM idempotency.counters() ORDER BY 1",
    ));
    let shown: Vec<String> = names(session.rows(
        "SELECT attname::text COLLATE \"C\" FROM pg_attribute WHERE attrelid = 'idempotency.stats'::regclass
             AND attnum > 0 AND atttypid = 'bigint'::regtype AND attname NOT IN ('records', 'bytes', 'waits') ORDER BY 1",
    ));
    assert_eq!(shown, counted);
}

// ---- the lists in the source -------------------------------------------------------------------

/// Every SQLSTATE that the source raises has a counter of its own.
#[test]
fn every_sqlstate_that_we_raise_has_a_counter() {
    let source = pg_idempotency_tests::paths::repository().join("src");
    let names = std::fs::read_to_string(source.join("counters/names.rs")).expect("the names");
    let files = std::fs::read_dir(source.join("error")).expect("the errors");
    let errors: String = files
        .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a source file"))
        .collect();
    let raised =
        errors.split("Self::new(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    let codes: Vec<_> = raised.map(|rest| &rest[..5]).filter(|code| *code != "01000").collect();
    assert!(codes.len() > 20, "{codes:?}");
    let without: Vec<_> =
        codes.iter().filter(|code| !names.contains(&format!("\"{code}\""))).collect();
    assert!(without.is_empty(), "{without:?}");
}
