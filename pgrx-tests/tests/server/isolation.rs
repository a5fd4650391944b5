//! Specs of PostgreSQL's isolationtester: what two to four sessions are told, in every order of
//! their steps, at every isolation level.
//!
//! - `isolation/specs`: one file per situation, which says above what it shows. Below the mark the
//!   orders are written by `interleaving::all`; the others are chosen by hand, or are all.
//! - `isolation/expected/NAME.out`: what it prints, at all three levels. Only where the *work* of a
//!   spec conflicts does the level matter; then `NAME.LEVEL.out` is what another level prints.
//! - `isolation/helpers.sql`: what the steps call.
//!
//! The expected output is not only what happened to come out: where the orders come from the model,
//! every word in it is compared with what the model says, and in all files no key has two effects.
//!
//! After a change that is meant, `BLESS=1 cargo test --package pg_idempotency-tests --test server isolation::
//! -- --test-threads=1` writes orders and outputs anew, in two runs where orders changed; read the difference.
//! ONLY=two_requests, with or without BLESS, runs that spec alone.

use pg_idempotency_tests::interleaving::report::{self, Left, Report};
use pg_idempotency_tests::interleaving::spec::Spec;
use pg_idempotency_tests::interleaving::{self, Interleaving};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{paths, process};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LEVELS: [(Isolation, &str); 3] = [
    (Isolation::ReadCommitted, "read_committed"),
    (Isolation::RepeatableRead, "repeatable_read"),
    (Isolation::Serializable, "serializable"),
];

/// Those whose work conflicts, so that their output may depend on the level.
const WORK_CONFLICTS: [&str; 2] = ["conflict_in_work", "write_skew"];

/// More orders than this in one spec would be too many to read and to run.
const MOST_ORDERS: usize = 300;

fn folder(name: &str) -> PathBuf {
    paths::repository().join("pgrx-tests/isolation").join(name)
}

fn is_blessing() -> bool {
    std::env::var_os("BLESS").is_some()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn specs() -> Vec<Spec> {
    let files = fs::read_dir(folder("specs")).expect("the specs");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a spec").path()).collect();
    paths.sort();
    if let Some(only) = std::env::var_os("ONLY") {
        paths.retain(|path| path.file_stem() == Some(&only));
    }
    let name =
        |path: &PathBuf| path.file_stem().expect("a name").to_str().expect("text").to_owned();
    paths.iter().map(|path| Spec::parse(&name(path), &read(path))).collect()
}

/// The file of the output at a level: its own, or the one for all levels.
fn expected_file(spec: &str, level: &str) -> PathBuf {
    let own = folder("expected").join(format!("{spec}.{level}.out"));
    if own.exists() { own } else { folder("expected").join(format!("{spec}.out")) }
}

// ---- the files -------------------------------------------------------------------------------

#[test]
fn the_orders_are_all_that_can_happen() {
    for spec in specs().iter().filter(|spec| spec.is_modelled()) {
        let orders = interleaving::all(spec).finished;
        assert!((2..=MOST_ORDERS).contains(&orders.len()), "{}: {}", spec.name, orders.len());
        let path = folder("specs").join(format!("{}.spec", spec.name));
        let text = spec.with(&orders);
        if is_blessing() {
            fs::write(&path, &text).expect("the spec");
        }
        assert_eq!(read(&path), text, "{}: BLESS=1 writes the orders", spec.name);
    }
}

/// A spec could list few orders because most get stuck, and have steps that are there for nothing.
/// Both are counted, and have to be said in the spec.
#[test]
fn a_spec_says_what_it_does_not_show() {
    for spec in specs().iter().filter(|spec| spec.is_modelled()) {
        let orders = interleaving::all(spec);
        assert_eq!(orders.cut, spec.cut, "{}: orders that cannot be finished", spec.name);
        assert_eq!(orders.idle(spec), spec.idle, "{}: steps that come to nothing", spec.name);
    }
}

/// The expected output against the model: an error in one of both shows here.
#[test]
fn the_expected_output_is_what_the_contract_says() {
    for spec in specs().iter().filter(|spec| spec.is_modelled()) {
        let printed = report::read(spec, &read(&expected_file(&spec.name, "read_committed")));
        let orders = interleaving::all(spec).finished;
        assert_eq!(printed.len(), orders.len(), "{}: orders", spec.name);
        for (printed, order) in printed.iter().zip(&orders) {
            assert_agrees(&spec.name, printed, order);
        }
    }
}

fn assert_agrees(spec: &str, printed: &Report, order: &Interleaving) {
    let at = format!("{spec}: {}", order.steps.join(" "));
    assert_eq!(printed.steps, order.steps, "{at}");
    assert_eq!(printed.said, order.world.said(), "{at}: what was said");
    let (effects, records) = (&order.world.effects, order.world.records());
    for left in &printed.left {
        let of = |by: Option<&Vec<String>>| by.cloned().unwrap_or_default();
        let mut by = of(effects.get(&left.key));
        by.sort();
        assert_eq!(left.effects, by, "{at}: effects of {}", left.key);
        assert_eq!(left.records, of(records.get(&left.key)), "{at}: records of {}", left.key);
    }
    let keys: BTreeSet<&String> = effects.keys().chain(records.keys()).collect();
    assert_eq!(printed.left.iter().map(|left| &left.key).collect::<BTreeSet<_>>(), keys, "{at}");
}

/// Whatever a spec is about: one effect for each record, and no key is held at the end.
#[test]
fn no_expected_output_has_a_key_with_two_effects() {
    for spec in specs() {
        for (_, level) in LEVELS {
            let reports = report::read(&spec, &read(&expected_file(&spec.name, level)));
            assert!(!reports.is_empty(), "{} has an output", spec.name);
            for report in reports {
                report.left.iter().for_each(|left| assert_sound(&spec.name, &report.steps, left));
            }
        }
    }
}

fn assert_sound(spec: &str, steps: &[String], left: &Left) {
    let finished = left.records.iter().filter(|by| !["lease", "before"].contains(&by.as_str()));
    let by: BTreeSet<&String> = finished.collect();
    let effects: BTreeSet<&String> = left.effects.iter().collect();
    let answers_without_work = spec == "work_rolled_back" && left.records == ["s1"];
    let expected = if answers_without_work { BTreeSet::new() } else { by };
    assert_eq!(effects, expected, "{spec}: {steps:?}: who executed has the record, in {left:?}");
    assert_eq!(left.effects.len(), effects.len(), "{spec}: {steps:?}: {left:?}");
    assert_eq!(left.held, 0, "{spec}: {steps:?}: keys held");
}

#[test]
fn the_level_matters_only_where_the_work_conflicts() {
    for file in fs::read_dir(folder("expected")).expect("the outputs") {
        let name = file.expect("an output").file_name().into_string().expect("text");
        let mut parts = name.trim_end_matches(".out").split('.');
        let (spec, level) = (parts.next().expect("a name"), parts.next());
        assert!(folder("specs").join(format!("{spec}.spec")).exists(), "{name} has a spec");
        assert!(level.is_none() || WORK_CONFLICTS.contains(&spec), "{name} is not needed");
    }
}

// ---- the runs --------------------------------------------------------------------------------

#[test]
fn at_read_committed() {
    run(0);
}

#[test]
fn at_repeatable_read() {
    run(1);
}

#[test]
fn at_serializable() {
    run(2);
}

fn run(level: usize) {
    let (isolation, level) = LEVELS[level];
    // The names of prepared transactions are a cluster's, so each level has one of its own.
    let cluster = Cluster::start(&format!("isolation-{level}"), &[]);
    let db = cluster.database();
    db.run(&read(&folder("helpers.sql")));
    let words = isolation.sql().to_lowercase();
    db.run(&format!("ALTER DATABASE {} SET default_transaction_isolation = '{words}'", db.name()));
    let work = lay_out(level);
    let mut tester = Command::new(tester());
    tester.arg("--use-existing").arg("--bindir").arg(paths::pg_bin());
    tester.arg("--inputdir").arg(&work).arg("--outputdir").arg(&work);
    tester.args(["--user", "postgres", "--dbname", db.name(), "--host"]).arg(db.server().sockets());
    // A step that takes longer than this many seconds hangs.
    tester.env("PGISOLATIONTIMEOUT", "30").args(specs().iter().map(|spec| &spec.name));
    let done = tester.output().expect("pg_isolation_regress starts");
    if is_blessing() {
        bless(level, &work);
    } else if !done.status.success() {
        let diffs = fs::read_to_string(work.join("regression.diffs")).unwrap_or_default();
        let [said, errors] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
        panic!("at {words}:\n{said}{errors}\n{diffs}");
    }
}

/// Specs and expected outputs of a level, in a folder as pg_isolation_regress wants it.
fn lay_out(level: &str) -> PathBuf {
    let work = paths::scratch(&format!("specs-{level}"));
    process::remove_at_the_end(&work);
    fs::create_dir_all(work.join("specs")).expect("a folder");
    fs::create_dir_all(work.join("expected")).expect("a folder");
    for spec in specs() {
        let file = format!("specs/{}.spec", spec.name);
        fs::copy(folder(&file), work.join(&file)).expect("a copy of the spec");
        let to = work.join(format!("expected/{}.out", spec.name));
        let text = fs::read_to_string(expected_file(&spec.name, level));
        fs::write(to, text.unwrap_or_default()).expect("a copy of the output");
    }
    work
}

/// The tester is among the server's own tests, beside its header files.
fn tester() -> PathBuf {
    let lib = paths::pg_bin().parent().expect("a folder").join("lib");
    lib.join("pgxs/src/test/isolation/pg_isolation_regress")
}

/// Takes what was printed for what is expected.
fn bless(level: &str, work: &Path) {
    for spec in specs() {
        let printed = read(&work.join(format!("results/{}.out", spec.name)));
        let own = folder("expected").join(format!("{}.{level}.out", spec.name));
        let of_all = folder("expected").join(format!("{}.out", spec.name));
        let _there_may_be_none = fs::remove_file(&own);
        if level == "read_committed" {
            fs::write(of_all, printed).expect("the output");
        } else if read(&of_all) != printed {
            fs::write(own, printed).expect("the output");
        }
    }
}
