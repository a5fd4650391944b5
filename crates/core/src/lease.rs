//! Leases: claims that outlive their transaction, for work that cannot sit in one.
//!
//! A lease has a token and a deadline. Whoever acts by a token holds the key's lock and finds the
//! token to be the record's current one, so a worker that lost its lease cannot commit anything:
//! not only its answer, its business writes neither.

use uuid::Uuid;

use crate::Micros;

/// A claim on lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who has it.
    pub token: Uuid,
    /// Until when nobody else may take over.
    pub deadline: Micros,
}

impl Lease {
    /// Whether the time is up. At the very instant of the deadline it is.
    pub fn is_expired(&self, now: Micros) -> bool {
        self.deadline <= now
    }

    /// Seconds until the time is up, rounded up, at least 1.
    pub fn seconds_left(&self, now: Micros) -> i32 {
        let left = self.deadline.saturating_sub(now);
        let seconds = left.div_euclid(1_000_000) + i64::from(left.rem_euclid(1_000_000) > 0);
        seconds.clamp(1, i64::from(i32::MAX)) as i32
    }

    /// The deadline after an extension, which never shortens.
    pub fn extended(&self, now: Micros, lease_ms: i32) -> Micros {
        self.deadline.max(deadline(now, lease_ms))
    }
}

/// The deadline of a lease that begins now. `lease_ms` is milliseconds.
pub fn deadline(now: Micros, lease_ms: i32) -> Micros {
    now.saturating_add(i64::from(lease_ms) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Lease = Lease { token: Uuid::nil(), deadline: 5_000_000 };

    #[test]
    fn a_lease_ends_at_the_very_instant() {
        assert!(!LEASE.is_expired(4_999_999));
        assert!(LEASE.is_expired(5_000_000) && LEASE.is_expired(5_000_001));
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(LEASE.seconds_left(3_000_000), 2);
        assert_eq!(LEASE.seconds_left(2_999_999), 3);
        assert_eq!(LEASE.seconds_left(4_999_999), 1);
        assert_eq!(LEASE.seconds_left(9_000_000), 1);
        assert_eq!(LEASE.seconds_left(i64::MIN), i32::MAX);
    }

    #[test]
    fn an_extension_never_shortens() {
        assert_eq!(LEASE.extended(4_500_000, 1000), 5_500_000);
        assert_eq!(LEASE.extended(1_000_000, 1000), 5_000_000);
        assert_eq!(deadline(1_000_000, 1), 1_001_000);
        assert_eq!(deadline(i64::MAX, 1), i64::MAX);
    }
}
