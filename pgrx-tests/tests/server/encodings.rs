//! A database in another encoding than UTF-8: names of the user's that are not ASCII.

use pg_idempotency_tests::operation::configure_operation;
use pg_idempotency_tests::prelude::*;
use serde_json::json;

/// The roles are those of the template, which the first database of a cluster is made from.
fn latin1() -> Database<'static> {
    let cluster = Cluster::shared();
    drop(cluster.database());
    let db = cluster.database_with("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    db.run("CREATE EXTENSION pg_idempotency; SELECT idempotency_grant('backend')");
    db
}

fn execute(session: &mut Session, call: Call) -> Result<(), Refusal> {
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.attempt(call).map(drop)
}

#[test]
fn a_completion_check_is_found_by_its_name() {
    let db = latin1();
    db.run(
        "CREATE FUNCTION public.\"pr\u{fc}fung\"(text, text, integer) RETURNS boolean
             LANGUAGE sql AS 'SELECT $3 = 201'",
    );
    configure_operation(
        &db,
        "POST /orders",
        json!({"completion_check": "public.\"pr\u{fc}fung\""}),
    );
    let mut session = db.session("session");
    execute(&mut session, complete(200)).expect_err("the check").expect_ours("IK006");
    session.run("ROLLBACK");
    execute(&mut session, complete(201)).expect("the check agrees");
    session.run("COMMIT");
}

#[test]
fn a_resource_is_found_by_the_names_of_its_relation() {
    let db = latin1();
    db.run(
        "CREATE TABLE public.\"gr\u{f6}\u{df}en\" (\"n\u{fa}mero\" text);
         INSERT INTO public.\"gr\u{f6}\u{df}en\" VALUES ('\u{e9}');
         SELECT idempotency_register_resource('gr\u{f6}\u{df}e', 'public.\"gr\u{f6}\u{df}en\"', 'n\u{fa}mero')",
    );
    configure_operation(&db, "POST /orders", json!({"form": "resource"}));
    let mut session = db.session("session");
    let pointing =
        complete(201).with("resource_type", "gr\u{f6}\u{df}e").with("resource_id", "\u{e9}");
    execute(&mut session, pointing).expect("completed");
    session.run("COMMIT");
    session.call(claim("k")).expect("replayed");
    db.run("DELETE FROM public.\"gr\u{f6}\u{df}en\"");
    session.call(claim("k")).expect("deleted");
}
