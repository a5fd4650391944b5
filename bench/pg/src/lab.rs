//! The server that the contenders run on, and its database.

use crate::pgbench::Place;
use pg_idempotency_tests::cluster::Cluster;
use pg_idempotency_tests::database::Database;
use pg_idempotency_tests::session::Session;
use pg_idempotency_tests::{paths, process};
use std::fs;
use std::path::PathBuf;

/// Preloaded, so that no round pays for loading the library. Checkpoints and vacuum only where we
/// ask for them. Durable as an installation is, so that synchronous_commit has its price.
const SETTINGS: [&str; 7] = [
    "shared_preload_libraries = 'pg_idempotency'",
    "shared_buffers = 512MB",
    "max_wal_size = 16GB",
    "checkpoint_timeout = 1h",
    "fsync = on",
    "full_page_writes = on",
    "synchronous_commit = off",
];

/// A cluster for measurements.
pub fn cluster() -> Cluster {
    Cluster::start("bench", &SETTINGS)
}

/// The same with the buffers that PostgreSQL has by default, where an index may be larger than they are.
pub fn small_cluster() -> Cluster {
    Cluster::start("bench", &[&SETTINGS[..], &["shared_buffers = 128MB"]].concat())
}

/// How many finished records every table of keys starts with; their keys are 1, 2, 3 and so on.
pub const RECORDS: u32 = 10_000;

pub struct Lab<'c> {
    database: Database<'c>,
    folder: PathBuf,
}

impl<'c> Lab<'c> {
    /// A database with the contenders' tables and functions.
    pub fn new(cluster: &'c Cluster) -> Lab<'c> {
        let lab = Lab::empty(cluster);
        lab.database.run(include_str!("../sql/schema.sql"));
        lab
    }

    /// A database with nothing but the extension.
    pub fn empty(cluster: &'c Cluster) -> Lab<'c> {
        let folder = paths::scratch("bench-logs");
        process::remove_at_the_end(&folder);
        fs::create_dir_all(&folder).expect("a folder for logs");
        Lab { database: cluster.database(), folder }
    }

    pub fn name(&self) -> &str {
        self.database.name()
    }

    /// Where pgbench finds this.
    pub fn place(&self) -> Place {
        Place {
            sockets: self.database.server().sockets().to_owned(),
            database: self.name().to_owned(),
            logs: self.folder.clone(),
        }
    }

    pub fn database(&self) -> &Database<'c> {
        &self.database
    }

    /// Holds the key `held`, ours and the advisory lock's, until the session is dropped.
    pub fn hold_a_key(&self) -> Session {
        let mut holder = self.database.session("holder");
        holder.run(
            "BEGIN;
             SELECT idempotency_claim('tenant-0001', 'POST /orders', 'held');
             SELECT bench.advisory_claim('tenant-0001', 'POST /orders', 'held', NULL, true)",
        );
        holder
    }

    /// Every table as at first: the same records in all tables of keys, no orders.
    pub fn reset(&self) {
        self.reset_to(RECORDS);
    }

    /// The same with so many records.
    pub fn reset_to(&self, records: u32) {
        self.database.run(&format!("CALL bench.reset({records})"));
    }
}
