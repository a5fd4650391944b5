//! `idempotency_purge` on a table that is not read as a whole each time: `idempotency.stretches`.

use pg_idempotency_tests::operation::execute;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::purge::{Gate, purge, purge_once, purger};

/// Four records of this size fill a block.
const BODY: usize = 1600;
const IN_A_BLOCK: i64 = 4;
/// Records in a stretch of 1024 blocks.
const IN_A_STRETCH: i64 = 1024 * IN_A_BLOCK;
/// A few stretches are always read as a whole.
const STRETCHES: i64 = 10;

/// Records in the order of their numbers, which are their keys; `expires_at` is SQL of the number `n`.
fn fill(db: &Database<'_>, expires_at: &str) {
    let body = complete(200).with("body_bytes", (0..BODY).map(|n| n as u8).collect::<Vec<u8>>());
    execute(&mut db.session("filler"), claim("0"), body);
    db.run(&format!(
        "INSERT INTO idempotency.records
         SELECT copy.* FROM generate_series(1, {}) AS n, idempotency.records AS r,
              LATERAL jsonb_populate_record(r, jsonb_build_object('key', n::text, 'digest', gen_random_uuid(),
                                                'token', gen_random_uuid(), 'expires_at', {expires_at})) AS copy
         WHERE r.key = '0'",
        IN_A_STRETCH * STRETCHES - 1
    ));
    let stretches: i64 = db.value("SELECT pg_relation_size('idempotency.records') / (1024 * 8192)");
    assert!(stretches > 8 && stretches <= STRETCHES, "{stretches}");
}

fn hints(db: &Database<'_>, condition: &str) -> i64 {
    db.value(&format!("SELECT count(*) FROM idempotency.stretches WHERE {condition}"))
}

const IN_A_DAY: &str =
    "due BETWEEN clock_timestamp() + interval '23 h' AND clock_timestamp() + interval '24 h'";

/// Each part is looked at when the first of its records expires, and after a day. What the hint knows
/// nothing of waits until then.
#[test]
fn a_part_is_looked_at_when_something_in_it_is_due() {
    let db = Database::fresh();
    let [gone, soon, late] = [1, 3, 5].map(|stretch| stretch * IN_A_STRETCH + 7);
    fill(
        &db,
        &format!(
            "CASE WHEN n IN ({gone}, {late}) THEN now() WHEN n = {soon} THEN now() + interval '1 h' END"
        ),
    );
    db.run(
        "INSERT INTO idempotency.stretches VALUES (5, clock_timestamp() + interval '23 h 30 min')",
    );
    let mut session = purger(&db);
    assert_eq!(purge_once(&mut session), 1);
    assert_eq!(purge_once(&mut session), 0);
    assert_eq!((hints(&db, "true"), hints(&db, IN_A_DAY)), (STRETCHES, STRETCHES - 1));
    let of_its_record =
        format!("due = (SELECT expires_at FROM idempotency.records WHERE key = '{soon}')");
    assert_eq!(hints(&db, &of_its_record), 1);
    db.run("UPDATE idempotency.stretches SET due = due - interval '1 day'");
    assert_eq!(purge_once(&mut session), 1);
    assert_eq!((hints(&db, IN_A_DAY), hints(&db, &of_its_record)), (STRETCHES - 1, 1));
}

/// What a batch could not take is due at once; in the end nothing is left.
#[test]
fn small_batches_come_to_an_end() {
    let db = Database::fresh();
    fill(&db, "CASE WHEN n % 5 = 0 THEN now() END");
    let expired: i64 =
        db.value("SELECT count(*) FROM idempotency.records WHERE expires_at IS NOT NULL");
    let mut session = purger(&db);
    let mut batches = vec![];
    while batches.last() != Some(&0) {
        batches.push(session.value::<i64>(purge(1500)));
    }
    assert_eq!(batches.iter().sum::<i64>(), expired);
    assert!(batches.iter().rev().skip(2).all(|batch| *batch == 1500), "{batches:?}");
    assert_eq!(hints(&db, IN_A_DAY), STRETCHES);
}

/// Catches what is noted of the parts in memory that is gone with the work on the records: a crash.
#[test]
fn one_batch_goes_through_many_parts() {
    let db = Database::fresh();
    fill(&db, "CASE WHEN n % 10 = 0 THEN now() END");
    let mut session = purger(&db);
    assert_eq!(session.value::<i64>(purge(100)), 100);
    assert_eq!(purge_once(&mut session), (IN_A_STRETCH * STRETCHES - 1) / 10 - 100);
    assert_eq!((purge_once(&mut session), hints(&db, IN_A_DAY)), (0, STRETCHES));
}

/// Who finds a part taken goes on with the next.
#[test]
fn two_purges_share_the_parts() {
    let db = Database::fresh();
    fill(&db, &format!("CASE WHEN n % {IN_A_STRETCH} = 100 THEN now() END"));
    db.run(&format!("INSERT INTO idempotency.stretches SELECT n, '-infinity' FROM generate_series(0, {STRETCHES} - 1) AS n"));
    let mut gate = Gate::closed(&db, "AFTER");
    let mut one = db.session_as(Role::Superuser, "purger");
    let mut two = db.session_as(Role::Superuser, "another");
    one.start("SELECT idempotency_purge(1)");
    db.wait_until(
        "EXISTS (SELECT FROM pg_locks JOIN pg_database AS d ON d.oid = database
                 WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted)",
    );
    assert_eq!(purge_once(&mut two), STRETCHES - 1);
    gate.open();
    assert_eq!(one.finish().expect("it succeeds")[0].get::<_, i64>(0), 1);
    assert_eq!(
        db.value::<i64>("SELECT count(*) FROM idempotency.records WHERE expires_at IS NOT NULL"),
        0
    );
}

/// The hint may say what it will: it is never more than that.
#[test]
fn a_hint_that_is_wrong_does_no_harm() {
    let db = Database::fresh();
    fill(&db, "CASE WHEN n % 1000 = 0 THEN now() END");
    db.run("INSERT INTO idempotency.stretches VALUES (2147483647, '-infinity'), (-1, '-infinity'), (-2147483648, '-infinity'), (99, '-infinity')");
    assert_eq!(purge_once(&mut purger(&db)), (IN_A_STRETCH * STRETCHES - 1) / 1000);
    assert_eq!(hints(&db, "stretch NOT BETWEEN 0 AND 9"), 0);
    db.run("TRUNCATE idempotency.records; UPDATE idempotency.stretches SET due = '-infinity'");
    assert_eq!(purge_once(&mut purger(&db)), 0);
    assert_eq!(hints(&db, "true"), 0);
}
