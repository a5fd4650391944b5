//! The operation's completion check: a function of the user's that has to agree before a success is
//! recorded.

use idempotency_core::held::Claim;
use pgrx::prelude::*;

use crate::convert::datum;
use crate::convert::settings::qualified_name;
use crate::error::Error;

/// Calls `f(scope, operation, status)` as the caller.
///
/// # Errors
/// IK006 where it returns false or NULL. What it raises is passed on unchanged.
pub fn completion_check(function: &str, claim: &Claim, status: i32) -> Result<(), Error> {
    let agrees = call(function, claim, status)?;
    if agrees {
        return Ok(());
    }
    Err(Error::answer_refused(
        format!("The completion check {function} did not agree."),
        "Roll the transaction back; the check says what an answer of this operation needs.",
    ))
}

fn call(function: &str, claim: &Claim, status: i32) -> Result<bool, Error> {
    let sql = format!("SELECT {}($1, $2, $3)", quoted(function)?);
    let sql = datum::cstring(&sql).ok_or_else(|| Error::unexpected(sql))?;
    let arguments = [
        datum::text_arg(&claim.identity.scope),
        datum::text_arg(&claim.operation),
        datum::integer_arg(status),
    ];
    let agrees = Spi::connect(|client| {
        client.select(sql.as_c_str(), Some(1), &arguments)?.first().get_one::<bool>()
    });
    agrees
        .map(|agrees| agrees.unwrap_or(false))
        .map_err(|error| Error::unexpected(error.to_string()))
}

fn quoted(function: &str) -> Result<String, Error> {
    let (schema, name) = qualified_name(function)
        .ok_or_else(|| Error::unexpected(format!("no function name: {function}")))?;
    Ok(format!("{}.{}", datum::quote(&schema), datum::quote(&name)))
}
