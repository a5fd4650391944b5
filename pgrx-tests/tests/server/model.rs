//! Random sequences of commands, given to the model of the contract (`src/model`) and to a database:
//! every answer has to be the same, and so has what is committed in the end.
//!
//! A failure prints the shortest sequence that still fails, and the seed. `PROPTEST_CASES=10000`
//! for more than the usual cases, `MODEL_SEED=…` for one run again.

use pg_idempotency_tests::model::database::{Known, LEVELS, NAMES, Real, SPELLED};
use pg_idempotency_tests::model::{Answer, Command, KEYS, Machine, SESSIONS, Step};
use pg_idempotency_tests::operation::configure_operation;
use pg_idempotency_tests::prelude::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

/// How many cases a run has, and how long it may take, where PROPTEST_CASES does not say otherwise.
const CASES: u32 = 600;
const TIME: Duration = Duration::from_secs(60);

/// Fewer cases show nothing. So many are run, however long it takes.
const ENOUGH: u32 = 100;

/// What every run is answered at least once; what an operator is answered, with the command.
const ANSWERS: [&str; 24] = [
    "claimed",
    "completed",
    "released",
    "replayed",
    "withheld",
    "in_progress",
    "mismatch",
    "unknown",
    "IK001",
    "IK002",
    "IK003",
    "IK004",
    "IK005",
    "in_progress, on hold",
    "settle: completed",
    "settle: released",
    "settle: 22023",
    "settle: 55000",
    "settle: 55P03",
    "purge: something",
    "forget: something",
    "forget: nothing",
    "forget: 55006",
    "forget: 55P03",
];

// ---- sequences ------------------------------------------------------------------------------

fn command() -> impl Strategy<Value = Command> {
    let key = || 0..KEYS;
    let by = || prop::option::of(0..KEYS);
    // Most requests with one key are the same request.
    let operation = || prop_oneof![5 => Just(0usize), 1 => Just(1usize)];
    let fingerprint = || prop_oneof![4 => Just(1usize), 1 => Just(2usize), 1 => Just(0usize)];
    let status = prop_oneof![4 => Just(201), 1 => Just(404), 1 => Just(503)];
    let claim = (key(), operation(), fingerprint(), prop::bool::weighted(0.3));
    prop_oneof![
        6 => (0..3usize).prop_map(|isolation| Command::Begin { isolation }),
        5 => Just(Command::Commit),
        4 => Just(Command::Rollback),
        1 => Just(Command::Prepare),
        2 => any::<bool>().prop_map(|commit| Command::Finish { commit }),
        3 => Just(Command::Savepoint),
        3 => Just(Command::RollbackTo),
        1 => Just(Command::ReleaseSavepoint),
        3 => key().prop_map(|key| Command::Work { key }),
        12 => claim.prop_map(|(key, operation, fingerprint, lease)| Command::Claim {
            key, operation, fingerprint, lease
        }),
        2 => (key(), operation(), fingerprint()).prop_map(|(key, operation, fingerprint)| {
            Command::Replay { key, operation, fingerprint }
        }),
        7 => (by(), status, prop::bool::weighted(0.15))
            .prop_map(|(by, status, withhold)| Command::Complete { by, status, withhold }),
        1 => by().prop_map(|by| Command::Release { by }),
        2 => key().prop_map(|key| Command::Resume { key }),
        1 => key().prop_map(|key| Command::Checkpoint { key }),
        1 => key().prop_map(|key| Command::Extend { key }),
        3 => key().prop_map(|key| Command::Expire { key }),
        3 => operator(),
    ]
}

fn operator() -> impl Strategy<Value = Command> {
    let key = || 0..KEYS;
    let operation = || 0..SPELLED.len();
    let status = prop_oneof![2 => Just(None), 3 => Just(Some(201)), 1 => Just(Some(503))];
    prop_oneof![
        2 => (key(), status).prop_map(|(key, status)| Command::Settle { key, status }),
        1 => (operation(), any::<bool>())
            .prop_map(|(operation, holds)| Command::Configure { operation, holds }),
        1 => Just(Command::Purge),
        2 => (key(), operation(), any::<bool>())
            .prop_map(|(key, operation, force)| Command::Forget { key, operation, force }),
    ]
}

/// A request as a backend makes it, with one of many ends.
fn request() -> impl Strategy<Value = Vec<Command>> {
    let end = prop_oneof![
        5 => Just(Some(Command::Commit)),
        1 => Just(Some(Command::Rollback)),
        1 => Just(Some(Command::Prepare)),
        1 => Just(None),
    ];
    let isolation = 0..LEVELS.len();
    let answer = (prop_oneof![4 => Just(201), 1 => Just(503)], prop::bool::weighted(0.3));
    (0..KEYS, isolation, prop::bool::weighted(0.4), any::<bool>(), answer, end).prop_map(
        |(key, isolation, lease, works, (status, withhold), end)| {
            let claim = Command::Claim { key, operation: 0, fingerprint: 1, lease };
            let begin = Command::Begin { isolation };
            // A leased claim is committed, and completed by its token in a second transaction.
            let between = if lease { vec![Command::Commit, begin.clone()] } else { vec![] };
            let by = lease.then_some(key);
            let work = works.then_some(Command::Work { key });
            let complete = Command::Complete { by, status, withhold };
            let mut commands = vec![Command::Rollback, begin, claim];
            commands.extend(between);
            commands.extend(lease.then_some(Command::Resume { key }));
            commands.extend(work);
            commands.push(complete);
            commands.extend(end);
            commands
        },
    )
}

/// A request whose worker went away, and what an operator does about it. Half of the leases are held
/// back when they have run out.
fn abandoned() -> impl Strategy<Value = Vec<Command>> {
    (0..KEYS, any::<bool>(), operator()).prop_map(|(key, holds, command)| {
        vec![
            Command::Rollback,
            Command::Configure { operation: 0, holds },
            Command::Claim { key, operation: 0, fingerprint: 1, lease: true },
            Command::Expire { key },
            Command::Replay { key, operation: 0, fingerprint: 1 },
            of_key(command, key),
        ]
    })
}

/// A request that claims its key once more.
fn claimed_twice() -> impl Strategy<Value = Vec<Command>> {
    (0..KEYS, any::<bool>()).prop_map(|(key, lease)| {
        let claim = Command::Claim { key, operation: 0, fingerprint: 1, lease };
        vec![Command::Rollback, Command::Begin { isolation: 0 }, claim.clone(), claim]
    })
}

/// The same about this key.
fn of_key(command: Command, key: usize) -> Command {
    match command {
        Command::Settle { status, .. } => Command::Settle { key, status },
        Command::Forget { operation, force, .. } => Command::Forget { key, operation, force },
        other => other,
    }
}

fn sequence() -> impl Strategy<Value = Vec<Step>> {
    // Mostly the session that had the last word goes on, so that transactions get somewhere.
    let commands = prop_oneof![8 => command().prop_map(|command| vec![command]), 2 => request(), 1 => abandoned(),
        1 => claimed_twice()];
    let part = (prop::option::weighted(0.3, 0..SESSIONS), commands);
    prop::collection::vec(part, 1..60).prop_map(|parts| {
        let mut session = 0;
        let mut steps = Vec::new();
        for (other, commands) in parts {
            session = other.unwrap_or(session);
            steps.extend(commands.into_iter().map(|command| Step { session, command }));
        }
        steps
    })
}

// ---- the two of them ------------------------------------------------------------------------

/// An answer in a word or two; of an operator's command with its name.
fn in_words(command: &Command, answer: &Answer) -> String {
    let word = match answer {
        Answer::Done => "done",
        Answer::Outcome { word, .. } => word,
        Answer::Count(0) => "nothing",
        Answer::Count(_) => "something",
        Answer::Error(code) => code,
    };
    match command {
        Command::Settle { .. } => format!("settle: {word}"),
        Command::Configure { .. } => format!("configure: {word}"),
        Command::Purge => format!("purge: {word}"),
        Command::Forget { .. } => format!("forget: {word}"),
        _ => word.to_owned(),
    }
}

/// Runs a sequence on both; what was answered goes to `seen`.
fn compare(
    real: &mut Real<'_>,
    steps: &[Step],
    seen: &mut BTreeSet<String>,
) -> Result<(), TestCaseError> {
    let mut machine = Machine::default();
    for (number, step) in steps.iter().enumerate() {
        let known = Known::new(&machine, step);
        let expected = machine.step(step);
        let found = real.step(step, &known);
        if let Command::Claim { key, .. } | Command::Replay { key, .. } = step.command
            && machine.is_on_hold(key)
        {
            seen.insert(format!("{}, on hold", in_words(&step.command, &found)));
        }
        seen.insert(in_words(&step.command, &found));
        prop_assert_eq!(found, expected, "step {}, {:?}", number, step);
    }
    real.close();
    for (key, name) in NAMES.iter().enumerate() {
        let expected: Vec<_> = machine
            .recorded()
            .into_iter()
            .filter(|row| row.0 == key)
            .map(|(_, status, body)| (status, body))
            .collect();
        prop_assert_eq!(real.recorded(name), expected, "what is recorded under {}", name);
        prop_assert_eq!(real.effects(name), machine.effects()[key], "effects under {}", name);
    }
    prop_assert_eq!(real.db.keys_held(), 0, "keys that are held in the end");
    Ok(())
}

fn database() -> (Database<'static>, Vec<Session>) {
    let db = Database::fresh();
    db.run("CREATE TABLE effects (scope text, key text); GRANT ALL ON effects TO PUBLIC");
    for operation in SPELLED {
        configure_operation(&db, operation, json!({ "key_space": "orders" }));
    }
    let mut sessions: Vec<_> =
        (0..SESSIONS).map(|number| db.session(&format!("session {number}"))).collect();
    sessions.push(db.session_as(Role::Superuser, "superuser"));
    for session in &mut sessions {
        session.run("SET pg_idempotency.wait_ms = 0");
    }
    (db, sessions)
}

/// MODEL_SEED, or the clock.
fn seed() -> u64 {
    let clock = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    std::env::var("MODEL_SEED").map_or(clock, |seed| seed.parse().expect("a number"))
}

#[test]
fn the_database_does_as_the_model_says() {
    let (db, sessions) = database();
    let sessions = RefCell::new(sessions);
    let bounded = std::env::var_os("PROPTEST_CASES").is_none();
    let seen = RefCell::new(BTreeSet::new());
    let (seed, start, cases) = (seed(), Instant::now(), Cell::new(0u32));
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if bounded {
        config.cases = CASES;
    }
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let result = TestRunner::new_with_rng(config, rng).run(&sequence(), |steps| {
        if bounded && cases.get() >= ENOUGH && start.elapsed() > TIME {
            return Ok(());
        }
        cases.set(cases.get() + 1);
        let mut sessions = sessions.borrow_mut();
        let scope = format!("case {}", cases.get());
        let tokens = Default::default();
        let mut real = Real { db: &db, sessions: &mut sessions, scope, tokens };
        let result = compare(&mut real, &steps, &mut seen.borrow_mut());
        real.clean_up();
        result
    });
    println!("{} cases, seed {seed}", cases.get());
    if let Err(TestError::Fail(why, steps)) = result {
        let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
        panic!("{why}\nMODEL_SEED={seed}, the shortest sequence:\n{}", steps.join("\n"));
    }
    result.expect("enough sequences");
    assert!(cases.get() >= ENOUGH, "only {} cases", cases.get());
    // A run that met none of this would show nothing.
    let missing: Vec<_> = ANSWERS.iter().filter(|word| !seen.borrow().contains(**word)).collect();
    assert!(missing.is_empty(), "{missing:?} never came, seed {seed}");
}
