//! pg_upgrade to later major versions: records, settings and leases are kept. `tools/test majors`, which
//! builds them, says in `UPGRADE_TO` which, such as `16 17 18`, and asks for ignored tests.

use pg_idempotency_tests::installation::{self, major};
use pg_idempotency_tests::lease::{alone, checkpoint, complete_by, lease, resume};
use pg_idempotency_tests::moves::{assert_agreement, assert_replayed, everything, order};
use pg_idempotency_tests::operation::configure;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::server::{Server, program_in};
use pg_idempotency_tests::{objects, paths, process};
use serde_json::json;
use std::path::{Path, PathBuf};
use uuid::Uuid;

const TOKEN: Uuid = Uuid::from_u128(7);
const RC: Isolation = Isolation::ReadCommitted;

/// The ends of what pg_upgrade has written down.
fn logs(data: &Path) -> String {
    let mut find = std::process::Command::new("find");
    find.arg(data.join("pg_upgrade_output.d"))
        .args(["-name", "*.log", "-exec", "tail", "-n", "400", "{}", "+"]);
    process::output_of(&mut find)
}

/// A cluster of a later version that has taken over the data of an old one, which has ended. `None`
/// where it cannot, whatever is in the database: some servers note a parameter with each column,
/// pg_attver, which others refuse ([`notes_versions`]).
fn upgraded(old: &Server, bin: &Path, major: u32) -> Option<Server> {
    let new = Server::unborn_in(bin, &format!("upgraded-{major}"));
    let mut initdb = program_in(bin, "initdb");
    initdb.args([
        "--username=postgres",
        "--auth=trust",
        "--no-sync",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
    ]);
    if major >= 18 {
        initdb.arg("--no-data-checksums");
    }
    process::output_of(initdb.arg("--pgdata").arg(new.data()));
    let mut upgrade = program_in(bin, "pg_upgrade");
    upgrade
        .args(["--username=postgres", "--no-sync"])
        .current_dir(new.data().parent().expect("a folder"));
    upgrade.arg("--old-bindir").arg(paths::pg_bin()).arg("--new-bindir").arg(bin);
    upgrade.arg("--old-datadir").arg(old.data()).arg("--new-datadir").arg(new.data());
    upgrade.arg("--socketdir").arg(new.sockets());
    let done = upgrade.output().expect("pg_upgrade starts");
    if !done.status.success() {
        let logs = logs(&new.data());
        let printed = String::from_utf8_lossy(&done.stdout);
        let is_refused = logs.contains("unrecognized parameter \"pg_attver\"");
        assert!(
            is_refused && notes_versions(&paths::pg_bin()) && !notes_versions(bin),
            "{printed}\n{logs}"
        );
        return None;
    }
    new.configure(&[
        "listen_addresses = ''",
        "max_connections = 200",
        "max_prepared_transactions = 20",
        "autovacuum = off",
    ]);
    new.start();
    Some(new)
}

/// Whether a server has the parameter pg_attver of columns.
fn notes_versions(bin: &Path) -> bool {
    let program = std::fs::read(bin.join("postgres")).expect("the server's program");
    program.windows(9).any(|bytes| bytes == b"pg_attver")
}

/// The major versions to upgrade to; each has to be built.
fn targets() -> Vec<(u32, PathBuf)> {
    let named = std::env::var("UPGRADE_TO").expect("UPGRADE_TO names major versions");
    let targets: Vec<_> = named
        .split_whitespace()
        .map(|major| major.parse().expect("a number"))
        .map(|major| (major, installation::of_major(major)))
        .collect();
    assert!(!targets.is_empty() && targets.iter().all(|(later, _)| *later > major()), "{named}");
    targets
}

#[test]
#[ignore = "needs other major versions: tools/test majors runs it"]
fn records_settings_and_leases_are_kept() {
    let mut refused = Vec::new();
    for (later, bin) in targets() {
        let cluster = Cluster::start(&format!("before-{later}"), &[]);
        let db = cluster.database();
        configure(&db, json!({"replay_header": "X-Again", "completion_check": null}));
        db.run("SELECT idempotency_register_resource('order', 'public.orders', 'id')");
        let mut session = db.session("session");
        let keys: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
        let sent: Vec<_> = keys.iter().map(|key| order(&mut session, key)).collect();
        alone(&mut session, RC, lease("leased").with("token", TOKEN)).expect("claimed");
        alone(&mut session, RC, checkpoint(TOKEN, "charged", json!({"charge": 7})));
        let before = everything(&db);
        drop(session);
        let name = db.name().to_owned();
        drop(db);
        cluster.end("INT");

        let Some(new) = upgraded(&cluster, &bin, later) else {
            println!("PostgreSQL {later} here does not know what {} notes with columns", major());
            refused.push(later);
            continue;
        };
        let db = Database::open(&new, name);
        assert_eq!(everything(&db), before, "to {later}");
        let mut session = db.session("session");
        for (key, sent) in keys.iter().zip(&sent) {
            let replayed = assert_replayed(&mut session, key, sent);
            assert!(replayed.header("X-Again").is_some());
        }
        session.call(claim("leased").with("wait_ms", 0)).expect("in_progress");
        let resumed = alone(&mut session, RC, resume(TOKEN)).expect("claimed");
        assert_eq!(resumed.recovery_point.as_deref(), Some("charged"));
        alone(&mut session, RC, complete_by(TOKEN, 201)).expect("completed");
        order(&mut session, "new");
        assert_agreement_but_for_the_lease(&db);
        // The old dump made the objects; a fresh installation there has the same.
        let objects = objects::of(&db);
        db.run("DROP EXTENSION pg_idempotency; CREATE EXTENSION pg_idempotency; SELECT idempotency_grant('backend')");
        assert_eq!(objects::differences(&objects, &objects::of(&db)), Vec::<String>::new());
        println!("PostgreSQL {} to {later}", major());
    }
    assert!(!refused.contains(&17), "17 is one that works");
    assert!(refused.len() < targets().len(), "none of them works");
}

/// The leased request has no effect in this database.
fn assert_agreement_but_for_the_lease(db: &Database<'_>) {
    let mut superuser = db.session_as(Role::Superuser, "superuser");
    superuser.run("BEGIN; INSERT INTO orders (key) VALUES ('leased')");
    assert_agreement(&mut superuser, 22);
    superuser.run("ROLLBACK");
}
