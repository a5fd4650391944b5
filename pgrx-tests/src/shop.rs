//! The backend of the examples: it creates one order per key.

use crate::call::{claim, complete};
use crate::isolation::Isolation;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::session::Session;
use serde_json::json;

/// The work behind a won claim: an order, and the answer that names it. The order's id makes two
/// executions tell-tale: their answers differ.
///
/// # Errors
/// What the server refuses.
pub fn work(session: &mut Session, key: &str) -> Result<Outcome, Refusal> {
    let insert = format!("INSERT INTO orders (key) VALUES ('{key}') RETURNING id");
    let id: i64 = session.attempt(insert)?[0].get("id");
    let location = json!({ "Location": format!("/orders/{id}") });
    let answer = json!({ "order": id, "key": key });
    let call = complete(201).with("body_json", answer).with("headers", location);
    Ok(Outcome::only(&session.attempt(call)?))
}

/// The whole request: claim, work, complete, in one transaction.
///
/// # Errors
/// What the server refuses; the transaction is then rolled back.
pub fn create_order(
    session: &mut Session,
    isolation: Isolation,
    key: &str,
) -> Result<Outcome, Refusal> {
    session.begin(isolation);
    let sent = claim_and_work(session, key).and_then(|sent| {
        session.attempt("COMMIT")?;
        Ok(sent)
    });
    if sent.is_err() {
        session.run("ROLLBACK");
    }
    sent
}

fn claim_and_work(session: &mut Session, key: &str) -> Result<Outcome, Refusal> {
    let found = Outcome::only(&session.attempt(claim(key))?);
    if found.outcome == "claimed" { work(session, key) } else { Ok(found) }
}
