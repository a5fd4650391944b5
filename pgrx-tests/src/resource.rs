//! Orders as resources: the operation `POST /orders` keeps a pointer to the order.

use crate::call::{Call, claim, complete};
use crate::database::Database;
use crate::operation::configure;
use crate::outcome::Outcome;
use crate::session::Session;
use serde_json::json;

/// Puts `POST /orders` into the resource form and registers the type `order`.
#[track_caller]
pub fn register_orders(db: &Database<'_>) {
    configure(db, json!({"form": "resource"}));
    db.run("SELECT idempotency_register_resource('order', 'public.orders', 'id')");
}

/// A new database where [`register_orders`] was done.
pub fn with_orders() -> Database<'static> {
    let db = Database::fresh();
    register_orders(&db);
    db
}

/// Inserts an order and returns its id.
#[track_caller]
pub fn insert_order(session: &mut Session, key: &str) -> String {
    session.value(format!("INSERT INTO public.orders (key) VALUES ('{key}') RETURNING id::text"))
}

/// A completion that points to an order.
pub fn pointing_to(id: &str) -> Call {
    complete(201).with("resource_type", "order").with("resource_id", id)
}

/// A whole request: an order, and the pointer to it. Returns the order's id.
#[track_caller]
pub fn create_order(session: &mut Session, key: &str) -> String {
    session.run("BEGIN");
    session.call(claim(key)).expect("claimed");
    let id = insert_order(session, key);
    session.call(pointing_to(&id)).expect("completed");
    session.run("COMMIT");
    id
}

/// Type and id that an outcome points to.
pub fn pointer(outcome: &Outcome) -> (Option<&str>, Option<&str>) {
    (outcome.resource_type.as_deref(), outcome.resource_id.as_deref())
}
