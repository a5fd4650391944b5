//! The claim table: what a call is answered, given what is recorded under its key.
//!
//! | found | same operation | same fingerprint | further | decision |
//! |---|---|---|---|---|
//! | nothing, or an expired record | | | the key is too late | [`Decision::Expired`] |
//! | nothing, or an expired record | | | | [`Decision::Claim`] |
//! | a record | no | | | [`Decision::Mismatch`] |
//! | a record | yes | no | | [`Decision::Mismatch`] |
//! | a lease | yes | yes | by the caller's own token | [`Decision::Resume`] |
//! | a lease | yes | yes | it is live | [`Decision::InProgress`] |
//! | a lease | yes | yes | it has run out | [`Decision::TakeOver`], or [`Decision::OnHold`] by setting |
//! | a finished record | yes | yes | the answer was not kept | [`Decision::Withheld`] |
//! | a finished record | yes | yes | | [`Decision::Replay`] |
//!
//! The table is the same on every path: at first sight, after a wait, for claim and for replay.

use uuid::Uuid;

use crate::Micros;
use crate::lease::Lease;
use crate::policy::OnLeaseExpiry;
use crate::record::{Record, State};

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
    /// From when on the key is refused as too late; `None`: late retries are executed.
    pub refused_from: Option<Micros>,
    /// The token of the caller's own lease.
    pub token: Option<Uuid>,
    /// What happens to a lease that has run out.
    pub on_lease_expiry: OnLeaseExpiry,
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
    /// The caller has this request on lease: go on with it.
    Resume,
    /// The lease of whoever had this request has run out: go on with it.
    TakeOver,
    /// Somebody has this request on lease; seconds until that runs out.
    InProgress(i32),
    /// The lease has run out, and the operation wants an operator to settle what became of it.
    OnHold,
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
    let Some(record) = found.filter(|record| !record.is_expired(request.refused_from, now)) else {
        let is_late = request.refused_from.is_some_and(|refused_from| refused_from <= now);
        return if is_late { Decision::Expired } else { Decision::Claim };
    };
    if let Some(difference) = difference(record, request) {
        return Decision::Mismatch(difference);
    }
    match record.state {
        State::Leased(lease) => leased(lease, request, now),
        State::Finished { withheld: Some(reason), .. } => Decision::Withheld(reason),
        State::Finished { withheld: None, .. } => Decision::Replay,
    }
}

fn leased<'a>(lease: Lease, request: &Request<'_>, now: Micros) -> Decision<'a> {
    if request.token == Some(lease.token) {
        return Decision::Resume;
    }
    match (lease.is_expired(now), request.on_lease_expiry) {
        (false, _) => Decision::InProgress(lease.seconds_left(now)),
        (true, OnLeaseExpiry::Retry) => Decision::TakeOver,
        (true, OnLeaseExpiry::Hold) => Decision::OnHold,
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

    const NOW: Micros = 1_000_000;
    const OWN: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    const REQUEST: Request<'_> = Request {
        operation: "create",
        fingerprint: Compare::Skip,
        refused_from: None,
        token: None,
        on_lease_expiry: OnLeaseExpiry::Retry,
    };

    fn finished<'a>(withheld: Option<&'a str>, expires_at: Option<Micros>) -> State<'a> {
        State::Finished { withheld, expires_at }
    }

    fn leased(deadline: Micros) -> State<'static> {
        State::Leased(Lease { token: OTHER, deadline })
    }

    fn record(state: State<'_>) -> Record<'_> {
        Record { operation: "create", fingerprint: None, state }
    }

    /// States, and what becomes of a request that is the same as the recorded one.
    fn states() -> [(State<'static>, Decision<'static>); 8] {
        [
            (finished(None, None), Decision::Replay),
            (finished(None, Some(NOW + 1)), Decision::Replay),
            (finished(Some("secret"), None), Decision::Withheld("secret")),
            (finished(None, Some(NOW)), Decision::Claim),
            (finished(Some("secret"), Some(NOW - 1)), Decision::Claim),
            (leased(NOW + 1), Decision::InProgress(1)),
            (leased(NOW), Decision::TakeOver),
            (leased(NOW - 1), Decision::TakeOver),
        ]
    }

    /// Every state, before, at and after its deadline, against every pair of fingerprints and both
    /// operations.
    #[test]
    fn the_whole_table() {
        let fingerprints = [None, Some(&[1u8; 32][..]), Some(&[2u8; 32][..])];
        let mut cells = 0;
        for (state, when_same) in states() {
            for recorded in fingerprints {
                for compare in fingerprints.map(Compare::With).into_iter().chain([Compare::Skip]) {
                    for operation in ["create", "other"] {
                        let record = Record { fingerprint: recorded, ..record(state) };
                        let request = Request { operation, fingerprint: compare, ..REQUEST };
                        let expected = if when_same == Decision::Claim {
                            Decision::Claim
                        } else if operation == "other" {
                            Decision::Mismatch(Difference::Operation)
                        } else if compare != Compare::Skip && compare != Compare::With(recorded) {
                            Decision::Mismatch(Difference::Fingerprint)
                        } else {
                            when_same
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
        assert_eq!(cells, 8 * 3 * 4 * 2);
    }

    #[test]
    fn nothing_found_is_a_claim_unless_the_key_is_too_late() {
        for (refused_from, expected) in [
            (None, Decision::Claim),
            (Some(NOW + 1), Decision::Claim),
            (Some(NOW), Decision::Expired),
            (Some(NOW - 1), Decision::Expired),
        ] {
            let request = Request { refused_from, ..REQUEST };
            assert_eq!(decide(None, &request, NOW), expected);
            let expired = record(finished(None, Some(NOW)));
            // A key that is refused, but not yet, is not claimed for the second time.
            let again = match refused_from {
                Some(refused_from) if refused_from > NOW => Decision::Replay,
                _ => expected,
            };
            assert_eq!(decide(Some(&expired), &request, NOW), again);
            let live = record(finished(None, Some(NOW + 1)));
            assert_eq!(decide(Some(&live), &request, NOW), Decision::Replay);
        }
    }

    #[test]
    fn the_own_token_resumes_before_and_after_the_deadline() {
        for deadline in [NOW - 1, NOW, NOW + 1] {
            let record = record(State::Leased(Lease { token: OWN, deadline }));
            for on_lease_expiry in [OnLeaseExpiry::Retry, OnLeaseExpiry::Hold] {
                let request = Request { token: Some(OWN), on_lease_expiry, ..REQUEST };
                assert_eq!(decide(Some(&record), &request, NOW), Decision::Resume);
            }
        }
    }

    #[test]
    fn a_token_that_lost_is_like_none() {
        let request = Request { token: Some(OWN), ..REQUEST };
        assert_eq!(decide(Some(&record(leased(NOW + 1))), &request, NOW), Decision::InProgress(1));
        assert_eq!(decide(Some(&record(leased(NOW))), &request, NOW), Decision::TakeOver);
    }

    #[test]
    fn a_lease_on_hold_stays_blocked() {
        let request = Request { on_lease_expiry: OnLeaseExpiry::Hold, ..REQUEST };
        assert_eq!(decide(Some(&record(leased(NOW + 1))), &request, NOW), Decision::InProgress(1));
        assert_eq!(decide(Some(&record(leased(NOW))), &request, NOW), Decision::OnHold);
    }

    #[test]
    fn the_time_left_is_in_seconds() {
        let record = record(leased(NOW + 1_500_000));
        assert_eq!(decide(Some(&record), &REQUEST, NOW), Decision::InProgress(2));
    }
}
