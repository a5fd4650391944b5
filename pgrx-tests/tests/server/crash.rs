//! Crashes: what was completed survives, what was claimed is free.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{moves, process, shop};

fn kill(session: &Session) {
    let pid = u32::try_from(session.pid()).expect("a pid is positive");
    assert!(process::signal(pid, "KILL"), "the backend is there to be killed");
}

/// One key completed and committed, one completed and not committed, one claimed; the last two in
/// open transactions.
struct Before {
    sent: Outcome,
    owner: Session,
    _completed_not_committed: Session,
}

fn leave_open(db: &Database<'_>) -> Before {
    let mut done = db.session("done");
    let sent =
        shop::create_order(&mut done, Isolation::ReadCommitted, "done").expect("it succeeds");
    let mut owner = db.session("owner");
    owner.run("BEGIN");
    owner.call(claim("claimed")).expect("claimed");
    let mut almost = db.session("almost");
    almost.run("BEGIN");
    almost.call(claim("almost")).expect("claimed");
    shop::work(&mut almost, "almost").expect("it succeeds").expect("completed");
    Before { sent, owner, _completed_not_committed: almost }
}

fn assert_recovered(db: &Database<'_>, before: &Before) {
    let mut session = db.session("after");
    assert_eq!(session.call(claim("done")).expect("replayed").answer(), before.sent.answer());
    assert_eq!(
        (db.keys_held(), db.orders("done"), db.orders("almost"), db.records()),
        (0, 1, 0, 1)
    );
    for key in ["claimed", "almost"] {
        let sent =
            shop::create_order(&mut session, Isolation::ReadCommitted, key).expect("it succeeds");
        sent.expect("completed");
        assert_eq!(db.orders(key), 1);
    }
}

/// The server restarts all its backends when one of them is killed.
#[test]
fn the_owners_backend_is_killed() {
    let cluster = Cluster::start("crash-backend", &[]);
    let db = cluster.database();
    db.expect_crash();
    let before = leave_open(&db);
    kill(&before.owner);
    db.reconnect();
    assert_recovered(&db, &before);
}

/// Without a checkpoint in between: all of it comes out of the log.
#[test]
fn the_postmaster_is_killed_and_started_again() {
    let cluster = Cluster::start("crash-postmaster", &[]);
    let db = cluster.database();
    let before = leave_open(&db);
    cluster.end("KILL");
    cluster.start();
    db.reconnect();
    assert_recovered(&db, &before);
}

/// An immediate shutdown is a crash too, by another signal.
#[test]
fn the_server_is_shut_down_at_once_and_started_again() {
    let cluster = Cluster::start("crash-immediate", &[]);
    let db = cluster.database();
    let before = leave_open(&db);
    cluster.end("QUIT");
    cluster.start();
    db.reconnect();
    assert_recovered(&db, &before);
}

/// Terminated, not killed: only the owner goes, and its key with it.
#[test]
fn the_owner_is_terminated_and_the_next_one_claims_at_once() {
    let db = Database::fresh();
    let before = leave_open(&db);
    db.terminate(&before.owner);
    let mut next = db.session("next");
    next.call(claim("claimed").with("wait_ms", 0)).expect("claimed");
}

/// Commits that nobody waited for may be lost, but each with its record: what was lost can be executed
/// once, and what was not is replayed.
#[test]
fn commits_that_were_not_waited_for_are_lost_with_their_records() {
    // The log is written where its buffers are full. Its writer stands still, so that something is lost.
    let settings = ["synchronous_commit = off", "wal_buffers = 64kB"];
    let cluster = Cluster::start("crash-asynchronous", &settings);
    let db = cluster.database();
    let writer: i32 = db.value("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
    let writer = u32::try_from(writer).expect("a pid is positive");
    assert!(process::signal(writer, "STOP"), "the writer is there to be stopped");
    let mut session = db.session("before");
    let keys: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    let sent: Vec<_> = keys.iter().map(|key| moves::order(&mut session, key)).collect();
    cluster.end("KILL");
    assert!(process::signal(writer, "KILL"), "the writer stands still");
    cluster.start();
    db.reconnect();
    let mut superuser = db.session_as(Role::Superuser, "superuser");
    let kept: i64 = superuser.value("SELECT count(*) FROM orders");
    assert!((1..200).contains(&kept), "{kept} are kept: all or none shows nothing");
    moves::assert_agreement(&mut superuser, kept);
    let mut session = db.session("after");
    for (n, (key, sent)) in keys.iter().zip(&sent).enumerate() {
        if n < usize::try_from(kept).expect("a count") {
            moves::assert_replayed(&mut session, key, sent);
        } else {
            moves::order(&mut session, key);
        }
    }
    moves::assert_agreement(&mut superuser, 200);
}
