//! Replay takes no lock, and still never misses a leased request that is changed at that moment.

use pg_idempotency_tests::lease::{
    LONG, changes, complete_by, everything, lease, resume, run_out, start,
};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::standby::Standby;
use pg_idempotency_tests::wait;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use uuid::Uuid;

const READERS: usize = 3;

/// Looks for the latest request that is committed and asks for it, many times in one call: a client
/// would come too seldom. What is returned is what was known before each answer, and the answer.
const READ: &str = "
    CREATE FUNCTION read(times integer) RETURNS SETOF text LANGUAGE plpgsql AS $$
    DECLARE
        latest text; finished boolean;
    BEGIN
        FOR n IN 1..times LOOP
            SELECT key, completed_at IS NOT NULL INTO latest, finished
                FROM idempotency.records ORDER BY key DESC LIMIT 1;
            CONTINUE WHEN latest IS NULL;
            RETURN QUERY SELECT CASE WHEN finished THEN 'finished: ' ELSE 'under way: ' END || outcome
                FROM idempotency_replay('alice', 'POST /orders', latest);
        END LOOP;
    END $$";

/// One request after the other: each has a live lease from its first commit on, is changed again and
/// again, each time in a transaction of its own, and is completed then.
fn writing(rounds: u32, changes: u32, change: &str) -> String {
    format!(
        "DO $$
         DECLARE
             held uuid; latest text;
         BEGIN
             FOR round IN 1..{rounds} LOOP
                 latest := to_char(round, 'FM0000');
                 SELECT token INTO held
                     FROM idempotency_claim('alice', 'POST /orders', latest, lease_ms => {LONG});
                 COMMIT;
                 FOR n IN 1..{changes} LOOP
                     {change};
                     COMMIT;
                 END LOOP;
                 PERFORM idempotency_complete(204, token => held);
                 COMMIT;
             END LOOP;
         END $$"
    )
}

/// Has readers ask for requests while a writer changes them. Vacuum runs along, so that new row
/// versions come to lie before old ones too: that is where a look from first to last misses both.
fn hammer(rounds: u32, changes: u32, change: &str) {
    let db = Database::fresh();
    db.run(READ);
    let mut writer = db.session_as(Role::Superuser, "writer");
    writer.run("SET pg_idempotency.lock_order = off");
    let over = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|n| db.session_as(Role::Superuser, &format!("reader {n}")))
            .map(|session| scope.spawn(|| read_until(&over, session)))
            .collect();
        writer.start(writing(rounds, changes, change));
        let written =
            std::panic::catch_unwind(AssertUnwindSafe(|| vacuum_until_done(&db, &mut writer)));
        over.store(true, SeqCst);
        written.unwrap_or_else(|panic| resume_unwind(panic));
        readers.into_iter().flat_map(|reader| reader.join().expect("no reader panics")).collect()
    });
    assert_never_missed(seen);
}

fn vacuum_until_done(db: &Database<'_>, writer: &mut Session) {
    wait::until("the writer is done", || {
        db.run("VACUUM idempotency.records");
        db.run("VACUUM idempotency.leases");
        writer.has_finished().then_some(())
    });
    writer.finish().unwrap_or_else(|refusal| panic!("the writer failed: {refusal:?}"));
}

fn read_until(over: &AtomicBool, mut session: Session) -> Vec<(String, i64)> {
    let mut seen = Vec::new();
    while !over.load(SeqCst) {
        let sql = "SELECT told, count(*) FROM read(200) AS told GROUP BY told";
        seen.extend(session.rows(sql).iter().map(|row| (row.get(0), row.get(1))));
    }
    seen
}

/// A request that was under way may have been finished by the time of the answer, and that is all.
#[track_caller]
fn assert_never_missed(seen: Vec<(String, i64)>) {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for (answer, times) in seen {
        *counts.entry(answer).or_default() += times;
    }
    let expected = ["finished: replayed", "under way: in_progress", "under way: replayed"];
    let wrong: Vec<_> =
        counts.iter().filter(|(what, _)| !expected.contains(&what.as_str())).collect();
    assert!(wrong.is_empty(), "{wrong:?} among {counts:?}");
    assert!(counts.contains_key("under way: in_progress"), "readers came in time: {counts:?}");
}

#[test]
fn a_checkpoint_is_never_in_the_way_of_a_replay() {
    hammer(20, 100, "PERFORM idempotency_checkpoint(held, 'further')");
}

#[test]
fn an_extension_is_never_in_the_way_of_a_replay() {
    hammer(20, 100, &format!("PERFORM idempotency_extend(held, {LONG} + n)"));
}

#[test]
fn a_repeated_claim_is_never_in_the_way_of_a_replay() {
    let again = format!(
        "idempotency_claim('alice', 'POST /orders', latest, lease_ms => {LONG}, token => held)"
    );
    hammer(20, 100, &format!("PERFORM {again}"));
}

/// The deadline passes in the transaction that takes over, so to everybody else the request is
/// under way without a gap: by the old lease up to the commit, by the new one from then on.
#[test]
fn a_take_over_is_never_in_the_way_of_a_replay() {
    let take_over = format!(
        "UPDATE idempotency.leases SET deadline = clock_timestamp() WHERE token = held;
         SELECT token INTO STRICT held
             FROM idempotency_claim('alice', 'POST /orders', latest, lease_ms => {LONG})"
    );
    hammer(20, 100, &take_over);
}

/// Completing alone: nothing but the moment at which a lease's record becomes an answer.
#[test]
fn a_completion_is_never_in_the_way_of_a_replay() {
    hammer(2_000, 0, "NULL");
}

// ---- where nothing can be written ------------------------------------------------------------

/// Leases of every age, by key: `live`, `expired`, `held` (expired, of an operation that holds) and
/// `done`. Returns the tokens of the live and the expired one.
fn leases_of_every_age(db: &Database<'_>) -> [Uuid; 2] {
    let mut worker = db.session("worker");
    let [live, expired, done] =
        ["live", "expired", "done"].map(|key| start(&mut worker, Isolation::ReadCommitted, key));
    run_out(db, expired);
    worker.call(complete_by(done, 201).with("body", "done")).expect("completed");
    [live, expired]
}

/// Replay works, by the deadline that is recorded; what would hold or change a lease says so.
fn assert_reads_only(session: &mut Session, tokens: [Uuid; 2]) {
    session.call(replay("live")).expect("in_progress").expect_problem(409);
    // Nobody works on it and there is no answer: whoever may claim is to find out more.
    session.call(replay("expired")).expect("unknown");
    assert_eq!(session.call(replay("done")).expect("replayed").text(), "done");
    session.refused_inside_savepoint(lease("new"), "25006").mentions("idempotency_claim()");
    session.refused_inside_savepoint(lease("expired"), "25006");
    for token in tokens {
        session.refused_inside_savepoint(resume(token), "25006").mentions("idempotency_resume()");
        for (_, change) in changes(token) {
            session.refused_inside_savepoint(change, "25006");
        }
    }
}

fn a_read_only_transaction_replays_and_does_not_resume(db: &Database<'_>, isolation: Isolation) {
    let tokens = leases_of_every_age(db);
    let before = everything(db);
    let mut session = db.session("session");
    session.run(&format!("BEGIN ISOLATION LEVEL {} READ ONLY", isolation.sql()));
    assert_reads_only(&mut session, tokens);
    assert_eq!(db.key_locks_of(&session), 0);
    session.run("COMMIT");
    assert_eq!(everything(db), before);
}

/// The worker's own transaction, made read-only after the resume: nothing of the lease changes.
fn a_phase_made_read_only_changes_nothing(db: &Database<'_>, isolation: Isolation) {
    let [token, _] = leases_of_every_age(db);
    let before = everything(db);
    for (name, change) in changes(token) {
        let mut worker = db.session("worker");
        worker.begin(isolation);
        worker.call(resume(token)).expect("claimed");
        worker.run("SET TRANSACTION READ ONLY");
        match worker.attempt(change) {
            Err(refusal) => drop(refusal.expect("25006")),
            Ok(_) => panic!("{name} was not refused"),
        }
        worker.run("ROLLBACK");
    }
    assert_eq!(everything(db), before);
}

at_every_isolation!(
    a_read_only_transaction_replays_and_does_not_resume,
    a_phase_made_read_only_changes_nothing,
);

/// The standby's own clock decides there, and what it has replayed of the log.
#[test]
fn a_hot_standby_replays_and_does_not_resume() {
    let cluster = Cluster::start("leases-primary", &[]);
    let db = cluster.database();
    let standby = Standby::of(&cluster, "leases-standby");
    let tokens = leases_of_every_age(&db);
    standby.catch_up_with(&cluster);
    let mut reader = standby.session(db.name(), "reader");
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        reader.begin(isolation);
        assert_reads_only(&mut reader, tokens);
        reader.run("COMMIT");
    }
}
