//! When a change of settings reaches whom, who may make one, and that a dump has them.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use serde_json::{Value, json};

fn admin(db: &Database<'_>) -> Session {
    db.session_as(Role::Superuser, "admin")
}

/// The claims of a session whose cache is warm: `invalid` where the setting is there.
fn is_required(session: &mut Session) -> bool {
    let outcome = session.call(claim(None::<&str>)).outcome;
    assert!(outcome == "invalid" || outcome == "bypassed", "{outcome}");
    outcome == "invalid"
}

const REQUIRE: &str = "SELECT idempotency_configure('POST /orders', '{\"mode\": \"required\"}')";
const RELAX: &str = "SELECT idempotency_configure('POST /orders', '{\"mode\": null}')";

/// By the function, and by plain statements of the table's owner of every kind.
#[test]
fn a_change_by_another_session_is_seen_by_the_next_transaction() {
    let db = Database::fresh();
    let mut session = db.session("session");
    assert!(!is_required(&mut session));
    for (change, expected) in [
        (REQUIRE, true),
        (RELAX, false),
        ("UPDATE idempotency.operations SET settings = '{\"mode\": \"required\"}'", true),
        ("DELETE FROM idempotency.operations", false),
        ("INSERT INTO idempotency.operations VALUES ('POST /orders', '{\"mode\": \"required\"}')", true),
        ("TRUNCATE idempotency.operations", false),
        ("INSERT INTO idempotency.operations VALUES ('POST /orders', '{\"mode\": \"required\"}')", true),
        ("UPDATE idempotency.operations SET operation = 'POST /else'", false),
        ("SET session_replication_role = replica;
          UPDATE idempotency.operations SET operation = 'POST /orders'; RESET session_replication_role", true),
    ] {
        db.run(change);
        assert_eq!(is_required(&mut session), expected, "after {change}");
    }
}

/// Catches settings that are kept although the message about their change came while they were read:
/// the row is read, then its text is, which needs a catalog that somebody has locked.
#[test]
fn a_change_while_the_settings_are_read_is_not_missed() {
    let db = Database::fresh();
    let statuses = |statuses: &str| {
        format!("INSERT INTO idempotency.operations VALUES ('POST /orders', '{{\"kept_statuses\": \"{statuses}\"}}')
                 ON CONFLICT (operation) DO UPDATE SET settings = excluded.settings")
    };
    db.run(&statuses("{[200,300)}"));
    let (mut blocker, mut session) = (admin(&db), db.session("session"));
    blocker.run("BEGIN; LOCK TABLE pg_catalog.pg_range IN ACCESS EXCLUSIVE MODE");
    session.start(replay("k"));
    db.wait_until_blocked(&session, &blocker);
    db.run(&statuses("{[200,500)}"));
    blocker.run("COMMIT");
    session.finish_call().expect("unknown");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.call(complete(404)).expect("completed");
    session.run("COMMIT");
}

#[test]
fn a_change_is_seen_by_nobody_else_before_its_commit() {
    let db = Database::fresh();
    let (mut admin, mut session) = (admin(&db), db.session("session"));
    admin.run(&format!("BEGIN; {REQUIRE}"));
    assert!(is_required(&mut admin), "its own transaction sees it");
    assert!(!is_required(&mut session), "and nobody waits for it");
    admin.run("COMMIT");
    assert!(is_required(&mut session));
}

#[test]
fn a_change_that_is_rolled_back_is_seen_by_nobody() {
    let db = Database::fresh();
    let (mut admin, mut session) = (admin(&db), db.session("session"));
    for (undo, done) in [("ROLLBACK", "BEGIN; ROLLBACK"), ("ROLLBACK TO s", "COMMIT")] {
        admin.run(&format!("BEGIN; SAVEPOINT s; {REQUIRE}"));
        assert!(is_required(&mut admin));
        admin.run(undo);
        assert!(!is_required(&mut admin), "after {undo}");
        admin.run(done);
        assert!(!is_required(&mut admin) && !is_required(&mut session), "after {done}");
    }
}

#[test]
fn a_prepared_change_is_seen_from_its_commit_on() {
    let db = Database::fresh();
    let (mut admin, mut session) = (admin(&db), db.session("session"));
    admin.run(&format!("BEGIN; {REQUIRE}; PREPARE TRANSACTION 'settings of {}'", db.name()));
    assert!(!is_required(&mut admin) && !is_required(&mut session));
    admin.run(&format!("COMMIT PREPARED 'settings of {}'", db.name()));
    assert!(is_required(&mut admin) && is_required(&mut session));
}

/// Settings that no function has checked, because the owner wrote them by hand: an error that says
/// which and where, never a guess.
#[test]
fn nonsense_written_by_hand_is_an_error() {
    let db = Database::fresh();
    let mut session = db.session("session");
    configure(&db, json!({"mode": "required"}));
    db.run("UPDATE idempotency.operations SET settings = '{\"mode\": \"sometimes\"}'");
    let message = "invalid settings of operation \"POST /orders\"";
    assert_says(session.refused(claim("k")), "22023", [message, "\"mode\" must be", "settings"]);
    configure(&db, json!({"mode": null}));
    session.call(claim("k")).expect("claimed");
}

/// The slip of a driver that sends JSON as a JSON string: it must not put the defaults in force.
#[test]
fn settings_that_are_no_object_are_an_error() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for settings in ["\"{\\\"mode\\\": \\\"forbidden\\\"}\"", "[]", "null"] {
        db.run(&format!("DELETE FROM idempotency.operations; INSERT INTO idempotency.operations VALUES ('POST /orders', '{settings}')"));
        session.refused(claim("k")).expect_ours("22023").mentions("POST /orders");
    }
}

/// A first claim reads its settings, and must not depend on them the way SERIALIZABLE means it: else
/// claims of one operation and a change of another could abort each other.
#[test]
fn reading_settings_takes_no_predicate_locks() {
    let db = Database::fresh();
    configure(&db, json!({"form": "resource"}));
    let mut session = db.session("session");
    session.begin(Isolation::Serializable);
    session.call(claim("k")).expect("claimed");
    session.call(claim_by("alice", "POST /unlisted", "k")).expect("claimed");
    let locks = format!(
        "SELECT count(*) FROM pg_locks WHERE pid = {} AND mode = 'SIReadLock'",
        session.pid()
    );
    assert_eq!(db.value::<i64>(&locks), 0);
    session.rows("SELECT FROM orders");
    assert_ne!(db.value::<i64>(&locks), 0, "they can be seen where there are any");
}

/// Everything that complete decides is decided by what held when the key was claimed.
#[test]
fn an_open_claim_keeps_its_settings() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    configure(
        &db,
        json!({"kept_statuses": "{[200,300)}", "body_format": "json", "max_body": 1, "retention": "1 day",
               "form": "resource", "key_space": "other", "mode": "forbidden"}),
    );
    let sent = session.call(complete(404).with("body", "not JSON")).expect("completed");
    assert_eq!(sent.expires_at, None);
    session.run("COMMIT");
    db.run("DELETE FROM idempotency.operations");
    assert_eq!(session.call(claim("k")).expect("replayed").answer(), sent.answer());
}

// ---- operations that are not listed --------------------------------------------------------

#[test]
fn a_listed_operation_does_not_care_for_unlisted() {
    let db = Database::fresh();
    configure(&db, json!({}));
    for unlisted in ["ignored", "forbidden"] {
        db.set("pg_idempotency.unlisted", unlisted);
        db.session("session").call(claim("k")).expect("claimed");
    }
    let mut session = db.session("session");
    session.refused(claim_by("alice", "POST /new", "k")).expect_ours("IK007").mentions("POST /new");
    session.call(claim_by("alice", "POST /new", None::<&str>)).expect("bypassed");
}

// ---- rights --------------------------------------------------------------------------------

#[test]
fn only_the_owner_changes_settings() {
    let db = Database::fresh();
    for role in [Role::Backend, Role::Outsider] {
        let mut session = db.session_as(role, "session");
        session.refused(configuring(ORDERS, json!({}))).expect("42501");
        session
            .refused("SELECT idempotency_register_resource('order', 'orders', 'id')")
            .expect("42501");
        session.refused("SELECT settings FROM idempotency.operations").expect("42501");
        session.refused("UPDATE idempotency.resource_types SET id_column = 'note'").expect("42501");
    }
    let rows = "SELECT (SELECT count(*) FROM idempotency.operations) + (SELECT count(*) FROM idempotency.resource_types)";
    assert_eq!(db.value::<i64>(rows), 0);
}

// ---- dumps ---------------------------------------------------------------------------------

/// pg_dump into psql: the settings are there, and they hold.
#[test]
fn a_dump_has_the_settings() {
    let db = Database::fresh();
    configure(&db, json!({"mode": "required", "key_space": "or'ders"}));
    configure_operation(&db, "PUT /\u{e9}\\t", json!({"preset": "create"}));
    db.run("SELECT idempotency_register_resource('order', 'orders', 'id')");
    let restored = Cluster::shared().database_with("TEMPLATE template0");
    copy_by_dump(&db, &restored);
    for table in ["operations", "resource_types"] {
        let rows = format!("SELECT jsonb_agg(t ORDER BY t) FROM idempotency.{table} t");
        assert_eq!(restored.value::<Value>(&rows), db.value::<Value>(&rows), "{table}");
    }
    restored.session("session").call(claim(None::<&str>)).expect("invalid");
}
