//! Databases that move: dumps, copies of clusters, recovery. Keys and effects have to arrive together.

use crate::call::{claim, complete};
use crate::database::Database;
use crate::outcome::{Answer, Outcome};
use crate::server::Server;
use crate::session::{Role, Session};
use crate::{paths, process};
use std::process::Command;

/// Effects and records, side by side: the keys of orders, and the keys recorded for them.
const DISAGREEMENTS: &str = "
    SELECT count(*) FROM (SELECT key FROM orders) AS effect
    FULL JOIN (SELECT key FROM idempotency.records WHERE operation = 'POST /orders' AND completed_at IS NOT NULL) AS record
        USING (key)
    WHERE effect IS NULL OR record IS NULL";

/// A request that inserts an order and answers with its key; returns what was sent.
#[track_caller]
pub fn order(session: &mut Session, key: &str) -> Answer {
    session.run("BEGIN");
    session.call(claim(key)).expect("claimed");
    session.run(&format!("INSERT INTO orders (key) VALUES ('{}')", key.replace('\'', "''")));
    let sent = session.call(complete(201).with("body", format!("order {key}")));
    session.run("COMMIT");
    sent.expect("completed").answer()
}

/// Asserts that there is no effect without its record and no record without its effect, and that so
/// many requests have been executed.
#[track_caller]
pub fn assert_agreement(session: &mut Session, requests: i64) {
    assert_eq!(session.value::<i64>(DISAGREEMENTS), 0, "effects and records agree");
    assert_eq!(session.value::<i64>("SELECT count(*) FROM orders"), requests);
}

/// Asserts that a request is replayed as it was answered.
#[track_caller]
pub fn assert_replayed(session: &mut Session, key: &str, sent: &Answer) -> Outcome {
    let replayed = session.call(claim(key)).expect("replayed");
    assert_eq!(replayed.answer(), *sent);
    replayed
}

/// All rows of all tables of the extension.
#[track_caller]
pub fn everything(db: &Database<'_>) -> Vec<String> {
    let mut session = db.session_as(Role::Superuser, "everything");
    let tables = session.rows(
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass
             AND d.objid = c.oid AND d.deptype = 'e'
         WHERE c.relkind = 'r' AND c.relnamespace = 'idempotency'::regnamespace ORDER BY 1",
    );
    let mut all = Vec::new();
    for table in &tables {
        let table: String = table.get(0);
        let rows =
            session.rows(format!("SELECT '{table}: ' || t::text FROM {table} AS t ORDER BY 1"));
        all.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    all
}

/// A program of PostgreSQL, pointed to a database as its superuser.
pub fn client(program: &str, server: &Server, database: &str) -> Command {
    let mut command = Command::new(paths::pg_bin().join(program));
    command.args(["-U", Role::Superuser.name(), "-d", database]).arg("-h").arg(server.sockets());
    command
}

/// Dumps a database in a format of pg_dump's and restores it into another one.
pub fn copy(from: &Database<'_>, into: &Database<'_>, format: &str) {
    let folder = paths::scratch(&format!("dump-{}", from.name()));
    let _not_there_yet = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    process::remove_at_the_end(&folder);
    let file = folder.join("dump");
    let mut dump = client("pg_dump", from.server(), from.name());
    dump.args(["-F", format]).arg("-f").arg(&file);
    if format == "directory" {
        dump.args(["-j", "2"]);
    }
    process::output_of(&mut dump);
    let mut restore = if format == "plain" {
        let mut psql = client("psql", into.server(), into.name());
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]);
        psql
    } else {
        let mut restore = client("pg_restore", into.server(), into.name());
        restore.args(["--exit-on-error", "-j", "2"]);
        restore
    };
    process::output_of(restore.arg(&file));
}
