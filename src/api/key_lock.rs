//! `idempotency_key_lock`: which lock is that of a key.

use idempotency_core::identity::Identity;
use pgrx::prelude::*;

use super::call::check_length;
use crate::convert::args::Text;
use crate::error::Error;

/// `sql/functions/in_progress.sql`.
#[pg_extern(sql = false)]
fn idempotency_key_lock<'a>(
    scope: Option<Text<'a>>,
    key_space: Option<Text<'a>>,
    key: Option<Text<'a>>,
) -> Option<i64> {
    // It is STRICT; nobody relies on that.
    let (scope, key_space, key) = (scope?, key_space?, key?);
    Some(key_lock(&scope, &key_space, &key).unwrap_or_else(|error| error.raise()))
}

fn key_lock(scope: &Text<'_>, key_space: &Text<'_>, key: &Text<'_>) -> Result<i64, Error> {
    let part = |name, part: &Text<'_>| {
        let part = part.to_utf8(name)?;
        check_length(name, part).map(|()| part.to_owned())
    };
    let identity =
        Identity::new(part("scope", scope)?, part("key_space", key_space)?, part("key", key)?);
    Ok(identity.lock_hash().cast_signed())
}
