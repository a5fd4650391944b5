//! The resource form: what is kept of an answer is a pointer, and it has to point to something.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::resource::*;
use serde_json::{Value, json};

#[test]
fn the_pointer_is_kept_and_the_body_is_not() {
    let db = with_orders();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    let id = insert_order(&mut session, "k");
    let headers =
        json!({"Location": format!("/orders/{id}"), "ETag": "\"1\"", "Set-Cookie": "a=b"});
    let call = pointing_to(&id).with("body_json", json!({"rendered": id})).with("headers", headers);
    let sent = session.call(call).expect("completed");
    session.run("COMMIT");
    assert_eq!(sent.text(), format!("{{\"rendered\": \"{id}\"}}"), "passed through");
    let replayed = session.call(claim("k")).expect("replayed");
    assert_eq!((replayed.status, &replayed.body), (Some(201), &None));
    assert_eq!(pointer(&replayed), pointer(&sent));
    assert_eq!(pointer(&replayed), (Some("order"), Some(&*id)));
    // The backend renders the resource anew, and describes what it has rendered.
    let expected = json!({"Location": format!("/orders/{id}"), "Idempotent-Replayed": "true"});
    assert_eq!(replayed.headers, Some(expected));
    assert_eq!(session.call(replay("k")), replayed);
    let kept = "SELECT body IS NULL AND r::text NOT LIKE '%rendered%' FROM idempotency.records r";
    assert!(db.value::<bool>(kept), "the body is nowhere");
}

#[test]
fn the_body_is_not_kept_however_large() {
    let db = with_orders();
    configure(&db, json!({"max_body": 10}));
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    let id = insert_order(&mut session, "k");
    let sent = session.call(pointing_to(&id).with("body", "a".repeat(100_000))).expect("completed");
    session.run("COMMIT");
    assert_eq!(sent.text().len(), 100_000);
    session.call(claim("k")).expect("replayed");
}

/// Errors have no resource; they are kept as they are, without their body.
#[test]
fn an_error_needs_no_pointer_and_a_success_does() {
    let db = with_orders();
    let mut session = db.session("session");
    execute(&mut session, claim("error"), complete(404).with("body", "no such customer"));
    let replayed = session.call(claim("error")).expect("replayed");
    assert_eq!((replayed.status, replayed.body), (Some(404), None));
    for call in [
        complete(201),
        complete(201).with("resource_type", "order"),
        complete(201).with("resource_id", "1"),
    ] {
        session.run("BEGIN");
        session.call(claim("success")).expect("claimed");
        let says = [
            "answer refused",
            "resource_type or resource_id is missing",
            "Roll the transaction back",
        ];
        assert_says(session.refused(call), "IK006", says);
        session.run("ROLLBACK");
    }
    assert_eq!(db.records(), 1);
}

// ---- the resource must be there ------------------------------------------------------------

#[test]
fn a_pointer_to_nothing_is_refused() {
    let db = with_orders();
    let mut session = db.session("session");
    for (id, detail) in [
        ("4711", "There is no order with id \"4711\"."),
        ("", "\"\" is not an id"),
        ("abc", "\"abc\" is not an id"),
        ("99999999999999999999", "\"99999999999999999999\" is not an id"),
        ("1; DROP TABLE orders", "is not an id"),
    ] {
        let refusal = execute_refused(&db, &mut session, claim("k"), pointing_to(id));
        assert_says(refusal, "IK006", ["answer refused", detail, "after the resource was created"]);
    }
    session.call(claim("k")).expect("claimed");
}

/// The unit may go on from a savepoint, with the right pointer.
#[test]
fn a_refused_pointer_can_be_mended() {
    let db = with_orders();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.refused_inside_savepoint(pointing_to("4711"), "IK006");
    let id = insert_order(&mut session, "k");
    session.call(pointing_to(&id)).expect("completed");
    session.run("COMMIT");
    assert_eq!(pointer(&session.call(claim("k")).expect("replayed")).1, Some(&*id));
}

/// Others' uncommitted rows are no resources; nor are rows that this transaction has deleted.
#[test]
fn what_counts_is_what_the_transaction_would_leave() {
    let db = with_orders();
    let (mut session, mut other) = (db.session("session"), db.session("other"));
    other.run("BEGIN");
    let uncommitted = insert_order(&mut other, "other");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.refused_inside_savepoint(pointing_to(&uncommitted), "IK006");
    let id = insert_order(&mut session, "k");
    session.run(&format!("DELETE FROM orders WHERE id = {id}"));
    session.refused_inside_savepoint(pointing_to(&id), "IK006");
    other.run("COMMIT");
    session.call(pointing_to(&uncommitted)).expect("completed");
}

/// The work and its completion in one statement: the row exists for nobody else yet, and counts.
fn a_row_of_the_same_statement_counts(db: &Database<'_>, isolation: Isolation) {
    register_orders(db);
    let mut session = db.session("session");
    session.begin(isolation);
    session.call(claim("k")).expect("claimed");
    let rows = session.rows(
        "WITH created AS (INSERT INTO orders (key) VALUES ('k') RETURNING id)
         SELECT c.* FROM created, idempotency_complete(201, resource_type => 'order', resource_id => created.id::text) c",
    );
    let sent = Outcome::only(&rows).expect("completed");
    session.run("COMMIT");
    assert_eq!(pointer(&session.call(claim("k")).expect("replayed")), pointer(&sent));
    assert_eq!(db.orders("k"), 1);
}

/// Two neighbours in one index, each of which looks its own row up before the other has committed.
fn neighbours_do_not_get_in_each_others_way(db: &Database<'_>, isolation: Isolation) {
    register_orders(db);
    let mut sessions = [db.session("one"), db.session("other")];
    for round in 0..5 {
        for (n, session) in sessions.iter_mut().enumerate() {
            session.begin(isolation);
            session.call(claim(format!("{round} {n}"))).expect("claimed");
        }
        for session in &mut sessions {
            let id = insert_order(session, "neighbour");
            session.call(pointing_to(&id)).expect("completed");
        }
        for session in &mut sessions {
            session.run("COMMIT");
        }
    }
    assert_eq!((db.orders("neighbour"), db.records()), (10, 10));
}

at_every_isolation!(a_row_of_the_same_statement_counts, neighbours_do_not_get_in_each_others_way);

// ---- registering ---------------------------------------------------------------------------

#[test]
fn a_type_that_is_not_registered_is_not_checked() {
    let db = with_orders();
    let mut session = db.session("session");
    let call = || complete(201).with("resource_type", "invoice").with("resource_id", "no such");
    let sent = execute(&mut session, claim("k"), call());
    let replayed = session.call(claim("k")).expect("replayed");
    assert_eq!(pointer(&replayed), pointer(&sent));
    assert!(session.take_notices().is_empty());
    // Registered later, it is checked: by this session too, which has looked for it before.
    db.run("SELECT idempotency_register_resource('invoice', 'orders', 'key')");
    session.call(claim("k")).expect("deleted");
    db.run("INSERT INTO orders (key) VALUES ('no such')");
    session.call(claim("k")).expect("replayed");
}

/// By the function and by hand: the next transaction looks where the type is now.
#[test]
fn a_type_can_be_registered_anew() {
    let db = with_orders();
    let mut session = db.session("session");
    let id = create_order(&mut session, "k");
    session.call(claim("k")).expect("replayed");
    db.run("CREATE TABLE elsewhere (id bigint)");
    for (change, expected) in [
        ("SELECT idempotency_register_resource('order', 'elsewhere', 'id')", "deleted"),
        ("UPDATE idempotency.resource_types SET relation_name = 'orders'", "replayed"),
        ("UPDATE idempotency.resource_types SET relation_name = 'elsewhere'", "deleted"),
        ("DELETE FROM idempotency.resource_types", "replayed"),
        ("SELECT idempotency_register_resource('order', 'elsewhere', 'id')", "deleted"),
        (&format!("INSERT INTO elsewhere VALUES ({id})"), "replayed"),
        ("TRUNCATE elsewhere, idempotency.resource_types", "replayed"),
    ] {
        db.run(change);
        assert_eq!(session.call(claim("k")).outcome, expected, "after {change}");
    }
}

#[test]
fn what_cannot_be_registered_is_refused() {
    let db = Database::fresh();
    let mut admin = db.session_as(Role::Superuser, "admin");
    let says = ["no such column", "The relation has no column \"nope\".", "a table or a view"];
    let register = |arguments: &str| format!("SELECT idempotency_register_resource({arguments})");
    assert_says(admin.refused(register("'order', 'orders', 'nope'")), "22023", says);
    admin.refused(register("'order', 'nowhere', 'id'")).expect("42P01");
    admin.refused(register("'order', 0, 'id'")).expect_ours("22023");
    admin
        .refused(register("repeat('x', 256), 'orders', 'id'"))
        .expect_ours("22023")
        .mentions("resource_type");
    for (arguments, name) in [
        ("NULL, 'orders', 'id'", "resource_type"),
        ("'order', NULL, 'id'", "relation"),
        ("'order', 'orders', NULL", "id_column"),
    ] {
        admin
            .refused(register(arguments))
            .expect("22004")
            .mentions(&format!("{name} must not be null"));
    }
    assert_eq!(db.value::<i64>("SELECT count(*) FROM idempotency.resource_types"), 0);
}

/// Ids of any type that can be compared, and names that have to be quoted.
#[test]
fn ids_have_any_type_and_relations_any_name() {
    let db = with_orders();
    db.run(
        "CREATE SCHEMA \"we ird\"; CREATE DOMAIN \"we ird\".d AS text CHECK (VALUE <> 'never');
         CREATE TYPE \"we ird\".color AS ENUM ('red', 'blue');
         CREATE TABLE \"we ird\".\"Ta\"\"ble;\" (\"I d\" uuid, v varchar(9), c char(9), d \"we ird\".d, e \"we ird\".color,
             n numeric, t timestamptz, name name) PARTITION BY LIST (v);
         CREATE TABLE part PARTITION OF \"we ird\".\"Ta\"\"ble;\" DEFAULT;
         INSERT INTO part VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'O''Neil', 'x', 'd', 'red', 1.50,
             '2026-01-01 00:00+00', 'n')",
    );
    let mut session = db.session("session");
    for (at, (column, id, other)) in [
        ("I d", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12"),
        ("v", "O'Neil", "o'neil"),
        ("c", "x", "y"),
        ("d", "d", "D"),
        ("e", "red", "blue"),
        ("n", "1.5", "1.51"),
        ("t", "2026-01-01T01:00:00+01:00", "2026-01-01T00:00:01Z"),
        ("name", "n", "m"),
    ]
    .into_iter()
    .enumerate()
    {
        db.run(&format!(
            "SELECT idempotency_register_resource('thing', '\"we ird\".\"Ta\"\"ble;\"', '{column}')"
        ));
        let thing = |id: &str| complete(201).with("resource_type", "thing").with("resource_id", id);
        session.run("BEGIN");
        session.call(claim(at.to_string())).expect("claimed");
        session.refused_inside_savepoint(thing(other), "IK006");
        session.call(thing(id)).expect("completed");
        session.run("COMMIT");
        session.call(claim(at.to_string())).expect("replayed");
    }
    assert!(session.take_notices().is_empty(), "nothing was in doubt");
}

/// What was recorded as a whole answer stays one when the operation changes its form, and back.
#[test]
fn a_record_keeps_the_form_it_was_made_in() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let whole =
        complete(201).with("body", "whole").with("resource_type", "order").with("resource_id", "0");
    let sent = execute(&mut session, claim("whole"), whole);
    register_orders(&db);
    assert_eq!(session.call(claim("whole")).expect("replayed").answer(), sent.answer());
    let id = create_order(&mut session, "pointer");
    configure(&db, json!({"form": "response"}));
    let replayed = session.call(claim("pointer")).expect("replayed");
    assert_eq!((replayed.body.as_deref(), pointer(&replayed)), (None, (Some("order"), Some(&*id))));
    let none: Option<Value> = None;
    assert_eq!(replayed.header("content-type"), none.as_ref());
}
