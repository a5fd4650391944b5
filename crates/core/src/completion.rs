//! What complete keeps, and what it lets go.

use crate::policy::Policy;

/// The statuses that an answer to a request can have: final ones (RFC 9110 section 15). An
/// informational status is never the answer, and above 599 there are none.
pub const FINAL_STATUSES: std::ops::RangeInclusive<i32> = 200..=599;

/// What becomes of a completed claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The answer is recorded as it is.
    Keep,
    /// That the request is finished is recorded, but not the answer, for this reason.
    Withhold(String),
    /// Nothing is recorded: the status asks for the request to be sent again.
    Release,
}

/// The reason of an answer that was too large to keep.
pub const TOO_LARGE: &str = "response_too_large";

/// Decides what is recorded of an answer.
///
/// `body_len` and `max_body` are bytes; `withhold` is the caller's reason for keeping nothing.
pub fn decide(
    policy: &Policy,
    status: i32,
    body_len: usize,
    max_body: usize,
    withhold: Option<&str>,
) -> Completion {
    if !policy.kept.contains(status) {
        return Completion::Release;
    }
    match withhold {
        Some(reason) => Completion::Withhold(reason.into()),
        None if body_len > max_body => Completion::Withhold(TOO_LARGE.into()),
        None => Completion::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(status: i32, body_len: usize, withhold: Option<&str>) -> Completion {
        decide(&Policy::default(), status, body_len, 100, withhold)
    }

    #[test]
    fn a_kept_status_is_recorded() {
        assert_eq!(kept(201, 100, None), Completion::Keep);
        assert_eq!(kept(404, 0, None), Completion::Keep);
    }

    #[test]
    fn a_status_to_retry_is_let_go_whatever_else() {
        assert_eq!(kept(503, 0, None), Completion::Release);
        assert_eq!(kept(429, 101, Some("one_time_secret")), Completion::Release);
    }

    #[test]
    fn one_byte_too_many_is_withheld() {
        assert_eq!(kept(200, 101, None), Completion::Withhold(TOO_LARGE.into()));
    }

    #[test]
    fn the_callers_reason_comes_first() {
        assert_eq!(
            kept(200, 101, Some("one_time_secret")),
            Completion::Withhold("one_time_secret".into())
        );
    }
}
