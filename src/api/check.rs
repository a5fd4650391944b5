//! The operation's completion check: a function of the user's that has to agree before a success is
//! recorded.

use idempotency_core::held::Claim;
use pgrx::prelude::*;

use crate::convert::datum;
use crate::convert::settings::{check_function, qualified_name, returns_boolean};
use crate::error::Error;
use crate::session::search_path::with_safe_search_path;

/// Calls `f(scope, operation, status)` as the caller, by a search path that the caller did not choose.
///
/// # Errors
/// IK006 where it returns false or NULL, or has another result by now. What it raises is passed on unchanged.
pub fn completion_check(function: &str, claim: &Claim, status: i32) -> Result<(), Error> {
    let (schema, name) = qualified_name(function)
        .ok_or_else(|| Error::unexpected(format!("no function name: {function}")))?;
    // One that is not there is PostgreSQL's error, when it is called.
    if check_function(&schema, &name).is_some_and(|function| !returns_boolean(function)) {
        return Err(Error::answer_refused(
            format!("The completion check {function} does not return one boolean."),
            "Roll the transaction back; have the function return boolean, or set another check.",
        ));
    }
    let function_name = format!("{}.{}", datum::quote(&schema), datum::quote(&name));
    if with_safe_search_path(|| call(&function_name, claim, status))? {
        return Ok(());
    }
    Err(Error::answer_refused(
        format!("The completion check {function} did not agree."),
        "Roll the transaction back; the check says what an answer of this operation needs.",
    ))
}

fn call(function: &str, claim: &Claim, status: i32) -> Result<bool, Error> {
    let sql = format!("SELECT {function}($1, $2, $3)");
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
