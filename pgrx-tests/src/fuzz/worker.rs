//! One session that runs random statements and looks at every error.

use super::statements::Statements;
use crate::database::Database;
use crate::dice::Dice;
use crate::process::memory_of;
use crate::refusal::Refusal;
use crate::session::{Role, Session};
use crate::wire::Wire;
use postgres::Row;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The classes of SQLSTATEs, or whole ones, that a statement may end with. XX (internal error), 58
/// (system error) and what ends a session are not among them.
const ALLOWED: [&str; 24] = [
    "24", "26", "0A", "0L", "0P", "21", "22", "23", "25", "2B", "2D", "2F", "34", "39", "3B", "3D",
    "3F", "40", "42", "44", "55", "IK", "P0", "57014",
];

/// 53200 and 54000 are the server's own bounds; what else is in these classes is not expected.
const BOUNDS: [&str; 6] = ["53200", "53000", "53400", "54000", "54001", "54011"];

/// Internal errors that PostgreSQL itself raises where an ordinary one would do, none of them ours.
const OF_POSTGRESQL: [&str; 3] = [
    // heapam.c, of two sessions that change one row of a catalog
    "tuple concurrently updated",
    "tuple concurrently deleted",
    // regproc.c and others look names up in a catalog that changes under them
    "cache lookup failed for",
];

/// A session as it was, and bounds to what comes.
const CLEANING: [&str; 7] = [
    "ROLLBACK",
    "RESET SESSION AUTHORIZATION",
    "DISCARD ALL",
    "SET statement_timeout = '2s'",
    "SET lock_timeout = '500ms'",
    "SET search_path = public, elsewhere",
    "SET client_min_messages = error",
];

/// No statement may run longer, and none may ignore its time-out.
const LONGEST: Duration = Duration::from_secs(30);

/// What a backend may need at most, in KiB: some copies of the largest values, and shared memory.
const MOST_MEMORY: usize = 700 * 1024;

pub struct Worker<'d> {
    db: &'d Database<'d>,
    session: Session,
    /// Changes settings of operations.
    operator: Session,
    statements: &'d Statements,
    dice: Dice,
    /// What was run since the last clean start.
    script: Vec<String>,
    /// How often statements ended how.
    pub endings: BTreeMap<String, usize>,
    /// The most memory that one of its backends had, in KiB, shared memory included.
    pub peak: usize,
}

impl<'d> Worker<'d> {
    pub fn new(
        db: &'d Database<'d>,
        role: Role,
        statements: &'d Statements,
        seed: u64,
    ) -> Worker<'d> {
        let mut worker = Worker {
            db,
            session: db.session_as(role, "fuzzer"),
            operator: db.session_as(Role::Superuser, "operator"),
            statements,
            dice: Dice::new(seed),
            script: Vec::new(),
            endings: BTreeMap::new(),
            peak: 0,
        };
        worker.clean();
        worker
    }

    /// Runs scenes until the time is over, or another worker has failed; returns how many. `progress` counts
    /// those of all workers in the database.
    pub fn run_until(
        &mut self,
        end: Instant,
        failed: &AtomicBool,
        progress: &AtomicUsize,
    ) -> usize {
        let mut scenes = 0;
        while Instant::now() < end && !failed.load(Relaxed) {
            self.scene();
            scenes += 1;
            progress.fetch_add(1, Relaxed);
        }
        scenes
    }

    /// A transaction, or none, and some statements.
    fn scene(&mut self) {
        self.script.clear();
        if self.dice.once_in(40) {
            return self.pipeline();
        }
        if self.dice.once_in(5) {
            self.configure();
        }
        if !self.dice.once_in(4) {
            let isolation = *self.dice.pick(&[
                "READ COMMITTED",
                "READ COMMITTED",
                "REPEATABLE READ",
                "SERIALIZABLE",
            ]);
            self.step(format!("BEGIN ISOLATION LEVEL {isolation}"));
            self.begin_well();
        }
        for _ in 0..1 + self.dice.below(9) {
            let statement = self.statements.any(&mut self.dice);
            self.step(statement);
        }
        self.end();
        self.clean();
    }

    /// The beginning of a request, so that what comes behind it is not refused at once.
    fn begin_well(&mut self) {
        if self.dice.once_in(3) {
            self.step("SET LOCAL pg_idempotency.lock_order = off".into());
        }
        if !self.dice.once_in(3) {
            let key = self.dice.below(6);
            self.step(format!(
                "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k{key}')"
            ));
        }
        if !self.dice.once_in(4) {
            self.step("SAVEPOINT s".into());
        }
    }

    fn end(&mut self) {
        if !self.dice.once_in(3) {
            self.step("SELECT * FROM idempotency_complete(201, body => 'x')".into());
        }
        let name = format!("{}-{}", self.db.name(), self.session.pid());
        match self.dice.below(8) {
            0..4 => self.step("COMMIT".into()),
            4 => {
                self.step(format!("PREPARE TRANSACTION '{name}'"));
                self.step("ROLLBACK".into());
                self.finish_prepared(&name);
            }
            5 => self.reconnect(),
            _ => {}
        }
        self.step("ROLLBACK".into());
    }

    fn finish_prepared(&mut self, name: &str) {
        let prepared = format!("EXISTS (SELECT FROM pg_prepared_xacts WHERE gid = '{name}')");
        if self.db.value::<bool>(&format!("SELECT {prepared}")) {
            let how = *self.dice.pick(&["COMMIT", "ROLLBACK"]);
            // The watcher: a role that was set may not own the transaction.
            self.db.run(&format!("{how} PREPARED '{name}'"));
        }
    }

    /// Settings that the next calls meet.
    fn configure(&mut self) {
        let statement = self.statements.configuring(&mut self.dice);
        self.script.push(statement.clone());
        let done = self.operator.attempt_script(&statement);
        self.judge(done.err());
    }

    /// The client goes away in the middle.
    fn reconnect(&mut self) {
        let role = if self.dice.once_in(2) { Role::Superuser } else { Role::Backend };
        self.session = self.db.session_as(role, "fuzzer");
    }

    fn clean(&mut self) {
        for statement in CLEANING {
            let done = self.session.attempt_script(statement);
            self.judge(done.err());
        }
    }

    /// Runs a statement; goes on behind its error as a client may, or does not notice it.
    fn step(&mut self, statement: String) {
        if self.attempt(statement) || self.dice.once_in(8) {
            return;
        }
        if !self.attempt("ROLLBACK TO s".into()) {
            self.attempt("ROLLBACK".into());
            self.attempt("BEGIN".into());
        }
    }

    /// Runs a statement over one of the two protocols and looks at its end; true where it succeeded.
    fn attempt(&mut self, statement: String) -> bool {
        self.script.push(statement.clone());
        let started = Instant::now();
        let result = match self.dice.once_in(2) {
            true => self.session.attempt(&*statement).map(|rows| self.note(&rows)),
            false => self.session.attempt_script(&statement),
        };
        let took = started.elapsed();
        assert!(took < LONGEST, "{took:?} for the last statement of {}", self.story());
        self.session.take_notices();
        self.peak = self.peak.max(self.memory());
        assert!(self.peak < MOST_MEMORY, "{} KiB after the last of {}", self.peak, self.story());
        let succeeded = result.is_ok();
        self.judge(result.err());
        succeeded
    }

    fn judge(&mut self, refusal: Option<Refusal>) {
        let Some(refusal) = refusal else { return self.count("success") };
        let code = refusal.code().map(str::to_owned);
        let code =
            code.unwrap_or_else(|| panic!("the connection broke: {refusal:?}\n{}", self.story()));
        assert!(is_ordinary(&code, refusal.db().message()), "{refusal:?}\n{}", self.story());
        self.count(&code);
    }

    /// Counts what calls came to.
    fn note(&mut self, rows: &[Row]) {
        for row in rows {
            let told = row.columns().iter().position(|column| column.name() == "outcome");
            let told = told.and_then(|at| row.try_get::<_, Option<String>>(at).ok().flatten());
            self.count(told.as_deref().unwrap_or("other rows"));
        }
    }

    /// The most memory that the session's backend has had, in KiB; 0 where it has ended.
    fn memory(&self) -> usize {
        memory_of(self.session.pid(), "VmHWM").unwrap_or_default()
    }

    fn count(&mut self, ending: &str) {
        *self.endings.entry(ending.to_owned()).or_default() += 1;
    }

    /// Several statements between two Syncs.
    fn pipeline(&mut self) {
        let statements: Vec<String> = (0..4).map(|_| self.statements.any(&mut self.dice)).collect();
        self.script.extend(statements.iter().cloned());
        let mut wire = Wire::open(self.db.server(), self.db.name(), Role::Backend);
        let settings = ["SET statement_timeout = '2s'", "SET lock_timeout = '500ms'"];
        wire.pipeline(&settings);
        let ended = wire.pipeline(&statements.iter().map(String::as_str).collect::<Vec<_>>());
        if let Some(code) = ended.code {
            assert!(is_ordinary(&code, "a pipeline"), "{code}\n{}", self.story());
            self.count(&code);
        }
    }

    fn story(&self) -> String {
        format!("these statements in {}:\n{};", self.db.name(), self.script.join(";\n"))
    }
}

/// Whether an error is one that a caller may meet.
fn is_ordinary(code: &str, message: &str) -> bool {
    ALLOWED.iter().any(|allowed| code.starts_with(allowed))
        || BOUNDS.contains(&code)
        || (code == "XX000" && OF_POSTGRESQL.iter().any(|known| message.contains(known)))
}
