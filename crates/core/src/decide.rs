//! The claim table: what a call is answered, given what is recorded under its key.
//!
//! | found | same operation | same fingerprint | answer kept | decision |
//! |---|---|---|---|---|
//! | nothing, or an expired record; the key is too old | | | | [`Decision::Expired`] |
//! | nothing, or an expired record | | | | [`Decision::Claim`] |
//! | a record | no | | | [`Decision::Mismatch`] |
//! | a record | yes | no | | [`Decision::Mismatch`] |
//! | a record | yes | yes | no | [`Decision::Withheld`] |
//! | a record | yes | yes | yes | [`Decision::Replay`] |
//!
//! The table is the same on every path: at first sight, after a wait, for claim and for replay.

use crate::Micros;
use crate::record::Record;

/// How the caller's fingerprint is compared with the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare<'a> {
    /// Not at all.
    Skip,
    /// Equal, or both absent (`IS NOT DISTINCT FROM`).
    With(Option<&'a [u8]>),
}

/// A call, as far as decisions need it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The operation to execute.
    pub operation: &'a str,
    /// Its fingerprint.
    pub fingerprint: Compare<'a>,
    /// From when on the key is too old to be executed, by its own time; `None`: never.
    pub key_expires_at: Option<Micros>,
}

/// In what a request differs from the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The operation, in a shared key space.
    Operation,
    /// The fingerprint.
    Fingerprint,
}

/// What a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Nobody finished this request yet: execute it.
    Claim,
    /// Send the recorded answer.
    Replay,
    /// The request is finished, but its answer was not kept, for this reason.
    Withheld(&'a str),
    /// The key belongs to another request.
    Mismatch(Difference),
    /// Whether the request was executed is no longer known.
    Expired,
}

/// Decides a call. `now` is the database's clock, in microseconds, read after the look-up (and
/// after the lock was won, where there was one).
pub fn decide<'a>(found: Option<&Record<'a>>, request: &Request<'_>, now: Micros) -> Decision<'a> {
    let Some(record) = found.filter(|record| !record.is_expired(now)) else {
        let too_old = request.key_expires_at.is_some_and(|expires_at| expires_at <= now);
        return if too_old { Decision::Expired } else { Decision::Claim };
    };
    if let Some(difference) = difference(record, request) {
        return Decision::Mismatch(difference);
    }
    match record.withheld {
        Some(reason) => Decision::Withheld(reason),
        None => Decision::Replay,
    }
}

fn difference(record: &Record<'_>, request: &Request<'_>) -> Option<Difference> {
    if record.operation != request.operation {
        return Some(Difference::Operation);
    }
    match request.fingerprint {
        Compare::With(fingerprint) if fingerprint != record.fingerprint => {
            Some(Difference::Fingerprint)
        }
        Compare::With(_) | Compare::Skip => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = 1_000;

    /// Every record against every request, before, at and after the instant of expiry.
    #[test]
    fn the_whole_table() {
        let fingerprints = [None, Some(&[1u8; 32][..]), Some(&[2u8; 32][..])];
        let comparisons = fingerprints.map(Compare::With).into_iter().chain([Compare::Skip]);
        let mut cells = 0;
        for compare in comparisons {
            for recorded in fingerprints {
                for operation in ["create", "other"] {
                    for withheld in [None, Some("one_time_secret")] {
                        for expires_at in [None, Some(NOW - 1), Some(NOW), Some(NOW + 1)] {
                            let record = Record {
                                operation: "create",
                                fingerprint: recorded,
                                withheld,
                                expires_at,
                            };
                            let request =
                                Request { operation, fingerprint: compare, key_expires_at: None };
                            let expired = expires_at.is_some_and(|at| at <= NOW);
                            let expected = if expired {
                                Decision::Claim
                            } else if operation == "other" {
                                Decision::Mismatch(Difference::Operation)
                            } else if compare != Compare::Skip && compare != Compare::With(recorded)
                            {
                                Decision::Mismatch(Difference::Fingerprint)
                            } else if let Some(reason) = withheld {
                                Decision::Withheld(reason)
                            } else {
                                Decision::Replay
                            };
                            assert_eq!(
                                decide(Some(&record), &request, NOW),
                                expected,
                                "{record:?} {request:?}"
                            );
                            cells += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(cells, 4 * 3 * 2 * 2 * 4);
    }

    #[test]
    fn nothing_found_is_a_claim_unless_the_key_is_too_old() {
        let record = Record {
            operation: "create",
            fingerprint: None,
            withheld: None,
            expires_at: Some(NOW),
        };
        for (key_expires_at, expected) in [
            (None, Decision::Claim),
            (Some(NOW + 1), Decision::Claim),
            (Some(NOW), Decision::Expired),
            (Some(NOW - 1), Decision::Expired),
        ] {
            let request =
                Request { operation: "create", fingerprint: Compare::Skip, key_expires_at };
            assert_eq!(decide(None, &request, NOW), expected);
            assert_eq!(decide(Some(&record), &request, NOW), expected, "an expired record");
            let live = Record { expires_at: Some(NOW + 1), ..record };
            assert_eq!(decide(Some(&live), &request, NOW), Decision::Replay);
        }
    }
}
