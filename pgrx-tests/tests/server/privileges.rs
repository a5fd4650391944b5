//! What a backend's role can do, what nobody else can, and search paths full of traps.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

/// Every function that reads or writes records.
fn calls() -> [Call; 5] {
    [claim("k"), claim_many(&["k"]), complete(204), release(), replay("k")]
}

#[test]
fn a_granted_role_can_do_all_of_it() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let sent =
        shop::create_order(&mut session, Isolation::ReadCommitted, "k").expect("it succeeds");
    assert_eq!(session.call(claim("k")).expect("replayed").answer(), sent.answer());
    assert_eq!(session.call(replay("k")).expect("replayed").answer(), sent.answer());
    session.run("BEGIN");
    assert_eq!(session.rows(claim_many(&["l", "m"])).len(), 2);
    session.run("ROLLBACK; BEGIN");
    session.call(claim("l")).expect("claimed");
    session.rows(release());
    session.run("COMMIT");
}

#[test]
fn a_granted_role_cannot_touch_the_tables() {
    let db = Database::fresh();
    let mut session = db.session("session");
    shop::create_order(&mut session, Isolation::ReadCommitted, "k").expect("it succeeds");
    for statement in [
        "SELECT * FROM idempotency.records",
        "SELECT count(*) FROM idempotency.records",
        "INSERT INTO idempotency.records SELECT * FROM idempotency.records",
        "UPDATE idempotency.records SET status = 500",
        "DELETE FROM idempotency.records",
        "TRUNCATE idempotency.records",
        "DO $$ BEGIN LOCK TABLE idempotency.records; END $$",
        "COPY idempotency.records TO STDOUT",
        "CREATE TABLE idempotency.mine (x int)",
        "ALTER TABLE idempotency.records ADD COLUMN x int",
        "CREATE TRIGGER t BEFORE INSERT ON idempotency.records EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ] {
        session.run_refused(statement).expect("42501");
    }
    let rights = "SELECT count(*) FROM information_schema.table_privileges
                  WHERE table_schema = 'idempotency' AND grantee IN ('backend', 'PUBLIC')";
    assert_eq!(db.value::<i64>(rights), 0);
}

#[test]
fn a_role_with_nothing_can_do_none_of_it() {
    let db = Database::fresh();
    let mut session = db.session_as(Role::Outsider, "session");
    for call in calls() {
        session.refused(call).expect("42501");
    }
    session.refused("SELECT * FROM idempotency.records").expect("42501");
    session.refused("SELECT idempotency_grant('outsider')").expect("42501");
}

#[test]
fn only_the_owner_grants() {
    let db = Database::fresh();
    db.session("session").refused("SELECT idempotency_grant('outsider')").expect("42501");
    db.run("SELECT idempotency_grant('outsider')");
    let mut session = db.session_as(Role::Outsider, "session");
    session.call(claim("k")).expect("claimed");
    session.refused("SELECT * FROM idempotency.records").expect("42501");
    session.refused("SELECT idempotency_grant('outsider')").expect("42501");
}

#[test]
fn a_grant_takes_any_role_name_and_no_injection() {
    let db = Database::fresh();
    let name = db.name();
    db.run(&format!("CREATE ROLE \"we\"\"ird; --{name}\""));
    db.run(&format!("SELECT idempotency_grant('we\"ird; --{name}')"));
    db.run(&format!("SET ROLE \"we\"\"ird; --{name}\""));
    db.run("BEGIN; SELECT * FROM idempotency_claim('a', 'b', 'c'); ROLLBACK; RESET ROLE");
    let mut superuser = db.session_as(Role::Superuser, "superuser");
    superuser.refused("SELECT idempotency_grant('nobody at all')").expect("42704");
}

/// A role that has lost its grant has lost it, cached plans or not.
#[test]
fn a_revoked_role_is_refused() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(claim("k")).expect("claimed");
    db.run(
        "DO $$ DECLARE f regprocedure; BEGIN
        FOR f IN SELECT oid FROM pg_proc WHERE proname LIKE 'idempotency\\_%' LOOP
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM backend', f);
        END LOOP; END $$",
    );
    for call in calls() {
        session.refused(call).expect("42501");
    }
}

/// The tables are reached as their owner, and the caller is itself again afterwards: after an
/// answer, after an error inside, and after a savepoint that caught it.
#[test]
fn the_caller_stays_the_caller() {
    let db = Database::fresh();
    db.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN IF NEW.status = 418 THEN RAISE 'no'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON idempotency.records
             FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    assert_is_backend(&mut session);
    session.refused_inside_savepoint(complete(418), "P0001");
    assert_is_backend(&mut session);
    session.run(
        "DO $$ BEGIN PERFORM idempotency_complete(418); EXCEPTION WHEN raise_exception THEN END $$",
    );
    assert_is_backend(&mut session);
    session.call(complete(204)).expect("completed");
    session.run("COMMIT; BEGIN");
    session.call(replay("k")).expect("replayed");
    assert_is_backend(&mut session);
}

fn assert_is_backend(session: &mut Session) {
    assert_eq!(
        session.value::<String>("SELECT concat_ws(' ', session_user, current_user)"),
        "backend backend"
    );
    session.refused_inside_savepoint("SELECT * FROM idempotency.records", "42501");
}

/// Inside a SECURITY DEFINER function of somebody else's the caller is that somebody.
#[test]
fn a_definer_function_may_claim_for_a_role_with_nothing() {
    let db = Database::fresh();
    db.run(
        "CREATE FUNCTION place(key text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
         BEGIN
             IF (idempotency_claim('alice', 'POST /orders', key)).outcome <> 'claimed' THEN RETURN 'again'; END IF;
             INSERT INTO orders (key) VALUES (place.key);
             PERFORM idempotency_complete(201);
             RETURN 'placed';
         END $$;
         ALTER FUNCTION place OWNER TO backend",
    );
    let mut session = db.session_as(Role::Outsider, "session");
    assert_eq!(session.value::<String>("SELECT place('k')"), "placed");
    assert_eq!(session.value::<String>("SELECT place('k')"), "again");
    assert_eq!(db.orders("k"), 1);
}

// ---- hostile search paths ------------------------------------------------------------------

/// Functions, operators, casts, tables and types under the names that an extension might use
/// without their schema. Every one of them fails loudly when it is used.
const TRAPS: &str = "
    CREATE SCHEMA trap; GRANT ALL ON SCHEMA trap TO PUBLIC; SET LOCAL search_path = trap, pg_catalog;
    CREATE FUNCTION sprung() RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'a trap was sprung by %', current_user USING ERRCODE = 'TRAP0'; END $$;
    CREATE FUNCTION same(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN trap.sprung(); END $$;
    CREATE FUNCTION same(uuid, uuid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN trap.sprung(); END $$;
    CREATE FUNCTION same(bytea, bytea) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN trap.sprung(); END $$;
    CREATE FUNCTION same(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN trap.sprung(); END $$;
    CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = same);
    CREATE OPERATOR <> (LEFTARG = text, RIGHTARG = text, FUNCTION = same);
    CREATE OPERATOR = (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = same);
    CREATE OPERATOR = (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = same);
    CREATE OPERATOR <= (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = same);
    CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION length(bytea) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION octet_length(bytea) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION hashtextextended(text, bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION current_setting(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION gen_random_uuid() RETURNS uuid LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION to_jsonb(anyelement) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE FUNCTION jsonb_trap(jsonb) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN PERFORM trap.sprung(); END $$;
    CREATE CAST (jsonb AS bytea) WITH FUNCTION jsonb_trap(jsonb) AS IMPLICIT;
    CREATE TYPE idempotency_outcome AS (trapped int);
    CREATE TYPE uuid AS (trapped int);
    CREATE TYPE jsonb AS (trapped int);
    CREATE TABLE records (trapped int);
    CREATE TABLE pg_class (trapped int);
    CREATE TABLE pg_proc (trapped int);
    CREATE TABLE pg_extension (trapped int);
    CREATE TABLE pg_namespace (trapped int);
    CREATE TABLE pg_depend (trapped int);
    SET LOCAL search_path = DEFAULT;";

/// Calls with their schema: the caller's own names are found whatever the path.
const CLAIM: &str =
    "SELECT * FROM public.idempotency_claim('alice', 'POST /orders', 'k', fingerprint =>
    '\\x0101010101010101010101010101010101010101010101010101010101010101')";
const COMPLETE: &str = "SELECT * FROM public.idempotency_complete(201, body_json => '{\"a\": 1}', headers => '{\"X\": \"y\"}')";

/// The whole story; the first statement of the session already has the path, so no plan was made
/// before it.
fn assert_nothing_changes(session: &mut Session, path: &str) {
    session.run(path);
    session.run("BEGIN");
    Outcome::only(&session.rows(CLAIM)).expect("claimed");
    session.run("INSERT INTO public.orders (key) VALUES ('k')");
    let sent = Outcome::only(&session.rows(COMPLETE)).expect("completed");
    session.run("COMMIT");
    assert_eq!(Outcome::only(&session.rows(CLAIM)).expect("replayed").answer(), sent.answer());
    let replay = "SELECT * FROM public.idempotency_replay('alice', 'POST /orders', 'k')";
    assert_eq!(Outcome::only(&session.rows(replay)).expect("replayed").answer(), sent.answer());
    session.run("BEGIN");
    let many = "SELECT * FROM public.idempotency_claim_many('alice', 'POST /orders', '{n,m}')";
    assert_eq!(session.rows(many).len(), 2);
    session.run("ROLLBACK");
}

#[test]
fn a_hostile_search_path_changes_nothing_for_a_backend() {
    let db = Database::fresh();
    db.run(&format!("BEGIN; {TRAPS} COMMIT"));
    assert_nothing_changes(
        &mut db.session("session"),
        "SET search_path = trap, pg_catalog, public",
    );
    assert_eq!((db.orders("k"), db.records()), (1, 1));
}

/// For a superuser a sprung trap would be a gift of all rights.
#[test]
fn a_hostile_search_path_changes_nothing_for_a_superuser() {
    let db = Database::fresh();
    db.run(&format!("BEGIN; {TRAPS} COMMIT"));
    let mut session = db.session_as(Role::Superuser, "session");
    assert_nothing_changes(&mut session, "SET search_path = trap, pg_catalog, public");
    session.run("SELECT public.idempotency_grant('outsider')");
}

#[test]
fn the_traps_work() {
    let db = Database::fresh();
    db.run(&format!("BEGIN; {TRAPS} COMMIT"));
    let mut session = db.session("session");
    session.run("SET search_path = trap, pg_catalog, public");
    session.refused("SELECT 'a'::text = 'b'::text").expect("TRAP0");
}

#[test]
fn temporary_tables_of_the_same_names_change_nothing() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let tables =
        ["records", "operations", "pg_class", "pg_proc", "pg_extension", "pg_depend", "orders"];
    let script = tables.map(|name| format!("CREATE TEMP TABLE {name} (trapped int);")).concat();
    assert_nothing_changes(
        &mut session,
        &format!("{script} SET search_path = pg_temp, pg_catalog, public"),
    );
}

#[test]
fn an_empty_search_path_changes_nothing() {
    let db = Database::fresh();
    assert_nothing_changes(&mut db.session("session"), "SET search_path = ''");
}

/// A path that changes within the session does not meet plans made under another one.
#[test]
fn a_search_path_changed_in_between_changes_nothing() {
    let db = Database::fresh();
    db.run(&format!("BEGIN; {TRAPS} COMMIT"));
    let mut session = db.session("session");
    shop::create_order(&mut session, Isolation::ReadCommitted, "before").expect("it succeeds");
    assert_nothing_changes(&mut session, "SET search_path = trap, pg_catalog, public");
}
