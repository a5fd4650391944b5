//! PgBouncer in transaction mode.

use crate::process::{self, Process};
use crate::server::Server;
use crate::session::{Role, Session};
use crate::{paths, server, wait};
use postgres::{Config, NoTls};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

pub struct Pooler {
    sockets: PathBuf,
    _process: Process,
}

impl Pooler {
    /// Starts PgBouncer before `server`, with `connections` server connections per database.
    pub fn before(server: &Server, name: &str, connections: u32) -> Pooler {
        let (folder, sockets) = (paths::scratch(name), paths::sockets(name));
        for path in [&folder, &sockets] {
            process::remove_at_the_end(path);
            fs::create_dir_all(path).expect("a folder for the pooler");
        }
        let settings = settings(server.sockets(), &folder, &sockets, connections);
        fs::write(folder.join("pgbouncer.ini"), settings).expect("the pooler's settings");
        fs::write(folder.join("users.txt"), "\"backend\" \"\"\n\"postgres\" \"\"\n")
            .expect("its users");
        let pooler = Pooler { sockets, _process: spawn(&folder) };
        wait::until("the pooler lets us in", || pooler.config("postgres").connect(NoTls).ok());
        pooler
    }

    pub fn session(&self, database: &str, name: &str) -> Session {
        Session::connect(self.config(database), name)
    }

    fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host_path(&self.sockets).port(6432).user(Role::Backend.name()).dbname(database);
        config
    }
}

fn settings(server: &Path, folder: &Path, sockets: &Path, connections: u32) -> String {
    let (server, folder, sockets) = (server.display(), folder.display(), sockets.display());
    format!(
        "[databases]\n* = host={server}\n\
         [pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {sockets}\n\
         auth_type = trust\nauth_file = {folder}/users.txt\npool_mode = transaction\n\
         default_pool_size = {connections}\nmax_client_conn = 200\n"
    )
}

fn spawn(folder: &Path) -> Process {
    let log = File::create(folder.join("log")).expect("the pooler's log");
    let mut command = server::as_nobody_special(&program());
    command.arg("-q").arg(folder.join("pgbouncer.ini"));
    command.stderr(log.try_clone().expect("the pooler's log")).stdout(log);
    Process::spawn(&mut command)
}

/// Debian puts it where an ordinary user's PATH does not look.
fn program() -> PathBuf {
    let path = PathBuf::from("/usr/sbin/pgbouncer");
    assert!(path.exists(), "{} is missing: install the package pgbouncer", path.display());
    path
}
