//! Measures pg_idempotency against what people write by hand, and writes docs/benchmarks.
//!
//!     idempotency-bench-pg [--quick] [--check] [--only NAME]... [--note WORDS]
//!     idempotency-bench-pg --instructions [--only SCRIPT]... [--with-index none|btree|brin|brin-32]
//!                          [--retention INTERVAL] [--counters on|off] [--caches]
//!     idempotency-bench-pg --key-sizes
//!     idempotency-bench-pg --growth RECORDS [--note WORDS]
//!
//! `--check` writes nothing: it compares with the ratios that were written last, and fails where one
//! of ours fell back or has none. `--only` measures what has this name, can be given several times,
//! and writes nothing either: a page has all measurements of one run. `--note` is what the page says
//! about the circumstances of this run. The others measure something else: `--growth` what becomes of
//! it all with so many records, `--instructions` what a transaction costs a processor, `--key-sizes`
//! what records take under two primary keys.
#![forbid(unsafe_code)]

mod arguments;
mod check;
mod duplicates;
mod growth;
mod growth_order;
mod growth_page;
mod instructions;
mod key_sizes;
mod lab;
mod pgbench;
mod plot;
mod ratios;
mod rounds;
mod sizes;
mod stats;
mod suite;
mod table;

use arguments::Task;
use lab::Lab;
use ratios::Entry;
use rounds::{Effort, Ratio};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// As usual for words that are not understood.
const MISUSE: u8 = 2;

fn main() -> ExitCode {
    match arguments::parse(std::env::args().skip(1)) {
        Ok(task) => run(task),
        Err(message) => {
            eprintln!("{message}\n{}", arguments::USAGE);
            ExitCode::from(MISUSE)
        }
    }
}

fn run(task: Task) -> ExitCode {
    match task {
        Task::Measure { effort, only, note } => measure(effort, &only, note.as_deref()),
        Task::Check { effort, only } => return check(effort, &only),
        Task::Instructions { scripts, circumstances } => {
            instructions::count(&scripts, &circumstances);
        }
        Task::KeySizes => key_sizes::compare(&Lab::empty(&lab::cluster())),
        Task::Growth { records, note } => growth::run(records, note.as_deref()),
    }
    ExitCode::SUCCESS
}

/// Some, or all where none is named.
fn chosen(only: &[String]) -> impl Iterator<Item = &'static str> {
    suite::names().filter(|name| only.is_empty() || only.iter().any(|only| only == name))
}

fn measure(effort: Effort, only: &[String], note: Option<&str>) {
    let cluster = lab::cluster();
    let bench = Bench { lab: Lab::new(&cluster), effort };
    let entries: Vec<Entry> = chosen(only).flat_map(|name| bench.measure(name)).collect();
    if only.is_empty() {
        write(&entries, &table::run(effort, note));
    } else {
        println!("nothing is written: not everything was measured");
    }
}

struct Bench<'c> {
    lab: Lab<'c>,
    effort: Effort,
}

impl Bench<'_> {
    /// Measures what has this name, and says how it went.
    fn measure(&self, name: &str) -> Vec<Entry> {
        let (by, ratios) = self.ratios(name);
        println!("{name}, measured by {by}");
        let entry = |ratio: &Ratio| Entry {
            game: name.to_owned(),
            contender: contender(ratio.script).to_owned(),
            by: by.to_owned(),
            spread: ratio.spread,
        };
        let entries: Vec<Entry> = ratios.iter().map(entry).collect();
        for Entry { contender, spread, .. } in &entries {
            println!("  {contender:12} {:.3} ± {:.3}", spread.median, spread.noise);
        }
        entries
    }

    fn ratios(&self, name: &str) -> (&'static str, Vec<Ratio>) {
        let Bench { lab, effort } = self;
        if let Some(game) = suite::MATCHES.iter().find(|game| game.name == name) {
            return (contender(game.scripts[0]), rounds::play(lab, game, *effort));
        }
        if let Some(weighing) = suite::WEIGHINGS.iter().find(|weighing| weighing.name == name) {
            let by = contender(weighing.contenders[0].0);
            return (by, sizes::weigh(lab, weighing, suite::ALONE, *effort));
        }
        ("advisory", duplicates::race(lab, *effort))
    }
}

/// `ours` for `create-ours`; `ours, inline` for `create-inline-ours`.
fn contender(script: &'static str) -> &'static str {
    if script.ends_with("-inline-ours") {
        return "ours, inline";
    }
    script.rsplit('-').next().unwrap_or(script)
}

fn folder() -> PathBuf {
    pg_idempotency_tests::paths::repository().join("docs/benchmarks")
}

fn write(entries: &[Entry], run: &str) {
    let folder = folder();
    fs::create_dir_all(&folder).expect("docs/benchmarks");
    for (name, text) in [
        ("ratios.tsv", ratios::write(entries)),
        ("README.md", table::page(entries, run)),
        ("ratios.svg", plot::svg(entries)),
    ] {
        fs::write(folder.join(name), text).expect("docs/benchmarks");
    }
}

/// Who seems to have fallen back is measured again before we say so.
fn check(effort: Effort, only: &[String]) -> ExitCode {
    let text =
        fs::read_to_string(folder().join("ratios.tsv")).expect("ratios: run make bench first");
    let before = ratios::read(&text);
    let cluster = lab::cluster();
    let bench = Bench { lab: Lab::new(&cluster), effort };
    let (mut fallen, mut missing) = (Vec::new(), Vec::new());
    for name in chosen(only) {
        let now = bench.measure(name);
        missing.extend(check::missing(&now, &before));
        let mut slow = check::fallen(&now, &before);
        for _ in 0..2 {
            if !slow.is_empty() {
                slow = check::fallen(&bench.measure(name), &before);
            }
        }
        fallen.extend(slow);
    }
    report("fell back", &fallen);
    report("not in ratios.tsv (run make bench)", &missing);
    ExitCode::from(u8::from(!(fallen.is_empty() && missing.is_empty())))
}

fn report(what: &str, names: &[String]) {
    if !names.is_empty() {
        println!("{what}: {}", names.join("; "));
    }
}
