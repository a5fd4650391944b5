//! Settings that arrive by logical replication: no statement changes them, so no statement trigger
//! tells the sessions that have read them.

use pg_idempotency_tests::operation::configure_operation;
use pg_idempotency_tests::prelude::*;
use serde_json::json;

/// A publisher and a subscriber in one cluster. The slot is made by hand: CREATE SUBSCRIPTION would
/// wait for its own transaction to end.
fn subscribe(publisher: &Database<'_>, subscriber: &Database<'_>) {
    publisher.run("CREATE PUBLICATION settings FOR TABLE idempotency.operations");
    publisher.run("SELECT pg_create_logical_replication_slot('settings', 'pgoutput')");
    let connection = format!(
        "host={} dbname={} user={}",
        publisher.server().sockets().display(),
        publisher.name(),
        Role::Superuser.name(),
    );
    subscriber.run(&format!(
        "CREATE SUBSCRIPTION settings CONNECTION '{connection}' PUBLICATION settings
         WITH (create_slot = false, slot_name = 'settings', copy_data = false)"
    ));
}

/// Catches triggers that logical replication does not fire: the session would go on by what it read.
#[test]
fn a_session_sees_settings_that_were_replicated() {
    let cluster = Cluster::start("replication", &["wal_level = logical"]);
    let (publisher, subscriber) = (cluster.database(), cluster.database());
    subscribe(&publisher, &subscriber);
    let mut session = subscriber.session("session");
    session.call(claim("k")).expect("claimed");
    for (mode, outcome) in [("ignored", "bypassed"), ("optional", "claimed")] {
        configure_operation(&publisher, "POST /orders", json!({"mode": mode}));
        subscriber.wait_until(&format!(
            "EXISTS (SELECT FROM idempotency.operations WHERE settings->>'mode' = '{mode}')"
        ));
        session.call(claim("k")).expect(outcome);
    }
    subscriber.run("DROP SUBSCRIPTION settings");
}
