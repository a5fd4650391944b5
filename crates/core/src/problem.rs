//! Whole HTTP answers that no work produced: refusals (RFC 9457) and the tombstone.

use serde_json::{Map, Value, json};

use crate::completion::TOO_LARGE;
use crate::decide::Difference;
use crate::headers::Headers;
use crate::key;
use crate::policy::Policy;

/// Why a call gets neither a claim nor a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<'a> {
    /// Somebody else holds the key; seconds after which a retry makes sense.
    InProgress(i32),
    /// The key belongs to another request.
    Mismatch(Difference),
    /// The key is missing or malformed.
    Invalid(key::Fault),
    /// The answer was not kept, for this reason.
    Withheld(&'a str),
    /// The key is older than its record would have been kept.
    Expired,
}

/// A complete HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: i32,
    /// The header fields.
    pub headers: Headers,
    /// The body, in UTF-8.
    pub body: String,
}

struct Problem {
    slug: &'static str,
    status: i32,
    title: &'static str,
    detail: String,
    more: Map<String, Value>,
}

/// The problem answer for a refusal. `type_base` is what the problem's `type` starts with, empty
/// for `about:blank`.
pub fn refuse(refusal: Refusal<'_>, policy: &Policy, type_base: &str) -> Answer {
    let problem = describe(refusal, policy);
    let mut headers = Headers::default();
    headers.set("Content-Type", "application/problem+json");
    match refusal {
        Refusal::InProgress(seconds) => headers.set("Retry-After", &seconds.to_string()),
        Refusal::Withheld(_) => headers.set(&policy.replay_header, "true"),
        Refusal::Mismatch(_) | Refusal::Invalid(_) | Refusal::Expired => {}
    }
    Answer { status: problem.status, headers, body: problem.into_body(type_base) }
}

/// The answer to a retry whose resource is gone: final, nothing is created again.
pub fn tombstone(resource_type: &str, resource_id: &str, policy: &Policy) -> Answer {
    let mut headers = Headers::default();
    headers.set("Content-Type", "application/json");
    headers.set(&policy.replay_header, "true");
    let body = json!({
        "replayed": true,
        "resource_deleted": true,
        "resource_type": resource_type,
        "resource_id": resource_id,
    });
    Answer { status: 200, headers, body: body.to_string() }
}

fn describe(refusal: Refusal<'_>, policy: &Policy) -> Problem {
    match refusal {
        Refusal::InProgress(_) => in_progress(policy),
        Refusal::Mismatch(difference) => mismatch(difference, policy),
        Refusal::Invalid(fault) => invalid(fault, policy),
        Refusal::Withheld(reason) => withheld(reason),
        Refusal::Expired => expired(),
    }
}

fn in_progress(policy: &Policy) -> Problem {
    Problem {
        slug: "in_progress",
        status: policy.in_progress_status,
        title: "Request in progress",
        detail: "A request with this idempotency key is still being executed.".into(),
        more: members(json!({"hint": "Send the same request again later."})),
    }
}

fn mismatch(difference: Difference, policy: &Policy) -> Problem {
    let what = match difference {
        Difference::Operation => "for another operation",
        Difference::Fingerprint => "with another request",
    };
    Problem {
        slug: "mismatch",
        status: policy.mismatch_status,
        title: "Idempotency key used before",
        detail: format!("This idempotency key was used {what}."),
        more: members(json!({"hint": "Use a new key for each new request."})),
    }
}

fn invalid(fault: key::Fault, policy: &Policy) -> Problem {
    let errors = json!([{"pointer": "#header/Idempotency-Key", "code": fault.code(), "detail": fault.to_string()}]);
    Problem {
        slug: "invalid",
        status: policy.invalid_status,
        title: match fault {
            key::Fault::Missing => "Idempotency key missing",
            _ => "Idempotency key not valid",
        },
        detail: fault.to_string(),
        more: members(json!({"errors": errors})),
    }
}

fn withheld(reason: &str) -> Problem {
    let (detail, hint) = match reason {
        "one_time_secret" => (
            "The request was executed; its answer carried a one-time secret, which is not kept.",
            "If the secret was lost, create a new one under a new key.",
        ),
        TOO_LARGE => (
            "The request was executed; its answer was too large to keep.",
            "Read the result where the operation left it.",
        ),
        _ => (
            "The request was executed; its answer is not kept.",
            "Read the result where the operation left it.",
        ),
    };
    Problem {
        slug: "withheld",
        status: 409,
        title: "Answer not kept",
        detail: detail.into(),
        more: members(json!({"reason": reason, "hint": hint})),
    }
}

fn expired() -> Problem {
    Problem {
        slug: "expired",
        status: 410,
        title: "Idempotency key expired",
        detail: "This idempotency key is older than requests are remembered.".into(),
        more: members(
            json!({"hint": "Find out whether the request was executed before sending it under a new key."}),
        ),
    }
}

fn members(json: Value) -> Map<String, Value> {
    match json {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

impl Problem {
    fn into_body(self, type_base: &str) -> String {
        let kind = if type_base.is_empty() {
            "about:blank".into()
        } else {
            format!("{type_base}{}", self.slug)
        };
        let mut body = members(json!({
            "type": kind, "title": self.title, "status": self.status, "detail": self.detail,
        }));
        body.extend(self.more);
        Value::Object(body).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(answer: &Answer) -> Value {
        serde_json::from_str(&answer.body).unwrap()
    }

    fn refused(refusal: Refusal<'_>) -> (Value, Value) {
        let answer = refuse(refusal, &Policy::default(), "");
        assert_eq!(body(&answer)["status"], answer.status);
        assert_eq!(body(&answer)["type"], "about:blank");
        (body(&answer), answer.headers.to_json())
    }

    #[test]
    fn in_progress_says_when_to_retry() {
        let (body, headers) = refused(Refusal::InProgress(7));
        assert_eq!(body["status"], 409);
        assert_eq!(
            headers,
            json!({"Content-Type": "application/problem+json", "Retry-After": "7"})
        );
    }

    #[test]
    fn mismatch_says_in_what() {
        let (body, headers) = refused(Refusal::Mismatch(Difference::Fingerprint));
        assert_eq!(body["status"], 422);
        assert!(body["detail"].as_str().unwrap().contains("another request"));
        assert_eq!(headers, json!({"Content-Type": "application/problem+json"}));
        let (body, _) = refused(Refusal::Mismatch(Difference::Operation));
        assert!(body["detail"].as_str().unwrap().contains("another operation"));
    }

    #[test]
    fn invalid_points_at_the_header() {
        for (fault, code) in [
            (key::Fault::Missing, "missing"),
            (key::Fault::Several, "invalid_format"),
            (key::Fault::BadlyQuoted, "invalid_format"),
            (key::Fault::Characters, "invalid_format"),
            (key::Fault::Format(key::Format::Uuid), "invalid_format"),
            (key::Fault::InTheFuture, "invalid_format"),
            (key::Fault::TooShort(8), "too_short"),
            (key::Fault::TooLong(64), "too_long"),
            (key::Fault::TooManyBytes, "too_long"),
        ] {
            let (body, _) = refused(Refusal::Invalid(fault));
            assert_eq!(body["status"], 400);
            assert_eq!(body["errors"][0]["pointer"], "#header/Idempotency-Key");
            assert_eq!(body["errors"][0]["code"], code);
            assert_eq!(body["title"] == "Idempotency key missing", code == "missing");
            assert_eq!(body["detail"], body["errors"][0]["detail"]);
        }
    }

    #[test]
    fn withheld_is_a_replay_with_a_reason() {
        for reason in ["one_time_secret", TOO_LARGE, "streamed"] {
            let (body, headers) = refused(Refusal::Withheld(reason));
            assert_eq!((&body["status"], &body["reason"]), (&json!(409), &json!(reason)));
            assert_eq!(headers["Idempotent-Replayed"], "true");
        }
        let (body, _) = refused(Refusal::Withheld("one_time_secret"));
        assert!(body["hint"].as_str().unwrap().contains("create a new one"));
    }

    #[test]
    fn expired_is_gone() {
        assert_eq!(refused(Refusal::Expired).0["status"], 410);
    }

    #[test]
    fn statuses_and_type_can_be_set() {
        let policy = Policy {
            invalid_status: 422,
            mismatch_status: 409,
            in_progress_status: 425,
            ..Policy::default()
        };
        let status = |refusal| refuse(refusal, &policy, "").status;
        assert_eq!(status(Refusal::Invalid(key::Fault::Missing)), 422);
        assert_eq!(status(Refusal::Mismatch(Difference::Operation)), 409);
        assert_eq!(status(Refusal::InProgress(1)), 425);
        let answer = refuse(Refusal::Expired, &policy, "https://example.com/problems#");
        assert_eq!(body(&answer)["type"], "https://example.com/problems#expired");
    }

    #[test]
    fn the_tombstone() {
        let answer = tombstone("order", "17", &Policy::default());
        assert_eq!(answer.status, 200);
        let expected = json!({"replayed": true, "resource_deleted": true, "resource_type": "order", "resource_id": "17"});
        assert_eq!(body(&answer), expected);
        assert_eq!(
            answer.headers.to_json(),
            json!({"Content-Type": "application/json", "Idempotent-Replayed": "true"})
        );
    }
}
