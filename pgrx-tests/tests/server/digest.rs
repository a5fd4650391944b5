//! The records' primary key is a digest. What is found by it is that of the key asked for, or an error.

use pg_idempotency_tests::lease::{complete_by, lease, resume};
use pg_idempotency_tests::operation::{configure_operation, execute};
use pg_idempotency_tests::prelude::*;
use serde_json::json;

/// As docs/design/layout.md has it.
const DIGEST: &str = "overlay(left(encode(sha256(
        int8send(octet_length(convert_to(scope, 'UTF8'))) || convert_to(scope, 'UTF8') ||
        int8send(octet_length(convert_to(key_space, 'UTF8'))) || convert_to(key_space, 'UTF8') ||
        int8send(octet_length(convert_to(key, 'UTF8'))) || convert_to(key, 'UTF8')
    ), 'hex'), 32)
    PLACING CASE WHEN key ~ '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$'
                 THEN left(key, 8) ELSE '' END FROM 1)::uuid";

/// Of every make: version 7 in either case, and what is none by a character, its version or its variant.
const KEYS: [&str; 10] = [
    "k",
    "\u{e9}\u{df}",
    "a/b",
    "\"quoted key\"",
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "01890A5D-AC96-774B-8CCE-B302099A8057",
    "01890a5dac96774bbcceb302099a8057",
    "01890a5d-ac96-774b-ccce-b302099a8057",
    "01890a5d-ac96-474b-bcce-b302099a8057",
    "01890a5d-ac96-774b-bcce-b302099a805g",
];

/// Gives the record of `key` the names of another one, which only a collision of 128 bits can.
fn forge(db: &Database<'_>, key: &str, column: &str) {
    db.run(&format!(
        "UPDATE idempotency.records SET {column} = {column} || 'x' WHERE key = '{key}'"
    ));
}

/// Catches a digest that SQL cannot compute, and so nobody could check or import.
#[test]
fn the_digest_can_be_computed_in_sql() {
    for options in ["", "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"] {
        let cluster = Cluster::shared();
        let db = if options.is_empty() {
            cluster.database()
        } else {
            let db = cluster.database_with(options);
            db.run("CREATE EXTENSION pg_idempotency; SELECT idempotency_grant('backend')");
            db
        };
        let mut session = db.session("session");
        for key in KEYS {
            execute(&mut session, claim(key), complete(204));
        }
        session.begin(Isolation::ReadCommitted);
        session.call(lease("leased")).expect("claimed");
        session.run("COMMIT");
        let wrong = format!("SELECT count(*) FROM idempotency.records WHERE digest <> {DIGEST}");
        assert_eq!((db.records(), db.value::<i64>(&wrong)), (KEYS.len() as i64 + 1, 0));
        let wrong = format!("SELECT count(*) FROM idempotency.leases WHERE digest <> {DIGEST}");
        assert_eq!(db.value::<i64>(&wrong), 0);
    }
}

/// Catches an answer for the wrong request, and an execution of one that may have been executed.
#[test]
fn a_record_of_another_key_is_an_error() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for column in ["scope", "key_space", "key"] {
        execute(&mut session, claim(column), complete(204));
        forge(&db, column, column);
        for call in [claim(column), replay(column), claim_many(&[column]), lease(column)] {
            let refusal = session.refused(call).expect_ours("XX001");
            refusal.mentions("the record with this key's digest is that of another key");
        }
    }
    assert_eq!(db.records(), 3);
}

/// Catches a record that is replaced because its digest is right.
#[test]
fn an_expired_record_of_another_key_is_not_replaced() {
    let db = Database::fresh();
    configure_operation(&db, "POST /orders", json!({"retention": "1 day"}));
    let mut session = db.session("session");
    execute(&mut session, claim("k"), complete(204));
    db.run("UPDATE idempotency.records SET expires_at = clock_timestamp()");
    session.begin(Isolation::ReadCommitted);
    session.call(claim("k")).expect("claimed");
    forge(&db, "k", "key");
    session.refused(complete(204)).expect_ours("XX001");
    session.run("ROLLBACK");
    assert_eq!(db.value::<String>("SELECT string_agg(key, ',') FROM idempotency.records"), "kx");
}

#[test]
fn a_lease_does_not_go_on_with_the_record_of_another_key() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let token = session.call(lease("k")).expect("claimed").token;
    let token = token.expect("a claim has a token");
    session.begin(Isolation::ReadCommitted);
    session.call(resume(token)).expect("claimed");
    forge(&db, "k", "key");
    session.refused(complete_by(token, 204)).expect_ours("XX001");
    session.run("ROLLBACK");
    for call in [resume(token), complete_by(token, 204)] {
        session.refused(call).expect_ours("XX001");
    }
    assert_eq!(db.value::<String>("SELECT string_agg(key, ',') FROM idempotency.records"), "kx");
}

/// The last line of defence: a record that appears by hand while its key is held.
#[test]
fn two_records_cannot_have_one_digest() {
    let db = Database::fresh();
    let (mut session, mut other) = (db.session("session"), db.session("other"));
    execute(&mut other, claim("k"), complete(204));
    db.run("CREATE TABLE kept AS TABLE idempotency.records; TRUNCATE idempotency.records");
    session.begin(Isolation::ReadCommitted);
    session.call(claim("k")).expect("claimed");
    db.run("INSERT INTO idempotency.records SELECT * FROM kept");
    session.refused(complete(204)).expect("23505").mentions("records_pkey");
}
