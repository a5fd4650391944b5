//! An operation's settings.

use serde_json::{Map, Value};

use crate::key;
use crate::late::Past;

/// Whether the operation looks at keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A call without a key runs as if there were no keys.
    Optional,
    /// A call without a key is invalid.
    Required,
    /// Keys have no effect.
    Ignored,
    /// A call with a key is an error: a replay of this operation would be unsafe.
    Forbidden,
}

/// What a call without a scope is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// It runs as if there were no keys.
    Bypass,
    /// It is an error.
    Error,
}

/// What is done with fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FingerprintRule {
    /// Recorded and compared where given.
    Optional,
    /// A call without one is an error.
    Required,
    /// Neither recorded nor compared.
    Ignored,
}

/// What is recorded of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Status, headers and body.
    Response,
    /// Status and the pointer to the created resource.
    Resource,
}

/// What a body has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// Anything.
    Any,
    /// JSON.
    Json,
    /// JSON without null members, null elements, inexact integers and duplicate members.
    StrictJson,
}

/// The statuses that an operation keeps, as inclusive ranges in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet(pub Vec<(i32, i32)>);

impl StatusSet {
    /// Whether a status is in the set.
    pub fn contains(&self, status: i32) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }
}

/// What is done with a key that comes after its record would have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateRetry {
    /// It is executed, as if it were new.
    Execute,
    /// It is refused. Only a UUIDv7 tells its own age.
    Refuse,
}

/// What happens to a leased claim whose lease has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLeaseExpiry {
    /// The next claim takes over.
    Retry,
    /// It stays blocked until an operator settles it.
    Hold,
}

/// A length of time as PostgreSQL's `interval` has it (timestamp.h): how long months are depends on
/// what they are added to ([`crate::calendar::plus`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

/// How long a record is kept after its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// For ever.
    Forever,
    /// For this long.
    For(Span),
}

/// All settings of one operation. The default is what an operation without a row gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether the operation looks at keys.
    pub mode: Mode,
    /// What a call without a scope is.
    pub anonymous: Anonymous,
    /// The key space that the operation shares with others; `None`: its own.
    pub key_space: Option<String>,
    /// What keys look like.
    pub key: key::Rules,
    /// What is done with fingerprints.
    pub fingerprint: FingerprintRule,
    /// What is recorded.
    pub form: Form,
    /// What a body has to be.
    pub body_format: BodyFormat,
    /// The statuses that are recorded.
    pub kept: StatusSet,
    /// The largest body that is recorded, in bytes; `None`: as the server is configured.
    pub max_body: Option<usize>,
    /// How long to wait for the holder of a key, in milliseconds, -1 without end; `None`: as the
    /// server is configured.
    pub wait_ms: Option<i32>,
    /// How many sessions may wait for one key; `None`: any number.
    pub max_waiters: Option<i32>,
    /// How long a record is kept.
    pub retention: Retention,
    /// How long records were kept earlier, as far as it matters, the oldest first.
    pub past: Vec<Past>,
    /// What is done with a key that comes too late.
    pub late_retry: LateRetry,
    /// What happens to a lease that has run out.
    pub on_lease_expiry: OnLeaseExpiry,
    /// A function that has to agree before a success is recorded: schema and name.
    pub completion_check: Option<String>,
    /// The header that marks a replay.
    pub replay_header: String,
    /// The status of an answer to a malformed or missing key.
    pub invalid_status: i32,
    /// The status of an answer to another request under the same key.
    pub mismatch_status: i32,
    /// The status of an answer while the key is held.
    pub in_progress_status: i32,
    /// What the policy was read from: the settings that are set.
    pub set: Map<String, Value>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Optional,
            anonymous: Anonymous::Bypass,
            key_space: None,
            key: key::Rules::default(),
            fingerprint: FingerprintRule::Optional,
            form: Form::Response,
            body_format: BodyFormat::Any,
            // Without 408, 425 and 429: these ask the client to send the same request again.
            kept: StatusSet(vec![(200, 407), (409, 424), (426, 428), (430, 499)]),
            max_body: None,
            wait_ms: None,
            max_waiters: None,
            retention: Retention::Forever,
            past: Vec::new(),
            late_retry: LateRetry::Execute,
            on_lease_expiry: OnLeaseExpiry::Retry,
            completion_check: None,
            replay_header: "Idempotent-Replayed".into(),
            invalid_status: 400,
            mismatch_status: 422,
            in_progress_status: 409,
            set: Map::new(),
        }
    }
}

impl Policy {
    /// The key space of an operation's keys.
    pub fn key_space<'a>(&'a self, operation: &'a str) -> &'a str {
        self.key_space.as_deref().unwrap_or(operation)
    }

    /// What holds for a lease that was claimed under these settings and goes on under others: waits,
    /// retention and what becomes of leases that run out are the operation's, the answer's rules stay.
    #[must_use]
    pub fn of_a_lease(self, now: &Policy) -> Self {
        Self {
            wait_ms: now.wait_ms,
            max_waiters: now.max_waiters,
            retention: now.retention,
            past: now.past.clone(),
            late_retry: now.late_retry,
            on_lease_expiry: now.on_lease_expiry,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_keeps_final_answers_only() {
        let kept = Policy::default().kept;
        for status in [200, 201, 299, 302, 400, 404, 407, 409, 422, 424, 426, 428, 430, 499] {
            assert!(kept.contains(status), "{status}");
        }
        for status in [199, 408, 425, 429, 500, 503, 599] {
            assert!(!kept.contains(status), "{status}");
        }
    }

    #[test]
    fn a_lease_keeps_what_decides_its_answer() {
        let then = Policy {
            form: Form::Resource,
            on_lease_expiry: OnLeaseExpiry::Retry,
            ..Policy::default()
        };
        let now =
            Policy { on_lease_expiry: OnLeaseExpiry::Hold, wait_ms: Some(5), ..Policy::default() };
        let both = then.of_a_lease(&now);
        assert_eq!((both.form, both.on_lease_expiry), (Form::Resource, OnLeaseExpiry::Hold));
        assert_eq!(both.wait_ms, Some(5));
    }

    #[test]
    fn an_operation_is_its_own_key_space_unless_it_shares_one() {
        let own = Policy::default();
        assert_eq!(own.key_space("POST /orders"), "POST /orders");
        let shared = Policy { key_space: Some("orders".into()), ..own };
        assert_eq!(shared.key_space("POST /orders"), "orders");
    }
}
