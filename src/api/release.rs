//! `idempotency_release`: nothing is recorded.

use idempotency_core::held::{Claim, State};
use pgrx::prelude::*;

use super::complete::{claim, settle};
use crate::convert::args::Uuid;
use crate::counters;
use crate::error::Error;
use crate::session::xact;
use crate::store::{leases, records};
use pgrx::pg_sys;

/// `sql/functions/complete.sql`.
#[pg_extern(sql = false)]
fn idempotency_release(token: Option<Uuid>) {
    release(token.map(|token| token.0)).unwrap_or_else(|error| error.raise());
}

fn release(token: Option<uuid::Uuid>) -> Result<(), Error> {
    if token.is_none() && xact::with_ledger(|ledger| ledger.passes_through()) {
        return Ok(());
    }
    let claim = claim(c"idempotency_release()", token)?;
    if claim.is_leased {
        free(&claim)?
    } else {
        give_up(&claim)
    }
    counters::answered(&claim.operation, "released");
    Ok(())
}

/// The lock stays: until the transaction ends this may still be undone by a rollback to a savepoint.
fn give_up(claim: &Claim) {
    settle(claim, State::Released(xact::nest_level()));
}

/// Gives a lease back: the request counts as never begun, once the transaction has committed.
///
/// # Errors
/// 55000 where the tables are not as this library expects.
pub fn free(claim: &Claim) -> Result<(), Error> {
    xact::refuse_read_only(c"idempotency_release()");
    settle(claim, State::Freed(xact::nest_level()));
    records::delete(&claim.identity, pg_sys::LockWaitPolicy::LockWaitBlock)?;
    leases::end(claim.token)
}
