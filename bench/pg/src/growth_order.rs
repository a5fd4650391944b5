//! What the order of keys costs: records of UUIDv4 keys, which lie anywhere in the primary key, next to
//! those of UUIDv7 keys, which lie in it as they were made.
//!
//! Bytes and blocks, no times: the same on a busy machine. Buffers are PostgreSQL's default, 128 MB.

use crate::growth::CHUNK;
use crate::lab::Lab;
use crate::pgbench::{self, Protocol, Setting};
use crate::ratios::Entry;
use crate::stats::Spread;
use pg_idempotency_tests::database::Database;
use pg_idempotency_tests::session::Role;

/// Creates behind one checkpoint; the table says so.
pub const CREATES: [u32; 3] = [1_000, 5_000, 20_000];

const ALONE: Setting =
    Setting { clients: 1, protocol: Protocol::Prepared, synchronous_commit: false };

/// What records take whose keys are of one version.
pub struct Order {
    pub version: u32,
    pub records: u64,
    /// Bytes of WAL per create, for each of [`CREATES`].
    pub create: [f64; 3],
    /// Blocks of the primary key per create that were not in the buffers.
    pub misses: f64,
    /// Bytes of WAL per record that expires: of the purge, and of the VACUUM behind it, each behind
    /// a checkpoint of its own.
    pub purge: f64,
    pub vacuum: f64,
}

impl Order {
    /// Bytes of WAL from the create to the end.
    pub fn life(&self) -> f64 {
        self.create[0] + self.purge + self.vacuum
    }
}

/// Both versions, one after the other, with so many records each. `lab` is that of growth.sql.
pub fn compare(lab: &Lab<'_>, rows: u64) -> [Order; 2] {
    [4, 7].map(|version| {
        fill(lab.database(), version, rows);
        measure(lab, version, rows)
    })
}

fn fill(db: &Database<'_>, version: u32, rows: u64) {
    db.run("TRUNCATE idempotency.records, idempotency.stretches");
    for low in (0..rows).step_by(CHUNK as usize) {
        let high = (low + CHUNK).min(rows);
        db.run(&format!("CALL growth.fill_in_time({version}, {}, {high}, {rows})", low + 1));
    }
    db.run("VACUUM ANALYZE idempotency.records");
    eprintln!("{rows} records of UUIDv{version} keys");
}

fn measure(lab: &Lab<'_>, version: u32, records: u64) -> Order {
    let db = lab.database();
    let mut misses = 0.0;
    let create = CREATES.map(|count| {
        let read = index_reads(db);
        let wal = wal_of(db, || create(lab, version, count));
        misses = (index_reads(db) - read) as f64 / f64::from(count);
        wal / f64::from(count)
    });
    let mut expired = 0;
    let purge = wal_of(db, || expired = purge(db)) / expired as f64;
    let vacuum = wal_of(db, || db.run("VACUUM idempotency.records")) / expired as f64;
    Order { version, records, create, misses, purge, vacuum }
}

/// An error of any transaction fails the run.
fn create(lab: &Lab<'_>, version: u32, count: u32) {
    let version = [("version", version.to_string())];
    pgbench::log(&lab.place(), &["growth-in-time"], ALONE, count, &version);
}

/// Purges what has expired: how many records that were.
fn purge(db: &Database<'_>) -> i64 {
    let mut operator = db.session_as(Role::Superuser, "operator");
    let batches = std::iter::repeat_with(|| operator.value::<i64>("SELECT idempotency_purge()"));
    batches.take_while(|&batch| batch > 0).sum()
}

/// The bytes of WAL that are written meanwhile, behind a checkpoint.
fn wal_of(db: &Database<'_>, meanwhile: impl FnOnce()) -> f64 {
    let position = || db.value::<i64>("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint");
    db.run("CHECKPOINT");
    let before = position();
    meanwhile();
    (position() - before) as f64
}

/// Blocks of the primary key that were read so far by sessions that have left.
fn index_reads(db: &Database<'_>) -> i64 {
    db.wait_until(
        "NOT EXISTS (SELECT FROM pg_stat_activity
             WHERE datname = current_database() AND backend_type = 'client backend'
                 AND pid <> pg_backend_pid())",
    );
    db.value(
        "SELECT idx_blks_read FROM pg_statio_all_indexes
         WHERE indexrelid = 'idempotency.records_pkey'::regclass",
    )
}

/// The plot: WAL of UUIDv7 keys in the measure of that of UUIDv4 keys.
pub fn entries([random, timed]: &[Order; 2]) -> Vec<Entry> {
    let creates = CREATES.iter().zip(random.create.iter().zip(timed.create));
    let creates = creates.map(|(count, (&random, timed))| {
        (format!("{count} creates after a checkpoint"), random, timed)
    });
    let life = ("create, purge and vacuum".to_owned(), random.life(), timed.life());
    let games = creates.chain([life]);
    games
        .flat_map(|(what, random, timed)| pair(&format!("WAL of {what}"), timed / random))
        .collect()
}

fn pair(game: &str, ratio: f64) -> [Entry; 2] {
    [("UUIDv4 keys", 1.0), ("ours, UUIDv7 keys", ratio)].map(|(contender, median)| Entry {
        game: game.to_owned(),
        contender: contender.to_owned(),
        by: "UUIDv4 keys".to_owned(),
        spread: Spread { median, noise: 0.0 },
    })
}
