//! Specs of PostgreSQL's isolationtester: what two to four sessions are told, in every order of
//! their steps, at every isolation level.
//!
//! - `isolation/specs`: one file per situation, which says above what it shows. Below the mark the
//!   orders are written by `interleaving::all`; the others are chosen by hand, or are all.
//! - `isolation/expected/NAME.out`: what the tester prints of orders chosen by hand, at all three
//!   levels. Only where the *work* of a spec conflicts does the level matter; then
//!   `NAME.LEVEL.out` is what another level prints.
//! - `isolation/helpers.sql`: what the steps call.
//!
//! Where the orders come from the model, it says what the tester prints, at every level: who waits, who
//! goes on when, what each is told, what is left. And nowhere has a key two effects.
//!
//! After a change that is meant, `BLESS=1 cargo test --package pg_idempotency-tests --test server isolation::
//! -- --test-threads=1` writes orders and outputs anew; read the difference. ONLY=two_requests, with or
//! without BLESS, runs that spec alone.

use pg_idempotency_tests::interleaving;
use pg_idempotency_tests::interleaving::report::{self, Left};
use pg_idempotency_tests::interleaving::spec::Spec;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{paths, process, server};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

/// Whatever a spec is about: one effect for each record, and no key is held at the end.
fn assert_sound(spec: &str, steps: &str, left: &Left) {
    let finished = left.records.iter().filter(|by| !["lease", "before"].contains(&by.as_str()));
    let by: BTreeSet<&String> = finished.collect();
    let effects: BTreeSet<&String> = left.effects.iter().collect();
    let answers_without_work = spec == "work_rolled_back" && left.records == ["s1"];
    let expected = if answers_without_work { BTreeSet::new() } else { by };
    assert_eq!(effects, expected, "{spec}: {steps}: who executed has the record, in {left:?}");
    assert_eq!(left.effects.len(), effects.len(), "{spec}: {steps}: {left:?}");
    assert_eq!(left.held, 0, "{spec}: {steps}: keys held");
}

#[test]
fn the_level_matters_only_where_the_work_conflicts() {
    for file in fs::read_dir(folder("expected")).expect("the outputs") {
        let name = file.expect("an output").file_name().into_string().expect("text");
        let mut parts = name.trim_end_matches(".out").split('.');
        let (spec, level) = (parts.next().expect("a name"), parts.next());
        let path = folder("specs").join(format!("{spec}.spec"));
        assert!(!Spec::parse(spec, &read(&path)).is_modelled(), "{name}: the model says that");
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
    for spec in specs() {
        let printed = printed_by_tester(&db, &spec);
        if !spec.is_modelled() && is_blessing() {
            bless(level, &spec, &printed);
        }
        let expected = match spec.is_modelled() {
            true => report::predicted(&spec),
            false => read(&expected_file(&spec.name, level)),
        };
        assert_same(&format!("{} at {words}", spec.name), &printed, &expected);
        let permutations = report::left(&printed);
        assert!(!permutations.is_empty(), "{} has an output", spec.name);
        for (steps, left) in &permutations {
            left.iter().for_each(|left| assert_sound(&spec.name, steps, left));
        }
    }
}

/// The first line that differs says more than two outputs of a thousand lines.
fn assert_same(what: &str, printed: &str, expected: &str) {
    let mut steps = "";
    for (number, (printed, expected)) in printed.lines().zip(expected.lines()).enumerate() {
        if expected.starts_with("starting permutation") {
            steps = expected;
        }
        assert_eq!(printed, expected, "{what}: line {}, {steps}", number + 1);
    }
    assert_eq!(printed.len(), expected.len(), "{what}: one of them goes on");
}

/// The tester is among the server's own tests, beside its header files.
fn printed_by_tester(db: &Database<'_>, spec: &Spec) -> String {
    let lib = paths::pg_bin().parent().expect("a folder").join("lib");
    let path = lib.join("pgxs/src/test/isolation/isolationtester");
    let mut tester = server::as_nobody_special(&path);
    let sockets = db.server().sockets().display();
    tester.arg(format!("user=postgres dbname={} host={sockets}", db.name()));
    // A step that takes longer than this many seconds hangs.
    tester.env("PGISOLATIONTIMEOUT", "30").env("PGAPPNAME", format!("isolation/{}", spec.name));
    let file = folder("specs").join(format!("{}.spec", spec.name));
    process::output_of(tester.stdin(fs::File::open(file).expect("the spec")))
}

/// Takes what was printed for what is expected.
fn bless(level: &str, spec: &Spec, printed: &str) {
    let own = folder("expected").join(format!("{}.{level}.out", spec.name));
    let of_all = folder("expected").join(format!("{}.out", spec.name));
    let _there_may_be_none = fs::remove_file(&own);
    if level == "read_committed" {
        fs::write(of_all, printed).expect("the output");
    } else if read(&of_all) != printed {
        fs::write(own, printed).expect("the output");
    }
}
