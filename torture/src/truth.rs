//! Whether those who were told to come again had to be told so.
//!
//! `in_progress` is true only while somebody holds the key. A waiter that nobody wakes when the key gets
//! free is told so at its deadline, and a key that stays locked for nobody makes everyone be told so.

use crate::client::ORDERS;
use crate::history::{GivenUp, Holders, Told};
use crate::ledger::{LATE, Ledger};
use std::time::Duration;

/// One request of so many may be given up, at most.
const GIVEN_UP: u64 = 100;

/// At least so many of the tries of a request that is given up met a prepared transaction, a lease, a
/// slow transaction, or an error that a fault explains. What holds a key otherwise is gone in a moment.
/// This is not asked of keys that are executed again and again: they may be busy each time.
const EXCUSED: usize = 4;

pub fn judge(ledger: &mut Ledger) {
    let history = std::mem::take(&mut ledger.history);
    let (holders, lasting) = (Holders::of(&history), Holders::lasting(&history));
    let mut longest = Duration::ZERO;
    for told in &history.told {
        let what = format!("{}: in_progress", told.name.1);
        match holders.before(told) {
            None => ledger.violation(format!("{what}, and nobody had ever held it")),
            Some(before) if before > LATE => {
                ledger.violation(format!("{what}, and nobody had held it for {before:?}"));
            }
            Some(before) => longest = longest.max(before),
        }
    }
    ledger.longest_afterglow = longest;
    for given_up in &history.given_up {
        let excused = excuses(given_up, &lasting);
        if excused < EXCUSED && !is_executed_again(given_up) {
            let name = given_up.told.first().map_or("a key", |told| &told.name.1);
            let (told, errors) = (given_up.told.len(), given_up.errors);
            let tries = format!("in_progress {told} times, {errors} errors");
            let why = format!("{tries}, and only {excused} tries have a reason");
            ledger.violation(format!("{name}: given up, {why}"));
        }
    }
    bound(ledger, history.given_up.len() as u64);
}

/// How many tries met what may last.
fn excuses(given_up: &GivenUp, lasting: &Holders) -> usize {
    let met = |told: &&Told| lasting.before(told).is_some_and(|before| before <= LATE);
    given_up.told.iter().filter(met).count() + given_up.errors
}

fn is_executed_again(given_up: &GivenUp) -> bool {
    given_up.told.first().is_some_and(|told| told.name.0 != ORDERS)
}

fn bound(ledger: &mut Ledger, given_up: u64) {
    ledger.counts.insert("given up".into(), given_up);
    let requests = ledger.counts.get("requests").copied().unwrap_or_default();
    if given_up * GIVEN_UP > requests {
        ledger.violation(format!("{given_up} of {requests} requests were given up"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Held, History, Holder, Name};
    use std::time::Instant;

    fn name() -> Name {
        ("POST /orders", "k".to_owned())
    }

    /// What is said of a key that was held for a second, and of somebody who was told `in_progress` so
    /// many milliseconds after it had been free, `tries` times, before it was given up.
    fn violations(by: Holder, after: u64, tries: usize) -> Vec<String> {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let held = Held { name: name(), by, from: start, won: None, until: Some(start + second) };
        let at = start + second + Duration::from_millis(after);
        let told = vec![Told { name: name(), between: (at, at) }; tries];
        let given_up = vec![GivenUp { told: told.clone(), errors: 0 }];
        let history = History { held: vec![held], told, given_up };
        let mut ledger = Ledger { history, ..Ledger::default() };
        ledger.add("requests", 1000);
        judge(&mut ledger);
        ledger.violations
    }

    #[test]
    fn a_waiter_that_nobody_woke_shows() {
        assert_eq!(violations(Holder::Prepared, 900, EXCUSED), Vec::<String>::new());
        // Each of those that were told so; and what held the key is no reason to give up any more.
        assert_eq!(violations(Holder::Prepared, 1500, EXCUSED).len(), EXCUSED + 1);
    }

    #[test]
    fn who_gives_up_needs_a_reason() {
        assert_eq!(violations(Holder::Lease, 0, EXCUSED - 1).len(), 1);
        assert_eq!(violations(Holder::Request, 0, EXCUSED).len(), 1);
    }

    #[test]
    fn not_everybody_may_give_up() {
        let mut ledger = Ledger::default();
        ledger.add("requests", 199);
        bound(&mut ledger, 1);
        assert!(ledger.violations.is_empty());
        bound(&mut ledger, 2);
        assert_eq!(ledger.violations.len(), 1);
    }
}
