//! The pure functions: `idempotency_fingerprint`, `idempotency_canonicalize`,
//! `idempotency_parse_key`.

use idempotency_core::fingerprint::{self, CanonicalError, FingerprintError, Request};
use idempotency_core::key::{self, Format, Rules};
use pgrx::prelude::*;

use crate::convert::args::{Array, Bytes, Text};
use crate::convert::datum;
use crate::convert::returned::Returned;
use crate::error::Error;

/// The most pointers that `exclude` may have.
const MAX_POINTERS: usize = 1000;

/// `sql/functions/fingerprint.sql`.
#[pg_extern(sql = false)]
fn idempotency_fingerprint<'a>(
    method: Option<Text<'a>>,
    path: Option<Text<'a>>,
    body: Option<Text<'a>>,
    body_bytes: Option<Bytes>,
    exclude: Option<Array>,
    include_query: Option<bool>,
    hmac_key: Option<Bytes>,
) -> Returned {
    let fingerprint = body_of(body.as_ref(), body_bytes.as_ref()).and_then(|body| {
        let exclude = pointers(exclude.as_ref())?;
        let request = Request {
            method: Text::required("method", method.as_ref())?,
            path: Text::required("path", path.as_ref())?,
            body,
            exclude: &exclude,
            include_query: include_query.unwrap_or(false),
            hmac_key: hmac_key.as_ref().map(Bytes::as_slice),
        };
        fingerprint::fingerprint(&request, interrupt).map_err(refused)
    });
    Returned(datum::bytea(&fingerprint.unwrap_or_else(|error| error.raise())))
}

/// `sql/functions/fingerprint.sql`.
#[pg_extern(sql = false)]
fn idempotency_canonicalize<'a>(
    body: Option<Text<'a>>,
    body_bytes: Option<Bytes>,
) -> Option<Returned> {
    let canonical = body_of(body.as_ref(), body_bytes.as_ref()).and_then(|body| {
        body.map(|body| fingerprint::canonicalize(body, interrupt))
            .transpose()
            .map_err(not_canonical)
    });
    canonical
        .unwrap_or_else(|error| error.raise())
        .map(|form| Returned(datum::text(&String::from_utf8_lossy(&form))))
}

/// `sql/functions/fingerprint.sql`.
#[pg_extern(sql = false)]
fn idempotency_parse_key<'a>(
    header: Option<Text<'a>>,
    format: Option<Text<'a>>,
    max_length: Option<i32>,
) -> Option<Returned> {
    let header = header?;
    let key = rules(format.as_ref(), max_length).and_then(|rules| {
        key::parse(header.to_utf8("header")?, &rules)
            .map(|key| Returned(datum::text(&key)))
            .map_err(Error::key)
    });
    Some(key.unwrap_or_else(|error| error.raise()))
}

/// Lets a cancel or a termination end the work.
fn interrupt() {
    check_for_interrupts!();
}

fn body_of<'a>(
    text: Option<&'a Text<'a>>,
    bytes: Option<&'a Bytes>,
) -> Result<Option<&'a [u8]>, Error> {
    match (text, bytes) {
        (Some(_), Some(_)) => Err(Error::argument(
            "only one body can be given",
            "Both body and body_bytes have a value.".into(),
            "Pass the bytes as they were received as body_bytes.",
        )),
        (Some(text), None) => Ok(Some(text.to_utf8("body")?.as_bytes())),
        (None, bytes) => Ok(bytes.map(Bytes::as_slice)),
    }
}

fn pointers(exclude: Option<&Array>) -> Result<Vec<&str>, Error> {
    let Some(exclude) = exclude else { return Ok(Vec::new()) };
    let element = "an element of exclude";
    let elements = exclude.texts("exclude", element, check_count)?;
    elements.into_iter().map(|pointer| pointer.ok_or_else(|| Error::null(element))).collect()
}

fn check_count(pointers: usize) -> Result<(), Error> {
    if pointers <= MAX_POINTERS {
        return Ok(());
    }
    Err(Error::argument(
        "exclude has too many elements",
        format!("There are {pointers}; {MAX_POINTERS} are allowed."),
        "Exclude the object that holds them all.",
    ))
}

fn rules(format: Option<&Text<'_>>, max_length: Option<i32>) -> Result<Rules, Error> {
    let format = match Text::read("format", format)? {
        None | Some("opaque") => Format::Opaque,
        Some("uuid") => Format::Uuid,
        Some("uuidv4") => Format::UuidV4,
        Some("uuidv7") => Format::UuidV7,
        Some(other) => {
            return Err(Error::argument(
                "unknown key format",
                format!("It is \"{other:.64}\"."),
                "Pass opaque, uuid, uuidv4 or uuidv7.",
            ));
        }
    };
    match max_length.unwrap_or(255) {
        max_length @ 1..=255 => {
            Ok(Rules { format, max_length: max_length as usize, ..Rules::default() })
        }
        other => Err(Error::argument(
            "max_length must lie between 1 and 255",
            format!("It is {other}."),
            "Pass a number of characters.",
        )),
    }
}

fn refused(error: FingerprintError) -> Error {
    match error {
        FingerprintError::OutOfMemory => Error::out_of_memory(),
        other => Error::argument(
            "invalid request",
            format!("There is a fault: {other}."),
            "Pass method and path as they were received, and pointers such as /meta/request_id.",
        ),
    }
}

fn not_canonical(error: CanonicalError) -> Error {
    match error {
        CanonicalError::OutOfMemory => Error::out_of_memory(),
        other => Error::not_canonical(other.to_string()),
    }
}
