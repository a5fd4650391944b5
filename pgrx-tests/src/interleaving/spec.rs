//! Reading a spec of the isolationtester, as far as the model has to understand it.
//!
//! One step is one line: `step NAME { SQL; SQL; }`. The SQL is the words of transactions and calls of
//! the procedures in `isolation/helpers.sql`.

use super::Interleaving;

/// The line above the permutations that are written by a program.
pub const MARK: &str =
    "# Every order that can happen; BLESS=1 writes them (see tests/isolation.rs).";

/// What stands before the number of orders that were begun and cannot be finished.
const CUT: &str = "# Orders that cannot be finished: ";

/// What stands before the steps that come to nothing in every order.
const IDLE: &str = "# Steps that come to nothing in every order: ";

pub struct Spec {
    pub name: String,
    pub sessions: Vec<Session>,
    /// How many orders it says that cannot be finished; 0 where it says nothing.
    pub cut: usize,
    /// Which steps it says to come to nothing, as `s1 w1`.
    pub idle: Vec<String>,
    /// All up to and with [`MARK`]; `None` where the permutations are chosen by hand.
    head: Option<String>,
}

pub struct Session {
    pub name: String,
    pub steps: Vec<Step>,
}

pub struct Step {
    pub name: String,
    pub sql: String,
    pub acts: Vec<Act>,
}

/// What a step does, in the model's words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Claims these keys, in this order; `waits`: until they are free.
    Claim {
        keys: Vec<Key>,
        waits: bool,
        many: bool,
    },
    Work(String),
    Complete(String),
    Release(String),
    Savepoint,
    RollbackTo,
    Commit,
    Rollback,
    Prepare(String),
    CommitPrepared(String),
    RollbackPrepared(String),
    /// Reads something: takes a snapshot.
    Look,
}

/// A key in its key space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub space: &'static str,
    pub key: String,
}

impl Spec {
    pub fn parse(name: &str, text: &str) -> Spec {
        let head = text.find(MARK).map(|at| text[..at + MARK.len()].to_owned());
        let mut sessions: Vec<Session> = Vec::new();
        let said =
            |what: &str| text.lines().find_map(|line| line.strip_prefix(what)?.strip_suffix('.'));
        let cut = said(CUT).map_or(0, |number| number.parse().expect("a number"));
        let idle =
            said(IDLE).map_or(Vec::new(), |steps| steps.split(", ").map(str::to_owned).collect());
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("session ") {
                sessions.push(Session { name: name.trim().to_owned(), steps: Vec::new() });
            } else if let (Some(step), Some(session)) =
                (line.strip_prefix("step "), sessions.last_mut())
            {
                session.steps.push(Step::parse(step, head.is_some()));
            }
        }
        Spec { name: name.to_owned(), sessions, cut, idle, head }
    }

    /// Whether the permutations are written by a program, and the outcomes known to the model.
    pub fn is_modelled(&self) -> bool {
        self.head.is_some()
    }

    /// The whole text with these permutations.
    ///
    /// # Panics
    /// When the permutations are chosen by hand.
    pub fn with(&self, interleavings: &[Interleaving]) -> String {
        let mut text = self.head.clone().expect("a spec with the mark");
        for interleaving in interleavings {
            text.push_str("\npermutation ");
            text.push_str(&interleaving.steps.join(" "));
        }
        text.push('\n');
        text
    }
}

impl Session {
    /// Whether both do the same.
    pub fn is_like(&self, other: &Session) -> bool {
        self.steps.iter().map(|step| &step.acts).eq(other.steps.iter().map(|step| &step.acts))
    }
}

impl Step {
    fn parse(line: &str, modelled: bool) -> Step {
        let (name, rest) = line.split_once('{').expect("a step on one line");
        let sql = rest.trim_end().strip_suffix('}').expect("a step on one line").trim();
        let statements = sql.split(';').map(str::trim).filter(|statement| !statement.is_empty());
        let acts = if modelled { statements.flat_map(acts).collect() } else { Vec::new() };
        Step { name: name.trim().to_owned(), sql: sql.to_owned(), acts }
    }
}

/// What one statement does.
///
/// # Panics
/// When the model does not know it.
fn acts(statement: &str) -> Vec<Act> {
    let quoted: Vec<String> = statement.split('\'').skip(1).step_by(2).map(str::to_owned).collect();
    let first = || quoted[0].clone();
    let orders = |key: &String| Key { space: "POST /orders", key: key.clone() };
    let claim = |key: Key, waits| vec![Act::Claim { keys: vec![key], waits, many: false }];
    let words = statement.split(['(', '\'']).next().unwrap_or_default().trim();
    match words {
        "CALL claim" => claim(orders(&quoted[0]), true),
        "CALL claim_at_once" => claim(orders(&quoted[0]), false),
        "CALL claim_for_refund" => claim(Key { space: "POST /refunds", key: first() }, true),
        "CALL claim_many" => {
            vec![Act::Claim { keys: quoted.iter().map(orders).collect(), waits: true, many: true }]
        }
        "CALL work" => vec![Act::Work(first())],
        "CALL complete" => vec![Act::Complete(first())],
        "CALL work_and_complete" => quoted
            .iter()
            .flat_map(|key| [Act::Work(key.clone()), Act::Complete(key.clone())])
            .collect(),
        "CALL release" => vec![Act::Release(first())],
        "SAVEPOINT s" => vec![Act::Savepoint],
        "ROLLBACK TO s" => vec![Act::RollbackTo],
        "COMMIT" => vec![Act::Commit],
        "ROLLBACK" => vec![Act::Rollback],
        "PREPARE TRANSACTION" => vec![Act::Prepare(first())],
        "COMMIT PREPARED" => vec![Act::CommitPrepared(first())],
        "ROLLBACK PREPARED" => vec![Act::RollbackPrepared(first())],
        "SELECT FROM stock" => vec![Act::Look],
        _ => panic!("the model does not know {statement:?}"),
    }
}
