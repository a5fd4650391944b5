//! A hot standby of a cluster.

use crate::server::{self, Server};
use crate::session::{Role, Session};
use crate::{process, wait};
use postgres::Client;

pub struct Standby {
    server: Server,
}

impl Standby {
    /// Copies `primary` and starts the copy as its streaming standby.
    pub fn of(primary: &Server, name: &str) -> Standby {
        let server = Server::unborn(name);
        let mut copy = server::program("pg_basebackup");
        copy.args(["-R", "-X", "stream", "-c", "fast", "-U", "postgres", "-h"])
            .arg(primary.sockets());
        process::output_of(copy.arg("-D").arg(server.data()));
        server.start();
        Standby { server }
    }

    /// The server alone, for whom it becomes the primary.
    pub fn into_server(self) -> Server {
        self.server
    }

    pub fn session(&self, database: &str, name: &str) -> Session {
        self.session_as(database, Role::Backend, name)
    }

    pub fn session_as(&self, database: &str, role: Role, name: &str) -> Session {
        Session::open(&self.server, database, role, name)
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Makes it the primary.
    pub fn promote(&self) {
        let mut here = self.server.connect(Role::Superuser, "postgres");
        assert_eq!(text(&mut here, "pg_promote()"), "true", "the standby is promoted");
    }

    /// Ends the stream from its primary, for good.
    pub fn disconnect(&self) {
        let mut here = self.server.connect(Role::Superuser, "postgres");
        // One message, so one transaction, would not do: ALTER SYSTEM is none for a block.
        for statement in ["ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"] {
            here.batch_execute(statement).expect("the superuser may");
        }
    }

    /// Waits until everything that `primary` has written so far, committed or not, is replayed here.
    pub fn catch_up_with(&self, primary: &Server) {
        let mut there = primary.connect(Role::Superuser, "postgres");
        // Its commit flushes what was written before it.
        text(&mut there, "pg_logical_emit_message(true, '', '')");
        let written = text(&mut there, "pg_current_wal_flush_lsn()");
        let mut here = self.server.connect(Role::Superuser, "postgres");
        let replayed = format!("coalesce(pg_last_wal_replay_lsn() >= '{written}', false)");
        let caught_up = || (text(&mut here, &replayed) == "true").then_some(());
        wait::until("the standby catches up", caught_up);
    }
}

fn text(client: &mut Client, expression: &str) -> String {
    let row = client.query_typed_one(&format!("SELECT ({expression})::text"), &[]);
    row.expect("an answer of the server's").get(0)
}
