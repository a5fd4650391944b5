//! READ ONLY transactions and hot standbys: replay works, claim says at once that it cannot.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use pg_idempotency_tests::standby::Standby;
use pg_idempotency_tests::wait;

/// What can be asked where nothing can be written.
fn assert_reads_only(session: &mut Session, sent: &Outcome) {
    assert_eq!(session.call(replay("k")).expect("replayed").answer(), sent.answer());
    session.call(replay("new")).expect("unknown");
    session.call(replay("k").with("fingerprint", [1; 32])).expect("mismatch").expect_problem(422);
    session.call(replay(None::<&str>)).expect("bypassed");
    session.refused_inside_savepoint(claim("new"), "25006");
    session.refused_inside_savepoint(claim("k"), "25006");
    session.refused_inside_savepoint(claim_many(&["new"]), "25006");
    session.call(claim(None::<&str>)).expect("bypassed");
    session.call(claim("")).expect("invalid").expect_problem(400);
    assert_eq!(
        session.call(complete(200).with("body", "passed")).expect("bypassed").text(),
        "passed"
    );
}

fn a_read_only_transaction_replays_and_does_not_claim(db: &Database<'_>, isolation: Isolation) {
    let mut session = db.session("session");
    let sent = shop::create_order(&mut session, isolation, "k").expect("it succeeds");
    session.run(&format!("BEGIN ISOLATION LEVEL {} READ ONLY", isolation.sql()));
    assert_reads_only(&mut session, &sent);
    assert_eq!(db.key_locks_of(&session), 0);
    session.run("COMMIT");
}

at_every_isolation!(a_read_only_transaction_replays_and_does_not_claim);

/// Catches a claim that waits first and refuses then.
#[test]
fn a_read_only_claim_is_refused_before_any_wait() {
    let db = Database::fresh();
    let (mut holder, mut session) = (db.session("holder"), db.session("session"));
    holder.run("BEGIN");
    holder.call(claim("k")).expect("claimed");
    session.run("BEGIN READ ONLY");
    session.start(claim("k").with("wait_ms", -1));
    let refusal = session.finish_refused().expect("25006");
    assert!(refusal.db().message().contains("idempotency_claim"), "{refusal:?}");
}

/// DEFERRABLE waits for a safe snapshot and then reads without a thought; so does replay.
#[test]
fn a_serializable_read_only_deferrable_transaction_replays() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let sent = shop::create_order(&mut session, Isolation::Serializable, "k").expect("it succeeds");
    session.run("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE");
    assert_eq!(session.call(replay("k")).expect("replayed").answer(), sent.answer());
    session.run("COMMIT");
}

#[test]
fn a_transaction_made_read_only_after_the_claim_cannot_complete() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run("SET TRANSACTION READ ONLY");
    session.refused(complete(204)).expect("25006");
    session.run("ROLLBACK");
    assert_eq!(db.records(), 0);
}

/// Catches a snapshot that sees nothing, or too much, on a standby.
#[test]
fn a_hot_standby_replays_and_does_not_claim() {
    let cluster = Cluster::start("standby-primary", &[]);
    let db = cluster.database();
    let standby = Standby::of(&cluster, "standby");
    let mut session = db.session("session");
    let sent =
        shop::create_order(&mut session, Isolation::ReadCommitted, "k").expect("it succeeds");
    session.run("BEGIN");
    session.call(claim("uncommitted")).expect("claimed");
    session.call(complete(204)).expect("completed");
    standby.catch_up_with(&cluster);
    let mut reader = standby.session(db.name(), "reader");
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        reader.begin(isolation);
        assert_reads_only(&mut reader, &sent);
        reader.call(replay("uncommitted")).expect("unknown");
        reader.run("COMMIT");
    }
}

/// A replica that lags says `unknown`, never "new": the claim on the primary then finds the record.
#[test]
fn a_standby_that_lags_leads_to_a_replay_on_the_primary() {
    let cluster = Cluster::start("lagging-primary", &[]);
    let db = cluster.database();
    db.run(
        "GRANT EXECUTE ON FUNCTION pg_wal_replay_pause, pg_wal_replay_resume, pg_get_wal_replay_pause_state
         TO backend",
    );
    let standby = Standby::of(&cluster, "lagging-standby");
    standby.catch_up_with(&cluster);
    let (mut reader, mut session) = (standby.session(db.name(), "reader"), db.session("session"));
    reader.run("SELECT pg_wal_replay_pause()");
    wait::until("the standby stands still", || {
        (reader.value::<String>("SELECT pg_get_wal_replay_pause_state()") == "paused").then_some(())
    });
    let sent =
        shop::create_order(&mut session, Isolation::ReadCommitted, "k").expect("it succeeds");
    reader.call(replay("k")).expect("unknown");
    let found =
        shop::create_order(&mut session, Isolation::ReadCommitted, "k").expect("it succeeds");
    assert_eq!(found.expect("replayed").answer(), sent.expect("completed").answer());
    reader.run("SELECT pg_wal_replay_resume()");
    standby.catch_up_with(&cluster);
    reader.call(replay("k")).expect("replayed");
    assert_eq!(db.orders("k"), 1);
}
