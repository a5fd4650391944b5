//! What one client was told and what it did; the driver's own log.

use std::collections::BTreeMap;
use std::time::Duration;

/// How much longer than its `wait_ms` a claim may take. It is there for a machine that is busy with
/// two dozen clients, two servers and whatever else runs on it: a process may not be given a
/// processor for that long. A lost wake-up would cost up to 2000 ms, or for ever, so it is below that.
pub const ALLOWANCE: Duration = Duration::from_millis(1500);

/// What a client got as the answer of a request, once nothing could take it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: i32,
    /// `None`: the answer is withheld.
    pub body: Option<Vec<u8>>,
}

#[derive(Default)]
pub struct Ledger {
    /// The answers that were acknowledged, by key. All of one key must be the same.
    pub acknowledged: BTreeMap<String, Answer>,
    /// The same for keys whose records expire: any of the answers that were given.
    pub short_lived: BTreeMap<String, Vec<Vec<u8>>>,
    /// How often what happened.
    pub counts: BTreeMap<String, u64>,
    /// What must not happen.
    pub violations: Vec<String>,
    /// Transactions of which nobody knows whether they were prepared.
    pub uncertain: Vec<String>,
    /// The longest that a claim took beyond its `wait_ms`.
    pub longest_overrun: Duration,
}

impl Ledger {
    pub fn count(&mut self, what: &str) {
        match self.counts.get_mut(what) {
            Some(count) => *count += 1,
            None => {
                self.counts.insert(what.to_owned(), 1);
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

    pub fn acknowledge_short_lived(&mut self, key: &str, body: Vec<u8>) {
        let bodies = self.short_lived.entry(key.to_owned()).or_default();
        if bodies.last() != Some(&body) {
            bodies.push(body);
        }
    }

    /// A claim that was answered by a row.
    pub fn waited(&mut self, key: &str, wait_ms: i32, took: Duration) {
        let allowed = Duration::from_millis(u64::try_from(wait_ms).expect("not endless"));
        let overrun = took.saturating_sub(allowed);
        self.longest_overrun = self.longest_overrun.max(overrun);
        if overrun > ALLOWANCE {
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
            for (key, bodies) in ledger.short_lived {
                all.short_lived.entry(key).or_default().extend(bodies);
            }
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
