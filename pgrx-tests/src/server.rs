//! One running postmaster on one data directory.

use crate::process::{self, Process};
use crate::session::Role;
use crate::{paths, wait};
use postgres::{Client, Config, NoTls};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

/// What the log says when a process of the server died, and what the next start would forget.
const CRASH_MARKS: [&str; 3] = ["was terminated by signal", "PANIC: ", "TRAP: "];

pub struct Server {
    bin: PathBuf,
    folder: PathBuf,
    sockets: PathBuf,
    port: u16,
    postmaster: Mutex<Option<Process>>,
    /// What runs the postmaster: a program and its arguments; empty where it runs by itself.
    wrapper: Vec<String>,
}

/// What a server listens on that nobody has told otherwise: a socket in a folder of its own.
const PORT: u16 = 5432;

/// A program of PostgreSQL, run as somebody who is not root.
pub fn program(name: &str) -> Command {
    program_in(&paths::pg_bin(), name)
}

/// A program of the PostgreSQL in this folder.
pub fn program_in(bin: &Path, name: &str) -> Command {
    let path = bin.join(name);
    assert!(
        path.exists(),
        "{} is missing: run `make install` or set PG_IDEMPOTENCY_PG_BIN",
        path.display()
    );
    as_nobody_special(&path)
}

/// `program` through tools/unroot; RUST_BACKTRACE would put backtraces into DETAIL.
pub fn as_nobody_special(program: &Path) -> Command {
    let mut command = Command::new(paths::unroot());
    command.arg(program).env("RUST_BACKTRACE", "0");
    command
}

impl Server {
    /// A server named `name` whose data directory is [`Server::data`], still to be filled and started.
    pub fn unborn(name: &str) -> Server {
        Server::unborn_in(&paths::pg_bin(), name)
    }

    /// The same of the PostgreSQL in this folder.
    pub fn unborn_in(bin: &Path, name: &str) -> Server {
        let (folder, sockets) = (paths::scratch(name), paths::sockets(name));
        for path in [&folder, &sockets] {
            process::remove_at_the_end(path);
            fs::create_dir_all(path).expect("a folder for the server");
        }
        Server {
            bin: bin.to_owned(),
            folder,
            sockets,
            port: PORT,
            postmaster: Mutex::new(None),
            wrapper: Vec::new(),
        }
    }

    /// From the next start on, the postmaster is run by this program with these arguments.
    pub fn run_by(&mut self, wrapper: Vec<String>) {
        self.wrapper = wrapper;
    }

    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The folder of the server's socket: the host to connect to.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Has the server, which is not yet started, listen on a port of 127.0.0.1 too. Everybody on the
    /// machine can reach that, so who comes that way needs a password.
    pub fn listen(&mut self) {
        self.port = paths::free_port();
        self.configure(&["listen_addresses = '127.0.0.1'", &format!("port = {}", self.port)]);
        let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(self.data().join("pg_hba.conf"), rules).expect("the file of who may come in");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Adds lines to the configuration file; they hold from the next start on.
    pub fn configure(&self, lines: &[&str]) {
        use std::io::Write;
        let path = self.data().join("postgresql.conf");
        let mut file = OpenOptions::new().append(true).open(path).expect("the configuration file");
        writeln!(file, "{}", lines.join("\n")).expect("the configuration file");
    }

    /// Starts the postmaster and returns when it lets us in. Backends of an earlier one that was killed
    /// still hold its shared memory for a moment, and a new postmaster would end at once.
    ///
    /// # Panics
    /// When it ends instead, with its log.
    pub fn start(&self) {
        let data = self.data().canonicalize().expect("a data directory");
        wait::until("the last server has gone", || (!process::works_in(&data)).then_some(()));
        *self.postmaster() = Some(self.spawn());
        wait::until("the server lets us in", || {
            let lets_in = self.try_connect(Role::Superuser, "postgres").ok();
            self.assert_runs();
            lets_in
        });
    }

    fn assert_runs(&self) {
        let has_ended = self.postmaster().as_mut().is_none_or(Process::has_ended);
        assert!(!has_ended, "the server does not start:\n{}", self.log_from(0));
    }

    fn spawn(&self) -> Process {
        let log =
            OpenOptions::new().create(true).append(true).open(self.log_path()).expect("the log");
        let mut command = match self.wrapper.split_first() {
            None => program_in(&self.bin, "postgres"),
            Some((wrapper, arguments)) => {
                let mut command = as_nobody_special(Path::new(wrapper));
                command.args(arguments).arg(self.bin.join("postgres"));
                command
            }
        };
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.sockets);
        command.stderr(log.try_clone().expect("the log")).stdout(log);
        Process::spawn(&mut command)
    }

    /// Ends the postmaster with a signal (QUIT: at once, KILL: without a word to its backends).
    pub fn end(&self, signal: &str) {
        if let Some(mut postmaster) = self.postmaster().take() {
            postmaster.end(signal);
        }
    }

    /// Ends the postmaster and all its backends at once, as a power failure does. After a KILL of the
    /// postmaster alone backends go on for a moment: a commit no longer waits for the standby then, and
    /// others see it and answer from it.
    pub fn die(&self) {
        if let Some(mut postmaster) = self.postmaster().take() {
            postmaster.die();
        }
    }

    fn postmaster(&self) -> MutexGuard<'_, Option<Process>> {
        self.postmaster.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    pub fn config(&self, role: Role, database: &str) -> Config {
        let mut config = Config::new();
        config.host_path(&self.sockets).port(self.port).user(role.name()).dbname(database);
        config
    }

    pub fn try_connect(&self, role: Role, database: &str) -> Result<Client, postgres::Error> {
        self.config(role, database).connect(NoTls)
    }

    pub fn connect(&self, role: Role, database: &str) -> Client {
        self.try_connect(role, database)
            .unwrap_or_else(|error| panic!("no way into {database}: {error:?}"))
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// How long the log is now, in bytes.
    pub fn log_length(&self) -> usize {
        fs::metadata(self.log_path()).map_or(0, |log| log.len() as usize)
    }

    /// What the log says from byte `start` on.
    pub fn log_from(&self, start: usize) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(log.get(start..).unwrap_or_default()).into_owned()
    }

    /// The lines since byte `start` that tell of a crash.
    pub fn crashes_since(&self, start: usize) -> Vec<String> {
        let tells = |line: &&str| CRASH_MARKS.iter().any(|mark| line.contains(mark));
        self.log_from(start).lines().filter(tells).map(str::to_owned).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end("QUIT");
        for path in [&self.folder, &self.sockets] {
            let _gone_or_left_to_the_reaper = fs::remove_dir_all(path);
        }
    }
}
