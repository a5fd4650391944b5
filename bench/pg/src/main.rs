//! Measures pg_idempotency against what people write by hand, and writes docs/benchmarks.
//!
//!     idempotency-bench-pg [--quick] [--check] [--only NAME]... [--note WORDS]
//!     idempotency-bench-pg --instructions [--only SCRIPT]...
//!     idempotency-bench-pg --growth RECORDS [--note WORDS]
//!
//! `--check` writes nothing: it compares with the ratios that were written last, and fails where
//! one fell back. `--only` measures what has this name, and can be given several times. `--note`
//! is what the page says about the circumstances of this run. `--growth` measures something else:
//! what becomes of it all with so many records.
#![forbid(unsafe_code)]

mod duplicates;
mod growth;
mod growth_page;
mod instructions;
mod lab;
mod pgbench;
mod plot;
mod ratios;
mod rounds;
mod sizes;
mod stats;
mod suite;
mod table;

use lab::Lab;
use ratios::Entry;
use rounds::{Effort, Ratio};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

const FULL: Effort = Effort { rounds: 11, slice: 1.0 };
const QUICK: Effort = Effort { rounds: 7, slice: 0.25 };

struct Arguments {
    effort: Effort,
    check: bool,
    instructions: bool,
    only: Vec<String>,
    note: Option<String>,
    growth: Option<u64>,
}

fn arguments() -> Arguments {
    let mut given = Arguments {
        effort: FULL,
        check: false,
        instructions: false,
        only: Vec::new(),
        note: None,
        growth: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => given.effort = QUICK,
            "--check" => given.check = true,
            "--instructions" => given.instructions = true,
            "--only" => given.only.extend(words.next()),
            "--note" => given.note = words.next(),
            "--growth" => given.growth = words.next().and_then(|records| records.parse().ok()),
            _ => panic!("unknown argument {word}"),
        }
    }
    given
}

fn main() -> ExitCode {
    let arguments = arguments();
    if arguments.instructions {
        return count(&arguments.only);
    }
    let cluster = lab::cluster();
    if let Some(records) = arguments.growth {
        growth::run(&cluster, records, arguments.note.as_deref());
        return ExitCode::SUCCESS;
    }
    let bench = Bench { lab: Lab::new(&cluster), effort: arguments.effort };
    let chosen = suite::names()
        .filter(|name| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name));
    if arguments.check {
        return check(&bench, chosen);
    }
    let entries: Vec<Entry> = chosen.flat_map(|name| bench.measure(name)).collect();
    write(&entries, &arguments);
    ExitCode::SUCCESS
}

fn count(only: &[String]) -> ExitCode {
    let chosen: Vec<&str> = only.iter().map(String::as_str).collect();
    instructions::count(if chosen.is_empty() { instructions::SCRIPTS } else { &chosen });
    ExitCode::SUCCESS
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

fn write(entries: &[Entry], arguments: &Arguments) {
    let folder = folder();
    let run = table::run(arguments.effort, arguments.note.as_deref());
    fs::create_dir_all(&folder).expect("docs/benchmarks");
    for (name, text) in [
        ("ratios.tsv", ratios::write(entries)),
        ("README.md", table::page(entries, &run)),
        ("ratios.svg", plot::svg(entries)),
    ] {
        fs::write(folder.join(name), text).expect("docs/benchmarks");
    }
}

/// Only what is ours can fall back; who seems to have is measured again before we say so.
fn check(bench: &Bench<'_>, names: impl Iterator<Item = &'static str>) -> ExitCode {
    let text =
        fs::read_to_string(folder().join("ratios.tsv")).expect("ratios: run make bench first");
    let before = ratios::read(&text);
    let fallen: Vec<&str> =
        names.filter(|name| (0..3).all(|_| falls_back(&bench.measure(name), &before))).collect();
    if fallen.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("fell back: {}", fallen.join("; "));
    ExitCode::FAILURE
}

fn falls_back(now: &[Entry], before: &[Entry]) -> bool {
    now.iter().filter(|entry| entry.contender.starts_with("ours")).any(|entry| {
        let same = |other: &&Entry| other.game == entry.game && other.contender == entry.contender;
        before.iter().find(same).is_some_and(|old| ratios::fell_back(old.spread, entry.spread))
    })
}
