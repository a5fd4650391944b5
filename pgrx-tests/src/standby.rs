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

    pub fn session(&self, database: &str, name: &str) -> Session {
        Session::open(&self.server, database, Role::Backend, name)
    }

    /// Waits until everything that `primary` has written so far can be read here.
    pub fn catch_up_with(&self, primary: &Server) {
        let written =
            text(&mut primary.connect(Role::Superuser, "postgres"), "pg_current_wal_insert_lsn()");
        let mut here = self.server.connect(Role::Superuser, "postgres");
        let replayed = format!("coalesce(pg_last_wal_replay_lsn() >= '{written}', false)");
        wait::until("the standby catches up", || {
            (text(&mut here, &replayed) == "true").then_some(())
        });
    }
}

fn text(client: &mut Client, expression: &str) -> String {
    let row = client.query_typed_one(&format!("SELECT ({expression})::text"), &[]);
    row.expect("an answer of the server's").get(0)
}
