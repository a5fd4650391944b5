//! The example's program as child processes, one database for them, and its state afterwards.

use super::service::Service;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::wait;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

const SCHEMA: &str = include_str!("../../schema.sql");

pub const BODY: &str = r#"{"rider": "alice", "fare": 1250}"#;
/// How long a worker waits for the payment service where no test wants it to give up, in milliseconds.
pub const PATIENT: u32 = 20_000;

const DERIVED: &str = "ride-alice-k-charge";

/// The steps of a request, in their order: where it can be made to stand still.
pub const STEPS: [&str; 9] = [
    "connected",
    "claimed",
    "created",
    "created and committed",
    "charged",
    "charged and committed",
    "resumed",
    "confirmed",
    "confirmed and committed",
];

/// A database and a payment service of one test's own.
pub struct Town {
    pub db: Database<'static>,
    pub service: Service,
}

/// A running program.
pub struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Town {
    pub fn new() -> Town {
        let db = Database::fresh();
        db.run(SCHEMA);
        db.run("GRANT SELECT, INSERT, UPDATE ON rides TO backend");
        Town { db, service: Service::start() }
    }

    /// Starts the program, which stands still at the step named, if one is.
    pub fn start(&self, arguments: &[&str], stop_at: &str, timeout_ms: u32) -> Worker {
        let database = format!(
            "host={} user={} dbname={} application_name=ride",
            self.db.server().sockets().display(),
            Role::Backend.name(),
            self.db.name()
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_ride"));
        command.env("DATABASE_URL", database).env("PAYMENTS_URL", self.service.url());
        command.env("RIDE_STOP_AT", stop_at).env("TIMEOUT_MS", timeout_ms.to_string());
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Worker { child, output }
    }

    pub fn start_request(&self, stop_at: &str) -> Worker {
        self.start(&["request", "alice", "k", BODY], stop_at, PATIENT)
    }

    /// What a client is told: status and body.
    pub fn request(&self) -> String {
        self.start_request("").finish()
    }

    /// What the clients of all abandoned requests would be told, a line each.
    pub fn complete(&self) -> String {
        self.start(&["complete"], "", PATIENT).finish()
    }

    /// Kills a worker, and waits until the server has noticed: its open transaction is over then.
    pub fn kill(&self, worker: Worker) {
        worker.kill();
        self.db.wait_until(
            "NOT EXISTS (SELECT FROM pg_stat_activity
                         WHERE datname = current_database() AND application_name = 'ride')",
        );
    }

    /// Has the time of all leases run out.
    pub fn run_out(&self) {
        self.db.run("UPDATE idempotency.leases SET deadline = clock_timestamp() WHERE NOT ended");
    }

    /// One ride, one charge for it, one answer, and nothing left to do.
    #[track_caller]
    pub fn assert_all_is_well(&self, answer: &str) {
        assert_eq!(self.service.charges(), [(DERIVED.to_owned(), "ch-1".to_owned())], "one charge");
        self.assert_one_ride("alice 1250 ch-1");
        let told = "SELECT concat('201 ', jsonb_build_object('ride', id, 'charge', charge), E'\n') FROM rides";
        assert_eq!(answer, self.db.value::<String>(told));
        for _ in 0..2 {
            assert_eq!(self.request(), answer, "every later client gets the same bytes");
        }
        self.assert_calls();
        assert_eq!(self.complete(), "", "nothing is left to do");
    }

    /// There is this ride and no other, one record, and no open lease.
    #[track_caller]
    pub fn assert_one_ride(&self, expected: &str) {
        let rides = "SELECT string_agg(concat_ws(' ', rider, fare, charge), ', ') FROM rides";
        assert_eq!(self.db.value::<Option<String>>(rides).as_deref(), Some(expected), "one ride");
        let open = "SELECT count(*) FROM idempotency.leases WHERE NOT ended";
        assert_eq!((self.db.value::<i64>(open), self.db.records(), self.db.keys_held()), (0, 1, 0));
    }

    /// Nobody called twice in one attempt, all called by one key and for one amount.
    #[track_caller]
    fn assert_calls(&self) {
        let mut calls = self.service.calls();
        let all = calls.len();
        assert!(calls.iter().all(|(key, _, body)| key == DERIVED && body == r#"{"cents":1250}"#));
        calls.sort();
        calls.dedup();
        assert_eq!(calls.len(), all, "one call per attempt: {calls:?}");
    }
}

impl Worker {
    /// Waits until the program stands still at its step.
    pub fn stands_at(&mut self, step: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the program speaks");
        assert_eq!(line, format!("at {step}\n"));
    }

    /// Has the program go on.
    pub fn goes_on(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        stdin.write_all(b"\n").expect("the program listens");
    }

    fn kill(mut self) {
        self.child.kill().expect("it is running");
        self.child.wait().expect("it is ours");
    }

    /// Waits for the end of the program, though not for ever; returns what it printed.
    pub fn finish(mut self) -> String {
        let ended = wait::until("the program ends", || self.child.try_wait().expect("it is ours"));
        let mut output = String::new();
        self.output.read_to_string(&mut output).expect("text");
        assert!(ended.success(), "{ended}: {output}");
        output
    }
}

/// A test that fails leaves nobody standing.
impl Drop for Worker {
    fn drop(&mut self) {
        let _ended_or_killed = self.child.kill().and_then(|()| self.child.wait());
    }
}
