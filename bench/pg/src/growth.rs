//! What becomes of claims and replays as the records grow, what a record takes, whether a purge is
//! felt, and what the order of keys costs. Writes docs/benchmarks/growth.md and growth.svg.
//!
//! Each latency is taken next to those of what it is compared with, in the same run of pgbench, which
//! changes between them at random: what else the machine does meets all. The floor's table of keys
//! has the same records as ours.

use crate::lab::{self, Lab};
use crate::pgbench::{self, Protocol, Setting};
use crate::stats::quantile;
use crate::{growth_order, growth_page, plot};
use pg_idempotency_tests::cluster::Cluster;
use pg_idempotency_tests::database::Database;
use pg_idempotency_tests::session::{Role, Session};
use std::fs;
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

/// How many records can be filled in: from where a thousandth is a table still, to where the last
/// tenth would not have expired (there are 20 a second, from 40 days ago on, and they are kept for 30).
pub const RECORDS: RangeInclusive<u64> = 10_000..=17_000_000;

/// Fewer records are a trial: the page is not written.
const WORTH_A_PAGE: u64 = 4_000_000;

const ALONE: Setting =
    Setting { clients: 1, protocol: Protocol::Prepared, synchronous_commit: false };
const TWO: Setting = Setting { clients: 2, ..ALONE };

/// Transactions of a run by one client, of each of two clients before a purge, and of each at each
/// look at the load while it runs.
const TRANSACTIONS: u32 = 30_000;
const BEFORE: u32 = 20_000;
const SLICE: u32 = 2_000;

/// Rows that are filled in by one statement.
pub const CHUNK: u64 = 250_000;

/// Ours, the floor, and the business insert in its transaction.
const CREATES: [&str; 3] = ["growth-create", "growth-floor", "growth-bare"];
/// Ours, a SELECT by primary key from the floor's table, and one of the same parameters without a table.
const REPLAYS: [&str; 3] = ["growth-replay", "growth-select", "growth-no-table"];
/// Under new keys, and under expired ones.
const LOAD: [&str; 2] = ["growth-create", "growth-again"];

/// Fills `rows` records and measures on the way; the note is about the circumstances.
pub fn run(rows: u64, note: Option<&str>) {
    let (stages, purge) = grow(rows);
    let cluster = lab::small_cluster();
    let orders = growth_order::compare(&laboratory(&cluster), rows);
    let page = growth_page::page(&stages, &purge, &orders, note);
    println!("{page}");
    if rows >= WORTH_A_PAGE {
        let folder = pg_idempotency_tests::paths::repository().join("docs/benchmarks");
        fs::write(folder.join("growth.md"), page).expect("docs/benchmarks");
        let picture = plot::svg(&growth_order::entries(&orders));
        fs::write(folder.join("growth.svg"), picture).expect("docs/benchmarks");
    }
}

fn laboratory(cluster: &Cluster) -> Lab<'_> {
    let lab = Lab::new(cluster);
    lab.database().run(include_str!("../sql/growth.sql"));
    lab
}

fn grow(rows: u64) -> ([Stage; 3], Purge) {
    let cluster = lab::cluster();
    let lab = laboratory(&cluster);
    let growth = Growth { lab: &lab, rows, live: rows / 10 * 9 };
    let mut filled = 0;
    let stages = [rows / 1000, rows / 10, rows].map(|size| {
        growth.fill(filled, size);
        filled = size;
        growth.stage(size)
    });
    (stages, growth.purge())
}

struct Growth<'l, 'c> {
    lab: &'l Lab<'c>,
    rows: u64,
    /// Records up to this number do not expire.
    live: u64,
}

/// What was measured at one size.
pub struct Stage {
    pub records: u64,
    /// Of [`CREATES`].
    pub create: [Latency; 3],
    /// Of [`REPLAYS`].
    pub replay: [Latency; 3],
    pub ours: PerRecord,
    pub floor: PerRecord,
    /// To erase a person, in milliseconds.
    pub forget: f64,
    /// A purge that finds nothing, in milliseconds; where something has expired there is none.
    pub idle: Option<f64>,
}

/// What a record takes in a table, in bytes.
pub struct PerRecord {
    pub heap: f64,
    pub index: f64,
    pub rest: f64,
}

/// Of sorted latencies, in milliseconds.
#[derive(Clone, Copy)]
pub struct Latency {
    pub median: f64,
    pub p99: f64,
    pub count: usize,
}

/// A purge under load. Expired records, and those that are gone, are counted while nothing else runs.
pub struct Purge {
    /// Expired records before any load, before the purge, and after it.
    pub expired: [i64; 3],
    /// Expired records that claims replaced before the purge, and while it ran.
    pub replaced: [i64; 2],
    pub calls: Calls,
    /// Of [`LOAD`].
    pub before: [Latency; 2],
    pub during: [Latency; 2],
    /// How many records there are afterwards, and how long a purge takes that finds nothing then.
    pub left: i64,
    pub idle: f64,
}

/// What the calls of `idempotency_purge` did, the last of which found nothing.
pub struct Calls {
    pub deleted: i64,
    pub count: u32,
    pub took: Duration,
    pub longest: Duration,
}

impl Growth<'_, '_> {
    fn fill(&self, from: u64, to: u64) {
        let began = Instant::now();
        for low in (from..to).step_by(CHUNK as usize) {
            let high = (low + CHUNK).min(to);
            self.db().run(&format!("CALL growth.fill({} , {high}, {})", low + 1, self.live));
        }
        self.db().run("VACUUM ANALYZE idempotency.records");
        self.db().run("VACUUM ANALYZE bench.floor");
        self.db().run("CHECKPOINT");
        eprintln!("{to} records after {:.0?} more", began.elapsed());
    }

    fn stage(&self, size: u64) -> Stage {
        let live = size.min(self.live);
        let [ours, floor] = ["idempotency.records", "bench.floor"].map(|t| self.per_record(t));
        let replay = self.latencies(REPLAYS, ALONE, live, TRANSACTIONS);
        let create = self.latencies(CREATES, ALONE, live, TRANSACTIONS);
        let forget = self.millis("SELECT idempotency_forget('user-00042')");
        let idle = (size <= self.live).then(|| self.idle());
        Stage { records: size, create, replay, ours, floor, forget, idle }
    }

    fn per_record(&self, table: &str) -> PerRecord {
        let bytes = |size: &str| {
            let sql = format!("SELECT {size}('{table}') / (SELECT count(*)::float8 FROM {table})");
            self.db().value::<f64>(&sql)
        };
        let heap = bytes("pg_relation_size");
        PerRecord { heap, index: bytes("pg_indexes_size"), rest: bytes("pg_table_size") - heap }
    }

    fn idle(&self) -> f64 {
        self.millis("SELECT idempotency_purge()")
    }

    /// How long a statement takes that is rolled back where it can be: the median of five times.
    fn millis(&self, sql: &str) -> f64 {
        let mut operator = self.db().session_as(Role::Superuser, "operator");
        let is_alone = sql.contains("purge");
        let mut once = || {
            operator.run(if is_alone { "" } else { "BEGIN" });
            let began = Instant::now();
            operator.value::<i64>(sql);
            let took = began.elapsed();
            operator.run(if is_alone { "" } else { "ROLLBACK" });
            took.as_secs_f64()
        };
        Latency::of((0..5).map(|_| once()).collect()).median
    }

    /// Purges all that has expired, while others create under new keys and under expired ones.
    ///
    /// # Panics
    /// Where expired records are not there any more, and were neither purged nor replaced.
    fn purge(&self) -> Purge {
        let counts = || (self.expired(), self.gone());
        let at_first = counts();
        let before = self.latencies(LOAD, TWO, self.live, BEFORE);
        let between = counts();
        let (calls, during) = self.purge_under_load();
        let afterwards = counts();
        let expired = [at_first.0, between.0, afterwards.0];
        let gone = [between.1 - at_first.1, afterwards.1 - between.1];
        assert_eq!(expired[0], gone[0] + expired[1], "expired records before the purge");
        assert_eq!(expired[1], gone[1] + expired[2], "expired records while it ran");
        let replaced = [gone[0], gone[1] - calls.deleted];
        let left = self.db().records();
        Purge { expired, replaced, calls, before, during, left, idle: self.idle() }
    }

    fn purge_under_load(&self) -> (Calls, [Latency; 2]) {
        let mut purger = self.db().session_as(Role::Superuser, "purger");
        thread::scope(|scope| {
            let purging = scope.spawn(move || purge_all(&mut purger));
            let mut during = [Vec::new(), Vec::new()];
            loop {
                let slice = self.log(LOAD, TWO, self.live, SLICE);
                during.iter_mut().zip(slice).for_each(|(all, slice)| all.extend(slice));
                if purging.is_finished() {
                    break;
                }
            }
            (purging.join().expect("the purge"), during.map(Latency::of))
        })
    }

    fn expired(&self) -> i64 {
        self.db()
            .value("SELECT count(*) FROM idempotency.records WHERE expires_at <= clock_timestamp()")
    }

    /// How many records were ever deleted: by the purge, and by claims that put another in the place of
    /// an expired one. Sessions tell their numbers before they leave pg_stat_activity.
    fn gone(&self) -> i64 {
        self.db().wait_until(
            "NOT EXISTS (SELECT FROM pg_stat_activity
                 WHERE datname = current_database() AND backend_type = 'client backend'
                     AND pid <> pg_backend_pid())",
        );
        self.db().value(
            "SELECT n_tup_upd + n_tup_del FROM pg_stat_all_tables
             WHERE relid = 'idempotency.records'::regclass",
        )
    }

    fn latencies<const N: usize>(
        &self,
        scripts: [&str; N],
        setting: Setting,
        live: u64,
        count: u32,
    ) -> [Latency; N] {
        let mut logged = self.log(scripts, setting, live, count).into_iter();
        [(); N].map(|()| Latency::of(logged.next().expect("a latency for each script")))
    }

    /// An error of any transaction fails the run.
    fn log<const N: usize>(
        &self,
        scripts: [&str; N],
        setting: Setting,
        live: u64,
        count: u32,
    ) -> Vec<Vec<f64>> {
        let numbers = [("live", live.to_string()), ("records", self.rows.to_string())];
        pgbench::log(&self.lab.place(), &scripts, setting, count, &numbers)
    }

    fn db(&self) -> &Database<'_> {
        self.lab.database()
    }
}

fn purge_all(session: &mut Session) -> Calls {
    let (mut deleted, mut count, mut longest) = (0, 0, Duration::ZERO);
    let began = Instant::now();
    loop {
        let call = Instant::now();
        let batch = session.value::<i64>("SELECT idempotency_purge()");
        longest = longest.max(call.elapsed());
        count += 1;
        deleted += batch;
        if batch == 0 {
            return Calls { deleted, count, took: began.elapsed(), longest };
        }
    }
}

impl Latency {
    fn of(mut seconds: Vec<f64>) -> Latency {
        seconds.sort_by(f64::total_cmp);
        let at = |q| quantile(&seconds, q) * 1000.0;
        Latency { median: at(0.5), p99: at(0.99), count: seconds.len() }
    }
}
