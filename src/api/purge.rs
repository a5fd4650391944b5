//! `idempotency_purge`: one batch of what nobody asks for any more.

use pgrx::prelude::*;

use crate::error::Error;
use crate::session::xact;
use crate::store::purge;

/// The largest batch: who waits for one waits for a moment only.
const MAX_ROWS: i32 = 100_000;

/// `sql/functions/purge.sql`.
#[pg_extern(sql = false)]
fn idempotency_purge(max_rows: Option<i32>) -> i64 {
    let purged = checked(max_rows).and_then(|max_rows| {
        xact::refuse_parallel(c"idempotency_purge()");
        xact::refuse_read_only(c"idempotency_purge()");
        xact::check_alone(c"idempotency_purge()")?;
        purge::batch(max_rows)
    });
    purged.unwrap_or_else(|error| error.raise()) as i64
}

fn checked(max_rows: Option<i32>) -> Result<usize, Error> {
    match max_rows.ok_or_else(|| Error::null("max_rows"))? {
        max_rows @ 1..=MAX_ROWS => Ok(max_rows as usize),
        max_rows => Err(Error::argument(
            format!("max_rows must be from 1 to {MAX_ROWS}"),
            format!("It is {max_rows}."),
            "Purge in several batches, each in a transaction of its own.",
        )),
    }
}
