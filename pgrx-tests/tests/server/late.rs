//! Late retries, on a server whose clock is moved: they are executed once, whatever the months, the zones
//! of the sessions, and the changes of settings.

use pg_idempotency_tests::moved_clock::MovedClock;
use pg_idempotency_tests::operation::{configure, execute};
use pg_idempotency_tests::prelude::*;
use serde_json::json;

/// The UUIDv7 that is made at a time, in UTC.
fn key(db: &Database<'_>, time: &str) -> String {
    db.value(&format!(
        "SELECT overlay(lpad(to_hex((extract(epoch FROM timestamptz '{time}+00') * 1000)::bigint), 12, '0')
             PLACING '-' FROM 9 FOR 0) || '-7000-8000-000000000000'"
    ))
}

fn refuse_late(db: &Database<'_>, retention: &str) {
    configure(db, json!({"key_format": "uuidv7", "late_retry": "refuse", "retention": retention}));
}

fn in_zone(db: &Database<'_>, zone: &str) -> Session {
    let mut session = db.session("session");
    session.run(&format!("SET TimeZone = '{zone}'"));
    session
}

fn purge(db: &Database<'_>) -> i64 {
    db.value("SELECT idempotency_purge()")
}

/// A time, and a session's zone.
type When = (&'static str, &'static str);
type Case = (&'static str, &'static str, When, When);

/// Retention, when the key is made, when and in which zone it is executed, when and in which zone it comes
/// again; the times in UTC and in order.
const CASES: [Case; 4] = [
    (
        "1 month",
        "2027-03-30 23:59:00",
        ("2027-03-31 00:01:00", "UTC"),
        ("2027-04-30 00:02:00", "UTC"),
    ),
    (
        "1 day",
        "2027-10-31 00:50:00",
        ("2027-10-31 01:10:00", "Europe/Berlin"),
        ("2027-11-01 01:11:00", "Europe/Berlin"),
    ),
    (
        "1 day",
        "2028-03-25 22:30:00",
        ("2028-03-25 22:30:01", "Europe/Berlin"),
        ("2028-03-26 22:00:00", "UTC"),
    ),
    (
        "30 days",
        "2029-03-20 22:30:00",
        ("2029-03-20 22:30:01", "Europe/Berlin"),
        ("2029-04-19 22:00:00", "UTC"),
    ),
];

/// Catches a period that is added in a session's zone, and one that is added before the later time is chosen.
#[test]
fn a_retry_is_executed_once_in_every_month_and_zone() {
    let clock = MovedClock::start("late-zones", CASES[0].1);
    let db = clock.cluster.database();
    for (retention, made, (first, zone), (again, other_zone)) in CASES {
        refuse_late(&db, retention);
        let key = key(&db, made);
        clock.set(first);
        execute(&mut in_zone(&db, zone), claim(key.as_str()), complete(204));
        clock.set(again);
        purge(&db);
        let outcome = in_zone(&db, other_zone).call(claim(key.as_str()));
        let word = &outcome.outcome;
        assert!(
            ["replayed", "expired"].contains(&word.as_str()),
            "{retention} from {made}: {word}"
        );
    }
}

/// Catches keys that come back when the retention is raised, by a patch, by a preset, or taken out.
#[test]
fn a_raised_retention_brings_no_key_back() {
    for raised in [
        json!({"retention": "30 days"}),
        json!({"retention": null}),
        json!({"preset": "unit_of_work", "key_space": "POST /orders", "fingerprint": "ignored",
               "late_retry": "refuse"}),
    ] {
        let clock = MovedClock::start("late-raise", "2027-06-01 10:00:00");
        let db = clock.cluster.database();
        refuse_late(&db, "1 day");
        let old = key(&db, "2027-06-01 10:00:00");
        execute(&mut db.session("session"), claim(old.as_str()), complete(204));
        clock.set("2027-06-03 10:00:00");
        let mut session = db.session("session");
        session.call(claim(old.as_str())).expect("expired");
        assert_eq!(purge(&db), 1);
        let fresh = key(&db, "2027-06-03 10:00:10");
        clock.set("2027-06-03 10:01:00");
        configure(&db, raised);
        session.call(claim(old.as_str())).expect("expired");
        // Younger than each retention since it was made: that of one day ended before its day was over.
        let young = key(&db, "2027-06-03 10:02:00");
        clock.set("2027-06-05 10:00:00");
        session.call(claim(fresh.as_str())).expect("expired");
        execute(&mut session, claim(young.as_str()), complete(204));
    }
}

/// Catches a claim that is decided by settings of before its wait. The second key is executed, expires and
/// is purged by other settings, while the claim of both waits for the first.
#[test]
fn a_claim_that_waited_decides_by_the_settings_of_now() {
    let clock = MovedClock::start("late-waited", "2027-06-01 10:00:00");
    let db = clock.cluster.database();
    refuse_late(&db, "30 days");
    let first = key(&db, "2027-06-01 09:59:00");
    let second = key(&db, "2027-06-01 09:59:30");
    let (mut holder, mut waiter) = (db.session("holder"), db.session("waiter"));
    holder.begin(Isolation::ReadCommitted);
    holder.call(claim(first.as_str())).expect("claimed");
    waiter.begin(Isolation::ReadCommitted);
    waiter.start(claim_many(&[first.as_str(), second.as_str()]).with("wait_ms", -1));
    db.wait_until_blocked(&waiter, &holder);
    refuse_late(&db, "1 hour");
    execute(&mut db.session("other"), claim(second.as_str()), complete(204));
    clock.set("2027-06-01 12:00:00");
    assert_eq!(purge(&db), 1);
    holder.run("ROLLBACK");
    let rows = waiter.finish().expect("rows");
    let second: String = rows[1].get("outcome");
    assert_eq!(second, "expired");
}

/// Catches a purge that acts by settings that are just being changed.
#[test]
fn nothing_is_purged_while_settings_are_changed() {
    let clock = MovedClock::start("late-configure", "2027-06-01 10:00:00");
    let db = clock.cluster.database();
    refuse_late(&db, "1 day");
    let key = key(&db, "2027-06-01 10:00:00");
    execute(&mut db.session("session"), claim(key.as_str()), complete(204));
    clock.set("2027-06-05 10:00:00");
    let mut operator = db.session_as(Role::Superuser, "operator");
    operator.run("BEGIN; SELECT idempotency_configure('POST /orders', '{\"wait_ms\": 1}')");
    assert_eq!(purge(&db), 0);
    operator.run("COMMIT");
    assert_eq!(purge(&db), 1);
}

/// Catches a sum that is not PostgreSQL's own in UTC: months, leap days, both ends of the year.
#[test]
fn a_period_is_added_as_postgresql_adds_it_in_utc() {
    let clock = MovedClock::start("late-sums", "2027-01-01 12:00:00");
    let db = clock.cluster.database();
    for (day, retention) in ["2027-01-31", "2027-12-31", "2028-02-29", "2028-10-29", "2100-02-28"]
        .into_iter()
        .flat_map(|day| {
            ["1 month", "13 months 3 days 05:06:07.000008", "4 years", "1 day"].map(|r| (day, r))
        })
    {
        clock.set(&format!("{day} 23:30:00"));
        configure(&db, json!({"retention": retention}));
        let key = format!("{day} {retention}");
        execute(&mut in_zone(&db, "America/New_York"), claim(key.as_str()), complete(204));
        let right = format!(
            "SELECT expires_at AT TIME ZONE 'UTC' = completed_at AT TIME ZONE 'UTC' + interval '{retention}'
             FROM idempotency.records WHERE key = '{key}'"
        );
        assert!(db.value::<bool>(&right), "{key}");
    }
}
