//! pg_upgrade to every later major version that the extension is built for here
//! (`tools/setup` and `tools/install-extension` with its number): records, settings and leases are kept.

use pg_idempotency_tests::lease::{alone, checkpoint, complete_by, lease, resume};
use pg_idempotency_tests::moves::{assert_agreement, assert_replayed, everything, order};
use pg_idempotency_tests::operation::configure;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::server::{Server, program, program_in};
use pg_idempotency_tests::{objects, paths, process};
use serde_json::json;
use std::path::Path;
use uuid::Uuid;

const TOKEN: Uuid = Uuid::from_u128(7);
const RC: Isolation = Isolation::ReadCommitted;

/// The major version that the tests run on.
fn major() -> u32 {
    let version = process::output_of(program("postgres").arg("--version"));
    let number = version.split_whitespace().find_map(|word| word.split('.').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("a version in {version}"))
}

/// The ends of what pg_upgrade has written down.
fn logs(data: &Path) -> String {
    let mut find = std::process::Command::new("find");
    find.arg(data.join("pg_upgrade_output.d"))
        .args(["-name", "*.log", "-exec", "tail", "-n", "400", "{}", "+"]);
    process::output_of(&mut find)
}

/// A cluster of a later version that has taken over the data of an old one, which has ended. `None`
/// where it cannot, whatever is in the database: 15.20 notes a parameter with each column, pg_attver,
/// which a later major version of an older minor one does not know.
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
        assert!(
            logs.contains("unrecognized parameter \"pg_attver\""),
            "{printed}
{logs}"
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

#[test]
fn records_settings_and_leases_are_kept() {
    for (later, bin) in paths::later_majors(major()) {
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
            println!("PostgreSQL {later} here is of an older minor version than {}", major());
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
}

/// The leased request has no effect in this database.
fn assert_agreement_but_for_the_lease(db: &Database<'_>) {
    let mut superuser = db.session_as(Role::Superuser, "superuser");
    superuser.run("BEGIN; INSERT INTO orders (key) VALUES ('leased')");
    assert_agreement(&mut superuser, 22);
    superuser.run("ROLLBACK");
}
