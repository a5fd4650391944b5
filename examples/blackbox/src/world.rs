//! One cluster, one database and one running service for all scenarios of a test binary. They run at the
//! same time, so each has a user and an item of its own.

use crate::http::{self, Answer, Request};
use crate::service::Service;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{paths, wait};
use std::fs;
use std::path::PathBuf;
use std::sync::{LazyLock, OnceLock};
use std::thread::{Scope, ScopedJoinHandle};

/// How many connections each of the services has.
pub const POOL: usize = 8;

const SCHEMA: &str = include_str!("../../schema.sql");
const FIXTURE: &str = include_str!("fixture.sql");

/// What the services come in as: an ordinary role, and the same with settings of the role's own.
#[derive(Clone, Copy)]
pub enum As {
    Usual,
    /// Its transactions are REPEATABLE READ, where a conflict is 40001.
    Repeatable,
    /// It does not look for deadlocks for three seconds, so that a test has time to make one.
    Patient,
    /// It does not wait for a key.
    Impatient,
}

impl As {
    const ALL: [As; 4] = [As::Usual, As::Repeatable, As::Patient, As::Impatient];

    pub fn role(self) -> &'static str {
        match self {
            As::Usual => Role::Backend.name(),
            As::Repeatable => "backend_repeatable",
            As::Patient => "backend_patient",
            As::Impatient => "backend_impatient",
        }
    }

    fn settings(self) -> &'static str {
        match self {
            As::Usual => "",
            As::Repeatable => "SET default_transaction_isolation = 'repeatable read'",
            As::Patient => "SET deadlock_timeout = '3s'",
            As::Impatient => "SET pg_idempotency.wait_ms = 0",
        }
    }
}

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let cluster = Cluster::start_listening(&format!("examples-{}", std::process::id()));
    let mut superuser = cluster.connect(Role::Superuser, "postgres");
    superuser.batch_execute("LOAD 'pg_idempotency'").expect("the library is there");
    for role in As::ALL {
        let (name, settings) = (role.role(), role.settings());
        let create = format!("CREATE ROLE {name} LOGIN PASSWORD '{}';", &*PASSWORD);
        superuser.batch_execute(&create).expect("a role");
        if !settings.is_empty() {
            superuser.batch_execute(&format!("ALTER ROLE {name} {settings}")).expect("settings");
        }
    }
    cluster
});

/// 16 bytes of the machine's randomness.
static PASSWORD: LazyLock<String> = LazyLock::new(|| {
    use std::io::Read;
    let mut bytes = [0; 16];
    let mut random = fs::File::open("/dev/urandom").expect("randomness");
    random.read_exact(&mut bytes).expect("randomness");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
});

pub struct World {
    name: &'static str,
    db: Database<'static>,
    service: OnceLock<Service>,
}

impl World {
    pub fn of(name: &'static str) -> &'static World {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| World::new(name))
    }

    /// A database with the tables of the examples, and nothing running yet.
    pub fn new(name: &'static str) -> World {
        let db = CLUSTER.database_with("TEMPLATE template0");
        db.run(SCHEMA);
        db.run(FIXTURE);
        if let Ok(own) = fs::read_to_string(folder(name).join("service.sql")) {
            db.run(&own);
        }
        for role in As::ALL.map(As::role) {
            db.run(&format!(
                "SELECT idempotency_grant('{role}');
                 GRANT SELECT, INSERT ON orders TO {role};
                 GRANT SELECT, UPDATE ON stock TO {role};
                 GRANT SELECT ON trouble TO {role};"
            ));
        }
        World { name, db, service: OnceLock::new() }
    }

    /// Another world for the same service, for a scenario that changes settings.
    pub fn another(&self) -> World {
        World::new(self.name)
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn db(&self) -> &Database<'static> {
        &self.db
    }

    pub fn password(&self) -> &'static str {
        &PASSWORD
    }

    /// The service that runs all the time.
    pub fn service(&self) -> &Service {
        self.service.get_or_init(|| self.start(As::Usual))
    }

    /// One more process of the service.
    pub fn start(&self, role: As) -> Service {
        self.start_at(role, CLUSTER.port(), "")
    }

    /// The same, connected to another port than the server's own: a pooler's.
    pub fn start_at(&self, role: As, port: u16, options: &str) -> Service {
        let (name, password, database) = (role.role(), &*PASSWORD, self.db.name());
        let url = format!("postgresql://{name}:{password}@127.0.0.1:{port}/{database}{options}");
        Service::start(&folder(self.name), &url)
    }

    /// A scenario's own user, with an item of which there is enough.
    pub fn user<'a>(&'a self, name: &'a str) -> User<'a> {
        self.db.run(&format!("INSERT INTO stock VALUES ('{name}', 1000)"));
        User { world: self, name }
    }
}

pub fn folder(name: &str) -> PathBuf {
    paths::repository().join("examples").join(name)
}

/// Whom a scenario is about; also the item that is ordered.
#[derive(Clone, Copy)]
pub struct User<'a> {
    pub world: &'a World,
    pub name: &'a str,
}

impl<'a> User<'a> {
    pub fn db(&self) -> &'a Database<'static> {
        &self.world.db
    }

    pub fn usual_body(&self) -> String {
        format!("{{\"item\": \"{}\"}}", self.name)
    }

    /// The usual order, without a key.
    pub fn order(&self) -> Request {
        self.order_with(self.usual_body())
    }

    pub fn order_with(&self, body: impl AsRef<[u8]>) -> Request {
        Request::post("/orders", body).with("Authorization", format!("Bearer {}", self.name))
    }

    /// Sends the usual order to the service that runs all the time.
    #[track_caller]
    pub fn send(&self, key: &str) -> Answer {
        self.world.service().answer(&self.order().keyed(key))
    }

    /// Sends the usual order on a thread of its own; the answer, or none where the service died.
    pub fn send_to<'s>(
        &self,
        scope: &'s Scope<'s, '_>,
        service: &Service,
        key: &str,
    ) -> ScopedJoinHandle<'s, Option<Answer>> {
        let (address, request) = (service.address().to_owned(), self.order().keyed(key));
        scope.spawn(move || http::send(&address, &request).ok())
    }

    #[track_caller]
    pub fn orders(&self) -> i64 {
        self.db().value(&format!("SELECT count(*) FROM orders WHERE owner = '{}'", self.name))
    }

    #[track_caller]
    pub fn pieces(&self) -> i32 {
        self.db().value(&format!("SELECT pieces FROM stock WHERE item = '{}'", self.name))
    }

    #[track_caller]
    pub fn records(&self) -> i64 {
        let sql = "SELECT count(*) FROM idempotency.records WHERE scope = ";
        self.db().value(&format!("{sql}'{}'", self.name))
    }

    /// One order, one piece less, one record.
    #[track_caller]
    pub fn assert_one_effect(&self) {
        assert_eq!((self.orders(), self.pieces(), self.records()), (1, 999, 1), "one effect");
    }

    /// No order, all pieces there, no record.
    #[track_caller]
    pub fn assert_no_effect(&self) {
        assert_eq!((self.orders(), self.pieces(), self.records()), (0, 1000, 0), "no effect");
    }

    /// What the service answers who has ordered: 201 with this body and place.
    #[track_caller]
    pub fn assert_created(&self, answer: &Answer, body: &str, is_replayed: bool) {
        let sql = format!("SELECT max(id) FROM orders WHERE owner = '{}'", self.name);
        let order: i64 = self.db().value(&sql);
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.text(), format!("{{\"order\": {order}, \"request\": {body}}}"));
        let (location, json) = (format!("/orders/{order}"), "application/json");
        let mut expected = vec![("content-type", json), ("location", location.as_str())];
        if is_replayed {
            expected.push(("idempotent-replayed", "true"));
        }
        answer.expect_headers(&expected);
    }

    /// A session that has the row of our item locked: whoever orders stands in its work.
    pub fn hold_stock(&self) -> Session {
        let mut holder = self.db().session_as(Role::Superuser, "holder");
        holder.run(&format!("BEGIN; SELECT FROM stock WHERE item = '{}' FOR UPDATE", self.name));
        holder
    }

    /// Waits until somebody waits for this session; returns the backend.
    pub fn wait_until_blocked_by(&self, holder: &Session) -> i32 {
        let waiting = format!(
            "SELECT min(pid) FROM pg_stat_activity WHERE {} = ANY (pg_blocking_pids(pid))",
            holder.pid()
        );
        wait::until("somebody waits for us", || self.db().value::<Option<i32>>(&waiting))
    }

    /// Waits until at least `count` backends wait for this one.
    pub fn wait_until_behind(&self, pid: i32, count: usize) {
        self.db().wait_until(&format!(
            "(SELECT count(*) FROM pg_stat_activity WHERE {pid} = ANY (pg_blocking_pids(pid))) >= {count}"
        ));
    }
}
