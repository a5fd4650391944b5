//! `idempotency_replay`: the recorded answer, without locks or writes.

use idempotency_core::problem::Refusal;
use pgrx::prelude::*;

use super::call::{Addressed, Call};
use super::counted::counted;
use super::{answer, lease};
use crate::clock;
use crate::convert::args::{Bytes, Text};
use crate::convert::outcome::Outcome;
use crate::error::Error;
use crate::store::leases::{self, LeaseRow};
use crate::store::now;
use crate::store::records::{self, Row};
use idempotency_core::decide::{Compare, Decision, decide};
use idempotency_core::identity::Identity;

/// `sql/functions/replay.sql`.
#[pg_extern(sql = false)]
fn idempotency_replay<'a>(
    scope: Option<Text<'a>>,
    operation: Option<Text<'a>>,
    key: Option<Text<'a>>,
    fingerprint: Option<Bytes>,
) -> Outcome {
    let replayed = Call::new(scope.as_ref(), operation.as_ref()).and_then(|call| {
        let fingerprint = fingerprint.as_ref().map(Bytes::as_slice);
        let key = Text::read("key", key.as_ref())?;
        counted(call.operation, replay(&call, key, fingerprint))
    });
    replayed.unwrap_or_else(|error| error.raise())
}

fn replay(
    call: &Call<'_>,
    header: Option<&str>,
    fingerprint: Option<&[u8]>,
) -> Result<Outcome, Error> {
    match call.address(header)? {
        Addressed::Bypassed => Ok(Outcome::new("bypassed")),
        Addressed::Invalid(fault) => {
            Ok(answer::refusal("invalid", Refusal::Invalid(fault), &call.policy))
        }
        Addressed::To(identity) => {
            call.check_fingerprint(fingerprint, false)?;
            look(call, &identity, fingerprint)
        }
    }
}

/// The decision table of claim, except that a fingerprint that was not given is not compared: a
/// reader may not have the request at hand.
fn look(
    call: &Call<'_>,
    identity: &Identity,
    fingerprint: Option<&[u8]>,
) -> Result<Outcome, Error> {
    let mut request = call.request(identity, fingerprint, None);
    if fingerprint.is_none() {
        request.fingerprint = Compare::Skip;
    }
    let (row, lease) = read(identity)?;
    let record = row.as_ref().map(|row| row.record(lease.map(|row| row.lease)));
    let decision = match decide(record.as_ref(), &request, clock::now()) {
        // Whether it was executed may be known elsewhere.
        Decision::Expired => Decision::Claim,
        decision => decision,
    };
    let answered = answer::decided(decision, row.as_ref(), &call.policy)?;
    Ok(answered.unwrap_or_else(|| Outcome::new("unknown")))
}

/// The record and its lease, as they were at one moment: nobody is kept from changing them.
fn read(identity: &Identity) -> Result<(Option<Row>, Option<LeaseRow>), Error> {
    let read = || -> Result<_, Error> {
        let row = records::read(identity)?;
        let lease =
            row.as_ref().map(|row| lease::of_record(row, leases::read)).transpose()?.flatten();
        Ok((row, lease))
    };
    now::at_one_moment(read, |read| matches!(read, Err(_) | Ok((Some(_), None))))
}
