//! When a key is too late, how long a record counts, and when it may be purged: one rule, for claims,
//! completions and purges.
//!
//! A key's own time is that of a UUIDv7. The key is late from its time plus the shortest of the retentions
//! that were in force at any time since then. That instant never moves to a later one, whatever the
//! settings become. So where late retries are refused, nothing is executed again: a purge deletes a record
//! only once its key is late, and a late key is never claimed.

use crate::Micros;
use crate::calendar::{from_unix_millis, plus, to_unix_millis};
use crate::key::uuidv7_millis;
use crate::policy::{LateRetry, Policy, Retention, Span};

/// How far a key's own time may lie ahead of ours: clocks differ.
pub const MAX_AHEAD: Micros = 5 * 60 * 1_000_000;

/// How many earlier retentions are remembered; beyond, the oldest two become one that is shorter than
/// either.
pub const MAX_PAST: usize = 100;

/// A retention that was in force until the operation got another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// Until when; of the whole milliseconds, which keys have, the last.
    pub until: Micros,
    /// The retention.
    pub retention: Span,
}

/// A key's own time.
pub fn key_time(key: &str) -> Option<Micros> {
    uuidv7_millis(key).map(from_unix_millis)
}

impl Policy {
    /// From when on a key is too late to be executed, by its own time: [`Micros::MAX`] for never. `None`
    /// where late retries are executed.
    pub fn refused_from(&self, key: &str) -> Option<Micros> {
        match self.late_retry {
            LateRetry::Execute => None,
            LateRetry::Refuse => key_time(key).map(|time| self.late_from(time)),
        }
    }

    /// When the record of a completion expires; `None` for never. Where late retries are refused, not
    /// before the key is late by this retention.
    pub fn expires_at(&self, key: &str, completed_at: Micros) -> Option<Micros> {
        let Retention::For(span) = self.retention else { return None };
        let refuses = self.late_retry == LateRetry::Refuse;
        let of_key = key_time(key).filter(|_| refuses).map(|time| plus(time, span));
        Some(plus(completed_at, span).max(of_key.unwrap_or(Micros::MIN)))
    }

    /// From when on a record that expires may be purged. Also where late retries are executed, a record
    /// whose key is not late is kept: they may be refused tomorrow. But a key that lay far ahead of the
    /// clock keeps nothing then, else a client could choose a retention of its own.
    pub fn purged_from(&self, key: &str, completed_at: Micros, expires_at: Micros) -> Micros {
        let far_ahead = completed_at.saturating_add(MAX_AHEAD);
        let counts = |time: &Micros| self.late_retry == LateRetry::Refuse || *time <= far_ahead;
        let late_from = key_time(key).filter(counts).map(|time| self.late_from(time));
        expires_at.max(late_from.unwrap_or(Micros::MIN))
    }

    fn late_from(&self, key_time: Micros) -> Micros {
        let past = self.past.iter().filter(|past| key_time <= past.until);
        let now = match self.retention {
            Retention::Forever => None,
            Retention::For(span) => Some(span),
        };
        let spans = past.map(|past| past.retention).chain(now);
        spans.map(|span| plus(key_time, span)).min().unwrap_or(Micros::MAX)
    }
}

/// What is to be remembered once a retention is replaced by another, at this instant. The oldest comes
/// first; one that is never shorter than a later one says nothing more and goes.
pub fn replaced(mut past: Vec<Past>, old: Retention, new: Retention, now: Micros) -> Vec<Past> {
    if let Retention::For(retention) = old {
        past.push(Past { until: from_unix_millis(to_unix_millis(now)), retention });
    }
    let mut later: Vec<Span> = match new {
        Retention::Forever => Vec::new(),
        Retention::For(span) => vec![span],
    };
    let mut kept = Vec::new();
    for past in past.into_iter().rev() {
        if !later.iter().any(|later| is_never_longer(*later, past.retention)) {
            later.push(past.retention);
            kept.push(past);
        }
    }
    kept.reverse();
    while kept.len() > MAX_PAST {
        let oldest = kept.remove(0).retention;
        kept[0].retention = shorter_than_both(oldest, kept[0].retention);
    }
    kept
}

/// Whether `a` is at most as long as `b`, from whatever instant on. A month has 28 to 31 days.
fn is_never_longer(a: Span, b: Span) -> bool {
    let days = |span: Span, month: i128| {
        (i128::from(span.months) * month + i128::from(span.days)) * 86_400_000_000
            + i128::from(span.micros)
    };
    if a.months == b.months { days(a, 0) <= days(b, 0) } else { days(a, 31) <= days(b, 28) }
}

fn shorter_than_both(a: Span, b: Span) -> Span {
    Span {
        months: a.months.min(b.months),
        days: a.days.min(b.days),
        micros: a.micros.min(b.micros),
    }
}

#[cfg(test)]
mod tests;
