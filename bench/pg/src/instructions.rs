//! Instructions of one backend per transaction, counted by valgrind's callgrind.
//!
//! They repeat on a busy machine, where times do not. Each script is sent twice by one client, prepared,
//! a few times and many times; the figure is the difference of the two sessions' counts over the
//! difference of their numbers of transactions, so that what a session costs at its start cancels out.
//! Where caches are simulated, so are misses and mispredicted branches. The profiles stay in
//! `target/instructions`, for callgrind_annotate.

use crate::lab::{self, Lab};
use crate::{pgbench, suite};
use pg_idempotency_tests::{paths, wait};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// What is counted where nothing is chosen.
pub const SCRIPTS: &[&str] = &[
    "create-floor",
    "create-ours",
    "create-inline-ours",
    "replay-select",
    "replay-ours",
    "replay-inline-ours",
    "replay-all-select",
    "replay-all-ours",
    "mismatch-ours",
];

/// What may be other than in an ordinary installation, or an ordinary count.
#[derive(Debug, PartialEq)]
pub struct Circumstances {
    /// The name of an index of [`INDEXES`].
    pub index: &'static str,
    /// How long the operation's records are kept, an interval; `None` for ever.
    pub retention: Option<String>,
    /// Whether what calls come to is counted.
    pub counters: bool,
    /// Whether the processor's caches and its predictions of branches are simulated too.
    pub caches: bool,
}

pub const ORDINARY: Circumstances =
    Circumstances { index: INDEXES[0].0, retention: None, counters: true, caches: false };

/// Indexes on the time at which records expire, by which a purge could find them, and their SQL.
pub const INDEXES: [(&str, &str); 4] = [
    ("none", ""),
    ("btree", "CREATE INDEX ON idempotency.records (expires_at) WHERE expires_at IS NOT NULL"),
    ("brin", "CREATE INDEX ON idempotency.records USING brin (expires_at)"),
    (
        "brin-32",
        "CREATE INDEX ON idempotency.records USING brin (expires_at)
         WITH (pages_per_range = 32, autosummarize = on)",
    ),
];

impl Circumstances {
    fn set_up(&self, lab: &Lab<'_>) {
        let index = INDEXES.iter().find(|(name, _)| *name == self.index);
        lab.database().run(index.expect("one of the indexes").1);
        if let Some(retention) = &self.retention {
            let retention = retention.replace('\'', "''");
            lab.database().run(&format!(
                "SELECT idempotency_configure('POST /orders', jsonb_build_object('retention', '{retention}'))"
            ));
        }
    }

    fn settings(&self) -> &'static [&'static str] {
        match self.counters {
            true => &["log_disconnections = on"],
            false => &["log_disconnections = on", "pg_idempotency.max_counted_operations = 0"],
        }
    }
}

const FEW: u32 = 500;
const MANY: u32 = 2500;

/// What is simulated beside instructions, of a processor as servers had them in 2023: two caches of the first
/// level, 32 KiB for code and 48 KiB for data, and one of 2 MiB behind them.
const CACHES: [&str; 5] = [
    "--cache-sim=yes",
    "--branch-sim=yes",
    "--I1=32768,8,64",
    "--D1=49152,12,64",
    "--LL=2097152,16,64",
];

/// What is printed, and of which of callgrind's events it is the sum.
const INSTRUCTIONS: &[(&str, &[&str])] = &[("instructions", &["Ir"])];
const SIMULATED: &[(&str, &[&str])] = &[
    ("instructions", &["Ir"]),
    ("code missed", &["I1mr"]),
    ("data missed", &["D1mr", "D1mw"]),
    ("L2 missed", &["ILmr", "DLmr", "DLmw"]),
    ("branches missed", &["Bcm", "Bim"]),
];

/// Prints thousands of instructions per transaction of each script.
///
/// # Panics
/// Where valgrind is missing, or the retention is none.
pub fn count(scripts: &[String], circumstances: &Circumstances) {
    let folder = paths::repository().join("target/instructions");
    let _is_new = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder for profiles");
    let mut cluster = lab::cluster();
    let lab = Lab::new(&cluster);
    circumstances.set_up(&lab);
    lab.reset_to(20_000);
    lab.database().run("VACUUM");
    let place = lab.place();
    drop(lab);
    cluster.end("INT");
    cluster.run_by(callgrind(&folder, circumstances.caches));
    cluster.configure(circumstances.settings());
    cluster.start();
    let count = |script: &str, transactions| {
        let log_start = cluster.log_length();
        pgbench::throughput(&place, script, suite::ALONE, transactions);
        let pid = wait::until("pgbench's session has ended", || {
            worker(&cluster.log_from(log_start)).map(str::to_owned)
        });
        keep(&folder, &pid, &format!("{script}-{transactions}"))
    };
    let columns = if circumstances.caches { SIMULATED } else { INSTRUCTIONS };
    println!("{:24}{}", "thousands", line(columns.iter().map(|(name, _)| (*name).to_owned())));
    for script in scripts {
        let (few, many) = (count(script, FEW), count(script, MANY));
        let of = |events: &[&str], costs: &Costs| -> u64 {
            events.iter().map(|event| costs.get(*event).expect("an event of callgrind's")).sum()
        };
        let figures = columns.iter().map(|(_, events)| {
            let more = of(events, &many) - of(events, &few);
            format!("{:.2}", more as f64 / f64::from(MANY - FEW) / 1000.0)
        });
        println!("{script:24}{}", line(figures));
    }
}

fn line(fields: impl Iterator<Item = String>) -> String {
    fields.map(|field| format!("{field:>17}")).collect()
}

fn callgrind(folder: &Path, simulates: bool) -> Vec<String> {
    let out = folder.join("out.%p");
    let words = ["/usr/bin/valgrind", "--tool=callgrind", "--quiet"];
    let mut command: Vec<String> = words.map(str::to_owned).into();
    command.push(format!("--callgrind-out-file={}", out.display()));
    if simulates {
        command.extend(CACHES.map(str::to_owned));
    }
    command
}

/// The process id of the session that did the work, as the log tells: pgbench connects twice, to look
/// around, and to work.
fn worker(log: &str) -> Option<&str> {
    let ended = |line: &&str| line.contains("backend@") && line.contains("disconnection:");
    let line = log.lines().filter(ended).nth(1)?;
    Some(line.split_once('[')?.1.split_once(']')?.0)
}

/// How often what happened, by the names of callgrind's events.
type Costs = HashMap<String, u64>;

/// The costs of a process that has ended; its profile gets a name.
fn keep(folder: &Path, pid: &str, name: &str) -> Costs {
    let profile = folder.join(format!("out.{pid}"));
    let costs = wait::until("the profile is written", || {
        fs::read_to_string(&profile).ok().as_deref().and_then(totals)
    });
    fs::rename(profile, folder.join(name)).expect("a profile");
    costs
}

/// What the last lines of a profile that is complete say, with the names of its head.
fn totals(profile: &str) -> Option<Costs> {
    let counts = profile.lines().rev().take(3).find_map(|line| line.strip_prefix("totals: "))?;
    let events = profile.lines().find_map(|line| line.strip_prefix("events: "))?;
    let counts = counts.split_whitespace().map(str::parse::<u64>);
    events
        .split_whitespace()
        .zip(counts)
        .map(|(event, count)| Some((event.to_owned(), count.ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_have_the_names_of_their_events() {
        let profile = "version: 1\nevents: Ir Dr I1mr\nfn=(1) main\n1 2 3\n\ntotals: 20 7 3\n";
        let costs = totals(profile).expect("a complete profile");
        assert_eq!([costs["Ir"], costs["Dr"], costs["I1mr"]], [20, 7, 3]);
        assert_eq!(totals("events: Ir\nfn=(1) main\n1 2\n"), None, "half of a profile");
    }
}
