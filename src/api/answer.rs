//! From a decision to the outcome that is returned.

use idempotency_core::decide::Decision;
use idempotency_core::policy::Policy;
use idempotency_core::problem::{self, Refusal};
use pgrx::pg_sys;
use serde_json::json;

use crate::convert::datum;
use crate::convert::outcome::{Column, Outcome};
use crate::guc;
use crate::store::records::{self, Row};

/// Seconds after which a retry makes sense while another transaction holds the key: nobody knows
/// how long that one will take, and this is the least that the header can say.
const RETRY_SOON: i32 = 1;

/// The outcome of a recorded request; `None` where the decision is to claim.
pub fn recorded(decision: Decision<'_>, row: Option<&Row>, policy: &Policy) -> Option<Outcome> {
    match (decision, row) {
        (Decision::Claim, _) | (_, None) => None,
        (Decision::Replay, Some(row)) => Some(replayed(row, policy)),
        (Decision::Withheld(reason), Some(row)) => {
            Some(about(refusal("withheld", Refusal::Withheld(reason), policy), row))
        }
        (Decision::Mismatch(difference), Some(_)) => {
            Some(refusal("mismatch", Refusal::Mismatch(difference), policy))
        }
    }
}

/// Somebody else holds the key.
pub fn in_progress(policy: &Policy) -> Outcome {
    refusal("in_progress", Refusal::InProgress(RETRY_SOON), policy)
        .with(Column::RetryAfter, Some(RETRY_SOON.into()))
}

/// A refusal as a complete answer.
pub fn refusal(word: &str, refusal: Refusal<'_>, policy: &Policy) -> Outcome {
    Outcome::answer(word, &problem::refuse(refusal, policy, &guc::problem_type_base()))
}

fn replayed(row: &Row, policy: &Policy) -> Outcome {
    let outcome = Outcome::new("replayed")
        .with(Column::Status, row.get(records::Column::Status))
        .with(Column::Headers, Some(replay_headers(row, policy)))
        .with(Column::Body, row.get(records::Column::Body));
    about(outcome, row)
}

fn replay_headers(row: &Row, policy: &Policy) -> pg_sys::Datum {
    let mark = datum::jsonb(&json!({ policy.replay_header.as_str(): "true" }));
    match row.get(records::Column::Headers) {
        // SAFETY: the column is a jsonb, checked when the table was opened.
        Some(headers) => unsafe { datum::jsonb_concat(headers, mark) },
        None => mark,
    }
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
