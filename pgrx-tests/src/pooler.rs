//! PgBouncer in transaction mode.

use crate::process::{self, Process};
use crate::server::Server;
use crate::session::{Role, Session};
use crate::{paths, server, wait};
use postgres::{Config, NoTls};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// PgBouncer's own, where nobody comes over TCP: the socket lies in a folder of its own.
const PORT: u16 = 6432;

/// Whoever has the folder of the socket may come in; on the port, with a password.
const HBA: &str = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";

pub struct Pooler {
    sockets: PathBuf,
    port: u16,
    _process: Process,
}

impl Pooler {
    /// Starts PgBouncer before `server`, with `connections` server connections per database.
    pub fn before(server: &Server, name: &str, connections: u32) -> Pooler {
        Pooler::start(server, name, connections, None)
    }

    /// The same on a port of 127.0.0.1 too, for the backend with this password.
    pub fn listening(server: &Server, name: &str, connections: u32, password: &str) -> Pooler {
        Pooler::start(server, name, connections, Some(password))
    }

    fn start(server: &Server, name: &str, connections: u32, password: Option<&str>) -> Pooler {
        let (folder, sockets) = (paths::scratch(name), paths::sockets(name));
        for path in [&folder, &sockets] {
            process::remove_at_the_end(path);
            fs::create_dir_all(path).expect("a folder for the pooler");
        }
        let port = password.map_or(PORT, |_| paths::free_port());
        let mut settings = settings(server, &folder, &sockets, connections);
        if password.is_some() {
            settings += "listen_addr = 127.0.0.1\n";
        }
        let password = password.unwrap_or_default();
        let users = format!("\"backend\" \"{password}\"\n\"postgres\" \"\"\n");
        settings += &format!("listen_port = {port}\n");
        fs::write(folder.join("pgbouncer.ini"), settings).expect("the pooler's settings");
        fs::write(folder.join("users.txt"), users).expect("its users");
        fs::write(folder.join("hba.conf"), HBA).expect("who may come in");
        let pooler = Pooler { sockets, port, _process: spawn(&folder) };
        wait::until("the pooler lets us in", || pooler.config("postgres").connect(NoTls).ok());
        pooler
    }

    pub fn session(&self, database: &str, name: &str) -> Session {
        Session::connect(self.config(database), name)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How to reach a database through it, as the backend role.
    pub fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host_path(&self.sockets).port(self.port).user(Role::Backend.name()).dbname(database);
        config
    }
}

/// JDBC and lib/pq ask for `extra_float_digits`, which PgBouncer would refuse.
fn settings(server: &Server, folder: &Path, sockets: &Path, connections: u32) -> String {
    let (host, port) = (server.sockets().display(), server.port());
    let (folder, sockets) = (folder.display(), sockets.display());
    format!(
        "[databases]\n* = host={host} port={port}\n\
         [pgbouncer]\nunix_socket_dir = {sockets}\n\
         auth_type = hba\nauth_hba_file = {folder}/hba.conf\nauth_file = {folder}/users.txt\n\
         pool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 200\n\
         ignore_startup_parameters = extra_float_digits\n"
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
