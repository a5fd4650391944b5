//! The settings `pg_idempotency.*` of callers: which any user may set, and which decide whether a request is
//! executed or its answer kept, so that only superusers and those who were granted SET may.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;

#[test]
fn defaults_are_those_of_the_contract() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(replay("k")).expect("unknown");
    for (name, value, context) in [
        ("lock_order", "error", "user"),
        ("unlisted", "optional", "superuser"),
        ("wait_ms", "10000", "user"),
        ("max_body", "1048576", "superuser"),
        ("problem_type_base", "", "user"),
    ] {
        let setting = format!(
            "SELECT CASE unit WHEN 'B' THEN setting WHEN 'kB' THEN (setting::bigint * 1024)::text ELSE setting END
             FROM pg_settings WHERE name = 'pg_idempotency.{name}' AND context = '{context}'"
        );
        assert_eq!(session.value::<String>(setting), value, "{name}");
    }
}

#[test]
fn a_misspelt_setting_is_refused() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(replay("k")).expect("unknown");
    session.run_refused("SET pg_idempotency.lock_oder = off").expect("42602");
    let mut session = db.session_as(Role::Superuser, "superuser");
    session.call(replay("k")).expect("unknown");
    for bad in ["wait_ms = -2", "max_body = -1", "unlisted = never", "lock_order = maybe"] {
        session.run_refused(&format!("SET pg_idempotency.{bad}")).expect("22023");
    }
}

#[test]
fn problems_have_a_type_of_ones_own() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let type_of = |session: &mut Session| {
        session.call(claim("")).expect("invalid").expect_problem(400)["type"].clone()
    };
    assert_eq!(type_of(&mut session), "about:blank");
    session.run("SET pg_idempotency.problem_type_base = 'https://example.com/problems/'");
    let given = type_of(&mut session);
    assert!(
        given.as_str().is_some_and(|kind| kind.starts_with("https://example.com/problems/")),
        "{given}"
    );
}

#[test]
fn operations_that_are_not_listed_can_be_ignored() {
    let db = Database::fresh();
    db.set("pg_idempotency.unlisted", "ignored");
    let mut session = db.session("session");
    session.run("BEGIN; INSERT INTO orders (key) VALUES ('k')");
    session.call(claim("k")).expect("bypassed");
    session.call(replay("k")).expect("bypassed");
    session.call(complete(201)).expect("bypassed");
    session.run("COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 0));
}

#[test]
fn operations_that_are_not_listed_can_be_forbidden() {
    let db = Database::fresh();
    db.set("pg_idempotency.unlisted", "forbidden");
    let mut session = db.session("session");
    for call in [claim("k"), replay("k"), claim_many(&["k"])] {
        session.refused(call).expect_ours("IK007").mentions("POST /orders");
    }
    db.set("pg_idempotency.unlisted", "optional");
    let mut session = db.session("session");
    shop::create_order(&mut session, Isolation::ReadCommitted, "k")
        .expect("it succeeds")
        .expect("completed");
}

/// Settings are the transaction's where it says LOCAL, and are read at each call.
#[test]
fn settings_are_read_at_each_call() {
    let db = Database::fresh();
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    session.run("BEGIN; SET LOCAL pg_idempotency.wait_ms = 0");
    session.call(claim("k")).expect("in_progress");
    session.run("SET LOCAL pg_idempotency.wait_ms = -1");
    session.start(claim("k"));
    db.wait_until_blocked(&session, &holder);
    holder.run("ROLLBACK");
    session.finish_call().expect("claimed");
}

// ---- settings that decide what is executed and kept ------------------------------------------------

/// Each with a value under which a request would be executed again, or its answer not kept.
const DECIDING: [(&str, &str); 2] = [("unlisted", "ignored"), ("max_body", "0")];

/// The library is there once something was called.
fn loaded(db: &Database<'_>, role: Role) -> Session {
    let mut session = db.session_as(role, "session");
    session.run("LOAD 'pg_idempotency'");
    session
}

fn shown(session: &mut Session, name: &str) -> String {
    session.value(format!("SELECT current_setting('pg_idempotency.{name}')"))
}

#[test]
fn a_caller_without_rights_changes_none_of_them() {
    let db = Database::fresh();
    db.run("GRANT EXECUTE ON FUNCTION idempotency_replay TO PUBLIC");
    for role in [Role::Backend, Role::Outsider] {
        let mut session = db.session_as(role, "session");
        session.call(replay("k")).expect("unknown");
        for (name, value) in DECIDING {
            for sql in [
                format!("SET pg_idempotency.{name} = '{value}'"),
                format!("BEGIN; SET LOCAL pg_idempotency.{name} = '{value}'"),
                format!("SELECT set_config('pg_idempotency.{name}', '{value}', false)"),
                format!("ALTER ROLE {} SET pg_idempotency.{name} = '{value}'", role.name()),
            ] {
                session.run_refused(&sql).expect("42501");
                session.run("ROLLBACK");
            }
        }
        session.run("SET pg_idempotency.lock_order = off; SET pg_idempotency.wait_ms = 0");
        session.run("SET pg_idempotency.problem_type_base = 'https://example.com/'");
    }
}

/// Before the library is loaded SET takes anything. What had no right to is refused by then, and the default holds.
#[test]
fn a_value_from_before_the_library_came_needs_the_right_too() {
    let db = Database::fresh();
    for (name, value) in DECIDING {
        let mut session = db.session("session");
        let default = shown(&mut loaded(&db, Role::Superuser), name);
        session.run(&format!("SET pg_idempotency.{name} = '{value}'"));
        session.call(replay("k")).expect("unknown");
        assert_eq!(shown(&mut session, name), default);
        let notices = session.take_notices();
        assert!(notices.iter().any(|notice| notice.code().code() == "42501"), "{notices:?}");
        let mut config = db.server().config(Role::Backend, db.name());
        config.options(&format!("-c pg_idempotency.{name}={value}"));
        let mut session = Session::connect(config, "by its start-up packet");
        session.call(replay("k")).expect("unknown");
        assert_eq!(shown(&mut session, name), default);
    }
}

#[test]
fn a_superuser_sets_them_for_a_database_a_role_and_a_session() {
    let db = Database::fresh();
    for (name, value) in DECIDING {
        let mut superuser = loaded(&db, Role::Superuser);
        superuser.run(&format!("SET pg_idempotency.{name} = '{value}'"));
        assert_eq!(shown(&mut superuser, name), value);
        db.set(&format!("pg_idempotency.{name}"), value);
        assert_eq!(shown(&mut loaded(&db, Role::Superuser), name), value);
        let mut backend = db.session("backend");
        backend.attempt(replay("k")).expect("unknown or bypassed");
        assert_eq!(shown(&mut backend, name), value);
        db.run(&format!("ALTER DATABASE {} RESET pg_idempotency.{name}", db.name()));
        let role = format!("{name}_of_{}", db.name());
        db.run(&format!(
            "CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET pg_idempotency.{name} = '{value}'"
        ));
        db.run(&format!("SELECT idempotency_grant('{role}')"));
        let mut config = db.server().config(Role::Backend, db.name());
        let mut session = Session::connect(config.user(&role).clone(), "of the role");
        session.attempt(replay("k")).expect("unknown or bypassed");
        assert_eq!(shown(&mut session, name), value);
    }
}

/// The right belongs to the cluster, which other tests share, so it goes to a role of this test's own.
#[test]
fn who_was_granted_set_may() {
    let db = Database::fresh();
    let role = format!("setter_of_{}", db.name());
    db.run(&format!("CREATE ROLE {role} LOGIN; SELECT idempotency_grant('{role}')"));
    db.run(&format!(
        "GRANT SET ON PARAMETER pg_idempotency.unlisted, pg_idempotency.max_body TO {role}"
    ));
    let config = || db.server().config(Role::Backend, db.name()).user(&role).clone();
    for (name, value) in DECIDING {
        let mut before = Session::connect(config(), "before the library");
        before.run(&format!("SET pg_idempotency.{name} = '{value}'"));
        before.attempt(replay("k")).expect("unknown or bypassed");
        assert_eq!(shown(&mut before, name), value);
        before.run(&format!("RESET pg_idempotency.{name}; SET pg_idempotency.{name} = '{value}'"));
    }
    db.run(&format!(
        "REVOKE SET ON PARAMETER pg_idempotency.unlisted, pg_idempotency.max_body FROM {role}"
    ));
}

/// The end user of an application's SECURITY DEFINER function, who can choose settings and nothing else.
#[test]
fn the_caller_of_a_definers_function_gets_no_second_execution() {
    let db = Database::fresh();
    let user = format!("user_of_{}", db.name());
    db.run(&format!(
        "CREATE SCHEMA api AUTHORIZATION backend; CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA api TO {user};
         SET ROLE backend;
         CREATE FUNCTION api.create_order(key text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
             SET search_path = public, pg_temp AS $$
         DECLARE
             a idempotency_outcome;
         BEGIN
             a := idempotency_claim(session_user::text, 'POST /orders', key);
             IF a.outcome NOT IN ('claimed', 'bypassed') THEN RETURN a.outcome; END IF;
             INSERT INTO orders (key) VALUES (key);
             a := idempotency_complete(201, '{{}}');
             RETURN a.outcome;
         END $$;
         RESET ROLE"
    ));
    let mut config = db.server().config(Role::Outsider, db.name());
    config.user(&user);
    for (at, (name, value)) in DECIDING.into_iter().enumerate() {
        // Before the library is there, and after.
        let mut session = Session::connect(config.clone(), "end user");
        session.run(&format!("SET pg_idempotency.{name} = '{value}'"));
        let call = format!("SELECT api.create_order('k{at}')");
        assert_eq!(session.value::<String>(call.as_str()), "completed");
        session.run_refused(&format!("SET pg_idempotency.{name} = '{value}'")).expect("42501");
        assert_eq!(session.value::<String>(call.as_str()), "replayed");
        assert_eq!(db.orders(&format!("k{at}")), 1);
    }
}
