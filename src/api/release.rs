//! `idempotency_release`: nothing is recorded.

use idempotency_core::held::State;
use pgrx::prelude::*;

use crate::convert::args::Uuid;
use crate::error::Error;
use crate::session::xact;

/// `sql/functions/complete.sql`.
#[pg_extern(sql = false)]
fn idempotency_release(token: Option<Uuid>) {
    release(token.map(|token| token.0)).unwrap_or_else(|error| error.raise());
}

/// Marks the claim as given up. Its lock stays: until the transaction ends it may still be undone
/// by a rollback to a savepoint.
fn release(token: Option<uuid::Uuid>) -> Result<(), Error> {
    let level = xact::nest_level();
    xact::with_ledger_mut(|ledger| {
        let token = match ledger.find(token) {
            Ok(claim) => claim.token,
            Err(_) if token.is_none() && ledger.passes_through() => return Ok(()),
            Err(why) => return Err(Error::not_held(why)),
        };
        ledger.settle(token, State::Released(level));
        Ok(())
    })
}
