//! What a hostile owner of a table, a hostile caller and a migration at the wrong moment can do: each
//! case has been a crash of the cluster or a way to somebody else's rights.

use pg_idempotency_tests::lease::lease;
use pg_idempotency_tests::operation::configure_operation;
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A schema of a role that is nobody special, and a resource type registered in it.
fn with_things(table: &str) -> Database<'static> {
    let db = Database::fresh();
    db.run(&format!("DROP ROLE IF EXISTS {0}; CREATE ROLE {0}", owner(&db)));
    db.run(&format!(
        "CREATE SCHEMA h AUTHORIZATION {0}; GRANT USAGE ON SCHEMA h TO PUBLIC; SET ROLE {0}",
        owner(&db)
    ));
    db.run(table);
    db.run("RESET ROLE; SELECT idempotency_register_resource('thing', 'h.things', 'id')");
    configure_operation(&db, "POST /orders", json!({"form": "resource"}));
    db
}

/// Roles belong to the cluster, which other tests share.
fn owner(db: &Database<'_>) -> String {
    format!("owner_of_{}", db.name())
}

fn pointing() -> Call {
    complete(201).with("resource_type", "thing").with("resource_id", "1")
}

/// Catches ids that are converted with the rights of whoever replays.
#[test]
fn the_checks_of_an_ids_domain_run_as_the_tables_owner() {
    let db = with_things(
        "CREATE TABLE h.log (who text, path text);
         CREATE FUNCTION h.is_id(v text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO h.log VALUES (current_user, current_setting('search_path')); RETURN true; END $$;
         CREATE DOMAIN h.id AS text CHECK (h.is_id(VALUE)); CREATE TABLE h.things (id h.id);
         INSERT INTO h.things VALUES ('1')",
    );
    db.run("TRUNCATE h.log");
    let mut session = db.session("session");
    session.begin(Isolation::ReadCommitted);
    session.call(claim("k")).expect("claimed");
    session.call(pointing()).expect("completed");
    session.run("COMMIT");
    db.session_as(Role::Superuser, "superuser").call(replay("k")).expect("replayed");
    let seen: String = db.value("SELECT string_agg(DISTINCT who || ' ' || path, ', ') FROM h.log");
    assert_eq!(seen, format!("{} pg_catalog, pg_temp", owner(&db)));
}

/// Catches functions of an index on our own table that look into the caller's schemas.
#[test]
fn an_index_on_records_does_not_run_the_callers_functions() {
    let db = Database::fresh();
    let app = Role::Backend.name();
    db.run(&format!(
        "CREATE FUNCTION public.norm(t text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
             $$ BEGIN RETURN lower(t); END $$;
         CREATE INDEX ON idempotency.records (public.norm(key));
         CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO {app};
         CREATE TABLE evil.log (who text); GRANT INSERT ON evil.log TO {app};
         CREATE FUNCTION evil.lower(t text) RETURNS text LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO evil.log VALUES (current_user); RETURN t; END $$;"
    ));
    let mut session = db.session("session");
    session.run("SET search_path = evil, pg_catalog, public; BEGIN");
    session.call(claim("k")).expect("claimed");
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    assert_eq!(db.value::<i64>("SELECT count(*) FROM evil.log"), 0);
}

/// Catches look-ups in the catalog of what another session has just dropped: of its column, its type
/// and its row. Each table is the schema's owner's again, or nobody would look that far.
#[test]
fn a_relation_that_comes_and_goes_crashes_nobody() {
    let db = with_things("CREATE TABLE h.things (id text); INSERT INTO h.things VALUES ('1')");
    let mut session = db.session("session");
    session.begin(Isolation::ReadCommitted);
    session.call(claim("k")).expect("claimed");
    session.call(pointing()).expect("completed");
    session.run("COMMIT");
    let (over, seen) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let (over, seen, mut reader) = (&over, &seen, db.session(&format!("reader {n}")));
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    let outcome = reader.call(replay("k")).outcome;
                    // Who cannot tell says so in a warning; here everybody can, at every moment.
                    assert!(reader.take_notices().is_empty(), "{outcome}");
                    seen.lock().expect("nobody panics with it").insert(outcome);
                }
            });
        }
        for n in 0..300 {
            db.run(&format!(
                "SET ROLE {}; DROP TABLE h.things; CREATE TABLE h.things (id text);
                 INSERT INTO h.things SELECT '1' WHERE {}",
                owner(&db),
                n % 2 == 0
            ));
        }
        over.store(true, Relaxed);
    });
    let seen = seen.into_inner().expect("nobody panicked");
    assert_eq!(seen, ["deleted", "replayed"].map(str::to_owned).into());
}

#[test]
fn a_trigger_function_is_no_function() {
    let db = Database::fresh();
    let mut superuser = db.session_as(Role::Superuser, "superuser");
    let refusal =
        superuser.run_refused("SELECT idempotency.settings_changed()").expect_ours("39P01");
    refusal.mentions("only be called as a trigger");
}

/// Catches allocations of a size that the caller chooses, which end the process where memory is short.
#[test]
fn sizes_are_looked_at_before_anything_is_allocated() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for (call, detail) in [
        (
            "idempotency_fingerprint('POST', '/', exclude => array_fill(NULL::text, ARRAY[5000000]))",
            "5000000",
        ),
        ("idempotency_claim_many('s', 'o', array_fill(NULL::text, ARRAY[5000000]))", "5000000"),
        (
            "idempotency_claim_many('s', 'o', '{a}', array_fill(NULL::bytea, ARRAY[5000000]))",
            "5000000",
        ),
        ("idempotency_parse_key('\"' || repeat('a', 50000000) || '\"')", "too long"),
    ] {
        session.run_refused(&format!("SELECT {call}")).expect_ours("22023").mentions(detail);
    }
    assert_eq!(session.call(claim(format!("\"{}\"", "a".repeat(5_000_000)))).outcome, "invalid");
}

#[test]
fn numbers_at_the_end_of_their_range() {
    let db = Database::fresh();
    let mut superuser = db.session_as(Role::Superuser, "superuser");
    superuser.run("SELECT idempotency_configure('x', '{\"kept_statuses\": \"{(,-2147483648)}\"}')");
    for (call, what) in [
        ("idempotency_complete(200, headers => '{\"X\": 1e400}')", "headers cannot be read"),
        (
            "idempotency_complete(200, headers => (SELECT jsonb_object_agg(n, ('1e' || 131000 - n)::numeric)
             FROM generate_series(1, 1500) n))",
            "more than 65536 digits",
        ),
        ("idempotency_configure('x', '{\"wait_ms\": 1e400}')", "settings cannot be read"),
        (
            "idempotency_configure('x', '{\"replay_header\": \"Content-Type\"}')",
            "means nothing else",
        ),
        (
            "idempotency_register_resource('t', 'pg_class_oid_index', 'oid')",
            "Pass a table or a view",
        ),
    ] {
        superuser.run_refused(&format!("SELECT {call}")).expect_ours("22023").mentions(what);
    }
}

/// Catches a look-up by a name that somebody else can take: a schema is renamed without a lock on
/// its tables, and the view that takes their place would run as their owner.
#[test]
fn a_schema_of_another_role_is_not_trusted() {
    let db = with_things("CREATE TABLE h.things (id text); INSERT INTO h.things VALUES ('1')");
    let mut session = db.session("session");
    session.begin(Isolation::ReadCommitted);
    session.call(claim("k")).expect("claimed");
    session.call(pointing()).expect("completed");
    session.run("COMMIT");
    db.run(&format!("CREATE ROLE other_{}; ALTER SCHEMA h OWNER TO other_{0}", db.name()));
    db.run("TRUNCATE h.things");
    session.call(replay("k")).expect("replayed");
    session.begin(Isolation::ReadCommitted);
    session.call(claim("k2")).expect("claimed");
    session.refused(pointing()).expect_ours("IK006").mentions("belongs to another role");
}

/// Catches a query that finds its relation by name a second time, when another one has the name: the
/// schema is renamed while the id is read, which a domain's check makes wait.
#[test]
fn a_schema_renamed_meanwhile_leads_to_the_relation_that_has_the_name() {
    let db = with_things(
        "CREATE FUNCTION h.is_id(v text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_catalog.pg_advisory_xact_lock_shared(7); RETURN true; END $$;
         CREATE DOMAIN h.id AS text CHECK (h.is_id(VALUE)); CREATE TABLE h.things (id h.id);
         INSERT INTO h.things VALUES ('1')",
    );
    let mut session = db.session("session");
    session.begin(Isolation::ReadCommitted);
    session.call(claim("k")).expect("claimed");
    session.call(pointing()).expect("completed");
    session.run("COMMIT");
    let heir = format!("heir_{}", db.name());
    db.run(&format!(
        "CREATE ROLE {heir}; CREATE SCHEMA later AUTHORIZATION {heir}; GRANT USAGE ON SCHEMA later TO PUBLIC;
         CREATE TABLE later.log (who text); GRANT INSERT ON later.log TO PUBLIC;
         CREATE FUNCTION later.ids(regclass) RETURNS SETOF text LANGUAGE plpgsql SET search_path = h AS
             $$ BEGIN INSERT INTO log VALUES (current_user); RETURN NEXT '1'; END $$;
         CREATE VIEW later.things AS SELECT id FROM later.ids('h.things') AS id; GRANT SELECT ON later.things TO PUBLIC;
         ALTER VIEW later.things OWNER TO {heir}"
    ));
    let mut holder = db.session_as(Role::Superuser, "holder");
    holder.run("BEGIN; SELECT pg_advisory_xact_lock(7)");
    session.start(replay("k"));
    db.wait_until_blocked(&session, &holder);
    db.run("BEGIN; ALTER SCHEMA h RENAME TO earlier; ALTER SCHEMA later RENAME TO h; COMMIT");
    holder.run("COMMIT");
    session.finish_call().expect("replayed");
    assert_eq!(db.value::<String>("SELECT string_agg(who, ', ') FROM h.log"), heir);
}

#[test]
fn a_table_without_its_primary_key_is_an_error() {
    let db = Database::fresh();
    db.run("ALTER TABLE idempotency.records DROP CONSTRAINT records_pkey");
    let refusal = db.session("session").refused(claim("k")).expect_ours("55000");
    refusal.mentions("not as expected");
    // Another one would never find a record, and so execute everything again.
    db.run("ALTER TABLE idempotency.records ADD PRIMARY KEY (token)");
    let refusal = db.session("session").refused(claim("k")).expect_ours("55000");
    refusal.mentions("not as expected");
}

/// Catches tables that the way past the executor does not know.
#[test]
fn a_table_of_another_kind_is_an_error() {
    for kind in [
        "CREATE TABLE idempotency.records (LIKE idempotency.old INCLUDING ALL) PARTITION BY HASH (digest)",
        "CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler;
         CREATE TABLE idempotency.records (LIKE idempotency.old INCLUDING ALL) USING heap2",
    ] {
        let db = Database::fresh();
        db.run("ALTER TABLE idempotency.records RENAME TO old");
        db.run(kind);
        let mut session = db.session("session");
        session.refused(claim("k")).expect_ours("55000").mentions("kind");
        assert_eq!(db.records(), 0);
    }
}

/// Catches records that a crash empties, while the effects of their requests stay.
#[test]
fn an_unlogged_table_is_an_error() {
    for table in ["records", "leases", "operations"] {
        let db = Database::fresh();
        let mut session = db.session("session");
        session.call(lease("k1")).expect("claimed");
        db.run(&format!("ALTER TABLE idempotency.{table} SET UNLOGGED"));
        session.refused(lease("k2")).expect_ours("55000").mentions(table);
        db.run(&format!("ALTER TABLE idempotency.{table} SET LOGGED"));
        session.call(lease("k2")).expect("claimed");
    }
}

/// Catches a session that goes on with a table that it once found by its name.
#[test]
fn a_table_that_has_lost_its_name_is_not_written_to() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(claim("k")).expect("claimed");
    for (away, back) in [
        (
            "ALTER TABLE idempotency.records RENAME TO old",
            "ALTER TABLE idempotency.old RENAME TO records",
        ),
        ("ALTER SCHEMA idempotency RENAME TO old", "ALTER SCHEMA old RENAME TO idempotency"),
        (
            "ALTER TABLE idempotency.records ALTER withheld TYPE varchar",
            "ALTER TABLE idempotency.records ALTER withheld TYPE text COLLATE \"C\"",
        ),
    ] {
        db.run(away);
        session.refused(claim("k")).expect_ours("55000");
        db.run(back);
        session.call(claim("k")).expect("claimed");
    }
}
