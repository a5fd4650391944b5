//! `completion_check`: a function of the user's that has to agree before a success is kept.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use serde_json::json;

/// Makes `app.check(scope text, operation text, status integer)` with this PL/pgSQL body the check of
/// `POST /orders`.
#[track_caller]
fn check_with(db: &Database<'_>, body: &str) {
    db.run(&format!(
        "CREATE SCHEMA IF NOT EXISTS app; GRANT USAGE ON SCHEMA app TO backend;
         CREATE OR REPLACE FUNCTION app.check(scope text, operation text, status integer) RETURNS boolean
             LANGUAGE plpgsql AS $check$ BEGIN {body} END $check$"
    ));
    configure(db, json!({"completion_check": "app.check"}));
}

const SAYS: [&str; 3] = [
    "answer refused",
    "The completion check app.check did not agree.",
    "Roll the transaction back",
];

#[test]
fn a_success_is_kept_where_the_check_agrees() {
    let db = Database::fresh();
    check_with(&db, "RETURN true;");
    let mut session = db.session("session");
    let sent =
        execute(&mut session, claim("k"), complete(201).with("body", "x")).expect("completed");
    assert_eq!(session.call(claim("k")).expect("replayed").answer(), sent.answer());
}

#[test]
fn false_and_null_refuse_the_answer_and_its_effect() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for answer in ["false", "NULL"] {
        check_with(&db, &format!("RETURN {answer};"));
        for status in [200, 204, 299] {
            let refusal = execute_refused(&db, &mut session, claim("k"), complete(status));
            assert_says(refusal, "IK006", SAYS);
        }
    }
    session.call(claim("k")).expect("claimed");
}

#[test]
fn only_a_success_that_would_be_kept_is_checked() {
    let db = Database::fresh();
    check_with(&db, "RAISE 'called';");
    let mut session = db.session("session");
    for status in [302, 400, 404] {
        execute(&mut session, claim(status.to_string()), complete(status)).expect("completed");
    }
    execute(&mut session, claim("503"), complete(503)).expect("released");
    configure(&db, json!({"kept_statuses": "{[400,500)}"}));
    execute(&mut session, claim("200"), complete(200)).expect("released");
    session.run("BEGIN");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.call(complete(200)).expect("bypassed");
    session.run("COMMIT");
    configure(&db, json!({"kept_statuses": null}));
    execute_withheld(&mut session);
    assert_eq!(db.records(), 3);
}

/// A withheld answer is recorded as finished, so it is checked as well.
#[track_caller]
fn execute_withheld(session: &mut Session) {
    session.run("BEGIN");
    session.call(claim("secret")).expect("claimed");
    session.refused(complete(201).with("withhold", "one_time_secret")).expect("P0001");
    session.run("ROLLBACK");
}

/// In the caller's transaction, as the caller, by a search path that the caller did not choose, with the scope, the operation (not the key space)
/// and the status; it sees what the transaction has written.
#[test]
fn the_check_is_called_as_the_caller_in_its_transaction() {
    let db = Database::fresh();
    check_with(
        &db,
        "INSERT INTO public.orders (key, note)
         VALUES ('seen', concat_ws('|', scope, operation, status, session_user, current_user, current_setting('search_path'),
                 (SELECT count(*) FROM public.orders o WHERE o.key = 'work')));
         RETURN true;",
    );
    configure(&db, json!({"key_space": "trade"}));
    let mut session = db.session("session");
    session.run("SET search_path = app, public; BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('work')");
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    let seen: String = db.value("SELECT note FROM orders WHERE key = 'seen'");
    assert_eq!(seen, "alice|POST /orders|201|backend|backend|pg_catalog, pg_temp|1");
}

#[test]
fn a_check_that_the_caller_may_not_call_is_an_error() {
    let db = Database::fresh();
    check_with(&db, "RETURN true;");
    db.run("REVOKE ALL ON FUNCTION app.check FROM PUBLIC");
    let mut session = db.session("session");
    execute_refused(&db, &mut session, claim("k"), complete(201)).expect("42501");
}

/// Every field as the check raised it.
#[test]
fn an_error_of_the_check_is_passed_unchanged() {
    let db = Database::fresh();
    check_with(
        &db,
        "RAISE EXCEPTION 'Not proven.' USING ERRCODE = 'AB123', DETAIL = 'no entry', HINT = 'write one',
             COLUMN = 'c', CONSTRAINT = 'k', DATATYPE = 'd', TABLE = 't', SCHEMA = 's';",
    );
    let mut session = db.session("session");
    let refusal = execute_refused(&db, &mut session, claim("k"), complete(201)).expect("AB123");
    let error = refusal.db();
    assert_eq!((error.severity(), error.message()), ("ERROR", "Not proven."));
    assert_eq!((error.detail(), error.hint()), (Some("no entry"), Some("write one")));
    assert_eq!((error.schema(), error.table(), error.column()), (Some("s"), Some("t"), Some("c")));
    assert_eq!((error.constraint(), error.datatype()), (Some("k"), Some("d")));
    assert!(
        error.where_().is_some_and(|context| context.contains("line 1 at RAISE")),
        "{refusal:?}"
    );
    for code in ["40P01", "40001", "IK006", "22012"] {
        check_with(&db, &format!("RAISE 'x' USING ERRCODE = '{code}';"));
        execute_refused(&db, &mut session, claim("k"), complete(201)).expect(code);
    }
}

/// The unit can go on from a savepoint before the completion, prove what was missing, and complete.
#[test]
fn a_refused_answer_can_be_mended() {
    let db = Database::fresh();
    check_with(&db, "RETURN EXISTS (SELECT FROM public.orders o WHERE o.key = 'proof');");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.refused_inside_savepoint(complete(201), "IK006");
    session.run("INSERT INTO orders (key) VALUES ('proof')");
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    session.call(claim("k")).expect("replayed");
}

/// What the check wrote goes with the answer that it refused.
#[test]
fn a_refusal_takes_the_checks_own_writes_along() {
    let db = Database::fresh();
    check_with(&db, "INSERT INTO public.orders (key) VALUES ('log'); RETURN false;");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.refused_inside_savepoint(complete(201), "IK006");
    session.call(complete(404)).expect("completed");
    session.run("COMMIT");
    assert_eq!((db.orders("log"), db.records()), (0, 1));
}

// ---- checks that change, or change things --------------------------------------------------

#[test]
fn a_check_that_was_dropped_is_an_error() {
    let db = Database::fresh();
    check_with(&db, "RETURN true;");
    let mut session = db.session("session");
    execute(&mut session, claim("before"), complete(201)).expect("completed");
    db.run("TRUNCATE idempotency.records; DROP FUNCTION app.check");
    let refusal = execute_refused(&db, &mut session, claim("k"), complete(201)).expect("42883");
    refusal.mentions("app.check");
    db.run("DROP SCHEMA app");
    execute_refused(&db, &mut session, claim("k"), complete(201)).mentions("app");
    execute(&mut session, claim("error"), complete(404)).expect("completed");
    check_with(&db, "RETURN true;");
    execute(&mut session, claim("after"), complete(201)).expect("completed");
}

#[test]
fn a_check_that_was_replaced_is_the_new_one() {
    let db = Database::fresh();
    check_with(&db, "RETURN true;");
    let mut session = db.session("session");
    execute(&mut session, claim("before"), complete(201)).expect("completed");
    db.run(
        "TRUNCATE idempotency.records; DROP FUNCTION app.check;
         CREATE FUNCTION app.check(text, text, integer) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
    );
    assert_says(execute_refused(&db, &mut session, claim("k"), complete(201)), "IK006", SAYS);
}

/// The claim counts as completed while its check runs.
#[test]
fn a_check_cannot_complete_or_release_its_own_claim() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for call in ["idempotency_complete(202, 'of the check')", "idempotency_release()"] {
        check_with(&db, &format!("PERFORM public.{call}; RETURN true;"));
        let refusal = execute_refused(&db, &mut session, claim("k"), complete(201));
        assert_says(refusal, "IK002", ["claim not held", "already completed", "once"]);
    }
    // Caught by the check itself, it is no harm.
    check_with(
        &db,
        "BEGIN PERFORM public.idempotency_complete(202); EXCEPTION WHEN OTHERS THEN NULL; END; RETURN true;",
    );
    execute(&mut session, claim("k"), complete(201)).expect("completed");
    assert_eq!(session.call(claim("k")).expect("replayed").status, Some(201));
}

/// Claimed again from inside, the key must not become two claims.
#[test]
fn a_check_cannot_claim_its_own_key_again() {
    let db = Database::fresh();
    check_with(
        &db,
        "INSERT INTO public.orders (key)
             SELECT c.outcome FROM public.idempotency_claim('alice', 'POST /orders', 'k') c;
         RETURN true;",
    );
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('work')");
    session.refused(complete(201)).expect_ours("IK004");
    session.run("ROLLBACK");
    assert_eq!((db.orders("claimed"), db.orders("work"), db.records()), (0, 0, 0));
}

/// A claim that the check makes for another key is a claim of the transaction like any other.
#[test]
fn a_claim_made_by_a_check_must_be_completed_too() {
    let db = Database::fresh();
    check_with(
        &db,
        "PERFORM FROM public.idempotency_claim('alice', 'POST /receipts', 'r');
         PERFORM public.idempotency_complete(204); RETURN true;",
    );
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    assert_eq!(db.records(), 2);
    session.call(claim_by("alice", "POST /receipts", "r")).expect("replayed");
}

/// Catches a check whose functions and relations of pg_catalog are replaced by the caller's.
#[test]
fn the_caller_does_not_choose_what_a_check_reads() {
    let db = Database::fresh();
    check_with(
        &db,
        "RETURN lower('A') = 'a' AND NOT EXISTS (SELECT FROM pg_class WHERE relname = 'faked');",
    );
    let mut session = db.session("session");
    session.run("CREATE TEMPORARY VIEW pg_class AS SELECT 'faked'::name AS relname");
    db.run(
        "CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO backend;
         CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql AS $$ SELECT 'evil' $$",
    );
    session.run("SET search_path = pg_temp, evil, pg_catalog, public");
    execute(&mut session, claim("k"), complete(201)).expect("completed");
    assert_eq!(
        session.value::<String>("SELECT current_setting('search_path')"),
        "pg_temp, evil, pg_catalog, public"
    );
}

// ---- whose it is ---------------------------------------------------------------------------------

/// A check runs as whoever completes or settles, a superuser for example.
#[test]
fn only_the_owner_changes_the_check() {
    let db = Database::fresh();
    check_with(&db, "RETURN true;");
    db.run("GRANT EXECUTE ON FUNCTION idempotency_configure TO backend");
    db.run(
        "CREATE FUNCTION public.mine(text, text, integer) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE FUNCTION public.configure(settings jsonb) RETURNS jsonb LANGUAGE sql SECURITY DEFINER
             SET search_path = pg_catalog, pg_temp AS $$ SELECT public.idempotency_configure('POST /orders', $1) $$;
         REVOKE USAGE ON SCHEMA app FROM backend",
    );
    let mut session = db.session("session");
    for change in [
        json!({"completion_check": "public.mine"}),
        json!({"completion_check": null}),
        // A preset forgets what was set before.
        json!({"preset": "create"}),
        json!({"preset": "create", "completion_check": "public.mine", "wait_ms": 1}),
    ] {
        let refusal = session.refused(configuring(ORDERS, change)).expect_ours("42501");
        refusal.mentions("completion_check").mentions("superuser");
    }
    session
        .refused(configuring("POST /new", json!({"completion_check": "public.mine"})))
        .expect_ours("42501");
    // Others it may change, also where the check is in a schema that it may not look into, or is gone.
    for change in
        [json!({"wait_ms": 5}), json!({"completion_check": "app.check", "max_waiters": 3})]
    {
        session.rows(configuring(ORDERS, change));
    }
    db.run("DROP FUNCTION app.check");
    session.rows(configuring(ORDERS, json!({"wait_ms": null})));
    session.rows(configuring("POST /new", json!({"preset": "create"})));
    let set: serde_json::Value =
        db.value("SELECT settings FROM idempotency.operations WHERE operation = 'POST /orders'");
    assert_eq!(set, json!({"completion_check": "app.check", "max_waiters": 3}));
    // What the owner lets others do as the owner is the owner's.
    session.run("SELECT public.configure('{\"completion_check\": \"public.mine\"}')");
    db.run("SELECT idempotency_configure('POST /orders', '{\"completion_check\": null}')");
}

/// A function that was replaced by one with another result says nothing about the answer.
#[test]
fn a_check_with_another_result_refuses_the_answer() {
    let db = Database::fresh();
    check_with(&db, "RETURN true;");
    let mut session = db.session("session");
    let says = ["answer refused", "app.check does not return one boolean.", "return boolean"];
    for other in [
        "FUNCTION app.check(text, text, integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "FUNCTION app.check(text, text, integer) RETURNS text LANGUAGE sql AS $$ SELECT 'true' $$",
        "FUNCTION app.check(text, text, integer) RETURNS SETOF boolean LANGUAGE sql AS 'SELECT true'",
        "FUNCTION app.check(text, text, integer) RETURNS TABLE (a boolean) LANGUAGE sql AS 'SELECT true'",
        "FUNCTION app.check(text, text, integer) RETURNS record LANGUAGE sql AS 'SELECT true, true'",
        "FUNCTION app.check(text, text, integer) RETURNS void LANGUAGE sql AS ''",
    ] {
        db.run(&format!("DROP FUNCTION app.check; CREATE {other}"));
        let refusal = execute_refused(&db, &mut session, claim("k"), complete(201));
        assert_says(refusal, "IK006", says);
        let mut admin = db.session_as(Role::Superuser, "admin");
        let anew = configuring("POST /new", json!({"completion_check": "app.check"}));
        admin.refused(anew).expect_ours("22023").mentions("returns boolean");
    }
}
