//! From a decision to the outcome that is returned.

use std::cell::RefCell;
use std::collections::HashMap;

use idempotency_core::decide::Decision;
use idempotency_core::held::Claim;
use idempotency_core::policy::{Form, Policy};
use idempotency_core::problem::{self, Refusal};
use pgrx::pg_sys;
use serde_json::json;

use crate::convert::datum;
use crate::convert::outcome::{Column, Outcome};
use crate::error::Error;
use crate::guc;
use crate::store::records::{self, Row};
use crate::store::resources::{Existence, existence};

/// Seconds after which a retry makes sense while another transaction holds the key: nobody knows
/// how long that one will take, and this is the least that the header can say.
pub const RETRY_SOON: i32 = 1;

/// The outcome of a decision; `None` where it is to claim.
///
/// # Errors
/// 55000 where our own tables are not as expected. What a registered view raises is passed on.
pub fn decided(
    decision: Decision<'_>,
    row: Option<&Row>,
    policy: &Policy,
) -> Result<Option<Outcome>, Error> {
    Ok(match (decision, row) {
        (Decision::Expired, _) => Some(refusal("expired", Refusal::Expired, policy)),
        (Decision::Claim | Decision::Resume | Decision::TakeOver, _) | (_, None) => None,
        (Decision::InProgress(seconds), Some(_)) => Some(in_progress(seconds, policy)),
        (Decision::OnHold, Some(_)) => Some(in_progress(RETRY_SOON, policy)),
        (Decision::Replay, Some(row)) => Some(replayed_or_deleted(row, policy)?),
        (Decision::Withheld(reason), Some(row)) => {
            Some(about(refusal("withheld", Refusal::Withheld(reason), policy), row))
        }
        (Decision::Mismatch(difference), Some(_)) => {
            Some(refusal("mismatch", Refusal::Mismatch(difference), policy))
        }
    })
}

/// The outcome of a finished record, to whoever finished it.
///
/// # Errors
/// As for [`decided`].
pub fn finished(row: &Row, policy: &Policy) -> Result<Outcome, Error> {
    let decision = row.text(records::Column::Withheld).map_or(Decision::Replay, Decision::Withheld);
    Ok(decided(decision, Some(row), policy)?.unwrap_or_else(|| Outcome::new("unknown")))
}

/// The caller holds the key.
pub fn claimed(claim: &Claim) -> Outcome {
    Outcome::new("claimed")
        .with(Column::Token, Some(datum::uuid(claim.token)))
        .with(Column::Attempt, Some(claim.attempt.into()))
        .with(Column::Fingerprint, claim.fingerprint.as_deref().map(datum::bytea))
        .at(Column::CreatedAt, Some(claim.created_at))
}

/// Somebody else has the request; seconds after which a retry makes sense.
pub fn in_progress(seconds: i32, policy: &Policy) -> Outcome {
    refusal("in_progress", Refusal::InProgress(seconds), policy)
        .with(Column::RetryAfter, Some(seconds.into()))
}

/// A refusal as a complete answer.
pub fn refusal(word: &str, refusal: Refusal<'_>, policy: &Policy) -> Outcome {
    Outcome::answer(word, &problem::refuse(refusal, policy, &guc::problem_type_base()))
}

/// A pointer is followed before it is replayed. Where nobody can tell whether its resource exists,
/// it is replayed with a warning: what was executed is never executed again.
fn replayed_or_deleted(row: &Row, policy: &Policy) -> Result<Outcome, Error> {
    let Some((resource_type, id)) = pointer(row).filter(|_| policy.form == Form::Resource) else {
        return Ok(replayed(row, policy));
    };
    match existence(resource_type, id)? {
        Existence::NotChecked | Existence::Exists => {}
        Existence::Gone => return Ok(about(deleted(resource_type, id, policy), row)),
        Existence::GoneUnderAnotherOwner(reason) | Existence::Unknown(reason) => {
            Error::cannot_tell(resource_type, reason).warn();
        }
    }
    Ok(replayed(row, policy))
}

/// The pointer of a record that has no body: one that has is replayed as it is.
fn pointer(row: &Row) -> Option<(&str, &str)> {
    let pointer =
        row.text(records::Column::ResourceType).zip(row.text(records::Column::ResourceId));
    pointer.filter(|_| row.get(records::Column::Body).is_none())
}

fn deleted(resource_type: &str, id: &str, policy: &Policy) -> Outcome {
    Outcome::answer("deleted", &problem::tombstone(resource_type, id, policy))
}

fn replayed(row: &Row, policy: &Policy) -> Outcome {
    let outcome = Outcome::new("replayed")
        .with(Column::Status, row.get(records::Column::Status))
        .with(Column::Headers, Some(replay_headers(row, policy)))
        .with(Column::Body, row.get(records::Column::Body));
    about(outcome, row)
}

fn replay_headers(row: &Row, policy: &Policy) -> pg_sys::Datum {
    let mark = mark(&policy.replay_header);
    match row.get(records::Column::Headers) {
        // SAFETY: the column is a jsonb, checked when the table was opened.
        Some(headers) => unsafe { datum::jsonb_concat(headers, mark) },
        None => mark,
    }
}

/// The most marks that are kept; there are as many as operations name different headers.
const MAX_MARKS: usize = 100;

thread_local! {
    static MARKS: RefCell<HashMap<String, pg_sys::Datum>> = RefCell::default();
}

/// The mark of a replay as `jsonb`, made once per backend and header.
fn mark(replay_header: &str) -> pg_sys::Datum {
    if let Some(mark) = MARKS.with_borrow(|marks| marks.get(replay_header).copied()) {
        return mark;
    }
    let make = || datum::jsonb(&json!({ replay_header: "true" }));
    if MARKS.with_borrow(HashMap::len) == MAX_MARKS {
        return make();
    }
    let mark = datum::for_ever(make);
    MARKS.with_borrow_mut(|marks| marks.insert(replay_header.into(), mark));
    mark
}

/// With what the record says about its request.
pub fn about(outcome: Outcome, row: &Row) -> Outcome {
    use records::Column as Record;
    outcome
        .with(Column::ResourceType, row.get(Record::ResourceType))
        .with(Column::ResourceId, row.get(Record::ResourceId))
        .with(Column::Token, row.get(Record::Token))
        .with(Column::Attempt, row.get(Record::Attempt))
        .with(Column::Fingerprint, row.get(Record::Fingerprint))
        .with(Column::CreatedAt, row.get(Record::CreatedAt))
        .with(Column::CompletedAt, row.get(Record::CompletedAt))
        .with(Column::ExpiresAt, row.get(Record::ExpiresAt))
}
