//! Who held which key, and who was told that it is held: the driver's own log, with the times of one
//! clock. So a key that stays locked when its holder has gone shows, and so does a waiter whom nobody
//! woke: it is told `in_progress` at its deadline, although the key had long been free.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// All tries of a request together stay away from a busy key for a little longer than this.
const SLOW: Duration = Duration::from_millis(250);

/// An operation and a key of it.
pub type Name = (&'static str, String);

/// Why a key was not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A transaction with a claim.
    Request,
    /// A prepared transaction.
    Prepared,
    /// A lease that had not run out.
    Lease,
    /// A transaction that took its time: its commit waited for the standby, its work for rows, or its
    /// connection was lost.
    Slow,
}

/// A time in which a key was, or may have been, held.
pub struct Held {
    pub name: Name,
    pub by: Holder,
    /// When the claim was sent.
    pub from: Instant,
    /// When it was answered.
    pub won: Option<Instant>,
    /// When the end was answered; `None`: it has not ended, as far as anybody knows.
    pub until: Option<Instant>,
}

impl Held {
    /// From now on, by a transaction that is still open.
    pub fn begin(name: &Name, by: Holder) -> Held {
        Held { name: name.clone(), by, from: Instant::now(), won: None, until: None }
    }

    /// Until now, or so long beyond it: a lease, or a lost connection.
    pub fn end(self, beyond: Duration) -> Held {
        let until = Instant::now() + beyond;
        let is_slow = self.won.is_some_and(|won| until - won > SLOW);
        let by = if self.by == Holder::Request && is_slow { Holder::Slow } else { self.by };
        Held { by, until: Some(until), ..self }
    }
}

/// `in_progress`, as an answer.
#[derive(Clone)]
pub struct Told {
    pub name: Name,
    /// Between these two moments the server found the key held.
    pub between: (Instant, Instant),
}

/// A request that was sent as often as it may be, and has no answer.
#[derive(Default)]
pub struct GivenUp {
    /// Its tries that were answered `in_progress`.
    pub told: Vec<Told>,
    /// Those that ended with an error that the faults explain.
    pub errors: usize,
}

#[derive(Default)]
pub struct History {
    pub held: Vec<Held>,
    pub told: Vec<Told>,
    pub given_up: Vec<GivenUp>,
}

impl History {
    pub fn extend(&mut self, other: History) {
        self.held.extend(other.held);
        self.told.extend(other.told);
        self.given_up.extend(other.given_up);
    }
}

/// The times of one key, in the order of their beginnings; with each, when the last of those up to it
/// ended. `None`: one has not.
type Times = Vec<(Instant, Option<Instant>)>;

/// When somebody held each key.
pub struct Holders<'h>(BTreeMap<&'h Name, Times>);

impl<'h> Holders<'h> {
    /// All of them.
    pub fn of(history: &'h History) -> Holders<'h> {
        Holders::those(history, |_| true)
    }

    /// Those that hold a key for long: what is prepared, leases, and what is slow.
    pub fn lasting(history: &'h History) -> Holders<'h> {
        Holders::those(history, |by| by != Holder::Request)
    }

    fn those(history: &'h History, which: impl Fn(Holder) -> bool) -> Holders<'h> {
        let mut all: BTreeMap<&Name, Times> = BTreeMap::new();
        for held in history.held.iter().filter(|held| which(held.by)) {
            all.entry(&held.name).or_default().push((held.from, held.until));
        }
        for times in all.values_mut() {
            times.sort_by_key(|(from, _)| *from);
            let mut last = times[0].1;
            for (_, until) in times.iter_mut() {
                last = last.zip(*until).map(|(one, other)| one.max(other));
                *until = last;
            }
        }
        Holders(all)
    }

    /// How long before this was said the key was held last; zero: it was held.
    pub fn before(&self, told: &Told) -> Option<Duration> {
        let times = self.0.get(&told.name)?;
        let (earliest, latest) = told.between;
        let begun = times.partition_point(|(from, _)| *from <= latest);
        let (_, until) = times[..begun].last()?;
        Some(until.map_or(Duration::ZERO, |until| earliest.saturating_duration_since(until)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        ("POST /orders", "k".to_owned())
    }

    fn held(start: Instant, from: u64, until: Option<u64>) -> Held {
        let at = |ms| start + Duration::from_millis(ms);
        Held { name: name(), by: Holder::Request, from: at(from), won: None, until: until.map(at) }
    }

    /// How long before `at` the key was held last.
    fn before(held: Vec<Held>, start: Instant, at: u64) -> Option<u64> {
        let history = History { held, ..History::default() };
        let at = start + Duration::from_millis(at);
        let told = Told { name: name(), between: (at, at) };
        let before = Holders::of(&history).before(&told)?;
        Some(u64::try_from(before.as_millis()).expect("a short time"))
    }

    #[test]
    fn who_is_told_while_somebody_holds_is_told_rightly() {
        let start = Instant::now();
        let times =
            || vec![held(start, 20, Some(30)), held(start, 0, Some(100)), held(start, 200, None)];
        assert_eq!(before(times(), start, 50), Some(0), "the longer one, which began first");
        assert_eq!(before(times(), start, 150), Some(50), "between two");
        assert_eq!(before(times(), start, 9000), Some(0), "one without an end");
    }

    #[test]
    fn nobody_has_held_it_before_its_first_holder() {
        let start = Instant::now();
        assert_eq!(before(vec![held(start, 100, Some(200))], start, 50), None);
        assert_eq!(before(Vec::new(), start, 50), None);
    }
}
