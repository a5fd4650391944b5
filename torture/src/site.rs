//! The servers: a primary, a synchronous standby, a pooler, and how they follow one another.

use pg_idempotency_tests::cluster::Cluster;
use pg_idempotency_tests::pooler::Pooler;
use pg_idempotency_tests::refusal::Refusal;
use pg_idempotency_tests::server::Server;
use pg_idempotency_tests::session::{Role, Session};
use pg_idempotency_tests::standby::Standby;
use pg_idempotency_tests::wait;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

/// Synchronous replication, quick deadlocks and reconnects; the SQLSTATE in every line of the log.
const SETTINGS: [&str; 8] = [
    "max_prepared_transactions = 100",
    "deadlock_timeout = 50ms",
    "log_line_prefix = '%m [%p] <%e> '",
    "wal_retrieve_retry_interval = 100ms",
    "wal_keep_size = 1GB",
    "max_wal_size = 4GB",
    "synchronous_commit = on",
    "checkpoint_timeout = 30s",
];

/// What the work writes to. Ids are drawn while the key is held, so for one key they are in the order
/// in which its transactions held it.
const SCHEMA: &str = "
    CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, body text NOT NULL);
    CREATE TABLE short_lived (key text NOT NULL, body text NOT NULL, won_at timestamptz NOT NULL,
                              expires_at timestamptz NOT NULL);
    CREATE TABLE phases (id bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, attempt integer NOT NULL,
                         phase text NOT NULL);
    CREATE TABLE stock (item integer PRIMARY KEY, pieces bigint NOT NULL);
    INSERT INTO stock SELECT n, 0 FROM generate_series(0, 2) AS n;
    CREATE TABLE erased (key text, body text, won_at timestamptz, expires_at timestamptz);
    CREATE TABLE erasures (records bigint NOT NULL);
    GRANT ALL ON effects, short_lived, erased, phases, stock TO backend;
    ALTER ROLE backend SET statement_timeout = '10s';
    SELECT idempotency_configure('POST /short', jsonb_build_object('retention', '{life}'));";

/// How long a client looks for a server before something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Site {
    pub database: String,
    primary: RwLock<Arc<Server>>,
    standby: Mutex<Option<Standby>>,
    pooler: RwLock<Option<Pooler>>,
    /// How many requests have been sent: what is done to the servers is paced by it.
    pub progress: AtomicUsize,
    /// How often the primary has been killed: who notices a new number has lived through it.
    pub generation: AtomicUsize,
    servers: AtomicUsize,
    /// The logs of servers that are gone.
    pub old_logs: Mutex<Vec<String>>,
}

impl Site {
    pub fn start() -> Site {
        let cluster = Cluster::start("torture-0", &SETTINGS);
        let database = {
            let db = cluster.database();
            db.run(&SCHEMA.replace("{life}", crate::plan::SHORT_LIFE));
            db.name().to_owned()
        };
        let site = Site {
            database,
            primary: RwLock::new(Arc::new(cluster.into_server())),
            standby: Mutex::new(None),
            pooler: RwLock::new(None),
            progress: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            servers: AtomicUsize::new(1),
            old_logs: Mutex::new(Vec::new()),
        };
        site.add_standby();
        site.restart_pooler();
        site
    }

    pub fn primary(&self) -> Arc<Server> {
        self.primary.read().expect("nobody panicked").clone()
    }

    pub fn superuser(&self) -> Result<Session, Refusal> {
        Session::try_connect(self.primary().config(Role::Superuser, &self.database), "torture")
    }

    /// A session of the backend role, as soon as a server lets us in.
    pub fn connect(&self, pooled: bool, name: &str) -> Session {
        wait::until_within(PATIENCE, &format!("a server for {name}"), || {
            let config = match (pooled, &*self.pooler.read().expect("nobody panicked")) {
                (true, Some(pooler)) => pooler.config(&self.database),
                (true, None) => return None,
                (false, _) => self.primary().config(Role::Backend, &self.database),
            };
            Session::try_connect(config, name).ok()
        })
    }

    // ---- the standby ------------------------------------------------------------------------

    /// Copies the primary, and has commits wait for the copy from then on.
    pub fn add_standby(&self) {
        let name = format!("torture-{}", self.servers.fetch_add(1, SeqCst));
        let standby = Standby::of(&self.primary(), &name);
        *self.standby.lock().expect("nobody panicked") = Some(standby);
        self.wait_for_standby("state = 'streaming'");
        self.replicate_synchronously(true);
    }

    fn replicate_synchronously(&self, on: bool) {
        let names = if on { "*" } else { "" };
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
        wait::until("the primary takes a setting", || {
            let mut session = self.superuser().ok()?;
            session.attempt(set.as_str()).ok()?;
            session.attempt("SELECT pg_reload_conf()").ok()
        });
    }

    fn wait_for_standby(&self, condition: &str) {
        let sql = format!("SELECT FROM pg_stat_replication WHERE {condition}");
        wait::until_within(PATIENCE, &format!("the standby follows: {condition}"), || {
            let rows = self.superuser().and_then(|mut s| s.attempt(sql.as_str())).ok()?;
            (rows.len() == 1).then_some(())
        });
    }

    /// The primary is killed, the standby takes its place, and gets a standby of its own.
    ///
    /// First the standby must have what is committed now. A commit whose wait for the standby was
    /// cancelled is visible, and may be answered from, before the standby has it: PostgreSQL warns
    /// of that, and it would be lost by what is not a fault of ours. Commits under way from here on
    /// are waited for by nobody but their clients.
    pub fn fail_over(&self) {
        self.wait_for_standby("state = 'streaming'");
        let now = wait::until("the end of the log", || {
            let mut session = self.superuser().ok()?;
            session.attempt("SELECT pg_current_wal_insert_lsn()::text").ok()
        });
        let now: String = now[0].get(0);
        self.wait_for_standby(&format!("flush_lsn >= '{now}'"));
        let old = self.primary();
        old.die();
        self.generation.fetch_add(1, SeqCst);
        let standby = self.standby.lock().expect("nobody panicked").take().expect("a standby");
        *self.primary.write().expect("nobody panicked") = Arc::new({
            standby.promote();
            standby.into_server()
        });
        self.replicate_synchronously(false);
        self.restart_pooler();
        self.old_logs.lock().expect("nobody panicked").push(old.log_from(0));
        drop(old);
        self.add_standby();
    }

    /// The primary is killed and started again.
    pub fn restart(&self) {
        let primary = self.primary();
        primary.end("KILL");
        self.generation.fetch_add(1, SeqCst);
        primary.start();
    }

    pub fn restart_pooler(&self) {
        let mut pooler = self.pooler.write().expect("nobody panicked");
        drop(pooler.take());
        *pooler = Some(Pooler::before(&self.primary(), "torture-pooler", 6));
    }

    /// What all servers have logged, that of the last standby included.
    pub fn logs(&self) -> String {
        let mut logs = self.old_logs.lock().expect("nobody panicked").concat();
        logs.push_str(&self.primary().log_from(0));
        if let Some(standby) = &*self.standby.lock().expect("nobody panicked") {
            logs.push_str(&standby.server().log_from(0));
        }
        logs
    }
}
