//! Who may work on leases: a backend's role all but to settle, everybody else nothing.

use pg_idempotency_tests::lease::{
    LONG, checkpoint, complete_by, extend, lease, release_by, resume, run_out, settle, token_of,
};
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use uuid::Uuid;

const ABANDONED: &str = "SELECT * FROM idempotency_abandoned()";

#[test]
fn a_granted_role_can_do_all_of_it() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let token = token_of(&session.call(lease("k").with("data", json!(1))).expect("claimed"));
    session.call(resume(token)).expect("claimed");
    session.call(checkpoint(token, "half", json!(1))).expect("claimed");
    session.call(extend(token, LONG)).expect("claimed");
    run_out(&db, token);
    assert_eq!(session.rows(ABANDONED).len(), 1);
    let token = token_of(&session.call(lease("k")).expect("claimed"));
    session.rows(release_by(token));
    let token = token_of(&session.call(lease("k")).expect("claimed"));
    session.call(complete_by(token, 201)).expect("completed");
    session.call(resume(token)).expect("replayed");
}

/// To settle is to say what happened where nobody knows: not a program's business.
#[test]
fn a_granted_role_cannot_settle() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let token = token_of(&session.call(lease("k")).expect("claimed"));
    run_out(&db, token);
    for call in [settle("k"), settle("k").with("status", 201)] {
        session.refused(call).expect("42501");
    }
    assert_eq!(db.records(), 1);
    db.run(
        "GRANT EXECUTE ON FUNCTION idempotency_settle(text, text, text, integer, text, jsonb, bytea, text,
                                                      jsonb, text, text, text) TO backend",
    );
    session.call(settle("k").with("status", 201)).expect("completed");
    assert_eq!(session.call(claim("k")).expect("replayed").status, Some(201));
}

#[test]
fn a_granted_role_cannot_touch_the_table_or_the_view() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.call(lease("k")).expect("claimed");
    for statement in [
        "SELECT * FROM idempotency.leases",
        "SELECT token FROM idempotency.leases",
        "SELECT * FROM idempotency.abandoned",
        "SELECT count(*) FROM idempotency.abandoned",
        "INSERT INTO idempotency.leases SELECT * FROM idempotency.leases",
        "UPDATE idempotency.leases SET deadline = 'infinity'",
        "DELETE FROM idempotency.leases",
        "DELETE FROM idempotency.abandoned",
        "TRUNCATE idempotency.leases",
        "DO $$ BEGIN LOCK TABLE idempotency.leases; END $$",
        "COPY idempotency.leases TO STDOUT",
    ] {
        session.run_refused(statement).expect("42501");
    }
    assert_eq!(db.records(), 1);
}

#[test]
fn a_role_with_nothing_can_do_none_of_it() {
    let db = Database::fresh();
    let mut session = db.session_as(Role::Outsider, "session");
    let token = token_of(&db.session("worker").call(lease("k")).expect("claimed"));
    let calls = [
        lease("l"),
        resume(token),
        checkpoint(token, "half", json!(1)),
        extend(token, LONG),
        complete_by(token, 201),
        release_by(token),
        settle("k"),
    ];
    for call in calls {
        session.refused(call).expect("42501");
    }
    for statement in
        [ABANDONED, "SELECT * FROM idempotency.leases", "SELECT * FROM idempotency.abandoned"]
    {
        session.refused(statement).expect("42501");
    }
}

/// Rights are looked up in the catalog too: a function that nobody called may be open.
#[test]
fn nothing_of_it_is_public() {
    let db = Database::fresh();
    let open = "SELECT coalesce(string_agg(p.oid::regprocedure::text, ' '), 'none')
                FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
                WHERE p.proname ~ '^idempotency_(resume|checkpoint|extend|settle|abandoned)$'
                  AND a.grantee NOT IN (p.proowner, 'backend'::regrole)";
    assert_eq!(db.value::<String>(open), "none");
    let count = "SELECT count(*) FROM pg_proc
                 WHERE proname ~ '^idempotency_(resume|checkpoint|extend|settle|abandoned)$'";
    assert_eq!(db.value::<i64>(count), 5, "they are all there");
    let tables = "SELECT string_agg(concat_ws(' ', grantee, privilege_type, table_name), ', ' ORDER BY table_name)
                  FROM information_schema.table_privileges
                  WHERE table_schema = 'idempotency' AND grantee <> 'postgres'";
    assert_eq!(
        db.value::<String>(tables),
        "pg_monitor SELECT automatic_purge, pg_monitor SELECT counting, pg_monitor SELECT stats"
    );
}

/// A search path full of traps: the list is made with the owner's rights.
#[test]
fn the_list_obeys_no_search_path_of_the_callers() {
    let db = Database::fresh();
    db.run("GRANT CREATE ON SCHEMA public TO backend");
    let mut session = db.session("session");
    let token = token_of(&session.call(lease("k")).expect("claimed"));
    run_out(&db, token);
    session.run(
        "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS
             $$ BEGIN RAISE 'called as %', current_user; END $$;
         CREATE FUNCTION public.trap(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql AS
             $$ BEGIN RAISE 'called as %', current_user; END $$;
         CREATE OPERATOR public.<= (FUNCTION = public.trap, LEFTARG = timestamptz, RIGHTARG = timestamptz);
         CREATE TEMPORARY TABLE leases (x integer);
         SET search_path = public, pg_temp, pg_catalog",
    );
    assert_eq!(session.rows("SELECT * FROM public.idempotency_abandoned()").len(), 1);
    session.call(checkpoint(token, "half", json!(1))).expect("claimed");
    session.call(complete_by(token, 201)).expect("completed");
}

/// A token is a secret that whoever else asks must not be told.
#[test]
fn a_token_is_not_given_away() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    let token = token_of(&worker.call(lease("k").with("fingerprint", [1; 32])).expect("claimed"));
    for call in [claim("k"), claim("k").with("fingerprint", [1; 32]), replay("k")] {
        let told = db.session("other").call(call);
        assert_eq!(told.token, None, "{told:?}");
        assert!(!format!("{told:?}").contains(&token.to_string()), "{told:?}");
    }
    let guess = Uuid::from_u128(token.as_u128() ^ 1);
    db.session("other").refused(resume(guess)).expect_ours("IK002");
}
