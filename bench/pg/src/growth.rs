//! What becomes of claims and replays as the records grow, what a record takes, and whether a purge
//! is felt. Writes docs/benchmarks/growth.md.
//!
//! Each latency is taken next to that of a floor without keys, in the same run of pgbench, which
//! changes between the two at random: what else the machine does meets both.

use crate::lab::Lab;
use crate::pgbench::{self, Protocol, Setting};
use crate::stats::quantile;
use pg_idempotency_tests::cluster::Cluster;
use pg_idempotency_tests::database::Database;
use pg_idempotency_tests::session::{Role, Session};
use std::fmt::Write;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const ALONE: Setting =
    Setting { clients: 1, protocol: Protocol::Prepared, synchronous_commit: false };
const TWO: Setting = Setting { clients: 2, ..ALONE };

/// Transactions of a latency, and of each look at the load while a purge runs.
const TRANSACTIONS: u32 = 20_000;
const SLICE: u32 = 2_000;

/// Rows that are filled in by one statement.
const CHUNK: u64 = 250_000;

/// Fewer records are a trial: the page is not written.
const WORTH_A_PAGE: u64 = 10_000_000;

/// Fills `rows` records and measures on the way; the note is about the circumstances.
pub fn run(cluster: &Cluster, rows: u64, note: Option<&str>) {
    let lab = Lab::empty(cluster);
    lab.database().run(include_str!("../sql/growth.sql"));
    let growth = Growth { lab: &lab, rows, live: rows / 10 * 9 };
    let mut filled = 0;
    let mut stages = Vec::new();
    for size in [rows / 1000, rows / 10, rows] {
        growth.fill(filled, size);
        filled = size;
        stages.push(growth.stage(size));
    }
    let purge = growth.purge();
    // Before, it would have found something.
    if let Some(last) = stages.last_mut() {
        last.idle = growth.idle();
    }
    let page = page(&stages, &purge, note);
    println!("{page}");
    if rows >= WORTH_A_PAGE {
        let path = pg_idempotency_tests::paths::repository().join("docs/benchmarks/growth.md");
        fs::write(path, page).expect("docs/benchmarks");
    }
}

struct Growth<'l, 'c> {
    lab: &'l Lab<'c>,
    rows: u64,
    /// Records up to this number do not expire.
    live: u64,
}

/// What was measured at one size.
struct Stage {
    records: u64,
    /// Of claim, business insert and complete, and of the business insert alone.
    create: [Latency; 2],
    /// Of a claim that is replayed, and of a SELECT without a table.
    replay: [Latency; 2],
    heap: f64,
    index: f64,
    toast: f64,
    /// To erase a person, and a purge that finds nothing, in milliseconds.
    forget: f64,
    idle: f64,
}

/// Of sorted latencies, in milliseconds.
#[derive(Clone, Copy)]
struct Latency {
    median: f64,
    p99: f64,
    count: usize,
}

struct Purge {
    expired: i64,
    deleted: i64,
    calls: u32,
    took: Duration,
    longest: Duration,
    before: [Latency; 2],
    during: [Latency; 2],
}

impl Growth<'_, '_> {
    fn fill(&self, from: u64, to: u64) {
        let began = Instant::now();
        for low in (from..to).step_by(CHUNK as usize) {
            let high = (low + CHUNK).min(to);
            self.db().run(&format!("CALL growth.fill({} , {high}, {})", low + 1, self.live));
        }
        self.db().run("VACUUM ANALYZE idempotency.records");
        self.db().run("CHECKPOINT");
        eprintln!("{to} records after {:.0?} more", began.elapsed());
    }

    fn stage(&self, size: u64) -> Stage {
        let live = size.min(self.live);
        let bytes = |sql: &str| {
            let sql = format!(
                "SELECT {sql}('idempotency.records') / (SELECT count(*)::float8 FROM idempotency.records)"
            );
            self.db().value::<f64>(&sql)
        };
        let heap = bytes("pg_relation_size");
        let index = bytes("pg_indexes_size");
        let toast = bytes("pg_table_size") - heap;
        let replay = self.latencies(["growth-replay", "growth-select"], ALONE, live, TRANSACTIONS);
        let create = self.latencies(["growth-create", "growth-floor"], ALONE, live, TRANSACTIONS);
        let forget = self.millis("SELECT idempotency_forget('user-00042')");
        let idle = if size > self.live { 0.0 } else { self.idle() };
        Stage { records: size, create, replay, heap, index, toast, forget, idle }
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
    fn purge(&self) -> Purge {
        let expired =
            "SELECT count(*) FROM idempotency.records WHERE expires_at <= clock_timestamp()";
        let expired = self.db().value::<i64>(expired);
        let scripts = ["growth-create", "growth-again"];
        let before = self.latencies(scripts, TWO, self.live, TRANSACTIONS);
        let mut purger = self.db().session_as(Role::Superuser, "purger");
        thread::scope(|scope| {
            let purging = scope.spawn(move || purge_all(&mut purger));
            let mut during = [Vec::new(), Vec::new()];
            while !purging.is_finished() {
                let slice = self.log(scripts, TWO, self.live, SLICE);
                during.iter_mut().zip(slice).for_each(|(all, slice)| all.extend(slice));
            }
            let (deleted, calls, took, longest) = purging.join().expect("the purge");
            let during = during.map(Latency::of);
            Purge { expired, deleted, calls, took, longest, before, during }
        })
    }

    fn latencies(
        &self,
        scripts: [&str; 2],
        setting: Setting,
        live: u64,
        count: u32,
    ) -> [Latency; 2] {
        let mut logged = self.log(scripts, setting, live, count).into_iter();
        [(); 2].map(|()| Latency::of(logged.next().expect("a latency for each script")))
    }

    /// An error of any transaction fails the run.
    fn log(&self, scripts: [&str; 2], setting: Setting, live: u64, count: u32) -> Vec<Vec<f64>> {
        let numbers = [("live", live.to_string()), ("records", self.rows.to_string())];
        pgbench::log(&self.lab.place(), &scripts, setting, count, &numbers)
    }

    fn db(&self) -> &Database<'_> {
        self.lab.database()
    }
}

/// Returns how many rows were deleted by how many calls, how long all of them took, and the longest.
fn purge_all(session: &mut Session) -> (i64, u32, Duration, Duration) {
    let (mut deleted, mut calls, mut longest) = (0, 0, Duration::ZERO);
    let began = Instant::now();
    loop {
        let call = Instant::now();
        let batch = session.value::<i64>("SELECT idempotency_purge()");
        longest = longest.max(call.elapsed());
        calls += 1;
        deleted += batch;
        if batch == 0 {
            return (deleted, calls, began.elapsed(), longest);
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

const HEAD: &str = "\
# Growth

Written by `make bench-growth`, which fills a table with records in bulk: 100,000 people, half of the keys UUIDs of version 4
and half of version 7, JSON bodies of about 200 bytes, two headers, a fingerprint. Durations are in milliseconds, on the client's
side. Each is taken next to that of a floor in the same run, which does the same without keys: a create's is the business
insert in its transaction, a replay's is a SELECT of the same parameters that asks no table. So the ratios can be compared
though the machine had other work.
";

fn page(stages: &[Stage], purge: &Purge, note: Option<&str>) -> String {
    let mut page = format!("{HEAD}\n{}\n", note.unwrap_or_default());
    for (title, pick) in [
        ("Claim and complete", (|stage| stage.create) as fn(&Stage) -> [Latency; 2]),
        ("Replay", |stage| stage.replay),
    ] {
        let _ = write!(
            page,
            "\n## {title}\n\n| records | × floor | median | 99 % | floor's median | 99 % |\n|---|---|---|---|---|---|\n"
        );
        for stage in stages {
            let [ours, floor] = pick(stage);
            let ratio = ours.median / floor.median;
            let _ = writeln!(
                page,
                "| {} | {ratio:.2} | {:.3} | {:.3} | {:.3} | {:.3} |",
                grouped(stage.records),
                ours.median,
                ours.p99,
                floor.median,
                floor.p99,
            );
        }
    }
    page.push_str("\n## Bytes per record\n\n| records | table | index | out of line and maps |\n|---|---|---|---|\n");
    for Stage { records, heap, index, toast, .. } in stages {
        let _ = writeln!(page, "| {} | {heap:.0} | {index:.0} | {toast:.1} |", grouped(*records));
    }
    page.push_str(ERASURE);
    for Stage { records, forget, idle, .. } in stages {
        let _ = writeln!(page, "| {} | {forget:.1} | {idle:.1} |", grouped(*records));
    }
    page.push_str(&purged(purge));
    page
}

const ERASURE: &str = "
## Erasure, and a purge with nothing to do

Milliseconds, the median of five. A person is found by reading the table. A purge of a table of more than 64 MiB reads what is
due; the first one reads everything.

| records | idempotency_forget of a person | idempotency_purge that finds nothing |
|---|---|---|
";

fn purged(purge: &Purge) -> String {
    let Purge { expired, deleted, calls, took, longest, before, during } = purge;
    let mut part = format!(
        "\n## A purge under load\n\nOf {} expired records the purge deleted {}, in {calls} calls, {:.1} s altogether, {:.2} s the longest; the rest were \
         replaced by claims. The first call reads the whole table, and locks nothing before it has found something. Meanwhile two clients created as fast as they could, under new keys and under expired ones. None of their transactions \
         failed: one that does ends the run.\n\n| | transactions | median | 99 % |\n|---|---|---|---|\n",
        grouped(*expired as u64),
        grouped(*deleted as u64),
        took.as_secs_f64(),
        longest.as_secs_f64(),
    );
    let rows = [
        ("new keys, before", before[0]),
        ("new keys, during the purge", during[0]),
        ("expired keys, before", before[1]),
        ("expired keys, during the purge", during[1]),
    ];
    for (what, Latency { median, p99, count }) in rows {
        let _ = writeln!(part, "| {what} | {} | {median:.3} | {p99:.3} |", grouped(count as u64));
    }
    part
}

/// `1,000,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|part| str::from_utf8(part).unwrap_or_default())
        .collect();
    parts.join(",")
}
