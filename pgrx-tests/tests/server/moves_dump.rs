//! Dumps: records, settings, registered types and leases arrive with the effects, in every format.

use pg_idempotency_tests::lease::{alone, checkpoint, complete_by, lease, resume};
use pg_idempotency_tests::moves::{assert_agreement, assert_replayed, copy, everything, order};
use pg_idempotency_tests::operation::{configure, configure_operation};
use pg_idempotency_tests::outcome::Answer;
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use uuid::Uuid;

const TOKEN: Uuid = Uuid::from_u128(7);
const RC: Isolation = Isolation::ReadCommitted;
const KEYS: [&str; 3] = ["k1", "with \u{e9} and \u{1f600}", "with \\ and ' and %"];

/// A database with something in every table of the extension.
fn filled() -> (Database<'static>, [Answer; 3]) {
    let db = Database::fresh();
    configure(&db, json!({"retention": "30 days", "replay_header": "X-Again"}));
    configure_operation(&db, "POST /secret", json!({"mode": "forbidden"}));
    db.run("SELECT idempotency_register_resource('order', 'public.orders', 'id')");
    let mut session = db.session("session");
    let sent = KEYS.map(|key| order(&mut session, key));
    alone(&mut session, RC, lease("leased").with("token", TOKEN)).expect("claimed");
    alone(&mut session, RC, checkpoint(TOKEN, "charged", json!({"charge": 7})));
    (db, sent)
}

/// What was in the first database is in the second, and is acted on there.
fn assert_moved(from: &Database<'_>, into: &Database<'_>, sent: &[Answer; 3]) {
    let before = everything(from);
    assert!(before.len() >= 8, "there is something in each table: {before:?}");
    assert_eq!(everything(into), before);
    let mut session = into.session("session");
    assert_agreement(&mut into.session_as(Role::Superuser, "superuser"), 3);
    for (key, sent) in KEYS.iter().zip(sent) {
        let replayed = assert_replayed(&mut session, key, sent);
        assert!(replayed.headers.is_some_and(|headers| headers.get("X-Again").is_some()));
    }
    session.refused("SELECT idempotency_claim('alice', 'POST /secret', 'k')").expect_ours("IK007");
    session.call(claim("leased").with("wait_ms", 0)).expect("in_progress");
    let resumed = alone(&mut session, RC, resume(TOKEN)).expect("claimed");
    assert_eq!(resumed.recovery_point.as_deref(), Some("charged"));
    alone(&mut session, RC, complete_by(TOKEN, 201)).expect("completed");
    order(&mut session, "new");
}

fn moves_by(format: &str, into: &str) {
    let (db, sent) = filled();
    let restored = Cluster::shared().database_with("TEMPLATE template0");
    if !into.is_empty() {
        restored.run(into);
    }
    copy(&db, &restored, format);
    assert_moved(&db, &restored, &sent);
}

#[test]
fn plain() {
    moves_by("plain", "");
}

#[test]
fn custom() {
    moves_by("custom", "");
}

#[test]
fn directory_by_several_jobs() {
    moves_by("directory", "");
}

/// As after an installation that made the extension before the data came.
#[test]
fn into_a_database_that_has_the_extension() {
    for format in ["plain", "custom", "directory"] {
        moves_by(format, "CREATE EXTENSION pg_idempotency");
    }
}

/// The functions' schema is the dump's.
#[test]
fn functions_in_a_schema_of_their_own_stay_there() {
    let db = Database::fresh();
    db.run(
        "DROP EXTENSION pg_idempotency; CREATE SCHEMA keys; CREATE EXTENSION pg_idempotency SCHEMA keys;
         SELECT keys.idempotency_grant('backend')",
    );
    let mut session = db.session("session");
    session.run("SET search_path = keys, public");
    let sent = order(&mut session, "k");
    let restored = Cluster::shared().database_with("TEMPLATE template0");
    copy(&db, &restored, "custom");
    let mut session = restored.session("session");
    session.run("SET search_path = keys, public");
    assert_replayed(&mut session, "k", &sent);
}

/// Grants on an extension's functions are dumped, so backends need not be granted anew.
#[test]
fn a_granted_role_is_granted_in_the_copy() {
    let (db, _) = filled();
    let restored = Cluster::shared().database_with("TEMPLATE template0");
    copy(&db, &restored, "custom");
    restored.session("session").call(claim("k1")).expect("replayed");
    restored.session_as(Role::Outsider, "outsider").refused(claim("k1")).expect("42501");
}
