//! Design B, bullet by bullet: keyed creates by the preset `create`, and the endpoints that take no
//! part in it. Each test is named after the part of the design and what it says.

use pg_idempotency_tests::food::*;
use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

/// A key as the phone makes it: the id of the row in its outbox.
const KEY: &str = "6f1b24f6-4c0e-4a5e-9d6b-0d7c3a4e9b11";

fn count(db: &Database<'_>, table: &str) -> i64 {
    db.value(&format!("SELECT count(*) FROM {table}"))
}

fn server_id(response: &Response) -> i64 {
    response.body["id"].as_i64().unwrap_or_else(|| panic!("an id in {response:?}"))
}

// ---- the contract: header, optional, malformed, scope --------------------------------------

#[test]
fn contract_header_the_key_is_opaque_and_has_64_characters_at_most() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let (ascii, accents) = ("k".repeat(64), "\u{e9}".repeat(64));
    let keys = [KEY, &KEY.to_uppercase(), &ascii, &accents, "\"quoted\"", "quoted", "a b;c=d", "1"];
    for key in keys {
        let sent = backend.upload(&Upload::new(Some(key), "photo"));
        let again = backend.upload(&Upload::new(Some(key), "photo"));
        assert_eq!((sent.status, sent.replayed, again.replayed), (201, false, true), "{key}");
        assert_eq!(server_id(&again), server_id(&sent));
    }
    assert_eq!(count(&db, "food_records"), keys.len() as i64, "each is another key, byte for byte");
}

#[test]
fn contract_optional_without_the_header_it_is_an_ordinary_create() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let request = Upload::new(None, "photo");
    let (one, other) = (backend.upload(&request), backend.upload(&request));
    assert_eq!((one.status, other.status, one.replayed || other.replayed), (201, 201, false));
    assert_ne!(server_id(&one), server_id(&other));
    assert_eq!((count(&db, "food_records"), db.records()), (2, 0));
}

#[test]
fn contract_malformed_is_422_with_a_detail_string() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    for key in ["", "   ", "\t", &"k".repeat(65), &"\u{e9}".repeat(65)] {
        let refused = backend.upload(&Upload::new(Some(key), "photo"));
        assert_eq!((refused.status, refused.replayed), (422, false), "{key:?}");
        assert!(
            refused.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()),
            "{refused:?}"
        );
    }
    assert_eq!((count(&db, "food_records"), db.records(), backend.vision_calls), (0, 0, 0));
}

#[test]
fn contract_scope_is_user_endpoint_and_key() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let record = backend.upload(&Upload::new(Some(KEY), "photo"));
    let food = backend.save_as_common(Some(KEY), server_id(&record), "toast");
    let bobs = backend.upload(&Upload { user: Some("bob"), ..Upload::new(Some(KEY), "photo") });
    for response in [&record, &food, &bobs] {
        assert_eq!((response.status, response.replayed), (201, false));
    }
    assert_eq!((count(&db, "food_records"), count(&db, "common_foods"), db.records()), (2, 1, 3));
}

#[test]
fn contract_scope_the_payload_is_not_fingerprinted() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let sent = backend.upload(&Upload::new(Some(KEY), "breakfast"));
    let other = backend.upload(&Upload::new(Some(KEY), "another photo"));
    assert_eq!((other.status, other.replayed, &other.body), (201, true, &sent.body));
    assert_eq!(
        (count(&db, "food_records"), backend.vision_calls),
        (1, 1),
        "the new action is lost"
    );
    let fingerprints: i64 = db.value("SELECT count(fingerprint) FROM idempotency.records");
    assert_eq!(fingerprints, 0);
}

// ---- the contract: first request and retry -------------------------------------------------

#[test]
fn contract_first_request_records_the_pointer_and_never_the_body() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let sent = backend.upload(&Upload::new(Some(KEY), "photo"));
    assert_eq!((sent.status, &sent.body["photo"]), (201, &json!("photo")));
    let record: Value = db.value("SELECT to_jsonb(r) FROM idempotency.records r");
    assert_eq!(record["resource_type"], "food_record");
    assert_eq!(record["resource_id"], server_id(&sent).to_string());
    assert_eq!((&record["status"], &record["body"]), (&json!(201), &Value::Null));
    assert!(!record.to_string().contains("photo"), "{record}");
}

/// In one transaction: when the backend dies before its commit, neither the row nor the pointer is
/// there, and the retry creates.
#[test]
fn contract_first_request_records_atomically_with_the_row() {
    let db = database();
    let mut dying = Backend::new(&db, "dying");
    dying.session.run("BEGIN");
    dying.session.call(claim_by("alice", UPLOAD, KEY)).expect("claimed");
    dying.session.run("INSERT INTO food_records (owner, photo) VALUES ('alice', 'photo')");
    let id: i64 = dying.session.value("SELECT id FROM food_records");
    let call =
        complete(201).with("resource_type", "food_record").with("resource_id", id.to_string());
    dying.session.call(call).expect("completed");
    db.terminate(&dying.session);
    assert_eq!((count(&db, "food_records"), db.records()), (0, 0));
    let mut backend = Backend::new(&db, "backend");
    let sent = backend.upload(&Upload::new(Some(KEY), "photo"));
    assert_eq!((sent.status, sent.replayed), (201, false));
    assert_eq!((count(&db, "food_records"), db.records()), (1, 1));
}

#[test]
fn contract_retry_returns_the_original_without_side_effects() {
    let db = database();
    let (mut first, mut second) = (Backend::new(&db, "first"), Backend::new(&db, "second"));
    let sent = first.upload(&Upload::new(Some(KEY), "photo"));
    // The response was dropped on its way; the outbox sends the row again, to another worker.
    for _ in 0..3 {
        let again = second.upload(&Upload::new(Some(KEY), "photo"));
        assert_eq!(again, Response { replayed: true, ..sent.clone() }, "same id, same status");
    }
    assert_eq!((first.vision_calls, second.vision_calls, second.stored_photos.len()), (1, 0, 0));
    assert_eq!((count(&db, "food_records"), db.records()), (1, 1));
}

/// What is replayed is the resource, as it is now: only its pointer was kept.
#[test]
fn contract_retry_shows_the_resource_as_it_is_now() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let sent = backend.upload(&Upload::new(Some(KEY), "photo"));
    db.run("UPDATE food_records SET photo = 'corrected'");
    let again = backend.upload(&Upload::new(Some(KEY), "photo"));
    assert_eq!((again.status, server_id(&again)), (201, server_id(&sent)));
    assert_eq!(again.body["photo"], "corrected");
}

/// Authentication, content type and file part are looked at as ever; only the payload is exempt.
#[test]
fn contract_retry_must_still_be_well_formed() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let request = Upload::new(Some(KEY), "photo");
    backend.upload(&request);
    for (malformed, status) in [
        (Upload { user: None, ..request }, 401),
        (Upload { content_type: "application/json", ..request }, 415),
        (Upload { photo: None, ..request }, 422),
    ] {
        let refused = backend.upload(&malformed);
        assert_eq!((refused.status, refused.replayed), (status, false));
    }
    assert!(backend.upload(&request).replayed);
}

// ---- the contract: deleted, replay first, duplicates ---------------------------------------

#[test]
fn contract_replayed_but_deleted_is_a_tombstone() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let sent = backend.upload(&Upload::new(Some(KEY), "photo"));
    db.run("DELETE FROM food_records");
    let tombstone = json!({"replayed": true, "resource_deleted": true, "resource_type": "food_record",
                           "resource_id": server_id(&sent).to_string()});
    for _ in 0..2 {
        let again = backend.upload(&Upload::new(Some(KEY), "photo"));
        assert_eq!(again, Response { status: 200, body: tombstone.clone(), replayed: true });
    }
    assert_eq!(
        (count(&db, "food_records"), backend.vision_calls),
        (0, 1),
        "nothing is created again"
    );
}

#[test]
fn contract_replay_precedes_every_other_lookup() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let source = server_id(&backend.upload(&Upload::new(Some("upload"), "photo")));
    let sent = backend.save_as_common(Some(KEY), source, "toast");
    db.run("DELETE FROM food_records");
    let again = backend.save_as_common(Some(KEY), source, "toast");
    assert_eq!(again, Response { replayed: true, ..sent }, "the source is gone, and not asked for");
    let new = backend.save_as_common(Some("new"), source, "toast");
    assert_eq!((new.status, new.replayed), (404, false));
}

/// The loser returns the winner's resource without knowing that there was a race; however long the
/// winner takes, it waits.
#[test]
fn contract_concurrent_duplicates_resolve_to_one_resource() {
    const DUPLICATES: u32 = 5;
    let db = database();
    let executed = AtomicU32::new(0);
    let upload = |at: u32| {
        let mut backend = Backend::new(&db, &format!("worker {at}"));
        backend.session.run("SET pg_idempotency.wait_ms = 1");
        let work = |backend: &mut Backend| {
            executed.fetch_add(1, SeqCst);
            db.wait_until_waiting(DUPLICATES as usize - 1);
            let insert =
                "INSERT INTO food_records (owner, photo) VALUES ('alice', 'photo') RETURNING id";
            let id = backend.session.value(insert);
            Ok(Created { resource_type: "food_record", id, body: json!({"id": id}) })
        };
        backend.create(UPLOAD, "alice", Some(KEY), work)
    };
    let responses: Vec<Response> = thread::scope(|scope| {
        let workers: Vec<_> = (0..DUPLICATES).map(|at| scope.spawn(move || upload(at))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends")).collect()
    });
    assert_eq!((executed.load(SeqCst), count(&db, "food_records"), db.records()), (1, 1, 1));
    assert_eq!(responses.iter().filter(|response| response.replayed).count(), 4);
    for response in &responses {
        assert_eq!((response.status, server_id(response)), (201, server_id(&responses[0])));
    }
}

// ---- the contract: terminal errors and retention -------------------------------------------

/// The phone's outbox: what has an answer that will not change is done, the rest is sent again.
struct Outbox(Vec<&'static str>);

impl Outbox {
    fn flush(&mut self, mut send: impl FnMut(&str) -> i32) {
        self.0.retain(|key| !matches!(send(key), 200 | 201 | 403 | 404 | 422));
    }
}

#[test]
fn contract_terminal_errors_leave_the_outbox() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let mut outbox = Outbox(vec!["forbidden", "no source"]);
    // Queued while meal intelligence was on, and flushed after the user had switched it off.
    backend.meal_intelligence = false;
    let mut statuses = Vec::new();
    outbox.flush(|key| {
        let response = match key {
            "forbidden" => backend.upload(&Upload::new(Some(key), "photo")),
            _ => backend.save_as_common(Some(key), 4711, "toast"),
        };
        statuses.push(response.status);
        response.status
    });
    assert_eq!((statuses, outbox.0.len()), (vec![403, 404], 0), "terminal for the item");
    assert_eq!((db.records(), db.keys_held()), (0, 0), "only successes are kept");
    // The server keeps no error: a retry that comes all the same is judged anew.
    backend.meal_intelligence = true;
    assert_eq!(backend.upload(&Upload::new(Some("forbidden"), "photo")).status, 201);
}

#[test]
fn contract_retention_is_for_ever() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let sent = backend.upload(&Upload::new(Some(KEY), "photo"));
    let expires: i64 = db.value("SELECT count(expires_at) FROM idempotency.records");
    assert_eq!(expires, 0);
    db.run("UPDATE idempotency.records SET created_at = created_at - interval '30 years', completed_at = completed_at - interval '30 years'");
    assert_eq!(
        backend.upload(&Upload::new(Some(KEY), "photo")),
        Response { replayed: true, ..sent }
    );
}

/// Growth follows the keyed requests that reach their create, not the rows: a merge by name is one
/// too, retries are none.
#[test]
fn contract_retention_one_row_for_each_keyed_request() {
    let db = database();
    let mut backend = Backend::new(&db, "backend");
    let source = server_id(&backend.upload(&Upload::new(None, "photo")));
    let one = backend.save_as_common(Some("one"), source, "toast");
    let merged = backend.save_as_common(Some("two"), source, "toast");
    assert_eq!((server_id(&merged), merged.replayed), (server_id(&one), false));
    for key in ["one", "two", "two"] {
        assert!(backend.save_as_common(Some(key), source, "toast").replayed);
    }
    backend.save_as_common(Some("no source"), 4711, "toast");
    backend.save_as_common(None, source, "toast");
    assert_eq!((count(&db, "common_foods"), db.records()), (1, 2));
}
