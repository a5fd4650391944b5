//! Work on leased claims: `idempotency_resume`, `idempotency_checkpoint`, `idempotency_extend`, and
//! what a claim with `lease_ms` writes.

use std::ffi::CStr;

use idempotency_core::held::{Claim, NotHeld, State};
use idempotency_core::identity::Identity;
use idempotency_core::lease::{self, Lease};
use pgrx::pg_sys;
use pgrx::prelude::*;
use serde_json::Value;
use uuid::Uuid;

use super::answer;
use super::claim::check_order;
use super::wait::Wait;
use crate::clock;
use crate::convert::args::{self, Jsonb, Text};
use crate::convert::datum;
use crate::convert::outcome::{Column, Outcome};
use crate::counters;
use crate::error::Error;
use crate::session::key_lock::KeyLock;
use crate::session::xact;
use crate::store::leases::{self, LeaseRow};
use crate::store::records::{self, Row};
use crate::store::settings;

/// `sql/functions/lease.sql`.
#[pg_extern(sql = false)]
fn idempotency_resume(token: Option<args::Uuid>) -> Outcome {
    given(token).and_then(resume_first).unwrap_or_else(|error| error.raise())
}

/// `sql/functions/lease.sql`.
#[pg_extern(sql = false)]
fn idempotency_checkpoint<'a>(
    token: Option<args::Uuid>,
    recovery_point: Option<Text<'a>>,
    data: Option<Jsonb>,
) -> Outcome {
    let checked = given(token).and_then(|token| {
        let recovery_point = Text::required("recovery_point", recovery_point.as_ref())?;
        super::call::check_length("recovery_point", recovery_point)?;
        let recovery_point = datum::text(recovery_point);
        let recovery_data = data.map(|data| data.to_store("data")).transpose()?;
        change(c"idempotency_checkpoint()", token, |row| LeaseRow {
            recovery_point: Some(recovery_point),
            recovery_data,
            ..row
        })
    });
    checked.unwrap_or_else(|error| error.raise())
}

/// `sql/functions/lease.sql`.
#[pg_extern(sql = false)]
fn idempotency_extend(token: Option<args::Uuid>, lease_ms: Option<i32>) -> Outcome {
    let extended = given(token).and_then(|token| {
        let lease_ms = positive(lease_ms.ok_or_else(|| Error::null("lease_ms"))?)?;
        change(c"idempotency_extend()", token, |row| extended(row, lease_ms))
    });
    extended.unwrap_or_else(|error| error.raise())
}

/// What a token names, once its key is held.
pub enum Resumed {
    /// The claim, noted in this transaction.
    Held(Claim),
    /// The request was completed by this very token: a commit whose outcome its caller did not learn.
    Finished(Row),
}

/// The length of a lease, checked.
pub fn positive(lease_ms: i32) -> Result<i32, Error> {
    if lease_ms > 0 { Ok(lease_ms) } else { Err(Error::lease_ms(lease_ms)) }
}

/// Holds the key of a leased claim for the rest of the transaction.
///
/// # Errors
/// IK002 where nobody has the token, IK005 where it lost, 55P03 where the key's lock was not to be
/// had in time.
pub fn resume(
    command: &CStr,
    token: Uuid,
    before_locking: impl FnOnce(&Identity) -> Result<(), Error>,
) -> Result<Resumed, Error> {
    xact::refuse_parallel(command);
    xact::refuse_read_only(command);
    match xact::with_ledger(|ledger| ledger.find(Some(token)).cloned()) {
        Ok(claim) => return Ok(Resumed::Held(claim)),
        Err(NotHeld::UnknownToken | NotHeld::RolledBack) => {}
        Err(why) => return Err(Error::not_held(why)),
    }
    let lease = leases::find(token)?.ok_or_else(Error::unknown_token)?;
    if lease.is_blank() {
        xact::with_ledger_mut(|ledger| ledger.lose(lease.identity));
        return Err(Error::lease_erased());
    }
    let identity = lease.identity;
    if xact::with_ledger(|ledger| ledger.own(&identity).is_some()) {
        return Err(Error::lease_lost(&identity, "was taken over by this transaction"));
    }
    before_locking(&identity)?;
    let lock = KeyLock::of(&identity);
    if !lock.try_acquire() && !wait_for(&lock, &identity)? {
        return Err(Error::key_is_locked(&identity));
    }
    let resumed = look(token, &identity);
    match &resumed {
        Ok(Resumed::Held(claim)) => hold(claim.clone()),
        Ok(Resumed::Finished(_)) | Err(_) => lock.release(),
    }
    resumed
}

/// Waits for the lock of a lease's key as long as its operation says, which only the record knows.
fn wait_for(lock: &KeyLock, identity: &Identity) -> Result<bool, Error> {
    let record = records::find(identity)?;
    let operation = record.as_ref().and_then(|row| row.text(records::Column::Operation));
    let policy = operation.map(settings::policy).transpose()?;
    let wait = Wait::new(None, policy.as_deref())?;
    Ok(wait.acquire(lock, None, operation.unwrap_or(counters::NO_OPERATION)))
}

/// The lease of a record that is not finished, found by `look_up`.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn of_record(
    row: &Row,
    look_up: impl FnOnce(Uuid) -> Result<Option<LeaseRow>, Error>,
) -> Result<Option<LeaseRow>, Error> {
    match row.uuid(records::Column::Token) {
        Some(token) if !row.is_finished() => {
            Ok(Some(look_up(token)?.unwrap_or_else(|| vanished(token, row))))
        }
        _ => Ok(None),
    }
}

/// A lease whose row somebody deleted by hand: it has run out.
fn vanished(token: Uuid, row: &Row) -> LeaseRow {
    let lease = Lease { token, deadline: i64::MIN };
    LeaseRow { ended: true, ..LeaseRow::new(lease, row.identity()) }
}

/// Records a new lease: of a key that nobody had, or one that is taken over.
///
/// # Errors
/// 55000 where the tables are not as this library expects.
pub fn begin(
    claim: &Claim,
    lease_ms: i32,
    data: Option<pg_sys::Datum>,
    from: Option<LeaseRow>,
    replaces: bool,
) -> Result<LeaseRow, Error> {
    let lease = Lease { token: claim.token, deadline: lease::deadline(clock::now(), lease_ms) };
    let row = LeaseRow {
        recovery_point: from.as_ref().and_then(|from| from.recovery_point),
        recovery_data: from.as_ref().and_then(|from| from.recovery_data),
        data: data.or_else(|| from.as_ref().and_then(|from| from.data)),
        settings: Some(datum::jsonb(&Value::Object(claim.policy.set.clone()))),
        ..LeaseRow::new(lease, claim.identity.clone())
    };
    if let Some(from) = from {
        leases::update(&LeaseRow { ended: true, ..from })?;
    }
    records::insert(&claim.identity, &Row::of(claim), replaces)?;
    leases::insert(&row)?;
    Ok(row)
}

/// The lease with more time.
pub fn extended(row: LeaseRow, lease_ms: i32) -> LeaseRow {
    let deadline = row.lease.extended(clock::now(), lease_ms);
    LeaseRow { lease: Lease { deadline, ..row.lease }, ..row }
}

/// A claim on lease as an outcome.
pub fn outcome(claim: &Claim, row: &LeaseRow) -> Outcome {
    answer::claimed(claim)
        .with(Column::RecoveryPoint, row.recovery_point)
        .with(Column::RecoveryData, row.recovery_data)
        .at(Column::ExpiresAt, claim.is_leased.then_some(row.lease.deadline))
}

/// Notes a claim.
pub fn hold(claim: Claim) {
    let wrote = xact::has_transaction_id();
    xact::hold(claim, wrote);
}

/// The claim that a lease and its record make in this transaction.
pub fn claim_of(identity: &Identity, row: &Row, lease: &LeaseRow) -> Result<Claim, Error> {
    use records::Column as Record;
    let operation = row.text(Record::Operation).unwrap_or_default().to_owned();
    let (created_at, attempt) = row.earlier();
    Ok(Claim {
        identity: identity.clone(),
        policy: settings::policy_of_lease(&operation, lease.settings)?,
        operation,
        token: lease.lease.token,
        // SAFETY: the column is a bytea, checked when the table was opened.
        fingerprint: row
            .get(Record::Fingerprint)
            .map(|bytes| unsafe { datum::bytes(row, bytes) }.to_vec()),
        created_at,
        attempt,
        replaces: true,
        is_leased: true,
        lease: Some(lease.lease.token),
        level: xact::nest_level(),
        state: State::Held,
    })
}

fn given(token: Option<args::Uuid>) -> Result<Uuid, Error> {
    token.map(|token| token.0).ok_or_else(|| Error::null("token"))
}

fn resume_first(token: Uuid) -> Result<Outcome, Error> {
    match resume(c"idempotency_resume()", token, check_order)? {
        Resumed::Held(claim) => Ok(outcome(&claim, &own_lease(&claim)?)),
        Resumed::Finished(row) => finished(&row),
    }
}

fn finished(row: &Row) -> Result<Outcome, Error> {
    let policy = settings::policy(row.text(records::Column::Operation).unwrap_or_default())?;
    answer::finished(row, &policy)
}

/// Changes the lease of a claim, which is resumed where it was not.
fn change(
    command: &CStr,
    token: Uuid,
    how: impl FnOnce(LeaseRow) -> LeaseRow,
) -> Result<Outcome, Error> {
    let claim = held(command, token)?;
    let row = how(own_lease(&claim)?);
    leases::update(&row)?;
    Ok(outcome(&claim, &row))
}

/// The claim of a token, which is resumed where it was not. Whatever was written before is fenced
/// too: where the lease was lost, this raises.
///
/// # Errors
/// As for [`resume`]; IK002 where the claim is completed.
pub fn held(command: &CStr, token: Uuid) -> Result<Claim, Error> {
    match resume(command, token, |_| Ok(()))? {
        Resumed::Held(claim) => Ok(claim),
        Resumed::Finished(_) => Err(Error::not_held(NotHeld::AlreadyCompleted)),
    }
}

fn own_lease(claim: &Claim) -> Result<LeaseRow, Error> {
    let row = leases::find(claim.token)?;
    row.filter(|_| claim.is_leased).ok_or_else(Error::unknown_token)
}

/// What is there now that the key is held.
fn look(token: Uuid, identity: &Identity) -> Result<Resumed, Error> {
    let lost = |why| {
        xact::with_ledger_mut(|ledger| ledger.lose(identity.clone()));
        Err(Error::lease_lost(identity, why))
    };
    let Some(row) = records::find(identity)? else { return lost("was given back") };
    let is_own = row.uuid(records::Column::Token) == Some(token);
    match (is_own, row.is_finished()) {
        (true, true) => Ok(Resumed::Finished(row)),
        (true, false) => match leases::find(token)? {
            Some(lease) => Ok(Resumed::Held(claim_of(identity, &row, &lease)?)),
            None => Err(Error::unknown_token()),
        },
        (false, true) => lost("was taken over, and the request is finished"),
        (false, false) => lost("was taken over"),
    }
}

/// A claim's token is its own.
///
/// # Errors
/// 22023 where another claim has it, IK005 where it is that of a lease on this key that ended.
pub fn refuse_known_token(token: Uuid, identity: &Identity) -> Result<(), Error> {
    if xact::with_ledger(|ledger| ledger.knows(token, identity)) {
        return Err(Error::token_in_use());
    }
    match leases::find(token)? {
        None => Ok(()),
        Some(known) if known.identity == *identity => {
            Err(Error::lease_lost(identity, "was taken over or given back"))
        }
        Some(_) => Err(Error::token_in_use()),
    }
}
