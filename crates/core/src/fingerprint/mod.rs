//! The fingerprint of a request: what a second request has to repeat to count as the same.
//!
//! SHA-256 over METHOD, LF, the path, LF, the canonical body. A body that is one JSON value counts
//! by its value, so a client may write it out anew; any other counts by its bytes.

mod canonical;
mod digest;
mod pace;
mod pointer;

use std::fmt;

#[doc(hidden)]
pub use canonical::canonicalize_sparing;
pub use canonical::{CanonicalError, MAX_BYTES, MAX_DEPTH, OutOfMemory, Violation, canonicalize};
pub use pointer::PointerFault;

use canonical::{parse, put_all};
use digest::Digest;
use pace::Pace;

/// What the fingerprint is taken of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The HTTP method; ASCII letters count in upper case.
    pub method: &'a str,
    /// The path as it was sent, escapes and all; nothing is decoded or cleaned. With a query, see
    /// [`Request::include_query`].
    pub path: &'a str,
    /// The body; none and an empty one are the same.
    pub body: Option<&'a [u8]>,
    /// JSON Pointers (RFC 6901) of members and elements that do not count, in a JSON body. One that
    /// finds nothing is fine. In a body that counts by its bytes they have no effect; what is left
    /// out still has to keep the rules of [`canonicalize`], or the whole body counts by its bytes.
    pub exclude: &'a [&'a str],
    /// Whether what follows the first `?` of the path counts.
    pub include_query: bool,
    /// The key of an HMAC-SHA-256 (RFC 2104) in the place of the plain hash; not empty.
    pub hmac_key: Option<&'a [u8]>,
}

/// Why there is no fingerprint. No body is among the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FingerprintError {
    /// A line feed in the method, which would make two requests look alike.
    LineFeedInMethod,
    /// A line feed in the path or the query, counted or not.
    LineFeedInPath,
    /// A pointer in [`Request::exclude`] is malformed.
    Pointer {
        /// Which one, from 0.
        index: usize,
        /// What is wrong with it.
        fault: PointerFault,
    },
    /// The HMAC key is empty, as a setting is that was never set.
    EmptyHmacKey,
    /// An allocation failed.
    OutOfMemory,
}

impl fmt::Display for FingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LineFeedInMethod => f.write_str("line feed in the method"),
            Self::LineFeedInPath => f.write_str("line feed in the path"),
            Self::Pointer { index, fault } => write!(f, "malformed pointer {}: {fault}", index + 1),
            Self::EmptyHmacKey => f.write_str("empty HMAC key"),
            Self::OutOfMemory => f.write_str("out of memory"),
        }
    }
}

impl std::error::Error for FingerprintError {}

impl From<OutOfMemory> for FingerprintError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// The fingerprint of a request. `interrupt` is called at least once for every 256 KiB of the body
/// read or hashed and may panic to end the work.
///
/// # Errors
/// See [`FingerprintError`]; never because of what the body holds.
pub fn fingerprint(
    request: &Request<'_>,
    mut interrupt: impl FnMut(),
) -> Result<[u8; 32], FingerprintError> {
    check(request)?;
    let mut pace = Pace::new(&mut interrupt);
    let path = counted_path(request);
    let body = request.body.unwrap_or_default();
    let mut digest =
        Digest::new(request.hmac_key, request.method.len() + path.len() + body.len() + 2)?;
    put_method(request.method, &mut digest, &mut pace)?;
    put_all(path.as_bytes(), &mut digest, &mut pace)?;
    put_all(b"\n", &mut digest, &mut pace)?;
    put_body(body, request.exclude, &mut digest, &mut pace)?;
    Ok(digest.finish())
}

fn check(request: &Request<'_>) -> Result<(), FingerprintError> {
    if request.method.contains('\n') {
        return Err(FingerprintError::LineFeedInMethod);
    }
    if request.path.contains('\n') {
        return Err(FingerprintError::LineFeedInPath);
    }
    if request.hmac_key.is_some_and(<[u8]>::is_empty) {
        return Err(FingerprintError::EmptyHmacKey);
    }
    for (index, pointer) in request.exclude.iter().enumerate() {
        pointer::check(pointer).map_err(|fault| FingerprintError::Pointer { index, fault })?;
    }
    Ok(())
}

fn counted_path<'a>(request: &Request<'a>) -> &'a str {
    match request.path.split_once('?') {
        Some((path, _)) if !request.include_query => path,
        _ => request.path,
    }
}

fn put_method(method: &str, digest: &mut Digest, pace: &mut Pace<'_>) -> Result<(), OutOfMemory> {
    for byte in method.bytes() {
        put_all(&[byte.to_ascii_uppercase()], digest, pace)?;
    }
    put_all(b"\n", digest, pace)
}

fn put_body(
    body: &[u8],
    exclude: &[&str],
    digest: &mut Digest,
    pace: &mut Pace<'_>,
) -> Result<(), OutOfMemory> {
    match parse(body, exclude, pace) {
        Ok(canonical) => canonical.write(digest, pace),
        Err(CanonicalError::Invalid { .. }) => put_all(body, digest, pace),
        Err(CanonicalError::OutOfMemory) => Err(OutOfMemory),
    }
}
