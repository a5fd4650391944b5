//! `idempotency_complete`: records the answer with one INSERT, in the caller's transaction.

use idempotency_core::body::is_json;
use idempotency_core::completion::{self, Completion, FINAL_STATUSES};
use idempotency_core::headers::Headers;
use idempotency_core::held::{Claim, State};
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::convert::args::{Bytes, Jsonb, Text, Uuid};
use crate::convert::datum;
use crate::convert::outcome::{Column, Outcome};
use crate::error::Error;
use crate::guc;
use crate::session::xact;
use crate::store::records::{self, Row};

/// The most that `headers` may hold, in bytes: what proxies let through, and small enough to be
/// read into memory that is not PostgreSQL's.
const MAX_HEADERS: usize = 64 * 1024;

/// The most that a name among the arguments may hold, in bytes.
const MAX_NAME: usize = 1024;

/// `sql/functions/complete.sql`.
#[pg_extern(sql = false)]
#[expect(clippy::too_many_arguments, reason = "the SQL signature")]
fn idempotency_complete<'a>(
    status: Option<i32>,
    body: Option<Text<'a>>,
    body_json: Option<Jsonb>,
    body_bytes: Option<Bytes>,
    content_type: Option<Text<'a>>,
    headers: Option<Jsonb>,
    resource_type: Option<Text<'a>>,
    resource_id: Option<Text<'a>>,
    withhold: Option<Text<'a>>,
    token: Option<Uuid>,
) -> Outcome {
    let completed = Body::read(body.as_ref(), body_json, body_bytes).and_then(|body| {
        let answer = Answer {
            status: read_status(status)?,
            headers: read_headers(headers, content_type.as_ref(), &body)?,
            body,
            resource_type: name("resource_type", resource_type.as_ref())?,
            resource_id: name("resource_id", resource_id.as_ref())?,
            withhold: name("withhold", withhold.as_ref())?,
        };
        complete(&answer, token.map(|token| token.0))
    });
    completed.unwrap_or_else(|error| error.raise())
}

/// The answer to be recorded.
struct Answer<'a> {
    status: i32,
    headers: Headers,
    body: Body,
    resource_type: Option<&'a str>,
    resource_id: Option<&'a str>,
    withhold: Option<&'a str>,
}

/// A body as `bytea`, and whether it is JSON for certain.
struct Body {
    bytea: Option<pg_sys::Datum>,
    is_json: bool,
}

fn complete(answer: &Answer<'_>, token: Option<uuid::Uuid>) -> Result<Outcome, Error> {
    if token.is_none() && xact::with_ledger(|ledger| ledger.passes_through()) {
        return Ok(answer.outcome("bypassed"));
    }
    let claim = xact::with_ledger(|ledger| ledger.find(token).cloned()).map_err(Error::not_held)?;
    let max_body = claim.policy.max_body.unwrap_or_else(guc::max_body);
    match completion::decide(
        &claim.policy,
        answer.status,
        answer.body.len(),
        max_body,
        answer.withhold,
    ) {
        Completion::Release => {
            settle(&claim, State::Released(xact::nest_level()));
            Ok(answer.outcome("released"))
        }
        Completion::Keep => record(&claim, answer, None),
        Completion::Withhold(reason) => record(&claim, answer, Some(&reason)),
    }
}

/// Marks the claim. Before the INSERT, so that a trigger there cannot complete it once more; an
/// error undoes both with the (sub)transaction.
fn settle(claim: &Claim, state: State) {
    xact::with_ledger_mut(|ledger| ledger.settle(claim.token, state));
}

fn record(claim: &Claim, answer: &Answer<'_>, withheld: Option<&str>) -> Result<Outcome, Error> {
    // SAFETY: raises 25006 where the transaction was made read-only after its claim.
    unsafe { pg_sys::PreventCommandIfReadOnly(c"idempotency_complete()".as_ptr()) };
    settle(claim, State::Completed(xact::nest_level()));
    let answer = answer.storable();
    let row = row(claim, &answer, withheld);
    records::insert(&row)?;
    Ok(super::answer::about(answer.outcome("completed"), &row))
}

fn row(claim: &Claim, answer: &Answer<'_>, withheld: Option<&str>) -> Row {
    use records::Column::*;
    let kept = withheld.is_none();
    Row::new()
        .with(Scope, Some(datum::text(&claim.identity.scope)))
        .with(KeySpace, Some(datum::text(&claim.identity.key_space)))
        .with(Key, Some(datum::text(&claim.identity.key)))
        .with(Operation, Some(datum::text(&claim.operation)))
        .with(Fingerprint, claim.fingerprint.as_deref().map(datum::bytea))
        .with(Status, Some(answer.status.into()))
        .with(Headers, answer.headers_datum().filter(|_| kept))
        .with(Body, answer.body.bytea.filter(|_| kept))
        .with(ResourceType, answer.resource_type.map(datum::text))
        .with(ResourceId, answer.resource_id.map(datum::text))
        .with(Withheld, withheld.map(datum::text))
        .with(Token, Some(datum::uuid(claim.token)))
        .with(Attempt, Some(claim.attempt.into()))
        .with(CreatedAt, Some(claim.created_at.into()))
        .with(CompletedAt, Some(super::now().into()))
}

impl Answer<'_> {
    /// Without the headers that must not be replayed.
    fn storable(&self) -> Answer<'_> {
        Answer { headers: self.headers.clone().storable(), body: Body { ..self.body }, ..*self }
    }

    fn headers_datum(&self) -> Option<pg_sys::Datum> {
        (!self.headers.is_empty()).then(|| datum::jsonb(&self.headers.to_json()))
    }

    fn outcome(&self, word: &str) -> Outcome {
        Outcome::new(word)
            .with(Column::Status, Some(self.status.into()))
            .with(Column::Headers, self.headers_datum())
            .with(Column::Body, self.body.bytea)
            .with(Column::ResourceType, self.resource_type.map(datum::text))
            .with(Column::ResourceId, self.resource_id.map(datum::text))
    }
}

impl Body {
    fn read(
        text: Option<&Text<'_>>,
        json: Option<Jsonb>,
        bytes: Option<Bytes>,
    ) -> Result<Self, Error> {
        match (text, json, bytes) {
            (None, None, None) => Ok(Self { bytea: None, is_json: false }),
            (Some(text), None, None) => {
                Ok(Self { bytea: Some(text.to_bytea()), is_json: is_json(text.as_str()) })
            }
            // SAFETY: the argument is a jsonb.
            (None, Some(json), None) => Ok(Self {
                bytea: Some(unsafe { datum::jsonb_to_bytea(json.datum()) }),
                is_json: true,
            }),
            (None, None, Some(bytes)) => Ok(Self { bytea: Some(bytes.datum()), is_json: false }),
            _ => Err(Error::argument(
                "only one body can be given",
                "More than one of body, body_json and body_bytes has a value.".into(),
                "Pass text as body, jsonb as body_json, or bytes as body_bytes.",
            )),
        }
    }

    fn len(&self) -> usize {
        // SAFETY: a bytea in memory.
        self.bytea.map_or(0, |bytea| unsafe { datum::bytes(bytea) }.len())
    }
}

fn read_status(status: Option<i32>) -> Result<i32, Error> {
    let status = status.ok_or_else(|| Error::null("status"))?;
    if FINAL_STATUSES.contains(&status) {
        return Ok(status);
    }
    Err(Error::argument(
        "status must be a final HTTP status",
        format!("It is {status}; final ones are 200 to 599."),
        "Pass the status that the client gets.",
    ))
}

fn read_headers(
    json: Option<Jsonb>,
    content_type: Option<&Text<'_>>,
    body: &Body,
) -> Result<Headers, Error> {
    let mut headers = match json {
        Some(json) => parse_headers(&json)?,
        None => Headers::default(),
    };
    let default = (body.is_json && headers.content_type().is_none()).then_some("application/json");
    if let Some(content_type) = content_type.map(Text::as_str).or(default) {
        headers.set_content_type(content_type).map_err(|fault| Error::headers(&fault))?;
    }
    Ok(headers)
}

fn parse_headers(json: &Jsonb) -> Result<Headers, Error> {
    // SAFETY: the argument is a jsonb.
    let length = unsafe { datum::bytes(json.datum()) }.len();
    if length > MAX_HEADERS {
        return Err(Error::argument(
            "headers are too large",
            format!("They take {length} bytes; {MAX_HEADERS} are allowed."),
            "Send large values in the body.",
        ));
    }
    // SAFETY: as above.
    Headers::from_json(&unsafe { datum::to_json(json.datum()) })
        .map_err(|fault| Error::headers(&fault))
}

fn name<'a>(argument: &'static str, value: Option<&Text<'a>>) -> Result<Option<&'a str>, Error> {
    let value = value.map(Text::as_str);
    match value.map(str::len) {
        Some(length) if length > MAX_NAME => Err(Error::argument(
            format!("{argument} is too long"),
            format!("It is {length} bytes long; {MAX_NAME} are allowed."),
            "Pass a name or an id.",
        )),
        _ => Ok(value),
    }
}
