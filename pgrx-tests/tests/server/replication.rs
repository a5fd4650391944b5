//! Settings that arrive by logical replication: no statement changes them, so no statement trigger
//! tells the sessions that have read them.

use pg_idempotency_tests::operation::configure_operation;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::replication::subscribe;
use serde_json::json;

/// Catches triggers that logical replication does not fire: the session would go on by what it read.
#[test]
fn a_session_sees_settings_that_were_replicated() {
    let cluster = Cluster::start("replication", &["wal_level = logical"]);
    let (publisher, subscriber) = (cluster.database(), cluster.database());
    subscribe(&publisher, &subscriber, "settings", "idempotency.operations", false);
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
