//! `idempotency_settle`: an operator decides what became of a request whose lease has run out.

use idempotency_core::held::Claim;
use pgrx::prelude::*;

use super::call::{Addressed, Call};
use super::complete::finish;
use super::counted::counted;
use super::given::{self, Answer};
use super::wait::Wait;
use super::{lease, release};
use crate::clock;
use crate::convert::args::{Bytes, Jsonb, Text};
use crate::convert::outcome::Outcome;
use crate::error::Error;
use crate::session::key_lock::KeyLock;
use crate::session::xact;
use crate::store::{leases, records};

/// `sql/functions/lease.sql`.
#[pg_extern(sql = false)]
#[expect(clippy::too_many_arguments, reason = "the SQL signature")]
fn idempotency_settle<'a>(
    scope: Option<Text<'a>>,
    operation: Option<Text<'a>>,
    key: Option<Text<'a>>,
    status: Option<i32>,
    body: Option<Text<'a>>,
    body_json: Option<Jsonb>,
    body_bytes: Option<Bytes>,
    content_type: Option<Text<'a>>,
    headers: Option<Jsonb>,
    resource_type: Option<Text<'a>>,
    resource_id: Option<Text<'a>>,
    withhold: Option<Text<'a>>,
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
    let settled = Call::new(scope.as_ref(), operation.as_ref()).and_then(|call| {
        let answer = status.map(|_| arguments.read()).transpose()?;
        let key = Text::read("key", key.as_ref())?;
        counted(call.operation, settle(&call, key, answer))
    });
    settled.unwrap_or_else(|error| error.raise())
}

fn settle(
    call: &Call<'_>,
    header: Option<&str>,
    answer: Option<Answer<'_>>,
) -> Result<Outcome, Error> {
    xact::refuse_read_only(c"idempotency_settle()");
    let claim = abandoned(call, header)?;
    lease::hold(claim.clone());
    match answer {
        Some(answer) if !claim.policy.kept.contains(answer.status) => {
            Err(Error::status_not_kept(answer.status))
        }
        Some(answer) => finish(&claim, answer),
        None => {
            release::free(&claim)?;
            Ok(Outcome::new("released"))
        }
    }
}

/// The claim of whoever abandoned the request, with its key locked.
fn abandoned(call: &Call<'_>, header: Option<&str>) -> Result<Claim, Error> {
    let Addressed::To(identity) = call.address(header)? else {
        return Err(Error::argument(
            "no key to settle",
            "Scope and key have to name a request.".into(),
            "Pass scope, operation and key as the view idempotency.abandoned has them.",
        ));
    };
    let wait = Wait::new(None, Some(&call.policy))?;
    if !wait.acquire(&KeyLock::of(&identity), None, call.operation) {
        return Err(Error::key_is_locked(&identity));
    }
    let row = records::find(&identity)?
        .ok_or_else(|| Error::nothing_to_settle(&identity, "is no record of"))?;
    let lease = lease::of_record(&row, leases::find)?
        .ok_or_else(|| Error::nothing_to_settle(&identity, "is an answer already to"))?;
    if !lease.lease.is_expired(clock::now()) {
        return Err(Error::nothing_to_settle(&identity, "is a live lease on"));
    }
    // An operator settles by the operation's settings as they are, not as the lease has them.
    let claim = lease::claim_of(&identity, &row, &lease)?;
    Ok(Claim { policy: call.policy.clone(), ..claim })
}
