//! Logical replication from one database of a cluster to another one.

use crate::database::Database;
use crate::session::Role;

/// Publishes `tables` as `name` and subscribes to them. Rows that are there already are copied where
/// that is wanted, and the copy is waited for. The slot is made by hand: within one cluster CREATE
/// SUBSCRIPTION would wait for its own transaction to end.
pub fn subscribe(
    publisher: &Database<'_>,
    subscriber: &Database<'_>,
    name: &str,
    tables: &str,
    copy: bool,
) {
    publisher.run(&format!("CREATE PUBLICATION {name} FOR TABLE {tables}"));
    publisher.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    let connection = format!(
        "host={} dbname={} user={}",
        publisher.server().sockets().display(),
        publisher.name(),
        Role::Superuser.name(),
    );
    subscriber.run(&format!(
        "CREATE SUBSCRIPTION {name} CONNECTION '{connection}' PUBLICATION {name}
         WITH (create_slot = false, slot_name = '{name}', copy_data = {copy})"
    ));
    subscriber.wait_until("NOT EXISTS (SELECT FROM pg_subscription_rel WHERE srsubstate <> 'r')");
}
