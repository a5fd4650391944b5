//! Failover to a standby: keys and effects arrive together or not at all.

use pg_idempotency_tests::moves::{assert_agreement, assert_replayed, order};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::standby::Standby;

const RC: Isolation = Isolation::ReadCommitted;

/// A request whose transaction is prepared; returns what will have been sent.
fn prepare(session: &mut Session, key: &str) -> pg_idempotency_tests::outcome::Answer {
    session.begin(RC);
    session.call(claim(key)).expect("claimed");
    session.run(&format!("INSERT INTO orders (key) VALUES ('{key}')"));
    let sent = session.call(complete(201).with("body", "prepared"));
    session.run(&format!("PREPARE TRANSACTION '{key}'"));
    sent.expect("completed").answer()
}

/// With a synchronous standby nothing that was acknowledged is lost, and what was in flight is undone.
#[test]
fn a_synchronous_standby_loses_nothing() {
    let cluster = Cluster::start("sync-primary", &[]);
    let db = cluster.database();
    let standby = Standby::of(&cluster, "sync-standby");
    db.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
    db.run("SELECT pg_reload_conf()");
    db.wait_until("EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')");
    let mut session = db.session("session");
    let keys: Vec<String> = (0..20).map(|n| format!("k{n:02}")).collect();
    let sent: Vec<_> = keys.iter().map(|key| order(&mut session, key)).collect();
    let prepared = prepare(&mut session, "prepared");
    let mut open = db.session("open");
    open.begin(RC);
    open.call(claim("open")).expect("claimed");
    open.run("INSERT INTO orders (key) VALUES ('open')");
    open.call(complete(201)).expect("completed");

    db.expect_crash();
    cluster.end("KILL");
    standby.promote();
    let db = Database::open(standby.server(), db.name().to_owned());
    let mut session = db.session("session");
    for (key, sent) in keys.iter().zip(&sent) {
        assert_replayed(&mut session, key, sent);
    }
    assert_agreement(&mut db.session_as(Role::Superuser, "superuser"), 20);
    // The prepared transaction still holds its key, on another machine.
    session.call(claim("prepared").with("wait_ms", 0)).expect("in_progress");
    let mut waiter = db.session("waiter");
    waiter.start(claim("prepared").with("wait_ms", -1));
    db.wait_until_blocked_by_prepared(&waiter);
    db.run("COMMIT PREPARED 'prepared'");
    assert_eq!(waiter.finish_call().expect("replayed").answer(), prepared);
    order(&mut session, "open");
    assert_agreement(&mut db.session_as(Role::Superuser, "superuser"), 22);
}

/// With an asynchronous one the last commits may be lost, effect and record alike: the retry is
/// executed, once.
#[test]
fn an_asynchronous_standby_loses_effects_with_their_records() {
    let cluster = Cluster::start("async-primary", &[]);
    let db = cluster.database();
    let standby = Standby::of(&cluster, "async-standby");
    let mut session = db.session("session");
    let arrived = order(&mut session, "arrived");
    standby.catch_up_with(&cluster);
    standby.disconnect();
    db.wait_until("NOT EXISTS (SELECT FROM pg_stat_replication)");
    for n in 0..10 {
        order(&mut session, &format!("lost {n}"));
    }

    db.expect_crash();
    cluster.end("KILL");
    standby.promote();
    let db = Database::open(standby.server(), db.name().to_owned());
    let mut session = db.session("session");
    let mut superuser = db.session_as(Role::Superuser, "superuser");
    assert_replayed(&mut session, "arrived", &arrived);
    assert_agreement(&mut superuser, 1);
    for n in 0..10 {
        let key = format!("lost {n}");
        let sent = order(&mut session, &key);
        assert_replayed(&mut session, &key, &sent);
    }
    assert_agreement(&mut superuser, 11);
}
