//! `idempotency_claim`: look, lock, look again.

use idempotency_core::decide::{Decision, decide};
use idempotency_core::held::{Claim, State};
use idempotency_core::identity::Identity;
use idempotency_core::lease::Lease;
use idempotency_core::order;
use idempotency_core::policy::FingerprintRule;
use idempotency_core::problem::Refusal;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::call::{Addressed, Call};
use super::counted::counted;
use super::wait::Wait;
use super::{answer, lease};
use crate::clock;
use crate::convert::args::{Bytes, Jsonb, Text, Uuid};
use crate::convert::outcome::Outcome;
use crate::error::Error;
use crate::guc::{self, LockOrder};
use crate::session::key_lock::KeyLock;
use crate::session::{evaluation, xact};
use crate::store::leases::{self, LeaseRow};
use crate::store::now;
use crate::store::records::{self, Row};

/// `sql/functions/claim.sql`.
#[pg_extern(sql = false)]
#[expect(clippy::too_many_arguments, reason = "the SQL signature")]
fn idempotency_claim<'a>(
    scope: Option<Text<'a>>,
    operation: Option<Text<'a>>,
    key: Option<Text<'a>>,
    fingerprint: Option<Bytes>,
    wait_ms: Option<i32>,
    lease_ms: Option<i32>,
    token: Option<Uuid>,
    data: Option<Jsonb>,
) -> Outcome {
    let given = |call: &Call<'_>| {
        let terms = Terms {
            wait: Wait::new(wait_ms, Some(&call.policy))?,
            lease_ms: lease_ms.map(lease::positive).transpose()?,
            token: token.map(|token| token.0),
            data: data.as_ref().map(|data| data.to_store("data")).transpose()?,
        };
        if terms.data.is_some() && terms.lease_ms.is_none() {
            return Err(Error::only_for_leases("data"));
        }
        let fingerprint = fingerprint.as_ref().map(Bytes::as_slice);
        claim(call, Text::read("key", key.as_ref())?, fingerprint, &terms)
    };
    let call = Call::new(scope.as_ref(), operation.as_ref());
    let claimed = call.and_then(|call| counted(call.operation, given(&call)));
    claimed.unwrap_or_else(|error| error.raise())
}

/// On what terms a key is claimed.
pub struct Terms {
    /// How long to wait for its holder.
    pub wait: Wait,
    /// The length of the lease, in milliseconds; `None`: until the transaction ends.
    pub lease_ms: Option<i32>,
    /// The caller's own token.
    pub token: Option<uuid::Uuid>,
    /// What a completer needs, a `jsonb`.
    pub data: Option<pg_sys::Datum>,
}

/// Claims the key that a header names.
fn claim(
    call: &Call<'_>,
    header: Option<&str>,
    fingerprint: Option<&[u8]>,
    terms: &Terms,
) -> Result<Outcome, Error> {
    match call.address(header)? {
        Addressed::Bypassed => {
            xact::with_ledger_mut(|ledger| ledger.bypass());
            Ok(Outcome::new("bypassed"))
        }
        Addressed::Invalid(fault) => {
            Ok(answer::refusal("invalid", Refusal::Invalid(fault), &call.policy))
        }
        Addressed::To(identity) => {
            call.check_fingerprint(fingerprint, true)?;
            claim_identity(call, identity, fingerprint, terms)
        }
    }
}

/// Claims an identity.
pub fn claim_identity(
    call: &Call<'_>,
    identity: Identity,
    fingerprint: Option<&[u8]>,
    terms: &Terms,
) -> Result<Outcome, Error> {
    xact::refuse_read_only(c"idempotency_claim()");
    if evaluation::is_repeated(&identity) {
        return Err(Error::repeated(&identity));
    }
    let is_own = has_completed(&identity)?;
    if !is_own {
        check_order(&identity)?;
    }
    let before = now::completions();
    let found = look(&identity)?;
    if let Next::Answer(outcome) = next(call, &identity, fingerprint, terms, &found)? {
        return Ok(outcome);
    }
    if is_own {
        // Its completion is still under way, or has expired by now.
        return Err(Error::already_held(&identity));
    }
    let lock = KeyLock::of(&identity);
    if !terms.wait.acquire(&lock, call.policy.max_waiters, call.operation) {
        return Ok(answer::in_progress(answer::RETRY_SOON, &call.policy));
    }
    // A second look shows the same as the first where nothing was committed since. What it means may
    // have changed all the same: time has passed.
    let nothing_new = now::completions() == before;
    let found = if nothing_new { found } else { look(&identity)? };
    let call = &call.renewed()?;
    match next(call, &identity, fingerprint, terms, &found)? {
        Next::Execute => execute(call, identity, fingerprint, terms, found),
        Next::Resume => resume(&identity, terms, found),
        Next::Answer(outcome) => {
            lock.release();
            Ok(outcome)
        }
    }
}

/// Whether this transaction has completed a claim on the key.
fn has_completed(identity: &Identity) -> Result<bool, Error> {
    match xact::with_ledger(|ledger| ledger.own(identity).map(|claim| claim.state)) {
        None => Ok(false),
        Some(State::Completed(_)) => Ok(true),
        Some(State::Held | State::Released(_) | State::Freed(_)) => {
            Err(Error::already_held(identity))
        }
    }
}

/// Refuses what could deadlock, as far as the server is configured to.
///
/// # Errors
/// IK001.
pub fn check_order(identity: &Identity) -> Result<(), Error> {
    let wrote = xact::has_transaction_id();
    let checked = xact::with_ledger(|ledger| order::check(wrote, ledger.greatest(), identity));
    let Err(fault) = checked else { return Ok(()) };
    let error = Error::out_of_order(&fault, identity);
    match guc::lock_order() {
        LockOrder::Error => return Err(error),
        LockOrder::Warning => error.warn(),
        LockOrder::Off => {}
    }
    Ok(())
}

/// What is there of a request.
struct Found {
    row: Option<Row>,
    lease: Option<LeaseRow>,
}

/// What comes next for a request.
enum Next {
    /// It is answered.
    Answer(Outcome),
    /// It is to be executed; a record that is there has expired, or is of a lease that has run out.
    Execute,
    /// It is to be gone on with, by the caller's own lease.
    Resume,
}

fn look(identity: &Identity) -> Result<Found, Error> {
    let row = records::find(identity)?;
    let lease = row.as_ref().map(|row| lease::of_record(row, leases::find)).transpose()?.flatten();
    Ok(Found { row, lease })
}

/// What comes next, as of now.
fn next(
    call: &Call<'_>,
    identity: &Identity,
    fingerprint: Option<&[u8]>,
    terms: &Terms,
    found: &Found,
) -> Result<Next, Error> {
    let lease = found.lease.as_ref().map(|row| row.lease);
    let record = found.row.as_ref().map(|row| row.record(lease));
    let request = call.request(identity, fingerprint, terms.token);
    let decision = decide(record.as_ref(), &request, clock::now());
    let answer = answer::decided(decision, found.row.as_ref(), &call.policy)?;
    Ok(match answer {
        Some(outcome) => Next::Answer(outcome),
        None if decision == Decision::Resume => Next::Resume,
        None => Next::Execute,
    })
}

/// Notes the claim whose lock was just won, and writes its lease where it has one.
fn execute(
    call: &Call<'_>,
    identity: Identity,
    fingerprint: Option<&[u8]>,
    terms: &Terms,
    found: Found,
) -> Result<Outcome, Error> {
    if let Some(token) = terms.token {
        lease::refuse_known_token(token, &identity)?;
    }
    let claim = new_claim(call, identity, fingerprint, terms, &found);
    lease::hold(claim.clone());
    match (terms.lease_ms, found.lease) {
        (Some(lease_ms), from) => {
            let replaces = found.row.is_some();
            let begun = lease::begin(&claim, lease_ms, terms.data, from, replaces)?;
            Ok(lease::outcome(&claim, &begun))
        }
        (None, Some(taken_over)) => Ok(lease::outcome(&claim, &taken_over)),
        (None, None) => Ok(answer::claimed(&claim)),
    }
}

/// Goes on with the caller's own lease.
fn resume(identity: &Identity, terms: &Terms, found: Found) -> Result<Outcome, Error> {
    let (Some(record), Some(mut row)) = (found.row, found.lease) else {
        return Err(Error::unknown_token());
    };
    let claim = lease::claim_of(identity, &record, &row)?;
    lease::hold(claim.clone());
    if let Some(lease_ms) = terms.lease_ms {
        row = lease::extended(row, lease_ms);
        row.data = terms.data.or(row.data);
        leases::update(&row)?;
    }
    Ok(lease::outcome(&claim, &row))
}

fn new_claim(
    call: &Call<'_>,
    identity: Identity,
    fingerprint: Option<&[u8]>,
    terms: &Terms,
    found: &Found,
) -> Claim {
    let now = clock::now();
    let earlier = found.row.as_ref().filter(|_| found.lease.is_some()).map(Row::earlier);
    let (created_at, attempt) = earlier.unwrap_or((now, 0));
    let token = terms.token.unwrap_or_else(|| super::token::new(now));
    let fingerprint = fingerprint.filter(|_| call.policy.fingerprint != FingerprintRule::Ignored);
    let taken_over: Option<Lease> = found.lease.as_ref().map(|row| row.lease);
    Claim {
        identity,
        operation: call.operation.into(),
        policy: call.policy.clone(),
        token,
        fingerprint: fingerprint.map(<[u8]>::to_vec),
        created_at,
        attempt: attempt.saturating_add(1),
        replaces: found.row.is_some() || terms.lease_ms.is_some(),
        is_leased: terms.lease_ms.is_some(),
        lease: terms.lease_ms.map(|_| token).or(taken_over.map(|lease| lease.token)),
        level: xact::nest_level(),
        state: State::Held,
    }
}
