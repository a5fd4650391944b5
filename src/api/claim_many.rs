//! `idempotency_claim_many`: several keys of one operation, claimed in the right order.

use idempotency_core::identity::Identity;
use idempotency_core::problem::Refusal;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::answer;
use super::call::{Addressed, Call};
use super::claim::{Terms, claim_identity};
use super::wait::Wait;
use crate::convert::args::{Array, Text};
use crate::convert::datum;
use crate::convert::outcome::{Outcome, Rows};
use crate::counters;
use crate::error::Error;
use crate::memory;
use crate::session::xact;

/// The most keys in one call. Each held key takes an entry of the shared lock table.
const MAX_KEYS: usize = 1000;

/// What one key takes of Rust's memory at most, in bytes.
const PER_KEY: usize = 4096;

/// `sql/functions/claim.sql`.
#[pg_extern(sql = false)]
fn idempotency_claim_many<'a>(
    scope: Option<Text<'a>>,
    operation: Option<Text<'a>>,
    keys: Option<Array>,
    fingerprints: Option<Array>,
    wait_ms: Option<i32>,
) -> Rows {
    let given = |call: &Call<'_>| {
        let wait = Wait::new(wait_ms, Some(&call.policy))?;
        let terms = Terms { wait, lease_ms: None, token: None, data: None };
        let keys = read_keys(keys.as_ref())?;
        let fingerprints = read_fingerprints(fingerprints.as_ref(), keys.len())?;
        claim_many(call, &keys, &fingerprints, &terms)
    };
    let call = Call::new(scope.as_ref(), operation.as_ref());
    let claimed = call.and_then(|call| given(&call).map_err(|error| error.of(call.operation)));
    Rows(claimed.unwrap_or_else(|error| error.raise()))
}

fn claim_many(
    call: &Call<'_>,
    headers: &[Option<&str>],
    fingerprints: &[Option<&[u8]>],
    terms: &Terms,
) -> Result<Vec<Outcome>, Error> {
    let mut outcomes = vec![Outcome::new("bypassed"); headers.len()];
    let mut wanted = Vec::with_capacity(headers.len());
    for (i, header) in headers.iter().enumerate() {
        match call.address(*header)? {
            Addressed::Bypassed => xact::with_ledger_mut(|ledger| ledger.bypass()),
            Addressed::Invalid(fault) => {
                outcomes[i] = answer::refusal("invalid", Refusal::Invalid(fault), &call.policy)
            }
            Addressed::To(identity) => wanted.push((identity, i)),
        }
    }
    wanted.sort();
    refuse_duplicates(&wanted)?;
    for (_, i) in &wanted {
        call.check_fingerprint(fingerprints[*i], true)?;
    }
    for (identity, i) in wanted {
        outcomes[i] = claim_identity(call, identity, fingerprints[i], terms)?;
    }
    outcomes.iter().for_each(|outcome| counters::answered(call.operation, outcome.word()));
    Ok(outcomes)
}

fn refuse_duplicates(sorted: &[(Identity, usize)]) -> Result<(), Error> {
    let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) else {
        return Ok(());
    };
    Err(Error::argument(
        "keys must not name the same key twice",
        format!(
            "Elements {} and {} both name \"{}\".",
            pair[0].1 + 1,
            pair[1].1 + 1,
            pair[0].0.key
        ),
        "Pass each key once.",
    ))
}

fn read_keys(keys: Option<&Array>) -> Result<Vec<Option<&str>>, Error> {
    let keys = keys.ok_or_else(|| Error::null("keys"))?;
    keys.texts("keys", "an element of keys", check_count)
}

fn check_count(keys: usize) -> Result<(), Error> {
    if keys <= MAX_KEYS {
        // Before PostgreSQL takes the array apart: an error in its midst needs memory too.
        return memory::ensure(keys * PER_KEY);
    }
    Err(Error::argument(
        "too many keys",
        format!("There are {keys}; {MAX_KEYS} are allowed."),
        "Claim them in several transactions.",
    ))
}

fn read_fingerprints(
    fingerprints: Option<&Array>,
    keys: usize,
) -> Result<Vec<Option<&[u8]>>, Error> {
    let Some(fingerprints) = fingerprints else { return Ok(vec![None; keys]) };
    let same_count = |count| {
        if count == keys {
            return Ok(());
        }
        Err(Error::argument(
            "fingerprints must have as many elements as keys",
            format!("There are {count} fingerprints for {keys} keys."),
            "Pass one fingerprint per key, in the same order; elements may be null.",
        ))
    };
    let elements = fingerprints.one_dimension("fingerprints", pg_sys::BYTEAOID, same_count)?;
    // SAFETY: elements of a bytea[].
    let bytes = |element| unsafe { datum::bytes(fingerprints, element) };
    Ok(elements.into_iter().map(|element| element.map(bytes)).collect())
}
