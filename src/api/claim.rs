//! `idempotency_claim`: look, lock, look again.

use std::time::{Duration, Instant};

use idempotency_core::decide::decide;
use idempotency_core::held::{Claim, State};
use idempotency_core::identity::Identity;
use idempotency_core::order;
use idempotency_core::policy::FingerprintRule;
use idempotency_core::problem::Refusal;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::answer;
use super::call::{Addressed, Call};
use crate::clock;
use crate::convert::args::{Bytes, Jsonb, Text, Uuid};
use crate::convert::datum;
use crate::convert::outcome::{Column, Outcome};
use crate::error::Error;
use crate::guc::{self, LockOrder};
use crate::session::key_lock::{KeyLock, Patience};
use crate::session::{evaluation, xact};
use crate::store::records;

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
    let claimed = no_lease(lease_ms.is_some(), token.is_some(), data.is_some()).and_then(|()| {
        let call = Call::new(scope.as_ref(), operation.as_ref())?;
        let wait = Wait::new(wait_ms.or(call.policy.wait_ms))?;
        claim(
            &call,
            key.as_ref().map(Text::as_str),
            fingerprint.as_ref().map(Bytes::as_slice),
            wait,
        )
    });
    claimed.unwrap_or_else(|error| error.raise())
}

fn no_lease(lease_ms: bool, token: bool, data: bool) -> Result<(), Error> {
    let given = [("lease_ms", lease_ms), ("token", token), ("data", data)];
    match given.into_iter().find(|(_, given)| *given) {
        Some((argument, _)) => Err(Error::not_supported(argument)),
        None => Ok(()),
    }
}

/// How long a claim waits for the holder of its key.
#[derive(Clone, Copy)]
pub enum Wait {
    /// Not at all.
    Never,
    /// Until then, by a clock that nobody sets.
    Until(Instant),
    /// Without end.
    Endless,
}

impl Wait {
    /// From milliseconds: 0 never, -1 without end, NULL as the server is configured.
    ///
    /// # Errors
    /// 22023 below -1.
    pub fn new(wait_ms: Option<i32>) -> Result<Self, Error> {
        match wait_ms.unwrap_or_else(guc::wait_ms) {
            0 => Ok(Wait::Never),
            -1 => Ok(Wait::Endless),
            wait_ms if wait_ms > 0 => {
                Ok(Wait::Until(Instant::now() + Duration::from_millis(wait_ms as u64)))
            }
            wait_ms => Err(Error::argument(
                "wait_ms must not be below -1",
                format!("It is {wait_ms}."),
                "Pass milliseconds, 0 not to wait, or -1 to wait without end.",
            )),
        }
    }

    /// Takes the lock, waiting as long as this allows; false at the end of it, and at once where as
    /// many as are allowed are waiting.
    fn acquire(self, lock: &KeyLock, max_waiters: Option<i32>) -> bool {
        if lock.try_acquire() {
            return true;
        }
        // The holder's request is counted too.
        if max_waiters.is_some_and(|max_waiters| lock.requests() > max_waiters) {
            return false;
        }
        match self {
            Wait::Never => false,
            Wait::Endless => lock.acquire_within(Patience::Endless),
            Wait::Until(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now()).as_millis();
                left > 0 && lock.acquire_within(Patience::Millis(left as i32))
            }
        }
    }
}

/// Claims the key that a header names.
pub fn claim(
    call: &Call<'_>,
    header: Option<&str>,
    fingerprint: Option<&[u8]>,
    wait: Wait,
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
            claim_identity(call, identity, fingerprint, wait)
        }
    }
}

/// Claims an identity.
pub fn claim_identity(
    call: &Call<'_>,
    identity: Identity,
    fingerprint: Option<&[u8]>,
    wait: Wait,
) -> Result<Outcome, Error> {
    // SAFETY: raises 25006 where nothing may be written, on a standby too.
    unsafe { pg_sys::PreventCommandIfReadOnly(c"idempotency_claim()".as_ptr()) };
    if evaluation::is_repeated(&identity) {
        return Err(Error::repeated(&identity));
    }
    if !has_completed(&identity)? {
        check_order(&identity)?;
    }
    if let Seen::Answered(outcome) = look(call, &identity, fingerprint)? {
        return Ok(outcome);
    }
    let lock = KeyLock::of(&identity);
    if !wait.acquire(&lock, call.policy.max_waiters) {
        return Ok(answer::in_progress(&call.policy));
    }
    match look(call, &identity, fingerprint)? {
        Seen::Claim { replaces } => Ok(hold(call, identity, fingerprint, replaces)),
        Seen::Answered(outcome) => {
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
        Some(State::Held | State::Released(_)) => Err(Error::already_held(identity)),
    }
}

fn check_order(identity: &Identity) -> Result<(), Error> {
    let wrote = xact::has_transaction_id();
    let Err(fault) = xact::with_ledger(|ledger| order::check(wrote, ledger.greatest(), identity))
    else {
        return Ok(());
    };
    let error = Error::out_of_order(&fault, identity);
    match guc::lock_order() {
        LockOrder::Error => return Err(error),
        LockOrder::Warning => error.warn(),
        LockOrder::Off => {}
    }
    Ok(())
}

/// What a look at the key shows.
enum Seen {
    /// The request is to be executed; whether an expired record has to give way to it.
    Claim { replaces: bool },
    /// The request is answered.
    Answered(Outcome),
}

fn look(call: &Call<'_>, identity: &Identity, fingerprint: Option<&[u8]>) -> Result<Seen, Error> {
    let row = records::find(identity)?;
    let record = row.as_ref().map(records::Row::record);
    let decision = decide(record.as_ref(), &call.request(identity, fingerprint), clock::now());
    Ok(match answer::decided(decision, row.as_ref(), &call.policy)? {
        Some(outcome) => Seen::Answered(outcome),
        None => Seen::Claim { replaces: row.is_some() },
    })
}

/// Notes the claim whose lock was just won.
fn hold(
    call: &Call<'_>,
    identity: Identity,
    fingerprint: Option<&[u8]>,
    replaces: bool,
) -> Outcome {
    let created_at = clock::now();
    let fingerprint = fingerprint.filter(|_| call.policy.fingerprint != FingerprintRule::Ignored);
    let claim = Claim {
        identity,
        operation: call.operation.into(),
        policy: call.policy.clone(),
        token: super::token::new(created_at),
        fingerprint: fingerprint.map(<[u8]>::to_vec),
        created_at,
        attempt: 1,
        replaces,
        level: xact::nest_level(),
        state: State::Held,
    };
    let outcome = Outcome::new("claimed")
        .with(Column::Token, Some(datum::uuid(claim.token)))
        .with(Column::Attempt, Some(claim.attempt.into()))
        .with(Column::Fingerprint, fingerprint.map(datum::bytea))
        .at(Column::CreatedAt, Some(created_at));
    let wrote = xact::has_transaction_id();
    xact::with_ledger_mut(|ledger| ledger.hold(claim, wrote));
    outcome
}
