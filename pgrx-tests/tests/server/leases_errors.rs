//! What the calls on leases refuse, word for word.

use pg_idempotency_tests::lease::{
    LONG, alone, changes, checkpoint, complete_by, everything, extend, lease, open_leases, resume,
    run_out, start,
};
use pg_idempotency_tests::operation::assert_says;
use pg_idempotency_tests::prelude::*;
use postgres::error::DbError;
use serde_json::{Value, json};
use uuid::Uuid;

const K: &str = "key \"k\" of scope \"alice\" in key space \"POST /orders\"";

/// An error as it is promised.
struct Promised {
    code: &'static str,
    message: &'static str,
    detail: String,
    hint: &'static str,
}

const LOST_HINT: &str = "Stop working on this request and roll back; send the answer that \
                         idempotency_replay returns, if any.";
const UNSETTLED_HINT: &str = "Roll the transaction back. In the next attempt BEGIN before the claim, and \
                              complete or release it before COMMIT; behind a release nothing may be \
                              written. Usual causes are: no BEGIN around claim and complete, a write by \
                              middleware, nextval by an ORM, a row lock by authentication.";

fn promised(
    code: &'static str,
    message: &'static str,
    detail: String,
    hint: &'static str,
) -> Promised {
    Promised { code, message, detail, hint }
}

#[track_caller]
fn assert_promised(refusal: Refusal, promised: &Promised) {
    let refusal = refusal.expect_ours(promised.code);
    let error: &DbError = refusal.db();
    assert_eq!((error.severity(), error.message()), ("ERROR", promised.message));
    assert_eq!(
        (error.detail(), error.hint()),
        (Some(promised.detail.as_str()), Some(promised.hint))
    );
}

#[test]
fn a_lease_that_was_lost() {
    let db = Database::fresh();
    let (mut worker, mut next) = (db.session("worker"), db.session("next"));
    let rc = Isolation::ReadCommitted;
    let token = start(&mut worker, rc, "k");
    run_out(&db, token);
    let won = start(&mut next, rc, "k");
    let lost =
        |how: &str| promised("IK005", "lease lost", format!("The lease of {K} {how}."), LOST_HINT);
    assert_promised(worker.refused(resume(token)), &lost("was taken over"));
    alone(&mut next, rc, complete_by(won, 201)).expect("completed");
    let finished = lost("was taken over, and the request is finished");
    assert_promised(worker.refused(resume(token)), &finished);
    for (_, change) in changes(token) {
        assert_promised(worker.refused(change), &finished);
    }
}

#[test]
fn a_token_that_nobody_has() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let hint = "Pass the token that idempotency_claim returned for a claim with lease_ms.";
    let unknown = promised("IK002", "claim not held", "No lease has this token.".into(), hint);
    assert_promised(session.refused(resume(Uuid::from_u128(7))), &unknown);
    for (_, change) in changes(Uuid::from_u128(7)) {
        assert_promised(session.refused(change), &unknown);
    }
}

#[test]
fn a_phase_that_is_in_somebodys_hands() {
    let db = Database::fresh();
    let (mut worker, mut impatient) = (db.session("worker"), db.session("impatient"));
    let token = start(&mut worker, Isolation::ReadCommitted, "k");
    worker.run("BEGIN");
    worker.call(resume(token)).expect("claimed");
    let message = "could not obtain the lock of a key in time";
    let detail = format!("Another transaction holds {K}.");
    let locked = promised("55P03", message, detail, "Try again later.");
    for setting in
        ["pg_idempotency.wait_ms = 0", "pg_idempotency.wait_ms = 20", "lock_timeout = 20"]
    {
        impatient.run(&format!("RESET ALL; SET {setting}"));
        assert_promised(impatient.refused(resume(token)), &locked);
        assert_promised(impatient.refused(extend(token, LONG)), &locked);
        assert_eq!(db.keys_held(), 1);
    }
    worker.run("COMMIT");
    impatient.call(resume(token)).expect("claimed");
}

/// A phase that gave up, and one whose claim went with a savepoint.
#[test]
fn a_commit_without_the_fence() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    let token = start(&mut worker, Isolation::ReadCommitted, "k");
    let message = "cannot commit with an unsettled claim";
    for (before, after, how) in [
        (
            "",
            "SELECT idempotency_complete(503)",
            "was released, or completed with a status that is not kept",
        ),
        ("SAVEPOINT s", "ROLLBACK TO s", "was claimed after a savepoint that has been rolled back"),
    ] {
        worker.run(&format!("BEGIN; {before}"));
        worker.call(resume(token)).expect("claimed");
        worker.run(&format!("{after}; INSERT INTO orders (key) VALUES ('k')"));
        let detail = format!("The transaction has written, and {K} {how}.");
        let unsettled = promised("IK003", message, detail, UNSETTLED_HINT);
        assert_promised(worker.run_refused("COMMIT"), &unsettled);
    }
    assert_eq!(db.orders("k"), 0);
}

// ---- arguments -------------------------------------------------------------------------------

/// Catches a lease of nothing: one that never ends, or that is over before it began.
fn a_lease_has_a_positive_length(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let before = everything(db);
    let hint = "Pass how many milliseconds the work may take at most.";
    for lease_ms in [0, -1, i32::MIN] {
        let message = "lease_ms must be positive";
        let wrong = promised("22023", message, format!("It is {lease_ms}."), hint);
        for call in [
            claim("new").with("lease_ms", lease_ms),
            claim("k").with("lease_ms", lease_ms),
            claim("k").with("lease_ms", lease_ms).with("token", token),
            claim(None::<&str>).with("lease_ms", lease_ms),
            extend(token, lease_ms),
            extend(Uuid::from_u128(7), lease_ms),
        ] {
            worker.begin(isolation);
            assert_promised(worker.refused(call), &wrong);
            worker.run("ROLLBACK");
        }
    }
    assert_eq!((everything(db), db.keys_held()), (before, 0));
}

/// What is meant for a completer would be forgotten with the transaction.
fn data_needs_a_lease(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let detail = "Without a lease, a claim ends with its transaction, and data has no meaning.";
    let hint = "Pass lease_ms too, or leave the argument out.";
    for data in [json!({}), json!(null), json!(false)] {
        worker.begin(isolation);
        let refusal = worker.refused(claim("k").with("data", data).with("lease_ms", None::<i32>));
        assert_promised(refusal, &promised("22023", "data needs lease_ms", detail.into(), hint));
        worker.run("ROLLBACK");
    }
    worker
        .call(claim("k").with("data", None::<Value>).with("lease_ms", None::<i32>))
        .expect("claimed");
    worker.call(lease("k").with("data", None::<Value>)).expect("claimed");
}

fn nothing_is_not_an_argument(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let before = everything(db);
    let none = None::<Uuid>;
    let checkpoint = |token: Option<Uuid>, point: Option<&str>| {
        let call = Call::new("idempotency_checkpoint").with("token", token);
        call.with("recovery_point", point)
    };
    let extend = |token: Option<Uuid>, lease_ms: Option<i32>| {
        Call::new("idempotency_extend").with("token", token).with("lease_ms", lease_ms)
    };
    for (call, argument) in [
        (Call::new("idempotency_resume").with("token", none), "token"),
        (checkpoint(none, Some("x")), "token"),
        (checkpoint(Some(token), None), "recovery_point"),
        (extend(none, Some(LONG)), "token"),
        (extend(Some(token), None), "lease_ms"),
    ] {
        worker.begin(isolation);
        let refusal = worker.refused(call).expect("22004");
        assert_eq!(refusal.db().message(), format!("{argument} must not be null"));
        worker.run("ROLLBACK");
    }
    assert_eq!((everything(db), db.keys_held()), (before, 0));
}

/// Names have a length; data has none, and comes back as it was.
fn a_recovery_point_is_a_name(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    let token = start(&mut worker, isolation, "k");
    let long = "x".repeat(256);
    let says = [
        "recovery_point is too long",
        "It is 256 bytes long; 255 are allowed.",
        "Pass a shorter name",
    ];
    assert_says(worker.refused(checkpoint(token, &long, json!(1))), "22023", says);
    for point in ["", " ", "ä", &long[..255]] {
        alone(&mut worker, isolation, checkpoint(token, point, json!(1)));
        let resumed = alone(&mut worker, isolation, resume(token));
        assert_eq!(resumed.recovery_point.as_deref(), Some(point));
    }
    let without =
        Call::new("idempotency_checkpoint").with("token", token).with("recovery_point", "bare");
    alone(&mut worker, isolation, without);
    assert_eq!(alone(&mut worker, isolation, resume(token)).recovery_data, None);
}

/// Catches a value that was stored out of line and is thrown away with the row it came from.
fn large_data_is_handed_over_whole(db: &Database<'_>, isolation: Isolation) {
    let mut worker = db.session("worker");
    // Incompressible, so that it goes out of line.
    let noise = "SELECT jsonb_build_object('noise', string_agg(md5(n::text), '')) FROM generate_series(1, 4000) AS n";
    let data: Value = worker.value(noise);
    let mut token = alone(&mut worker, isolation, lease("k").with("data", data.clone()))
        .token
        .expect("a token");
    alone(&mut worker, isolation, checkpoint(token, "large", data.clone()));
    for attempt in 2..5 {
        alone(&mut worker, isolation, extend(token, LONG + attempt));
        run_out(db, token);
        db.run("VACUUM (FULL) idempotency.leases");
        let next = alone(&mut worker, isolation, lease("k")).expect("claimed");
        assert_eq!((next.attempt, next.recovery_data.as_ref()), (Some(attempt), Some(&data)));
        token = next.token.expect("a token");
    }
    run_out(db, token);
    let handed: Value = worker.value("SELECT data FROM idempotency_abandoned()");
    assert_eq!(handed, data);
    alone(&mut worker, isolation, complete_by(token, 201)).expect("completed");
    assert_eq!(open_leases(db), 0);
}

at_every_isolation!(
    a_lease_has_a_positive_length,
    data_needs_a_lease,
    nothing_is_not_an_argument,
    a_recovery_point_is_a_name,
    large_data_is_handed_over_whole,
);
