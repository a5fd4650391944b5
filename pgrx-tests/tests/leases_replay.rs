//! Replay takes no lock, and still never misses a leased request that is changed at that moment.

use pg_idempotency_tests::lease::{
    LONG, alone, changes, checkpoint, complete_by, everything, extend, lease, resume, run_out,
    start, token_of,
};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::standby::Standby;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use uuid::Uuid;

const READERS: usize = 3;
const ROUNDS: usize = 40;
const CHANGES_PER_ROUND: usize = 10;

/// What readers have to know: which key there is, and whether its request is finished.
#[derive(Default)]
struct Stage {
    round: AtomicUsize,
    finished: AtomicUsize,
    over: AtomicBool,
}

fn key(round: usize) -> String {
    format!("key-{round:03}")
}

/// Asks without a pause, until the writer is done. Counts the answers: how often each was given
/// while the request was known to be under way, and while it was known to be finished.
fn read(stage: &Stage, session: &mut Session) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    while !stage.over.load(SeqCst) {
        let round = stage.round.load(SeqCst);
        let finished = stage.finished.load(SeqCst) >= round;
        let told = session.call(replay(key(round))).outcome;
        let state = if finished { "finished" } else { "under way" };
        *seen.entry(format!("{state}: {told}")).or_default() += 1;
    }
    seen
}

/// Has readers ask for the request of a round while `change` changes it again and again, until it
/// is completed, for many rounds. The lease of each is live from its first commit to the last.
fn hammer(db: &Database<'_>, mut change: impl FnMut(&mut Session, Uuid) -> Uuid) {
    let stage = Stage::default();
    let mut writer = db.session_as(Role::Superuser, "writer");
    writer.run("SET pg_idempotency.lock_order = off");
    let first = token_of(&writer.call(lease(&key(0))).expect("claimed"));
    alone(&mut writer, Isolation::ReadCommitted, complete_by(first, 204)).expect("completed");
    let seen = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|n| {
                let (stage, mut session) = (&stage, db.session(&format!("reader {n}")));
                scope.spawn(move || read(stage, &mut session))
            })
            .collect();
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (1..=ROUNDS).for_each(|round| write(&stage, &mut writer, round, &mut change));
        }));
        stage.over.store(true, SeqCst);
        written.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        readers.into_iter().flat_map(|reader| reader.join().expect("no reader panics")).collect()
    });
    assert_never_missed(seen);
}

fn write(
    stage: &Stage,
    writer: &mut Session,
    round: usize,
    change: &mut impl FnMut(&mut Session, Uuid) -> Uuid,
) {
    let mut token = token_of(&writer.call(lease(&key(round))).expect("claimed"));
    stage.round.store(round, SeqCst);
    for _ in 0..CHANGES_PER_ROUND {
        token = change(writer, token);
    }
    writer.call(complete_by(token, 204)).expect("completed");
    stage.finished.store(round, SeqCst);
}

/// A request under way may have been finished by the time of the answer, and that is all.
#[track_caller]
fn assert_never_missed(seen: Vec<(String, usize)>) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (answer, times) in seen {
        *counts.entry(answer).or_default() += times;
    }
    let expected = ["finished: replayed", "under way: in_progress", "under way: replayed"];
    let wrong: Vec<_> =
        counts.iter().filter(|(what, _)| !expected.contains(&what.as_str())).collect();
    assert!(wrong.is_empty(), "{wrong:?} among {counts:?}");
    for answer in [expected[0], expected[1]] {
        assert!(counts.contains_key(answer), "readers came in time: {counts:?}");
    }
}

#[test]
fn a_checkpoint_is_never_in_the_way_of_a_replay() {
    hammer(&Database::fresh(), |writer, token| {
        token_of(&writer.call(checkpoint(token, "further", json!(1))))
    });
}

#[test]
fn an_extension_is_never_in_the_way_of_a_replay() {
    hammer(&Database::fresh(), |writer, token| token_of(&writer.call(extend(token, LONG))));
}

#[test]
fn a_repeated_claim_is_never_in_the_way_of_a_replay() {
    hammer(&Database::fresh(), |writer, token| {
        let round: String = writer.value("SELECT max(key) FROM idempotency.records");
        token_of(&writer.call(lease(&round).with("token", token)).expect("claimed"))
    });
}

/// The deadline passes in the transaction that takes over, so to everybody else the request is
/// under way without a gap: by the old lease up to the commit, by the new one from then on.
#[test]
fn a_take_over_is_never_in_the_way_of_a_replay() {
    hammer(&Database::fresh(), |writer, token| {
        let key: String = writer.value("SELECT max(key) FROM idempotency.records");
        writer.run(&format!(
            "BEGIN; UPDATE idempotency.leases SET deadline = clock_timestamp() WHERE token = '{token}'"
        ));
        let next = writer.call(lease(&key)).expect("claimed");
        writer.run("COMMIT");
        assert_ne!(next.token, Some(token));
        token_of(&next)
    });
}

/// Completing alone: nothing but the moment at which a lease's record becomes an answer.
#[test]
fn a_completion_is_never_in_the_way_of_a_replay() {
    hammer(&Database::fresh(), |_, token| token);
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
