//! What one client was told and what it did; the driver's own log.

use crate::history::{History, Name};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How late the driver may hear of something. Two dozen clients and two servers share the machine with
/// whatever else runs on it, so a process may have to wait for a processor. The longest delays that
/// were met are in docs/proof.md. It bounds two things: how much longer than its `wait_ms` a claim may
/// take, and how long after the end of the last holder somebody may still be told `in_progress`. So it
/// has to be below the longest `wait_ms`, or a waiter that nobody woke would not show.
pub const LATE: Duration = Duration::from_millis(1000);

/// What a client got as the answer of a request, once nothing could take it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: i32,
    /// Without the one that tells a replay.
    pub headers: Option<Value>,
    /// `None`: the answer is withheld.
    pub body: Option<Vec<u8>>,
}

/// Answers of keys that may be executed again: any that was given, by table and key.
pub type OneOf = BTreeMap<(&'static str, String), BTreeSet<Vec<u8>>>;

#[derive(Default)]
pub struct Ledger {
    /// The answers that were acknowledged, by key. All of one key must be the same.
    pub acknowledged: BTreeMap<String, Answer>,
    /// The same for keys whose records expire or are erased.
    pub one_of: OneOf,
    /// Every key that was ever claimed.
    pub asked: BTreeSet<Name>,
    /// Who held what, and who was told so.
    pub history: History,
    /// How often what happened.
    pub counts: BTreeMap<String, u64>,
    /// What must not happen.
    pub violations: Vec<String>,
    /// Transactions of which nobody knows whether they were prepared.
    pub uncertain: Vec<String>,
    /// The longest that a claim took beyond its `wait_ms`.
    pub longest_overrun: Duration,
    /// The longest that somebody was told `in_progress` after the end of the last holder.
    pub longest_afterglow: Duration,
}

impl Ledger {
    pub fn count(&mut self, what: &str) {
        self.add(what, 1);
    }

    pub fn add(&mut self, what: &str, more: u64) {
        match self.counts.get_mut(what) {
            Some(count) => *count += more,
            None => {
                self.counts.insert(what.to_owned(), more);
            }
        }
    }

    pub fn violation(&mut self, what: String) {
        // The first ones say it all, and say it at once: a broken build may not come to an end.
        if self.violations.len() < 20 {
            println!("VIOLATION: {what}");
            self.violations.push(what);
        }
        self.count("violations");
    }

    /// An answer that nothing can take back any more.
    pub fn acknowledge(&mut self, key: &str, answer: Answer) {
        match self.acknowledged.get(key) {
            Some(known) if *known != answer => {
                let known = known.clone();
                self.violation(format!("{key}: answered {known:?}, and then {answer:?}"));
            }
            Some(_) => {}
            None => {
                self.acknowledged.insert(key.to_owned(), answer);
            }
        }
    }

    /// An answer of a key that may be executed again, into this table.
    pub fn acknowledge_one_of(&mut self, table: &'static str, key: &str, body: Vec<u8>) {
        self.one_of.entry((table, key.to_owned())).or_default().insert(body);
    }

    /// A claim that was answered by a row.
    pub fn waited(&mut self, key: &str, wait_ms: i32, took: Duration) {
        let allowed = Duration::from_millis(u64::try_from(wait_ms).expect("not endless"));
        let overrun = took.saturating_sub(allowed);
        self.longest_overrun = self.longest_overrun.max(overrun);
        if overrun > LATE {
            self.violation(format!("{key}: a claim with wait_ms {wait_ms} took {took:?}"));
        }
    }

    /// One ledger of all.
    pub fn merged(ledgers: Vec<Ledger>) -> Ledger {
        let mut all = Ledger::default();
        for ledger in ledgers {
            for (key, answer) in ledger.acknowledged {
                all.acknowledge(&key, answer);
            }
            for (key, bodies) in ledger.one_of {
                all.one_of.entry(key).or_default().extend(bodies);
            }
            all.asked.extend(ledger.asked);
            all.history.extend(ledger.history);
            for (what, count) in ledger.counts {
                *all.counts.entry(what).or_default() += count;
            }
            all.violations.extend(ledger.violations);
            all.uncertain.extend(ledger.uncertain);
            all.longest_overrun = all.longest_overrun.max(ledger.longest_overrun);
        }
        all
    }
}
