//! A stranger who was there first: whatever he left in the schema of the extension, nothing of it runs when the
//! extension is created, restored and used.

use pg_idempotency_tests::moves;
use pg_idempotency_tests::preloaded;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::squat::{connect, seen_since, squat};
use pg_idempotency_tests::{paths, wait};
use postgres::Client;
use std::sync::LazyLock;

static PURGED: LazyLock<Cluster> = LazyLock::new(|| {
    preloaded::cluster(
        "squatting",
        &["pg_idempotency.purge_interval = 1s", "max_locks_per_transaction = 1000"],
    )
});

/// How the stranger came by the right to create.
#[derive(Clone, Copy, PartialEq)]
enum Stranger {
    /// He was granted CREATE on the schema public.
    Creator,
    /// The database is his, and its search path is what he likes.
    Owner,
}

/// A new database on which a stranger has squatted; his name.
fn squatted(stranger: Stranger) -> (Database<'static>, String) {
    let db = PURGED.database_with("TEMPLATE template0");
    let role = format!("squatter_of_{}", db.name());
    db.run(&format!("CREATE ROLE {role} LOGIN"));
    match stranger {
        Stranger::Creator => db.run(&format!("GRANT CREATE ON SCHEMA public TO {role}")),
        Stranger::Owner => db.run(&format!("ALTER DATABASE {} OWNER TO {role}", db.name())),
    }
    squat(db.server(), &role, db.name());
    if stranger == Stranger::Owner {
        let path = format!("ALTER DATABASE {} SET search_path = public, pg_catalog", db.name());
        connect(db.server(), &role, db.name()).batch_execute(&path).expect("his own database");
    }
    (db, role)
}

/// What a superuser does who has the extension and uses all of it; each function's name is in it.
const USE: [&str; 29] = [
    "CREATE TABLE public.orders (id pg_catalog.int8 PRIMARY KEY)",
    "SELECT public.idempotency_configure('POST /orders', '{\"form\": \"resource\", \"completion_check\": \"app.agrees\"}')",
    "SELECT public.idempotency_register_resource('order', 'public.orders', 'id')",
    "SELECT public.idempotency_grant('pg_monitor')",
    "BEGIN",
    "SELECT * FROM public.idempotency_claim('alice', 'POST /orders', 'k', public.idempotency_fingerprint('POST', '/', '{}'))",
    "INSERT INTO public.orders VALUES (1)",
    "SELECT * FROM public.idempotency_complete(201, resource_type => 'order', resource_id => '1')",
    "COMMIT",
    "SELECT * FROM public.idempotency_replay('alice', 'POST /orders', 'k')",
    "SELECT public.idempotency_configure('POST /expires', '{\"retention\": \"1 microsecond\"}')",
    "BEGIN",
    "SELECT * FROM public.idempotency_claim_many('alice', 'POST /expires', '{l}')",
    "SELECT * FROM public.idempotency_complete(204)",
    "COMMIT",
    "SELECT * FROM public.idempotency_claim('alice', 'POST /slow', 'm', lease_ms => 100000, token => '00000000-0000-7000-8000-000000000001')",
    "SELECT * FROM public.idempotency_resume('00000000-0000-7000-8000-000000000001')",
    "SELECT * FROM public.idempotency_checkpoint('00000000-0000-7000-8000-000000000001', 'charged', '{}')",
    "SELECT * FROM public.idempotency_extend('00000000-0000-7000-8000-000000000001', 100000)",
    "SELECT public.idempotency_release('00000000-0000-7000-8000-000000000001')",
    "SELECT * FROM public.idempotency_claim('alice', 'POST /slow', 'n', lease_ms => 1)",
    "SELECT * FROM public.idempotency_abandoned()",
    "SELECT * FROM public.idempotency_settle('alice', 'POST /slow', 'n')",
    "ANALYZE idempotency.records",
    "SELECT public.idempotency_canonicalize('{}'), public.idempotency_parse_key('k'), public.idempotency_key_lock('s', 'o', 'k')",
    "SELECT public.idempotency_purge()",
    "SELECT public.idempotency_forget('bob')",
    "SELECT public.idempotency_stats_reset()",
    "SELECT * FROM idempotency.counters(), idempotency.counting(), idempotency.automatic_purge()",
];

/// A check of a database's own, which nobody can take for another.
const CHECK: &str = "CREATE SCHEMA app; CREATE FUNCTION app.agrees(pg_catalog.text, pg_catalog.text, pg_catalog.int4)
    RETURNS pg_catalog.bool LANGUAGE sql AS 'SELECT true'";

/// Runs every function of the extension, and every view and every query for Prometheus as those who look at them.
fn use_everything(db: &Database<'_>) {
    let mut superuser = db.server().connect(Role::Superuser, db.name());
    superuser.batch_execute(CHECK).expect("a check");
    for statement in USE {
        if statement.contains("idempotency_settle") {
            wait_for_an_abandoned_lease(db);
        }
        run(&mut superuser, statement);
    }
    let monitor = format!("monitor_of_{}", db.name());
    run(&mut superuser, &format!("CREATE ROLE {monitor} LOGIN IN ROLE pg_monitor"));
    for view in ["stats", "counting", "automatic_purge", "in_progress", "abandoned"] {
        run(&mut superuser, &format!("SELECT * FROM idempotency.{view}"));
    }
    let mut config = db.server().config(Role::Superuser, db.name());
    let mut monitor =
        config.user(&monitor).connect(postgres::NoTls).expect("a role that may log in");
    for view in ["stats", "counting", "automatic_purge"] {
        run(&mut monitor, &format!("SELECT * FROM idempotency.{view}"));
    }
    for query in queries() {
        run(&mut superuser, &query);
        run(&mut monitor, &query);
    }
}

fn run(client: &mut Client, statement: &str) {
    client.batch_execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

/// The queries of `contrib/prometheus/queries.yaml`.
fn queries() -> Vec<String> {
    let file = paths::repository().join("contrib/prometheus/queries.yaml");
    let file = std::fs::read_to_string(file).expect("the queries");
    let queries = file.split("  query: |\n").skip(1);
    queries.map(|rest| rest.split("  metrics:").next().expect("a query").to_owned()).collect()
}

fn wait_for_an_abandoned_lease(db: &Database<'_>) {
    let mut looker = connect(db.server(), "postgres", db.name());
    wait::until("a lease that has run out", || {
        let abandoned = looker.query("SELECT FROM idempotency.abandoned", &[]).expect("the view");
        (!abandoned.is_empty()).then_some(())
    });
}

/// Waits until automatic purge has been in the database once more.
fn wait_for_a_round(db: &Database<'_>) {
    let mut looker = connect(db.server(), "postgres", db.name());
    let now: String = looker.query_one("SELECT clock_timestamp()::text", &[]).expect("now").get(0);
    // Other tests make databases in this server meanwhile.
    let databases = "SELECT string_agg(datname, ', ') FROM pg_database WHERE datname LIKE 'test_%'";
    let finished = format!(
        "SELECT coalesce(last_finished_at > '{now}', false) FROM idempotency.automatic_purge()"
    );
    wait::until("a round of automatic purge", || {
        let list: String = looker.query_one(databases, &[]).expect("a list").get(0);
        run(&mut looker, &format!("ALTER SYSTEM SET pg_idempotency.purge_databases = '{list}'"));
        run(&mut looker, "SELECT pg_reload_conf()");
        looker.query_one(&finished, &[]).expect("its state").get::<_, bool>(0).then_some(())
    });
}

#[track_caller]
fn assert_nothing_ran(db: &Database<'_>, start: usize) {
    let seen = seen_since(db.server(), db.name(), start);
    assert!(seen.is_empty(), "{seen:#?}");
}

fn nothing_runs(stranger: Stranger) {
    let (db, _) = squatted(stranger);
    let start = db.server().log_length();
    run(
        &mut db.server().connect(Role::Superuser, db.name()),
        "CREATE EXTENSION pg_idempotency SCHEMA public",
    );
    use_everything(&db);
    wait_for_a_round(&db);
    assert_nothing_ran(&db, start);
}

/// Catches three operators of the views that a better match replaced, and made whoever left it superuser.
#[test]
fn nothing_of_a_creators_runs() {
    nothing_runs(Stranger::Creator);
}

#[test]
fn nothing_of_the_databases_owner_runs() {
    nothing_runs(Stranger::Owner);
}

/// A dump creates the extension anew where it is restored.
#[test]
fn nothing_runs_after_a_restore() {
    let from = PURGED.database();
    from.run(
        "BEGIN; SELECT idempotency_claim('alice', 'POST /old', 'k'); SELECT idempotency_complete(204); COMMIT;
         DROP TABLE public.orders",
    );
    for stranger in [Stranger::Creator, Stranger::Owner] {
        let (db, _) = squatted(stranger);
        let start = db.server().log_length();
        moves::copy(&from, &db, "custom");
        use_everything(&db);
        wait_for_a_round(&db);
        assert_nothing_ran(&db, start);
    }
}

/// The witness: a superuser who looks things up carelessly does run what was left there. Without it the tests
/// above would pass where nothing was left.
#[test]
fn the_stranger_is_no_straw_man() {
    let (db, _) = squatted(Stranger::Owner);
    let start = db.server().log_length();
    let mut superuser = db.server().connect(Role::Superuser, db.name());
    for careless in [
        "SELECT 1 FROM pg_catalog.pg_class WHERE reltuples >= 0",
        "SELECT pg_catalog.pg_table_size(oid) * '1'::float4 FROM pg_catalog.pg_class LIMIT 1",
        "SELECT 1 FROM pg_catalog.pg_class WHERE oid = 'pg_catalog.pg_class'::pg_catalog.regclass",
        "SELECT clock_timestamp()",
        "SELECT 1 FROM pg_locks",
    ] {
        let before = seen_since(db.server(), db.name(), start).len();
        let _null_or_an_error = superuser.batch_execute(careless);
        assert!(
            seen_since(db.server(), db.name(), start).len() > before,
            "{careless} runs nothing"
        );
    }
}

/// Every function is used above.
#[test]
fn no_function_is_left_out() {
    let db = Database::fresh();
    let functions: String = db.value(
        "SELECT string_agg(DISTINCT p.proname, ' ') FROM pg_proc AS p
         JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
         JOIN pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'pg_idempotency'
         WHERE p.prorettype <> 'trigger'::regtype",
    );
    let unused: Vec<_> = functions
        .split(' ')
        .filter(|name| !USE.iter().any(|used| used.contains(&format!("{name}("))))
        .collect();
    assert!(unused.is_empty(), "{unused:?}");
}

// ---- names of ours -------------------------------------------------------------------------------

/// What is there already, and bears a name of the extension's, is never taken for the extension's own.
#[test]
fn an_object_with_one_of_our_names_is_not_adopted() {
    for (there, code) in [
        ("CREATE SCHEMA idempotency", "42P06"),
        ("CREATE TYPE public.idempotency_outcome AS (outcome text)", "42710"),
        ("CREATE TABLE public.idempotency_outcome (outcome text)", "42710"),
        (
            "CREATE FUNCTION public.idempotency_purge(integer) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
            "42723",
        ),
        // With other arguments it would match a call better than ours does, which has defaults.
        (
            "CREATE FUNCTION public.idempotency_claim(text, text, text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
            "42723",
        ),
    ] {
        let db = Cluster::shared().database_with("TEMPLATE template0");
        db.run(there);
        let mut superuser = db.session_as(Role::Superuser, "superuser");
        superuser.run_refused("CREATE EXTENSION pg_idempotency").expect(code);
        assert_eq!(
            db.value::<i64>("SELECT count(*) FROM pg_extension WHERE extname = 'pg_idempotency'"),
            0
        );
    }
}
