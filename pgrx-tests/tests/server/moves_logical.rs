//! Logical replication of the records with the effects: on the subscriber they agree, also while a
//! transaction is being applied, since it is applied whole.

use pg_idempotency_tests::lease::{alone, complete_by, lease, resume};
use pg_idempotency_tests::moves::{assert_agreement, assert_replayed, everything, order};
use pg_idempotency_tests::operation::configure;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::replication::subscribe;
use serde_json::json;
use uuid::Uuid;

const TOKEN: Uuid = Uuid::from_u128(7);
const RC: Isolation = Isolation::ReadCommitted;

/// The effects and all tables of the extension.
const TABLES: &str =
    "orders, idempotency.records, idempotency.operations, idempotency.resource_types,
    idempotency.leases";

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
    subscribe(&publisher, &subscriber, "moving", TABLES, true);

    let mut watcher = subscriber.session_as(Role::Superuser, "watcher of agreement");
    let mut holder = subscriber.session_as(Role::Superuser, "holder");
    let mut sent = Vec::new();
    for n in 0..50 {
        let key = format!("k{n}");
        // The order is there already, and its record has to wait.
        holder.run("BEGIN; LOCK TABLE idempotency.records IN EXCLUSIVE MODE");
        sent.push((key.clone(), order(&mut session, &key)));
        let blocked = format!("{} = ANY (pg_blocking_pids(pid))", holder.pid());
        subscriber.wait_until(&format!("(SELECT bool_or({blocked}) FROM pg_stat_subscription)"));
        watcher.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
        assert_agreement(&mut watcher, n + 1);
        watcher.run("COMMIT");
        holder.run("COMMIT");
        catch_up(&publisher);
        assert_agreement(&mut watcher, n + 2);
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
