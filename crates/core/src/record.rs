//! What is recorded under a key, as far as decisions need it.

use crate::Micros;

/// A finished record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The operation that was executed; another one may share its key space.
    pub operation: &'a str,
    /// The request's fingerprint.
    pub fingerprint: Option<&'a [u8]>,
    /// Why the answer was not kept, where it was not.
    pub withheld: Option<&'a str>,
    /// From when on the record counts as absent; `None`: never.
    pub expires_at: Option<Micros>,
}

impl Record<'_> {
    /// Whether the record counts as absent. At the very instant of expiry it does.
    pub fn is_expired(&self, now: Micros) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_expires_at_the_very_instant() {
        let forever =
            Record { operation: "o", fingerprint: None, withheld: None, expires_at: None };
        let until_ten = Record { expires_at: Some(10), ..forever };
        assert!(!forever.is_expired(i64::MAX));
        assert!(!until_ten.is_expired(9) && until_ten.is_expired(10) && until_ten.is_expired(11));
    }
}
