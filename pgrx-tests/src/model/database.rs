//! The same commands, given to a database.

use super::{Answer, Command, KEYS, Machine, OPERATIONS, SESSIONS, Step};
use crate::call::Call;
use crate::lease::{LONG, checkpoint, extend, resume};
use crate::operation::{claim_by, replay_by};
use crate::prelude::*;
use serde_json::json;
use uuid::Uuid;

/// The keys.
pub const NAMES: [&str; KEYS] = ["a", "b", "c"];
/// The operations, which share their keys.
pub const SPELLED: [&str; OPERATIONS] = ["POST /orders", "PUT /orders"];
/// The isolation levels.
pub const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// One case in the database: a scope of its own.
pub struct Real<'r> {
    pub db: &'r Database<'static>,
    /// Those of the model, and the superuser's.
    pub sessions: &'r mut [Session],
    pub scope: String,
    pub tokens: [[Option<Uuid>; KEYS]; SESSIONS],
}

impl Real<'_> {
    /// Takes a step and says what the server answered.
    pub fn step(&mut self, step: &Step, known: &Known) -> Answer {
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
            Command::Settle { key, status } => self.settle(*key, *status, known),
            Command::Configure { .. } if !known.is_at_rest => Answer::Done,
            Command::Configure { operation, holds } => self.configure(*operation, *holds),
            Command::Purge => self.count("idempotency_purge()".to_owned()),
            Command::Forget { key, operation, force } => {
                let (scope, key, operation) = (&self.scope, NAMES[*key], SPELLED[*operation]);
                let request = format!("'{scope}', '{operation}', '{key}', force => {force}");
                self.count(format!("idempotency_forget({request})"))
            }
            other => self.call(step.session, other, &known.body),
        }
    }

    fn settle(&mut self, key: usize, status: Option<i32>, known: &Known) -> Answer {
        let call = Call::new("idempotency_settle").with("scope", &self.scope);
        let call = call.with("operation", SPELLED[known.operation]).with("key", NAMES[key]);
        let body = status.map(|_| known.body.as_str());
        match self.sessions[SESSIONS].attempt(call.with("status", status).with("body", body)) {
            Ok(rows) => answer(&Outcome::only(&rows)),
            Err(refusal) => error(&refusal),
        }
    }

    fn configure(&mut self, operation: usize, holds: bool) -> Answer {
        let value = if holds { "hold" } else { "retry" };
        let settings = format!("{{\"on_lease_expiry\": \"{value}\"}}");
        let operation = SPELLED[operation];
        self.script(SESSIONS, &format!("SELECT idempotency_configure('{operation}', '{settings}')"))
    }

    /// What a function of the superuser's returns, sent alone.
    fn count(&mut self, call: String) -> Answer {
        match self.sessions[SESSIONS].attempt(format!("SELECT {call}")) {
            Ok(rows) => {
                let count: i64 = rows[0].get(0);
                Answer::Count(usize::try_from(count).expect("not negative"))
            }
            Err(refusal) => error(&refusal),
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
                claim_by(&self.scope, SPELLED[operation], NAMES[key])
                    .with("fingerprint", prints(fingerprint))
                    .with("wait_ms", 0)
                    .with("lease_ms", lease.then_some(LONG))
            }
            Command::Replay { key, operation, fingerprint } => {
                replay_by(&self.scope, SPELLED[operation], NAMES[key])
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

    /// Status and body of what is recorded under a key.
    pub fn recorded(&self, key: &str) -> Vec<(Option<i32>, Option<String>)> {
        let sql = format!(
            "SELECT coalesce(json_agg(json_build_array(status, convert_from(body, 'UTF8'))), '[]')::text
               FROM idempotency.records WHERE scope = '{}' AND key = '{key}'",
            self.scope
        );
        serde_json::from_str(&self.db.value::<String>(&sql)).expect("rows as JSON")
    }

    /// How many effects are committed under a key.
    pub fn effects(&self, key: &str) -> i64 {
        let scope = &self.scope;
        self.db.value(&format!(
            "SELECT count(*) FROM effects WHERE scope = '{scope}' AND key = '{key}'"
        ))
    }

    /// Ends all that is open.
    pub fn close(&mut self) {
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

    /// Removes what the case has left, so that the next one purges nothing but its own.
    pub fn clean_up(&mut self) {
        self.close();
        let scope = &self.scope;
        self.db.run(&format!("DELETE FROM idempotency.records WHERE scope = '{scope}'"));
        (0..OPERATIONS).for_each(|operation| drop(self.configure(operation, false)));
    }
}

/// What of the model has to be known to send a command.
pub struct Known {
    is_open: bool,
    is_at_rest: bool,
    may_expire: bool,
    /// The operation of what is recorded under the key that a settlement is about.
    operation: usize,
    body: String,
}

impl Known {
    pub fn new(machine: &Machine, step: &Step) -> Known {
        let may_expire = matches!(step.command, Command::Expire { key } if machine.may_expire(key));
        let operation = match step.command {
            Command::Settle { key, .. } => machine.operation(key),
            _ => 0,
        };
        let (is_open, is_at_rest) = (machine.is_open(step.session), machine.is_at_rest());
        Known { is_open, is_at_rest, may_expire, operation, body: machine.body() }
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
        body: outcome.body.as_ref().filter(|_| repeats).map(|_| outcome.text().to_owned()),
        attempt: outcome.attempt.filter(|_| claimed),
    }
}
