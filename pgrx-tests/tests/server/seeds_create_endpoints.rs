//! Design B, second half: which endpoints take part, which must not, and the phone that sends keys.

use pg_idempotency_tests::food::*;
use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use serde_json::{Value, json};

fn count(db: &Database<'_>, table: &str) -> i64 {
    db.value(&format!("SELECT count(*) FROM {table}"))
}

// ---- wired endpoints -----------------------------------------------------------------------

/// Everything that a migration would change: relations, columns, functions, types.
fn schema(db: &Database<'_>) -> Value {
    db.value(
        "SELECT jsonb_build_array(
             (SELECT jsonb_agg(c.oid::text || c.relname ORDER BY c.oid) FROM pg_class c),
             (SELECT jsonb_agg(a.attrelid::text || a.attname ORDER BY a.attrelid, a.attnum) FROM pg_attribute a),
             (SELECT jsonb_agg(p.oid::text ORDER BY p.oid) FROM pg_proc p),
             (SELECT jsonb_agg(t.oid::text ORDER BY t.oid) FROM pg_type t))",
    )
}

fn create_note(backend: &mut Backend, endpoint: &str, key: &str) -> Response {
    backend.create(endpoint, "alice", Some(key), |backend| {
        let id = backend.session.value("INSERT INTO notes (text) VALUES ('n') RETURNING id");
        Ok(Created { resource_type: "note", id, body: json!({"id": id, "text": "n"}) })
    })
}

#[test]
fn wired_endpoints_a_new_one_needs_no_new_schema() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let before = schema(&db);
    configure_operation(&db, "POST /api/notes", json!({"preset": "create"}));
    db.run("SELECT idempotency_register_resource('note', 'notes', 'id')");
    let sent = create_note(&mut backend, "POST /api/notes", "k");
    let again = create_note(&mut backend, "POST /api/notes", "k");
    assert_eq!(again, Response { replayed: true, ..sent });
    db.run("DELETE FROM notes");
    assert_eq!(create_note(&mut backend, "POST /api/notes", "k").body["resource_deleted"], true);
    assert_eq!(schema(&db), before);
}

/// Not even a row of settings: the defaults hold, the same key there is another one.
#[test]
fn wired_endpoints_a_new_one_works_without_settings() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let sent = create_note(&mut backend, "POST /api/insulin-logs", "k");
    let again = create_note(&mut backend, "POST /api/insulin-logs", "k");
    assert_eq!(again, Response { replayed: true, ..sent });
    assert!(!create_note(&mut backend, "POST /api/other-logs", "k").replayed);
    assert_eq!(count(&db, "notes"), 2);
}

// ---- explicitly excluded endpoints ---------------------------------------------------------

/// It collapses what looks alike, by content; keys must not get in its way, nor it in theirs.
#[test]
fn excluded_pump_push_goes_by_content_whatever_the_key() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let malformed = "k".repeat(1000);
    for key in [Some("k"), Some("k"), Some("other"), None, Some(""), Some(&*malformed)] {
        assert_eq!(backend.push_event(key, "bolus at noon"), 202);
    }
    assert_eq!(backend.push_event(Some("k"), "another bolus"), 202);
    assert_eq!((count(&db, "pump_events"), db.records()), (2, 0));
}

#[test]
fn excluded_two_meals_that_look_alike_are_two_meals() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    for key in ["one", "two"] {
        assert!(!backend.upload(&Upload::new(Some(key), "the same toast")).replayed);
    }
    assert_eq!((count(&db, "food_records"), backend.vision_calls), (2, 2));
}

/// An answer from memory would be dangerous, so a key is an error; without one it works.
#[test]
fn excluded_validate_bolus_refuses_keys() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    for _ in 0..2 {
        let refusal = backend.validate_bolus(Some("k")).expect_err("it takes no key");
        let detail = format!("\"{VALIDATE_BOLUS}\" must not be called with an idempotency key");
        assert_says(
            refusal,
            "IK007",
            ["operation not keyed", &detail, "a replay of this operation would be unsafe"],
        );
        backend.validate_bolus(None).expect("without a key it works").expect("bypassed");
    }
    let replayed = backend.session.refused(replay_by("alice", VALIDATE_BOLUS, "k"));
    replayed.expect_ours("IK007");
    assert_eq!(db.records(), 0);
}

/// Edits may be repeated as they are, and deletes: the key has no effect, the last write wins.
#[test]
fn excluded_edits_are_last_write_wins() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    backend.upload(&Upload::new(Some("k"), "photo"));
    for (key, text) in [(Some("e"), "first"), (Some("e"), "second"), (None, "third")] {
        backend.session.run("BEGIN");
        backend.session.call(claim_by("alice", CORRECT, key)).expect("bypassed");
        backend.session.run(&format!("UPDATE food_records SET photo = '{text}'"));
        backend.session.call(complete(200)).expect("bypassed");
        backend.session.run("COMMIT");
    }
    let text: String = db.value("SELECT photo FROM food_records");
    assert_eq!((&*text, db.records()), ("third", 1));
}

// ---- mobile wiring -------------------------------------------------------------------------

/// The calls of the phone's interface, each with its own parameter for the header: no interceptor
/// puts one everywhere.
struct Phone<'b> {
    backend: &'b mut Backend,
    /// Photos that are still to be uploaded, each under its row's id.
    outbox: Vec<(&'static str, &'static str)>,
}

impl Phone<'_> {
    /// Sends what is queued; `answers` says of each try whether its answer arrives.
    fn flush(&mut self, answers: &mut dyn Iterator<Item = bool>) {
        let backend = &mut *self.backend;
        self.outbox.retain(|(id, photo)| {
            let response = backend.upload(&Upload::new(Some(id), photo));
            let arrives = answers.next().expect("an answer is planned");
            !(arrives && matches!(response.status, 200 | 201 | 403 | 404 | 422))
        });
    }
}

#[test]
fn mobile_wiring_only_replayed_creates_carry_a_key() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let outbox = vec![("row 1", "toast"), ("row 2", "soup"), ("row 3", "toast")];
    let mut phone = Phone { backend: &mut backend, outbox };
    // Two answers are lost, one of them twice.
    let mut answers = [false, true, false, true, false, true].into_iter();
    while !phone.outbox.is_empty() {
        phone.flush(&mut answers);
    }
    assert_eq!(answers.next(), None);
    backend.upload(&Upload::new(None, "direct, online"));
    backend.push_event(None, "bolus");
    backend.validate_bolus(None).expect("an answer").expect("bypassed");
    assert_eq!((count(&db, "food_records"), backend.vision_calls, db.records()), (4, 4, 3));
}

// What of the design does not concern a database:
//
// - Which columns its own table of keys has, and where the code of its substrate lies: the extension
//   takes their place.
// - The rate limits that bound the growth of that table.
// - Retrofit's and OkHttp's own syntax; what the interface sends is above.
