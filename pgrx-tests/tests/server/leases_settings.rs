//! Leases and the settings of operations: shared key spaces, several keys, callers without keys.

use pg_idempotency_tests::lease::{
    LONG, alone, checkpoint, complete_by, lease, open_leases, resume, run_out, start, token_of,
};
use pg_idempotency_tests::operation::{claim_by, configure, configure_operation, expire_all};
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use uuid::Uuid;

/// Several keys at once: each is answered by what is there.
fn claim_many_meets_leases(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let [_live, expired, done] =
        ["live", "expired", "done"].map(|key| start(&mut worker, isolation, key));
    alone(&mut worker, isolation, checkpoint(expired, "half", json!(1)));
    run_out(db, expired);
    alone(&mut worker, isolation, complete_by(done, 201)).expect("completed");
    other.begin(isolation);
    let rows = other.rows(claim_many(&["new", "live", "expired", "done"]));
    let told: Vec<Outcome> = rows.iter().map(Outcome::from).collect();
    let words: Vec<&str> = told.iter().map(|told| told.outcome.as_str()).collect();
    assert_eq!(words, ["claimed", "in_progress", "claimed", "replayed"]);
    assert_eq!((told[2].attempt, told[2].recovery_point.as_deref()), (Some(2), Some("half")));
    assert!(told[1].retry_after.is_some_and(|seconds| seconds > 1), "{:?}", told[1]);
    for at in [0, 2] {
        other.call(complete_by(token_of(&told[at]), 204)).expect("completed");
    }
    other.run("COMMIT");
    worker.refused(resume(expired)).expect_ours("IK005");
    assert_eq!((db.records(), open_leases(db)), (4, 1));
}

/// Another operation's request under the same key is another request, whatever its lease.
fn a_shared_key_space_tells_operations_apart(db: &Database<'_>, isolation: Isolation) {
    for operation in ["POST /a", "POST /b"] {
        configure_operation(db, operation, json!({ "key_space": "shared" }));
    }
    let (mut worker, mut other) = (db.session("worker"), db.session("other"));
    let call = claim_by("alice", "POST /a", "k").with("lease_ms", LONG);
    let token = token_of(&alone(&mut worker, isolation, call).expect("claimed"));
    for expired in [false, true] {
        if expired {
            run_out(db, token);
        }
        let call = claim_by("alice", "POST /b", "k").with("lease_ms", LONG);
        alone(&mut other, isolation, call).expect("mismatch").expect_problem(422);
    }
    let row = &other.rows("SELECT * FROM idempotency_abandoned()")[0];
    assert_eq!(
        (row.get::<_, &str>("operation"), row.get::<_, &str>("key_space")),
        ("POST /a", "shared")
    );
    let call = claim_by("alice", "POST /a", "k").with("lease_ms", LONG);
    assert_eq!(alone(&mut other, isolation, call).expect("claimed").attempt, Some(2));
}

/// Who has no key has no lease either: the work is done as without the extension.
fn a_bypassed_claim_has_no_lease(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    configure_operation(db, "POST /ignored", json!({ "mode": "ignored" }));
    let token = Uuid::from_u128(7);
    for call in [
        claim_by(None::<&str>, "POST /orders", "k"),
        claim_by("alice", "POST /orders", None::<&str>),
        claim_by("alice", "POST /ignored", "k"),
    ] {
        session.begin(isolation);
        let call = call.with("lease_ms", LONG).with("token", token).with("data", json!(1));
        let told = session.call(call).expect("bypassed");
        assert_eq!((told.token, told.expires_at), (None, None));
        session.run("INSERT INTO orders (key) VALUES ('k')");
        session.call(complete(201).with("body", "passed")).expect("bypassed");
        session.run("COMMIT");
    }
    assert_eq!((db.orders("k"), db.records(), open_leases(db)), (3, 0, 0));
}

/// An expired answer counts as absent; the lease that begins then is a first attempt.
fn a_lease_replaces_an_expired_answer(db: &Database<'_>, isolation: Isolation) {
    configure(db, json!({ "retention": "1 hour" }));
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    alone(&mut worker, isolation, complete_by(token, 201).with("body", "old")).expect("completed");
    expire_all(db);
    worker.call(replay("k")).expect("unknown");
    let again = alone(&mut worker, isolation, lease("k")).expect("claimed");
    assert_eq!((again.attempt, &again.recovery_point), (Some(1), &None));
    worker.call(claim("k")).expect("in_progress");
    worker.refused(resume(token)).expect_ours("IK005");
    let new = complete_by(token_of(&again), 201).with("body", "new");
    alone(&mut worker, isolation, new).expect("completed");
    assert_eq!((worker.call(replay("k")).expect("replayed").text(), db.records()), ("new", 1));
}

/// What decides the answer is as it was when the lease was claimed; how long it is kept is as it is now.
fn a_completion_by_token_obeys_the_operation(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    configure(db, json!({ "body_format": "json", "kept_statuses": "{[200,300)}" }));
    let token = start(&mut worker, isolation, "k");
    configure(
        db,
        json!({ "body_format": "any", "kept_statuses": "{[400,500)}", "retention": "1 hour" }),
    );
    worker.begin(isolation);
    worker.refused(complete_by(token, 201).with("body", "no JSON")).expect_ours("IK006");
    worker.run("ROLLBACK");
    alone(&mut worker, isolation, complete_by(token, 404)).expect("released");
    let sent = complete_by(token, 201).with("body", "{}").with("withhold", "one_time_secret");
    let sent = alone(&mut worker, isolation, sent).expect("completed");
    assert_eq!((sent.text(), sent.expires_at.is_some()), ("{}", true));
    let told = alone(&mut worker, isolation, resume(token)).expect("withheld");
    told.expect_problem(409);
    worker.call(claim("k")).expect("withheld");
}

at_every_isolation!(
    claim_many_meets_leases,
    a_shared_key_space_tells_operations_apart,
    a_bypassed_claim_has_no_lease,
    a_lease_replaces_an_expired_answer,
    a_completion_by_token_obeys_the_operation,
);
