//! Logical replication of the records with the effects: on the subscriber they agree at every moment,
//! since a transaction is applied whole.

use pg_idempotency_tests::lease::{alone, complete_by, lease, resume};
use pg_idempotency_tests::moves::{assert_agreement, assert_replayed, everything, order};
use pg_idempotency_tests::operation::configure;
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use uuid::Uuid;

const TOKEN: Uuid = Uuid::from_u128(7);
const RC: Isolation = Isolation::ReadCommitted;

/// One publication with the effects and all tables of the extension. The slot is made by hand: within
/// one cluster CREATE SUBSCRIPTION would wait for its own transaction to end.
fn subscribe(publisher: &Database<'_>, subscriber: &Database<'_>) {
    publisher.run(
        "CREATE PUBLICATION moving FOR TABLE orders, idempotency.records, idempotency.operations,
             idempotency.resource_types, idempotency.leases",
    );
    publisher.run("SELECT pg_create_logical_replication_slot('moving', 'pgoutput')");
    let host = publisher.server().sockets().display();
    subscriber.run(&format!(
        "CREATE SUBSCRIPTION moving CONNECTION 'host={host} dbname={} user={}' PUBLICATION moving
         WITH (create_slot = false, slot_name = 'moving', copy_data = true)",
        publisher.name(),
        Role::Superuser.name(),
    ));
    subscriber.wait_until("NOT EXISTS (SELECT FROM pg_subscription_rel WHERE srsubstate <> 'r')");
}

/// Waits until the subscriber has applied all that the publisher has committed.
fn catch_up(publisher: &Database<'_>) {
    let written: String = publisher.value("SELECT pg_current_wal_flush_lsn()::text");
    publisher.wait_until(&format!(
        "(SELECT confirmed_flush_lsn >= '{written}' FROM pg_replication_slots WHERE slot_name = 'moving')"
    ));
}

#[test]
fn keys_and_effects_agree_on_the_subscriber() {
    let cluster =
        Cluster::start("logical", &["wal_level = logical", "wal_receiver_status_interval = 1s"]);
    let (publisher, subscriber) = (cluster.database(), cluster.database());
    let mut session = publisher.session("session");
    let copied = order(&mut session, "copied");
    subscribe(&publisher, &subscriber);

    let mut watcher = subscriber.session_as(Role::Superuser, "watcher of agreement");
    let mut sent = Vec::new();
    for n in 0..50 {
        let key = format!("k{n}");
        sent.push((key.clone(), order(&mut session, &key)));
        // Whatever has arrived by now.
        watcher.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
        let arrived: i64 = watcher.value("SELECT count(*) FROM orders");
        assert_agreement(&mut watcher, arrived);
        watcher.run("COMMIT");
    }
    configure(&publisher, json!({"replay_header": "X-Again"}));
    alone(&mut session, RC, lease("leased").with("token", TOKEN)).expect("claimed");
    alone(&mut session, RC, resume(TOKEN)).expect("claimed");
    // A record that is replaced: of a lease by its answer.
    alone(&mut session, RC, lease("finished").with("token", Uuid::from_u128(8))).expect("claimed");
    alone(&mut session, RC, complete_by(Uuid::from_u128(8), 204)).expect("completed");
    catch_up(&publisher);
    assert_eq!(everything(&subscriber), everything(&publisher));

    // The subscriber takes over.
    subscriber.run("DROP SUBSCRIPTION moving");
    let mut session = subscriber.session("session");
    assert_replayed(&mut session, "copied", &copied);
    for (key, sent) in &sent {
        let replayed = assert_replayed(&mut session, key, sent);
        assert!(replayed.header("X-Again").is_some(), "by the settings that were replicated");
    }
    alone(&mut session, RC, complete_by(TOKEN, 201)).expect("completed");
    subscriber.run("SELECT setval('orders_id_seq', 1000)");
    order(&mut session, "new");
}
