//! What complete keeps, refuses, and lets go.

use std::borrow::Cow;
use std::fmt;

use crate::body;
use crate::policy::{BodyFormat, Form, Policy};

/// The statuses that an answer to a request can have: final ones (RFC 9110 section 15). An
/// informational status is never the answer, and above 599 there are none.
pub const FINAL_STATUSES: std::ops::RangeInclusive<i32> = 200..=599;

/// The statuses of a success.
const SUCCESS: std::ops::RangeInclusive<i32> = 200..=299;

/// The reason of an answer that was too large to keep.
pub const TOO_LARGE: &str = "response_too_large";

/// An answer, as far as completion decides about it.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// HTTP status.
    pub status: i32,
    /// The length of the body, in bytes; 0 without one.
    pub body_len: usize,
    /// The body as text, where there is one and it is text.
    pub body: BodyText<'a>,
    /// Whether it has a pointer to a resource.
    pub has_pointer: bool,
    /// The caller's reason for keeping nothing.
    pub withhold: Option<&'a str>,
}

/// A body, as far as JSON is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyText<'a> {
    /// There is none.
    None,
    /// Text.
    Text(&'a str),
    /// Bytes that are not UTF-8.
    Binary,
}

/// What becomes of a completed claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The answer is recorded.
    Keep,
    /// That the request is finished is recorded, but not the answer, for this reason.
    Withhold(String),
    /// Nothing is recorded: the status asks for the request to be sent again, or the answer is not
    /// one that the operation keeps.
    Release,
}

/// A decision, and the body where it has to be another than the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What becomes of the claim.
    pub completion: Completion,
    /// The body to send and to record instead.
    pub rewritten: Option<String>,
}

/// Why an answer is refused, so that the whole unit rolls back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A success whose body is not what the operation promises.
    Body(body::Fault),
    /// A success without a pointer where only the pointer is kept.
    NoPointer,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Body(fault) => fault.fmt(f),
            Refusal::NoPointer => f.write_str(
                "The operation keeps a pointer to the created resource, and resource_type or resource_id is missing.",
            ),
        }
    }
}

/// Whether a status is a success.
pub fn is_success(status: i32) -> bool {
    SUCCESS.contains(&status)
}

/// Decides what is recorded of an answer. `max_body` is bytes.
///
/// # Errors
/// A [`Refusal`] of a success that a replay could not repeat.
pub fn decide(policy: &Policy, answer: &Answer<'_>, max_body: usize) -> Result<Decided, Refusal> {
    let released = Decided { completion: Completion::Release, rewritten: None };
    if !policy.kept.contains(answer.status) {
        return Ok(released);
    }
    let rewritten = match rewrite(policy.body_format, answer.body) {
        Ok(rewritten) => rewritten,
        Err(fault) if is_success(answer.status) => return Err(Refusal::Body(fault)),
        Err(_) => return Ok(released),
    };
    if policy.form == Form::Resource && is_success(answer.status) && !answer.has_pointer {
        return Err(Refusal::NoPointer);
    }
    let body_len = rewritten.as_ref().map_or(answer.body_len, String::len);
    let too_large = policy.form == Form::Response && body_len > max_body;
    let completion = match answer.withhold {
        Some(reason) => Completion::Withhold(reason.into()),
        None if too_large => Completion::Withhold(TOO_LARGE.into()),
        None => Completion::Keep,
    };
    Ok(Decided { completion, rewritten })
}

/// The body as the format wants it, where that is not how it came.
fn rewrite(format: BodyFormat, body: BodyText<'_>) -> Result<Option<String>, body::Fault> {
    match (format, body) {
        (BodyFormat::Any, _) | (_, BodyText::None) => Ok(None),
        (_, BodyText::Binary) => Err(body::Fault::NotJson),
        (BodyFormat::Json, BodyText::Text(text)) if body::is_json(text) => Ok(None),
        (BodyFormat::Json, BodyText::Text(_)) => Err(body::Fault::NotJson),
        (BodyFormat::StrictJson, BodyText::Text(text)) => match body::strict_json(text)? {
            Cow::Owned(rewritten) => Ok(Some(rewritten)),
            Cow::Borrowed(_) => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Answer<'_> = Answer {
        status: 201,
        body_len: 100,
        body: BodyText::None,
        has_pointer: false,
        withhold: None,
    };

    fn decided(policy: Policy, answer: Answer<'_>) -> Result<Completion, Refusal> {
        decide(&policy, &answer, 100).map(|decided| decided.completion)
    }

    fn by_default(answer: Answer<'_>) -> Result<Completion, Refusal> {
        decided(Policy::default(), answer)
    }

    #[test]
    fn a_kept_status_is_recorded() {
        assert_eq!(by_default(OK), Ok(Completion::Keep));
        assert_eq!(by_default(Answer { status: 404, body_len: 0, ..OK }), Ok(Completion::Keep));
    }

    #[test]
    fn a_status_to_retry_is_let_go_whatever_else() {
        assert_eq!(by_default(Answer { status: 503, ..OK }), Ok(Completion::Release));
        let large_secret =
            Answer { status: 429, body_len: 101, withhold: Some("one_time_secret"), ..OK };
        assert_eq!(by_default(large_secret), Ok(Completion::Release));
    }

    #[test]
    fn one_byte_too_many_is_withheld() {
        let large = Answer { body_len: 101, ..OK };
        assert_eq!(by_default(large), Ok(Completion::Withhold(TOO_LARGE.into())));
    }

    #[test]
    fn the_callers_reason_comes_first() {
        let secret = Answer { body_len: 101, withhold: Some("one_time_secret"), ..OK };
        assert_eq!(by_default(secret), Ok(Completion::Withhold("one_time_secret".into())));
    }

    #[test]
    fn json_operations_refuse_a_success_and_let_an_error_go() {
        for format in [BodyFormat::Json, BodyFormat::StrictJson] {
            for (body, is_fine) in [
                (BodyText::None, true),
                (BodyText::Text("{\"a\":1}"), true),
                (BodyText::Text("hello"), false),
                (BodyText::Text(""), false),
                (BodyText::Binary, false),
            ] {
                let policy = || Policy { body_format: format, ..Policy::default() };
                let success = decided(policy(), Answer { body, ..OK });
                let error = decided(policy(), Answer { body, status: 409, ..OK });
                let (refused, released) =
                    (Err(Refusal::Body(body::Fault::NotJson)), Ok(Completion::Release));
                assert_eq!(
                    success,
                    if is_fine { Ok(Completion::Keep) } else { refused },
                    "{format:?} {body:?}"
                );
                assert_eq!(
                    error,
                    if is_fine { Ok(Completion::Keep) } else { released },
                    "{format:?} {body:?}"
                );
            }
        }
    }

    #[test]
    fn strict_json_is_stricter() {
        let answer = Answer { body: BodyText::Text("[null]"), ..OK };
        let policy = |body_format| Policy { body_format, ..Policy::default() };
        assert_eq!(decided(policy(BodyFormat::Any), answer), Ok(Completion::Keep));
        assert_eq!(decided(policy(BodyFormat::Json), answer), Ok(Completion::Keep));
        let refused = Err(Refusal::Body(body::Fault::NullElement));
        assert_eq!(decided(policy(BodyFormat::StrictJson), answer), refused);
    }

    #[test]
    fn null_members_are_neither_sent_nor_kept() {
        let policy = Policy { body_format: BodyFormat::StrictJson, ..Policy::default() };
        let rewritten = |text: &'static str| {
            let answer = Answer { body: BodyText::Text(text), body_len: text.len(), ..OK };
            decide(&policy, &answer, 7).unwrap()
        };
        let expected =
            Decided { completion: Completion::Keep, rewritten: Some("{\"a\":1}".into()) };
        assert_eq!(rewritten("{\"a\":1,\"b\":null}"), expected);
        assert_eq!(rewritten("{\"a\": 1}").rewritten, None);
        assert_eq!(rewritten("{\"a\": 1}").completion, Completion::Withhold(TOO_LARGE.into()));
    }

    #[test]
    fn the_resource_form_needs_a_pointer_and_keeps_no_body() {
        let policy = || Policy { form: Form::Resource, ..Policy::default() };
        assert_eq!(decided(policy(), OK), Err(Refusal::NoPointer));
        let pointed = Answer { has_pointer: true, body_len: 101, ..OK };
        assert_eq!(decided(policy(), pointed), Ok(Completion::Keep));
        assert_eq!(decided(policy(), Answer { status: 404, ..OK }), Ok(Completion::Keep));
        assert_eq!(decided(policy(), Answer { status: 500, ..OK }), Ok(Completion::Release));
    }

    #[test]
    fn success_is_2xx() {
        assert!(is_success(200) && is_success(299) && !is_success(300) && !is_success(199));
    }

    #[test]
    fn messages_name_the_fault() {
        assert!(Refusal::NoPointer.to_string().contains("pointer"));
        assert!(Refusal::Body(body::Fault::NullElement).to_string().contains("null element"));
    }
}
