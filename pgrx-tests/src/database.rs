//! A fresh database for one test, watched from a connection of its own.

use crate::cluster::Cluster;
use crate::server::Server;
use crate::session::{Role, Session};
use crate::wait;
use postgres::types::FromSqlOwned;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// The key lock in pg_locks: an advisory lock of a class that only this extension uses.
const KEY_LOCKS: &str = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.objsubid = 18763";

/// What undoes the prepared transactions of a database, a statement for each.
const PREPARED: &str = "SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts
    WHERE database = current_database()";

/// How much of the log a failing test prints.
const LOG_LINES: usize = 80;

pub struct Database<'s> {
    server: &'s Server,
    name: String,
    watcher: Mutex<Session>,
    log_start: usize,
    may_crash: AtomicBool,
    is_dropped_at_the_end: bool,
}

impl Database<'static> {
    /// A new database on the cluster that this test binary shares.
    pub fn fresh() -> Database<'static> {
        Cluster::shared().database()
    }
}

impl<'s> Database<'s> {
    pub fn open(server: &'s Server, name: String) -> Database<'s> {
        let watcher = Mutex::new(Session::open(server, &name, Role::Superuser, "watcher"));
        let log_start = server.log_length();
        Database {
            server,
            name,
            watcher,
            log_start,
            may_crash: AtomicBool::new(false),
            is_dropped_at_the_end: false,
        }
    }

    /// The same, and the server drops it at the end of a test that has passed.
    pub(crate) fn dropped_at_the_end(mut self) -> Database<'s> {
        self.is_dropped_at_the_end = true;
        self
    }

    /// A failed look poisons the lock; the test has failed then, and may still look.
    fn watcher(&self) -> MutexGuard<'_, Session> {
        self.watcher.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn server(&self) -> &'s Server {
        self.server
    }

    /// A session of the backend role: an ordinary role with `idempotency_grant`.
    pub fn session(&self, name: &str) -> Session {
        self.session_as(Role::Backend, name)
    }

    pub fn session_as(&self, role: Role, name: &str) -> Session {
        Session::open(self.server, &self.name, role, name)
    }

    // ---- looking from outside ---------------------------------------------------------------

    /// A value read by the watcher, a superuser outside every transaction of the test.
    #[track_caller]
    pub fn value<T: FromSqlOwned>(&self, sql: &str) -> T {
        self.watcher().value(sql)
    }

    /// Has the superuser run a script.
    #[track_caller]
    pub fn run(&self, sql: &str) {
        self.watcher().run(sql);
    }

    /// Has the superuser change a setting of this database; sessions that are opened from now on have it.
    #[track_caller]
    pub fn set(&self, setting: &str, value: &str) {
        self.run(&format!("ALTER DATABASE {} SET {setting} = '{value}'", self.name));
    }

    /// How many orders there are for `key`: the effects of its requests.
    #[track_caller]
    pub fn orders(&self, key: &str) -> i64 {
        self.value(&format!("SELECT count(*) FROM orders WHERE key = '{key}'"))
    }

    /// How many records there are, of whatever key.
    #[track_caller]
    pub fn records(&self) -> i64 {
        self.value("SELECT count(*) FROM idempotency.records")
    }

    /// How many keys are held, by whatever session of this database.
    #[track_caller]
    pub fn keys_held(&self) -> i64 {
        self.value(&format!("{KEY_LOCKS} AND l.granted"))
    }

    /// How many keys this session holds or waits for.
    #[track_caller]
    pub fn key_locks_of(&self, session: &Session) -> i64 {
        self.value(&format!("{KEY_LOCKS} AND l.pid = {}", session.pid()))
    }

    /// The state of a session as pg_stat_activity has it: `idle`, `idle in transaction`, …
    #[track_caller]
    pub fn state_of(&self, session: &Session) -> String {
        self.value(&format!("SELECT state FROM pg_stat_activity WHERE pid = {}", session.pid()))
    }

    // ---- barriers ---------------------------------------------------------------------------

    /// Waits until `condition`, an SQL expression, is true; NULL is not.
    #[track_caller]
    pub fn wait_until(&self, condition: &str) {
        wait::until(condition, || {
            self.value::<bool>(&format!("SELECT coalesce({condition}, false)")).then_some(())
        });
    }

    /// Waits until the server says that `waiter` waits for `holder`.
    #[track_caller]
    pub fn wait_until_blocked(&self, waiter: &Session, holder: &Session) {
        self.wait_until(&format!("{} = ANY (pg_blocking_pids({}))", holder.pid(), waiter.pid()));
    }

    /// Waits until `waiter` waits for a prepared transaction, which has no pid: the server says 0.
    #[track_caller]
    pub fn wait_until_blocked_by_prepared(&self, waiter: &Session) {
        self.wait_until(&format!("0 = ANY (pg_blocking_pids({}))", waiter.pid()));
    }

    /// Waits until `count` sessions wait for a key.
    #[track_caller]
    pub fn wait_until_waiting(&self, count: usize) {
        self.wait_until(&format!("({KEY_LOCKS} AND NOT l.granted) = {count}"));
    }

    /// Waits until the backend of `session` is gone.
    #[track_caller]
    pub fn wait_until_gone(&self, session: &Session) {
        self.wait_until(&format!(
            "NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {})",
            session.pid()
        ));
    }

    /// Terminates the backend of `session` and waits until it is gone.
    #[track_caller]
    pub fn terminate(&self, session: &Session) {
        assert!(self.value::<bool>(&format!("SELECT pg_terminate_backend({})", session.pid())));
        self.wait_until_gone(session);
    }

    // ---- crashes ----------------------------------------------------------------------------

    /// Says that this test kills server processes itself.
    pub fn expect_crash(&self) {
        self.may_crash.store(true, Relaxed);
    }

    /// Connects the watcher again after a crash: first its old connection must have died of it, or
    /// it would meet the server that is about to go down.
    pub fn reconnect(&self) {
        wait::until("the crash", || self.watcher().attempt("SELECT 1").err());
        let config = || self.server.config(Role::Superuser, &self.name);
        let again = || Session::try_connect(config(), "watcher").ok();
        *self.watcher() = wait::until("the server lets us in again", again);
    }

    // ---- the end ----------------------------------------------------------------------------

    /// Drops the database with what the test has left in it: sessions and prepared transactions.
    fn drop_database(&self) {
        for prepared in self.watcher().rows(PREPARED) {
            self.run(&prepared.get::<_, String>(0));
        }
        let mut superuser = self.server.connect(Role::Superuser, "postgres");
        let dropped = superuser.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        dropped.unwrap_or_else(|error| panic!("{} stays: {error:?}", self.name));
    }

    fn last_log_lines(&self) -> String {
        let log = self.server.log_from(self.log_start);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        let crashes = self.server.crashes_since(self.log_start);
        if std::thread::panicking() {
            println!("---- log of the server, {} ----\n{}", self.name, self.last_log_lines());
        } else if !self.may_crash.load(Relaxed) {
            assert!(
                crashes.is_empty(),
                "the server crashed: {crashes:?}\n{}",
                self.last_log_lines()
            );
            if self.is_dropped_at_the_end {
                self.drop_database();
            }
        }
    }
}
