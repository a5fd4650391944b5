//! What is recorded under a key, as far as decisions need it.

use crate::Micros;
use crate::lease::Lease;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The operation that was executed; another one may share its key space.
    pub operation: &'a str,
    /// The request's fingerprint.
    pub fingerprint: Option<&'a [u8]>,
    /// How far it has come.
    pub state: State<'a>,
}

/// How far a recorded request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// It is finished.
    Finished {
        /// Why the answer was not kept, where it was not.
        withheld: Option<&'a str>,
        /// From when on the record counts as absent; `None`: never.
        expires_at: Option<Micros>,
    },
    /// A worker has it on lease.
    Leased(Lease),
}

impl Record<'_> {
    /// Whether the record counts as absent. At the very instant of expiry it does, but not before its
    /// key is refused as too late, from `refused_from` on; `None`: late retries are executed.
    pub fn is_expired(&self, refused_from: Option<Micros>, now: Micros) -> bool {
        match self.state {
            State::Finished { expires_at, .. } => {
                let is_over = expires_at.is_some_and(|expires_at| expires_at <= now);
                is_over && refused_from.is_none_or(|refused_from| refused_from <= now)
            }
            State::Leased(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_record_expires_at_the_very_instant() {
        let finished = |expires_at| Record {
            operation: "o",
            fingerprint: None,
            state: State::Finished { withheld: None, expires_at },
        };
        assert!(!finished(None).is_expired(None, i64::MAX));
        let until_ten = |now| finished(Some(10)).is_expired(None, now);
        assert!(!until_ten(9) && until_ten(10) && until_ten(11));
    }

    /// Catches a record that is gone while its key can still be claimed.
    #[test]
    fn a_record_counts_until_its_key_is_refused() {
        let state = State::Finished { withheld: None, expires_at: Some(10) };
        let record = Record { operation: "o", fingerprint: None, state };
        assert!(!record.is_expired(Some(20), 19) && record.is_expired(Some(20), 20));
        assert!(!record.is_expired(Some(Micros::MAX), i64::MAX - 1));
        assert!(!record.is_expired(Some(5), 9) && record.is_expired(Some(5), 10));
    }

    #[test]
    fn a_lease_that_ran_out_does_not_make_the_record_absent() {
        let lease = Lease { token: Uuid::nil(), deadline: 10 };
        let leased = Record { operation: "o", fingerprint: None, state: State::Leased(lease) };
        assert!(!leased.is_expired(None, 11));
    }
}
