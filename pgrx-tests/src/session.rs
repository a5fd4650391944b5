//! A named connection whose statements can be started and awaited separately.

use crate::call::{Call, Statement};
use crate::isolation::Isolation;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::server::Server;
use crate::wait;
use postgres::error::DbError;
use postgres::types::{FromSqlOwned, ToSql, Type};
use postgres::{CancelToken, Client, Config, NoTls, Row};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Owns the extension and its tables.
    Superuser,
    /// An ordinary role with `idempotency_grant`.
    Backend,
    /// An ordinary role with nothing.
    Outsider,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Superuser => "postgres",
            Role::Backend => "backend",
            Role::Outsider => "outsider",
        }
    }
}

type Rows = Result<Vec<Row>, Refusal>;

pub struct Session {
    name: String,
    pid: i32,
    client: Option<Client>,
    running: Option<JoinHandle<(Client, Rows, Instant)>>,
    finished_at: Option<Instant>,
    cancel: CancelToken,
    notices: Arc<Mutex<Vec<DbError>>>,
}

impl Session {
    pub fn open(server: &Server, database: &str, role: Role, name: &str) -> Session {
        Session::connect(server.config(role, database), name)
    }

    /// Connects with a configuration of the caller's (a pooler's, for example).
    pub fn connect(config: Config, name: &str) -> Session {
        Session::try_connect(config, name).unwrap_or_else(|error| panic!("{name}: {error:?}"))
    }

    /// # Errors
    /// What keeps the server from letting us in.
    pub fn try_connect(mut config: Config, name: &str) -> Result<Session, Refusal> {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&notices);
        config
            .application_name(name)
            .notice_callback(move |notice| sink.lock().unwrap().push(notice));
        let mut client = config.connect(NoTls)?;
        let pid = execute(&mut client, &"SELECT pg_backend_pid()".into())?[0].get(0);
        let cancel = client.cancel_token();
        let name = name.to_owned();
        Ok(Session {
            name,
            pid,
            client: Some(client),
            running: None,
            finished_at: None,
            cancel,
            notices,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pid of the backend that served this session when it was opened.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    fn client(&mut self) -> &mut Client {
        let name = &self.name;
        self.client.as_mut().unwrap_or_else(|| panic!("{name} is still running a statement"))
    }

    // ---- one statement, at once -------------------------------------------------------------

    /// Runs one statement over the extended protocol, in one round trip.
    pub fn attempt(&mut self, statement: impl Into<Statement>) -> Rows {
        execute(self.client(), &statement.into())
    }

    #[track_caller]
    pub fn rows(&mut self, statement: impl Into<Statement>) -> Vec<Row> {
        let statement = statement.into();
        let rows = execute(self.client(), &statement);
        rows.unwrap_or_else(|refusal| panic!("{}: {}: {refusal:?}", self.name, statement.sql))
    }

    /// The outcome of a call that must not fail.
    ///
    /// A claim alone in autocommit is refused by its commit (IK003). What it came to is then asked in a transaction
    /// that is rolled back; tests of the refusal itself use [`Session::refused`].
    #[track_caller]
    pub fn call(&mut self, call: Call) -> Outcome {
        let statement: Statement = call.into();
        match execute(self.client(), &statement) {
            Ok(rows) => Outcome::only(&rows),
            Err(refusal) if refusal.code() == Some("IK003") => self.call_and_roll_back(statement),
            Err(refusal) => panic!("{}: {}: {refusal:?}", self.name, statement.sql),
        }
    }

    #[track_caller]
    fn call_and_roll_back(&mut self, statement: Statement) -> Outcome {
        self.run("BEGIN");
        let outcome = Outcome::only(&self.rows(statement));
        self.run("ROLLBACK");
        outcome
    }

    /// The error of a statement that must fail.
    #[track_caller]
    pub fn refused(&mut self, statement: impl Into<Statement>) -> Refusal {
        let statement = statement.into();
        match execute(self.client(), &statement) {
            Err(refusal) => refusal,
            Ok(rows) => {
                panic!("{}: {} was not refused but answered {rows:?}", self.name, statement.sql)
            }
        }
    }

    /// The error, with this SQLSTATE, of a statement that must fail; the open transaction goes on
    /// as before.
    #[track_caller]
    pub fn refused_inside_savepoint(
        &mut self,
        statement: impl Into<Statement>,
        code: &str,
    ) -> Refusal {
        self.run("SAVEPOINT must_fail");
        let refusal = self.refused(statement).expect(code);
        self.run("ROLLBACK TO must_fail; RELEASE must_fail");
        refusal
    }

    /// The first column of the only row.
    #[track_caller]
    pub fn value<T: FromSqlOwned>(&mut self, statement: impl Into<Statement>) -> T {
        let rows = self.rows(statement);
        assert_eq!(rows.len(), 1, "one row is expected");
        rows[0].get(0)
    }

    // ---- simple protocol --------------------------------------------------------------------

    /// Sends `sql`, one or several statements, as one simple-protocol message.
    #[track_caller]
    pub fn run(&mut self, sql: &str) {
        let done = self.attempt_script(sql);
        done.unwrap_or_else(|refusal| panic!("{}: {sql}: {refusal:?}", self.name));
    }

    pub fn attempt_script(&mut self, sql: &str) -> Result<(), Refusal> {
        let client = self.client();
        let done = client.batch_execute(sql);
        settled(client, done)
    }

    #[track_caller]
    pub fn run_refused(&mut self, sql: &str) -> Refusal {
        match self.attempt_script(sql) {
            Err(refusal) => refusal,
            Ok(()) => panic!("{}: {sql} was not refused", self.name),
        }
    }

    pub fn begin(&mut self, isolation: Isolation) {
        self.run(&format!("BEGIN ISOLATION LEVEL {}", isolation.sql()));
    }

    // ---- a statement that takes its time ----------------------------------------------------

    /// Starts a statement on a thread of its own; [`Session::finish`] waits for it.
    pub fn start(&mut self, statement: impl Into<Statement>) {
        let statement = statement.into();
        let name = &self.name;
        let mut client = self.client.take().unwrap_or_else(|| panic!("{name} is still running"));
        self.running = Some(std::thread::spawn(move || {
            let rows = execute(&mut client, &statement);
            (client, rows, Instant::now())
        }));
    }

    /// Whether the started statement has come to an end.
    pub fn has_finished(&self) -> bool {
        self.running.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the started statement, though not for ever.
    pub fn finish(&mut self) -> Rows {
        wait::until(&format!("{} finishes", self.name), || self.has_finished().then_some(()));
        let running = self.running.take().expect("a statement was started");
        let (client, rows, at) = running.join().expect("the thread does not panic");
        self.client = Some(client);
        self.finished_at = Some(at);
        rows
    }

    #[track_caller]
    pub fn finish_call(&mut self) -> Outcome {
        let rows = self.finish();
        Outcome::only(&rows.unwrap_or_else(|refusal| panic!("{}: {refusal:?}", self.name)))
    }

    #[track_caller]
    pub fn finish_refused(&mut self) -> Refusal {
        match self.finish() {
            Err(refusal) => refusal,
            Ok(rows) => panic!("{} was not refused but answered {rows:?}", self.name),
        }
    }

    /// How long after `since` the statement that was finished last had come to its end.
    pub fn finished_after(&self, since: Instant) -> Duration {
        self.finished_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(since))
    }

    /// Asks the server to cancel what runs, the way a driver does.
    pub fn cancel(&self) {
        self.cancel.cancel_query(NoTls).expect("the cancel request is taken");
    }

    /// Closes the connection without a word, whatever transaction is open.
    pub fn hang_up(&mut self) {
        self.client = None;
    }

    // ---- state ------------------------------------------------------------------------------

    /// Takes the notices and warnings received so far.
    pub fn take_notices(&mut self) -> Vec<DbError> {
        std::mem::take(&mut *self.notices.lock().expect("no callback panics"))
    }

    /// Whether the transaction has a transaction id, that is: has written or locked a row.
    #[track_caller]
    pub fn has_transaction_id(&mut self) -> bool {
        self.value("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")
    }
}

/// Waits until the server is ready again: it sends an error first and cleans up then, so only after
/// this the locks of a failed transaction are gone.
fn settled<T>(client: &mut Client, result: Result<T, postgres::Error>) -> Result<T, Refusal> {
    if result.is_err() {
        let _answered_or_disconnected = client.batch_execute("");
    }
    Ok(result?)
}

fn execute(client: &mut Client, statement: &Statement) -> Rows {
    let params: Vec<(&(dyn ToSql + Sync), Type)> = statement
        .params
        .iter()
        .map(|(value, sql_type)| (value.as_ref() as _, sql_type.clone()))
        .collect();
    let rows = client.query_typed(&statement.sql, &params);
    settled(client, rows)
}
