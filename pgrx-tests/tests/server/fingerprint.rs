//! The pure functions through SQL: what the core's own tests cannot show.

use std::fs;

use pg_idempotency_tests::prelude::*;
use postgres::Client;
use serde_json::Value;

const VECTORS: &str = include_str!("../../../crates/core/tests/data/fingerprint.jsonl");

fn client(db: &Database<'_>) -> Client {
    db.server().connect(Role::Superuser, db.name())
}

/// The request of a vector, and what one SQL expression makes of it.
fn ask(client: &mut Client, expression: &str, vector: &Value) -> Option<String> {
    let text = |field: &str| vector[field].as_str();
    let request = "SELECT $1::text AS method, $2::text AS path, decode($3::text, 'base64') AS body";
    let sql = format!("SELECT {expression} FROM ({request}) AS r");
    let row = client.query_one(&sql, &[&text("method"), &text("path"), &text("body")]);
    row.unwrap_or_else(|error| panic!("{}: {error:?}", vector["name"])).get(0)
}

#[test]
fn every_vector_has_its_fingerprint() {
    let db = Database::fresh();
    let mut client = client(&db);
    let fingerprint = "encode(idempotency_fingerprint(method, path, body_bytes => body), 'hex')";
    let mut vectors = 0;
    for line in VECTORS.lines() {
        let vector: Value = serde_json::from_str(line).expect("a vector");
        let sha256 = ask(&mut client, fingerprint, &vector);
        assert_eq!(sha256.as_deref(), vector["sha256"].as_str(), "{}", vector["name"]);
        vectors += 1;
    }
    assert_eq!(vectors, 185);
}

#[test]
fn every_canonical_body_is_the_required_one() {
    let db = Database::fresh();
    let mut client = client(&db);
    let canonical =
        "encode(convert_to(idempotency_canonicalize(body_bytes => body), 'UTF8'), 'hex')";
    let mut checked = 0;
    for line in VECTORS.lines() {
        let vector: Value = serde_json::from_str(line).expect("a vector");
        let Some(expected) = vector["canonical"].as_str().filter(|_| vector["kind"] == "jcs")
        else {
            continue;
        };
        let expected: String = client
            .query_one("SELECT encode(decode($1::text, 'base64'), 'hex')", &[&expected])
            .expect("base64")
            .get(0);
        assert_eq!(ask(&mut client, canonical, &vector), Some(expected), "{}", vector["name"]);
        checked += 1;
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn text_and_bytes_are_the_same_body() {
    let db = Database::fresh();
    for (one, other) in [
        ("body => '{\"a\": 1}'", "body_bytes => '{\"a\": 1}'"),
        ("body => NULL", "body_bytes => ''"),
        ("exclude => NULL", "exclude => '{}'"),
        ("body => '{\"a\": 1, \"id\": 7}', exclude => '{/id}'", "body => '{\"a\": 1.0}'"),
        ("include_query => NULL", "include_query => false"),
    ] {
        let same: bool = db.value(&format!(
            "SELECT idempotency_fingerprint('post', '/o', {one}) = idempotency_fingerprint('POST', '/o', {other})"
        ));
        assert!(same, "{one} and {other}");
    }
}

#[test]
fn a_keyed_fingerprint_is_hmac_sha_256() {
    let db = Database::fresh();
    // RFC 2104 by hand: H(key ^ opad, H(key ^ ipad, message)), for the key 'k' and 'POST' LF '/o' LF.
    let hmac: String =
        db.value("SELECT encode(idempotency_fingerprint('POST', '/o', hmac_key => 'k'), 'hex')");
    let pad = |byte: &str| {
        format!(
            "decode('{byte}' || repeat('{}', 63), 'hex')",
            if byte == "5d" { "36" } else { "5c" }
        )
    };
    let by_hand: String = db.value(&format!(
        "SELECT encode(sha256({} || sha256({} || convert_to(E'POST\\n/o\\n', 'UTF8'))), 'hex')",
        pad("37"),
        pad("5d"),
    ));
    assert_eq!(hmac, by_hand);
}

#[test]
fn bad_arguments_are_named() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for (call, code, detail) in [
        ("idempotency_fingerprint(NULL, '/')", "22004", "no value for method"),
        ("idempotency_fingerprint('POST', NULL)", "22004", "no value for path"),
        ("idempotency_fingerprint(E'PO\\nST', '/')", "22023", "line feed in the method"),
        ("idempotency_fingerprint('POST', E'/\\n')", "22023", "line feed in the path"),
        (
            "idempotency_fingerprint('POST', '/', '{}', '{}'::bytea)",
            "22023",
            "Both body and body_bytes",
        ),
        ("idempotency_fingerprint('POST', '/', exclude => '{a}')", "22023", "malformed pointer 1"),
        (
            "idempotency_fingerprint('POST', '/', exclude => '{/a,NULL}')",
            "22004",
            "an element of exclude",
        ),
        (
            "idempotency_fingerprint('POST', '/', exclude => '{{/a},{/b}}')",
            "22023",
            "several dimensions",
        ),
        ("idempotency_fingerprint('POST', '/', hmac_key => '')", "22023", "empty HMAC key"),
        (
            "idempotency_canonicalize('{\"a\":1,\"a\":2}')",
            "22032",
            "duplicate member name at byte 7",
        ),
        (
            "idempotency_canonicalize('[9007199254740993]')",
            "22032",
            "integer that a double cannot hold",
        ),
        ("idempotency_canonicalize('')", "22032", "unexpected end at byte 0"),
        ("idempotency_parse_key('')", "22023", "too short"),
        ("idempotency_parse_key('abc', 'uuid')", "22023", "is not a UUID"),
        ("idempotency_parse_key('abc', 'ulid')", "22023", "ulid"),
        ("idempotency_parse_key('abc', max_length => 2)", "22023", "too long"),
        ("idempotency_parse_key('abc', max_length => 0)", "22023", "It is 0"),
    ] {
        session.run_refused(&format!("SELECT {call}")).expect_ours(code).mentions(detail);
    }
}

#[test]
fn keys_are_parsed() {
    let db = Database::fresh();
    for (call, key) in [
        ("' \"a\\\"b\" '", "a\"b"),
        ("'abc'", "abc"),
        (
            "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'uuidv4'",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
    ] {
        assert_eq!(db.value::<String>(&format!("SELECT idempotency_parse_key({call})")), key);
    }
    assert!(db.value::<bool>(
        "SELECT idempotency_parse_key(NULL) IS NULL AND idempotency_canonicalize() IS NULL"
    ));
}

/// Clock ticks of processor time that a server process has used so far (proc(5), utime).
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the backend is alive");
    let fields = stat.rsplit(')').next().expect("behind the name");
    fields.split_whitespace().nth(11).and_then(|utime| utime.parse().ok()).expect("utime")
}

/// A body of 200 MB that has to be put into another order, in a session that is about to start on it:
/// the statement waits for a lock once the body is there.
fn about_to_start(db: &Database<'_>, function: &str) -> (Session, Session) {
    let mut holder = db.session_as(Role::Superuser, "holder");
    holder.run("BEGIN; SELECT pg_advisory_xact_lock(1)");
    let mut worker = db.session_as(Role::Superuser, "worker");
    worker.start(format!(
        "SELECT {function} FROM (SELECT convert_to('[' || repeat('{{\"b\":1,\"a\":2}},', 14000000) || '0]', 'UTF8') \
         AS body, pg_advisory_xact_lock(1) OFFSET 0) AS built"
    ).as_str());
    db.wait_until_blocked(&worker, &holder);
    (worker, holder)
}

/// Catches a phase that never looks for interrupts. A tick is 10 ms; what counts is the backend's own
/// processor time from the cancel on, however busy the machine is.
#[test]
fn a_cancel_ends_a_large_body_at_once() {
    let db = Database::fresh();
    for function in [
        "idempotency_fingerprint('POST', '/', body_bytes => body)",
        "length(idempotency_canonicalize(body_bytes => body))",
    ] {
        let (mut worker, mut holder) = about_to_start(&db, function);
        let before = ticks(worker.pid());
        holder.run("COMMIT");
        while ticks(worker.pid()) < before + 10 {
            assert!(!worker.has_finished(), "{function} took less than 100 ms");
            std::thread::yield_now();
        }
        let at_cancel = ticks(worker.pid());
        worker.cancel();
        worker.finish_refused().expect("57014");
        let spent = ticks(worker.pid()) - at_cancel;
        assert!(spent <= 10, "{function} went on for {spent} ticks");
    }
}
