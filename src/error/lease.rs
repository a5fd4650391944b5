//! What goes wrong with leases, and with the requests that are on one.

use idempotency_core::identity::Identity;

use super::{Error, named};

impl Error {
    /// 22023: a lease needs a positive length.
    pub fn lease_ms(lease_ms: i32) -> Self {
        Self::argument(
            "lease_ms must be positive",
            format!("It is {lease_ms}."),
            "Pass how many milliseconds the work may take at most.",
        )
    }

    /// 22023: an argument that only a lease has.
    pub fn only_for_leases(argument: &str) -> Self {
        Self::argument(
            format!("{argument} needs lease_ms"),
            format!(
                "Without a lease, a claim ends with its transaction, and {argument} has no meaning."
            ),
            "Pass lease_ms too, or leave the argument out.",
        )
    }

    /// 22023: the caller's own token belongs to something else.
    pub fn token_in_use() -> Self {
        Self::argument(
            "token is in use",
            "Another claim has this token.".into(),
            "Make a new UUID for each claim.",
        )
    }

    /// IK002: nobody has this token.
    pub fn unknown_token() -> Self {
        Self::new(
            "IK002",
            "claim not held",
            "No lease has this token.".into(),
            "Pass the token that idempotency_claim returned for a claim with lease_ms.",
        )
    }

    /// IK005: somebody else has the request now.
    pub fn lease_lost(identity: &Identity, why: &'static str) -> Self {
        Self::new(
            "IK005",
            "lease lost",
            format!("The lease of {} {why}.", named(identity)),
            "Stop working on this request and roll back; send the answer that idempotency_replay returns, if any.",
        )
    }

    /// 22023: a status that would settle nothing.
    pub fn status_not_kept(status: i32) -> Self {
        Self::argument(
            "status must be one that the operation keeps",
            format!("It is {status}, which says that the request may be sent again."),
            "Pass a final status, or none so that the request may be executed again.",
        )
    }

    /// IK005: the request was erased, and nothing is known of it any more.
    pub fn lease_erased() -> Self {
        Self::new(
            "IK005",
            "lease lost",
            "The request of this lease was erased.".into(),
            "Stop working on this request and roll back.",
        )
    }

    /// 55006: a request that somebody works on is to be erased.
    pub fn live_lease(identity: &Identity) -> Self {
        Self::new(
            "55006",
            "cannot erase a request on a live lease",
            format!("There is a live lease on {}.", named(identity)),
            "Wait until it is completed, or pass force => true, which takes it from its worker.",
        )
    }

    /// 54000: too many requests on lease for one call.
    pub fn too_many_leases(limit: usize) -> Self {
        Self::new(
            "54000",
            "too many requests on lease",
            format!("More than {limit} of the requests to be erased are not finished."),
            "Complete or settle them first, or erase one operation or one key at a time.",
        )
    }

    /// 55000: there is nothing for an operator to settle.
    pub fn nothing_to_settle(identity: &Identity, why: &'static str) -> Self {
        Self::new(
            "55000",
            "nothing to settle",
            format!("There {why} {}.", named(identity)),
            "The view idempotency.abandoned lists the requests that wait for this.",
        )
    }
}
