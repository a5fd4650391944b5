//! Point-in-time recovery: wherever it stops, keys and effects agree.

use pg_idempotency_tests::moves::{assert_agreement, assert_replayed, order};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::server::{self, Server};
use pg_idempotency_tests::{paths, process};
use std::path::PathBuf;

/// A cluster that archives its WAL, and a base backup of it.
struct Archived {
    cluster: Cluster,
    archive: PathBuf,
    backup: PathBuf,
}

impl Archived {
    fn start(name: &str) -> Archived {
        let folder = paths::scratch(&format!("{name}-archive"));
        let (archive, backup) = (folder.join("wal"), folder.join("base"));
        std::fs::create_dir_all(&archive).expect("a folder");
        process::remove_at_the_end(&folder);
        let command = format!("archive_command = 'cp %p {}/%f'", archive.display());
        let cluster = Cluster::start(name, &["archive_mode = on", &command]);
        Archived { cluster, archive, backup }
    }

    fn back_up(&self) {
        let mut copy = server::program("pg_basebackup");
        copy.args(["-X", "none", "-c", "fast", "-U", "postgres", "-h"]).arg(self.cluster.sockets());
        process::output_of(copy.arg("-D").arg(&self.backup));
    }

    /// Archives what has been written so far.
    fn archive(&self, db: &Database<'_>) {
        let segment: String = db.value("SELECT pg_walfile_name(pg_current_wal_lsn())");
        db.run("SELECT pg_switch_wal()");
        let file = self.archive.join(segment);
        db.wait_until(&format!("(pg_stat_file('{}', true)).size = 16777216", file.display()));
    }

    /// A new server from the backup, recovered up to a target.
    fn recover(&self, name: &str, target: &str) -> Server {
        let server = Server::unborn(name);
        process::output_of(
            std::process::Command::new("cp").arg("-a").arg(&self.backup).arg(server.data()),
        );
        let restore = format!("restore_command = 'cp {}/%f %p'", self.archive.display());
        server.configure(&[
            &restore,
            "archive_mode = off",
            "recovery_target_action = promote",
            target,
        ]);
        std::fs::write(server.data().join("recovery.signal"), "").expect("a file");
        server.start();
        server
    }
}

fn recovered<'s>(server: &'s Server, name: &str) -> Database<'s> {
    let db = Database::open(server, name.to_owned());
    db.wait_until("NOT pg_is_in_recovery()");
    db
}

#[test]
fn keys_and_effects_agree_wherever_recovery_stops() {
    let archived = Archived::start("recovery");
    let db = archived.cluster.database();
    let mut session = db.session("session");
    let before = order(&mut session, "before the backup");
    archived.back_up();
    let first = order(&mut session, "first");
    db.run("SELECT pg_create_restore_point('between')");
    // Open at the restore point's side of the next commit, so undone by a recovery to it.
    session.run("BEGIN");
    session.call(claim("second")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('second')");
    let xid: String = session.value("SELECT pg_current_xact_id()::text");
    let second = session.call(complete(201).with("body", "second")).expect("completed").answer();
    session.run("COMMIT");
    session.run("BEGIN");
    session.call(claim("prepared")).expect("claimed");
    session.run("INSERT INTO orders (key) VALUES ('prepared')");
    let prepared = session.call(complete(201)).expect("completed").answer();
    session.run("PREPARE TRANSACTION 'prepared'");
    archived.archive(&db);

    // To a named point between two requests.
    let server = archived.recover("recovery-name", "recovery_target_name = 'between'");
    let there = recovered(&server, db.name());
    let (mut session, mut superuser) =
        (there.session("session"), there.session_as(Role::Superuser, "superuser"));
    assert_agreement(&mut superuser, 2);
    assert_replayed(&mut session, "before the backup", &before);
    assert_replayed(&mut session, "first", &first);
    order(&mut session, "second");
    assert_agreement(&mut superuser, 3);

    // Just before the commit of one request, and just behind it.
    for (name, inclusive, requests) in [("recovery-before", "off", 2), ("recovery-behind", "on", 3)]
    {
        let target =
            format!("recovery_target_xid = {xid}\nrecovery_target_inclusive = {inclusive}");
        let server = archived.recover(name, &target);
        let there = recovered(&server, db.name());
        assert_agreement(&mut there.session_as(Role::Superuser, "superuser"), requests);
        let mut session = there.session("session");
        match inclusive {
            "on" => drop(assert_replayed(&mut session, "second", &second)),
            _ => drop(order(&mut session, "second")),
        }
    }

    // To the end of the archive: what was prepared holds its key.
    let server = archived.recover("recovery-end", "");
    let there = recovered(&server, db.name());
    let mut session = there.session("session");
    session.call(claim("prepared").with("wait_ms", 0)).expect("in_progress");
    there.run("COMMIT PREPARED 'prepared'");
    assert_replayed(&mut session, "prepared", &prepared);
    assert_agreement(&mut there.session_as(Role::Superuser, "superuser"), 4);
}
