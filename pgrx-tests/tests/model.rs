//! Random sequences of commands, given to the model of the contract (`src/model`) and to a database:
//! every answer has to be the same, and so has what is committed in the end.
//!
//! A failure prints the shortest sequence that still fails, and the seed. `PROPTEST_CASES=10000`
//! for more than the usual cases, `MODEL_SEED=…` for one run again.

use pg_idempotency_tests::call::Call;
use pg_idempotency_tests::lease::{LONG, checkpoint, extend, resume};
use pg_idempotency_tests::model::{Answer, Command, KEYS, Machine, SESSIONS, Step};
use pg_idempotency_tests::operation::{claim_by, configure_operation, replay_by};
use pg_idempotency_tests::prelude::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};
use uuid::Uuid;

/// Two operations that share their keys.
const OPERATIONS: [&str; 2] = ["POST /orders", "PUT /orders"];
const NAMES: [&str; KEYS] = ["a", "b", "c"];
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// How many cases a run has, and how long it may take, where PROPTEST_CASES does not say otherwise.
const CASES: u32 = 200;
const TIME: Duration = Duration::from_secs(60);

/// What every run of some length is answered at least once.
const ANSWERS: [&str; 13] = [
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

fn sequence() -> impl Strategy<Value = Vec<Step>> {
    // Mostly the session that had the last word goes on, so that transactions get somewhere.
    let commands = prop_oneof![8 => command().prop_map(|command| vec![command]), 2 => request()];
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

// ---- the database ---------------------------------------------------------------------------

/// One case in the database: a scope of its own.
struct Real<'r> {
    db: &'r Database<'static>,
    sessions: &'r mut [Session],
    scope: String,
    tokens: [[Option<Uuid>; KEYS]; SESSIONS],
}

impl Real<'_> {
    fn step(&mut self, step: &Step, known: &Known) -> Answer {
        let gid = format!("{} {}", self.scope, step.session);
        match &step.command {
            // A level is not for a transaction that is open.
            Command::Begin { .. } if known.is_open => self.script(step.session, "BEGIN"),
            Command::Begin { isolation } => {
                let level = LEVELS[*isolation];
                self.script(step.session, &format!("BEGIN ISOLATION LEVEL {level}"))
            }
            Command::Commit => self.script(step.session, "COMMIT"),
            Command::Rollback => self.script(step.session, "ROLLBACK"),
            Command::Prepare => self.script(step.session, &format!("PREPARE TRANSACTION '{gid}'")),
            Command::Finish { commit } => {
                let how = if *commit { "COMMIT" } else { "ROLLBACK" };
                self.script(SESSIONS, &format!("{how} PREPARED '{gid}'"))
            }
            Command::Savepoint => self.script(step.session, "SAVEPOINT s"),
            Command::RollbackTo => self.script(step.session, "ROLLBACK TO s"),
            Command::ReleaseSavepoint => self.script(step.session, "RELEASE s"),
            Command::Work { key } => {
                let key = NAMES[*key];
                let insert = format!("INSERT INTO effects VALUES ('{}', '{key}')", self.scope);
                self.script(step.session, &insert)
            }
            Command::Expire { key } => {
                if known.may_expire {
                    self.expire(NAMES[*key]);
                }
                Answer::Done
            }
            other => self.call(step.session, other, &known.body),
        }
    }

    /// A script of a session, or of the superuser behind them.
    fn script(&mut self, session: usize, sql: &str) -> Answer {
        match self.sessions[session].attempt_script(sql) {
            Ok(()) => Answer::Done,
            Err(refusal) => error(&refusal),
        }
    }

    fn call(&mut self, session: usize, command: &Command, body: &str) -> Answer {
        let call = self.statement(session, command, body);
        let rows = match self.sessions[session].attempt(call) {
            Ok(rows) => rows,
            Err(refusal) => return error(&refusal),
        };
        if matches!(command, Command::Release { .. }) {
            return Answer::Done;
        }
        let outcome = Outcome::only(&rows);
        if let (Command::Claim { key, .. }, "claimed") = (command, &outcome.outcome[..]) {
            self.tokens[session][*key] = outcome.token;
        }
        answer(&outcome)
    }

    fn statement(&self, session: usize, command: &Command, body: &str) -> Call {
        let token = |key: usize| self.tokens[session][key].unwrap_or(Uuid::from_u128(1));
        let prints = |fingerprint: usize| (fingerprint > 0).then(|| vec![fingerprint as u8; 32]);
        match *command {
            Command::Claim { key, operation, fingerprint, lease } => {
                claim_by(&self.scope, OPERATIONS[operation], NAMES[key])
                    .with("fingerprint", prints(fingerprint))
                    .with("wait_ms", 0)
                    .with("lease_ms", lease.then_some(LONG))
            }
            Command::Replay { key, operation, fingerprint } => {
                replay_by(&self.scope, OPERATIONS[operation], NAMES[key])
                    .with("fingerprint", prints(fingerprint))
            }
            Command::Complete { by, status, withhold } => complete(status)
                .with("body", body)
                .with("withhold", withhold.then_some("one_time_secret"))
                .with("token", by.map(token)),
            Command::Release { by } => release().with("token", by.map(token)),
            Command::Resume { key } => resume(token(key)),
            Command::Checkpoint { key } => checkpoint(token(key), "half", json!(1)),
            Command::Extend { key } => extend(token(key), LONG),
            _ => panic!("{command:?} is no call"),
        }
    }

    fn expire(&self, key: &str) {
        let request = format!("scope = '{}' AND key = '{key}'", self.scope);
        self.db.run(&format!(
            "UPDATE idempotency.records SET expires_at = clock_timestamp()
              WHERE {request} AND completed_at IS NOT NULL;
             UPDATE idempotency.leases SET deadline = clock_timestamp()
              WHERE {request} AND NOT ended"
        ));
    }

    fn recorded(&self, key: &str) -> Vec<(Option<i32>, Option<String>)> {
        let sql = format!(
            "SELECT coalesce(json_agg(json_build_array(status, convert_from(body, 'UTF8'))), '[]')::text
               FROM idempotency.records WHERE scope = '{}' AND key = '{key}'",
            self.scope
        );
        serde_json::from_str(&self.db.value::<String>(&sql)).expect("rows as JSON")
    }

    fn effects(&self, key: &str) -> i64 {
        let scope = &self.scope;
        self.db.value(&format!(
            "SELECT count(*) FROM effects WHERE scope = '{scope}' AND key = '{key}'"
        ))
    }

    /// Ends all that is open.
    fn close(&mut self) {
        for session in 0..SESSIONS {
            self.script(session, "ROLLBACK");
        }
        let prepared =
            format!("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE '{} %'", self.scope);
        for row in self.sessions[SESSIONS].rows(prepared) {
            let gid: String = row.get(0);
            self.script(SESSIONS, &format!("ROLLBACK PREPARED '{gid}'"));
        }
    }
}

/// What of the model has to be known to send a command.
struct Known {
    is_open: bool,
    may_expire: bool,
    body: String,
}

impl Known {
    fn new(machine: &Machine, step: &Step) -> Known {
        let may_expire = matches!(step.command, Command::Expire { key } if machine.may_expire(key));
        Known { is_open: machine.is_open(step.session), may_expire, body: machine.body() }
    }
}

fn error(refusal: &Refusal) -> Answer {
    let code = refusal.code().unwrap_or("no answer");
    Answer::Error(Box::leak(code.to_owned().into_boxed_str()))
}

fn answer(outcome: &Outcome) -> Answer {
    let repeats = ["completed", "released", "replayed"].contains(&&outcome.outcome[..]);
    let claimed = outcome.outcome == "claimed";
    Answer::Outcome {
        word: Box::leak(outcome.outcome.clone().into_boxed_str()),
        status: outcome.status,
        body: repeats.then(|| outcome.text().to_owned()),
        attempt: outcome.attempt.filter(|_| claimed),
    }
}

// ---- the two of them ------------------------------------------------------------------------

/// Runs a sequence on both; what was answered goes to `seen`.
fn compare(
    real: &mut Real<'_>,
    steps: &[Step],
    seen: &mut BTreeSet<&'static str>,
) -> Result<(), TestCaseError> {
    let mut machine = Machine::default();
    for (number, step) in steps.iter().enumerate() {
        let known = Known::new(&machine, step);
        let expected = machine.step(step);
        let found = real.step(step, &known);
        seen.insert(match &found {
            Answer::Done => "done",
            Answer::Outcome { word, .. } => word,
            Answer::Error(code) => code,
        });
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
    for operation in OPERATIONS {
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
        if bounded && start.elapsed() > TIME {
            return Ok(());
        }
        cases.set(cases.get() + 1);
        let mut sessions = sessions.borrow_mut();
        let scope = format!("case {}", cases.get());
        let tokens = Default::default();
        let mut real = Real { db: &db, sessions: &mut sessions, scope, tokens };
        let result = compare(&mut real, &steps, &mut seen.borrow_mut());
        real.close();
        result
    });
    println!("{} cases, seed {seed}", cases.get());
    if let Err(TestError::Fail(why, steps)) = result {
        let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
        panic!("{why}\nMODEL_SEED={seed}, the shortest sequence:\n{}", steps.join("\n"));
    }
    result.expect("enough sequences");
    // A run that met none of this would show nothing.
    let missing: Vec<_> = ANSWERS.iter().filter(|word| !seen.borrow().contains(*word)).collect();
    assert!(missing.is_empty() || cases.get() < 50, "{missing:?} never came, seed {seed}");
}
