//! How long a call waits for a key: as it says, as its operation says, as the server says; of every call.

use pg_idempotency_tests::lease::{checkpoint, lease, resume, settle};
use pg_idempotency_tests::operation::configure;
use pg_idempotency_tests::prelude::*;
use serde_json::json;

/// The server would have every call wait without end: what comes back at all has asked the operation.
#[test]
fn the_operation_is_asked_before_the_server() {
    let db = Database::fresh();
    configure(&db, json!({ "wait_ms": 0 }));
    let mut holder = db.session("holder");
    holder.run("BEGIN");
    let token = holder.call(lease("k")).expect("claimed").token.expect("a token");
    holder.run("COMMIT; BEGIN");
    holder.call(resume(token)).expect("claimed");
    let mut other = db.session_as(Role::Superuser, "other");
    other.run("SET pg_idempotency.wait_ms = -1");
    let forget = "SELECT idempotency_forget('alice', 'POST /orders', 'k', force => true)";
    other.refused(resume(token)).expect_ours("55P03");
    other.refused(checkpoint(token, "half", json!(1))).expect_ours("55P03");
    other.refused(settle("k")).expect_ours("55P03");
    other.refused(forget).expect_ours("55P03");
    holder.run("ROLLBACK; BEGIN");
    holder.call(claim("new")).expect("claimed");
    other.call(claim("new")).expect("in_progress");
    other.rows(claim_many(&["new"]));
    // The call itself is asked first.
    other.run("BEGIN");
    other.start(claim("new").with("wait_ms", -1));
    db.wait_until_blocked(&other, &holder);
    holder.run("ROLLBACK");
    other.finish_call().expect("claimed");
}
