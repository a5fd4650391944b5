//! `idempotency_complete`: records the answer with one INSERT, in the caller's transaction.

use std::ffi::CStr;

use idempotency_core::body::MAX_READ;
use idempotency_core::completion::{self, Completion, Decided, is_success};
use idempotency_core::held::{Claim, NotHeld, State};
use idempotency_core::policy::{BodyFormat, Form};
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::check::completion_check;
use super::counted::counted;
use super::given::{self, Answer};
use super::lease;
use crate::convert::args::{Bytes, Jsonb, Text, Uuid};
use crate::convert::datum;
use crate::convert::outcome::Outcome;
use crate::error::Error;
use crate::session::xact;
use crate::store::leases;
use crate::store::records::{self, Row};
use crate::store::resources::{Existence, existence};
use crate::{clock, guc, memory};

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
    let arguments = given::Arguments {
        status,
        body: given::Body {
            text: body.as_ref(),
            json: body_json.as_ref(),
            bytes: body_bytes.as_ref(),
        },
        content_type: content_type.as_ref(),
        headers: headers.as_ref(),
        resource_type: resource_type.as_ref(),
        resource_id: resource_id.as_ref(),
        withhold: withhold.as_ref(),
    };
    let token = token.map(|token| token.0);
    let completed = arguments.read().and_then(|answer| complete(answer, token));
    completed.unwrap_or_else(|error| error.raise())
}

fn complete(answer: Answer<'_>, token: Option<uuid::Uuid>) -> Result<Outcome, Error> {
    if token.is_none() && xact::with_ledger(|ledger| ledger.passes_through()) {
        return Ok(answer.outcome(c"bypassed"));
    }
    let claim = claim(c"idempotency_complete()", token)?;
    counted(&claim.operation, finish(&claim, answer))
}

/// The claim to act on. A token that is not of this transaction may be that of a lease.
///
/// # Errors
/// IK002, IK005, 22023, 55P03.
pub fn claim(command: &CStr, token: Option<uuid::Uuid>) -> Result<Claim, Error> {
    xact::refuse_parallel(command);
    match (xact::with_ledger(|ledger| ledger.find(token).cloned()), token) {
        (Ok(claim), _) => Ok(claim),
        (Err(NotHeld::UnknownToken), Some(token)) => lease::held(command, token),
        (Err(why), _) => Err(Error::not_held(why)),
    }
}

/// Records the answer of a claim, as far as its operation keeps it.
///
/// # Errors
/// IK006 where the answer is refused. What PostgreSQL and functions of the user's raise is passed
/// on.
pub fn finish(claim: &Claim, mut answer: Answer<'_>) -> Result<Outcome, Error> {
    let Decided { completion, rewritten } = decide(claim, &answer)?;
    if let Some(body) = rewritten {
        answer.body = Some(datum::bytea(body.as_bytes()));
    }
    match completion {
        Completion::Release => {
            settle(claim, State::Released(xact::nest_level()));
            Ok(answer.outcome(c"released"))
        }
        Completion::Keep => record(claim, answer, None),
        Completion::Withhold(reason) => record(claim, answer, Some(&reason)),
    }
}

fn decide(claim: &Claim, answer: &Answer<'_>) -> Result<Decided, Error> {
    let max_body = claim.policy.max_body.unwrap_or_else(guc::max_body);
    if claim.policy.body_format == BodyFormat::StrictJson {
        // The body is written anew, at most as long as it was; and lists of what is open.
        memory::ensure(answer.body_length().min(MAX_READ) * 2)?;
    }
    completion::decide(&claim.policy, &answer.facts(claim.policy.body_format), max_body).map_err(|refusal| {
        Error::answer_refused(
            refusal.to_string(),
            "Roll the transaction back and send an error, or change what the operation is set to keep.",
        )
    })
}

/// Marks the claim. Before any function of the user's runs, so that none can complete it once more;
/// an error undoes both with the (sub)transaction.
pub fn settle(claim: &Claim, state: State) {
    xact::with_ledger_mut(|ledger| ledger.settle(claim.token, state));
}

fn record(claim: &Claim, mut answer: Answer<'_>, withheld: Option<&str>) -> Result<Outcome, Error> {
    xact::refuse_read_only(c"idempotency_complete()");
    settle(claim, State::Completed(xact::nest_level()));
    if is_success(answer.status) {
        if let Some(function) = &claim.policy.completion_check {
            completion_check(function, claim, answer.status)?;
        }
        check_resource(claim, &answer)?;
    }
    answer.headers = answer.headers.storable(&claim.policy.replay_header);
    let headers = answer.jsonb(&answer.headers);
    let row = row(claim, &answer, headers, withheld);
    records::insert(&claim.identity, &row, claim.replaces)?;
    if let Some(lease) = claim.lease {
        leases::end(lease)?;
    }
    Ok(super::answer::about(answer.outcome_with(c"completed", headers), &row))
}

/// A pointer that nobody could follow must not be kept.
fn check_resource(claim: &Claim, answer: &Answer<'_>) -> Result<(), Error> {
    let Some((resource_type, id)) =
        answer.pointer().filter(|_| claim.policy.form == Form::Resource)
    else {
        return Ok(());
    };
    let hint = "Complete after the resource was created, in the same transaction.";
    match existence(resource_type, id)? {
        Existence::NotChecked | Existence::Exists => Ok(()),
        Existence::Gone | Existence::GoneUnderAnotherOwner(_) => Err(Error::answer_refused(
            format!("There is no {resource_type} with id \"{id}\"."),
            hint,
        )),
        Existence::Unknown(reason) => Err(Error::answer_refused(reason, hint)),
    }
}

/// The record of an answer; `sent` are the headers that go to the client now.
fn row(
    claim: &Claim,
    answer: &Answer<'_>,
    sent: Option<pg_sys::Datum>,
    withheld: Option<&str>,
) -> Row {
    use records::Column::*;
    let completed_at = clock::now();
    let expires_at = claim.policy.expires_at(&claim.identity.key, completed_at);
    let is_response = claim.policy.form == Form::Response;
    let kept = || answer.jsonb(&answer.headers.clone().without_representation());
    let headers = if is_response { sent } else { kept() };
    Row::of(claim)
        .with(Status, Some(answer.status.into()))
        .with(Headers, headers.filter(|_| withheld.is_none()))
        .with(Body, answer.body.filter(|_| withheld.is_none() && is_response))
        .with(ResourceType, answer.resource_type.map(datum::text))
        .with(ResourceId, answer.resource_id.map(datum::text))
        .with(Withheld, withheld.map(datum::text))
        .with(CompletedAt, Some(completed_at.into()))
        .with(ExpiresAt, expires_at.map(pg_sys::Datum::from))
}
