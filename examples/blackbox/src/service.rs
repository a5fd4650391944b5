//! A process of an example service.

use crate::http::{self, Answer, Request};
use pg_idempotency_tests::process::{self, Process};
use pg_idempotency_tests::{paths, wait};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

pub struct Service {
    process: Process,
    address: String,
    log: PathBuf,
}

impl Service {
    /// Starts the service in `folder` and returns when it listens.
    pub fn start(folder: &Path, database_url: &str) -> Service {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let logs = paths::scratch("examples");
        process::remove_at_the_end(&logs);
        fs::create_dir_all(&logs).expect("a folder for logs");
        let log = logs.join(format!("log-{}", COUNT.fetch_add(1, Relaxed)));
        let file = File::create(&log).expect("a log");
        let mut command = Command::new(folder.join("run"));
        command.env("DATABASE_URL", database_url).env_remove("PORT");
        command.stderr(file.try_clone().expect("a log")).stdout(file);
        let mut process = Process::spawn(&mut command);
        let address = wait::until("the service listens", || {
            let said = fs::read_to_string(&log).expect("its log");
            assert!(!process.has_ended(), "the service does not start:\n{said}");
            let line = said.lines().find_map(|line| line.strip_prefix("listening on "));
            // The whole line, or the port may be half of it.
            line.filter(|_| said.ends_with('\n')).map(str::to_owned)
        });
        Service { process, address, log }
    }

    /// Where it listens: `http://127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request that must be answered.
    #[track_caller]
    pub fn answer(&self, request: &Request) -> Answer {
        http::send(&self.address, request)
            .unwrap_or_else(|error| panic!("{error}; the service says:\n{}", self.said()))
    }

    /// SIGKILL: no word to its database, none to its clients.
    pub fn kill(&mut self) {
        self.process.end("KILL");
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Killed, because a Java program answers SIGQUIT with a list of its threads.
impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("---- the service says ----\n{}", self.said());
        }
    }
}
