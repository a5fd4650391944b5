//! What every call that names a key begins with.

use std::rc::Rc;

use idempotency_core::decide::{Compare, Request};
use idempotency_core::identity::{Identity, MAX_BYTES};
use idempotency_core::key;
use idempotency_core::policy::{FingerprintRule, Mode, Policy};

use crate::convert::args::Text;
use crate::error::Error;
use crate::store::operations;

/// The length of a fingerprint, in bytes.
const FINGERPRINT_BYTES: usize = 32;

/// An operation that is called, with its settings.
pub struct Call<'a> {
    /// The operation.
    pub operation: &'a str,
    /// Its settings.
    pub policy: Rc<Policy>,
    scope: Option<&'a str>,
}

/// What a key came to.
pub enum Addressed {
    /// There is no key or no scope, or keys have no effect: run as without them.
    Bypassed,
    /// The key is missing or malformed.
    Invalid(key::Fault),
    /// The key names this.
    To(Identity),
}

impl<'a> Call<'a> {
    /// Reads scope and operation.
    ///
    /// # Errors
    /// 22004 where the operation is NULL, 22023 where it or the scope is too long.
    pub fn new(
        scope: Option<&'a Text<'a>>,
        operation: Option<&'a Text<'a>>,
    ) -> Result<Self, Error> {
        let operation = operation.ok_or_else(|| Error::null("operation"))?.as_str();
        check_length("operation", operation)?;
        let scope = scope.map(Text::as_str);
        check_length("scope", scope.unwrap_or_default())?;
        Ok(Self { operation, policy: operations::policy(operation), scope })
    }

    /// Whether keys have no effect on this call, whatever the key. Looked at before the key: a
    /// malformed key of an anonymous caller is no error.
    fn is_bypassed(&self) -> bool {
        self.scope.is_none() || self.policy.mode == Mode::Ignored
    }

    /// What a key comes to.
    pub fn address(&self, header: Option<&str>) -> Addressed {
        let (Some(scope), false) = (self.scope, self.is_bypassed()) else {
            return Addressed::Bypassed;
        };
        let Some(header) = header else {
            return match self.policy.mode {
                Mode::Required => Addressed::Invalid(key::Fault::Missing),
                Mode::Optional | Mode::Ignored | Mode::Forbidden => Addressed::Bypassed,
            };
        };
        match key::parse(header, &self.policy.key) {
            Err(fault) => Addressed::Invalid(fault),
            Ok(key) => Addressed::To(Identity {
                scope: scope.into(),
                key_space: self.policy.key_space(self.operation).into(),
                key: key.into_owned(),
            }),
        }
    }

    /// The request as the decision table sees it.
    pub fn request<'f>(&'f self, fingerprint: Option<&'f [u8]>) -> Request<'f> {
        Request { operation: self.operation, fingerprint: self.compare(fingerprint) }
    }

    fn compare<'f>(&self, fingerprint: Option<&'f [u8]>) -> Compare<'f> {
        match self.policy.fingerprint {
            FingerprintRule::Ignored => Compare::Skip,
            FingerprintRule::Optional | FingerprintRule::Required => Compare::With(fingerprint),
        }
    }
}

/// # Errors
/// 22023 where a fingerprint is not 32 bytes long.
pub fn check_fingerprint(fingerprint: Option<&[u8]>) -> Result<(), Error> {
    match fingerprint.map(<[u8]>::len) {
        None | Some(FINGERPRINT_BYTES) => Ok(()),
        Some(length) => Err(Error::argument(
            "fingerprint must be 32 bytes long",
            format!("It is {length} bytes long."),
            "Pass what idempotency_fingerprint returns, or another SHA-256.",
        )),
    }
}

fn check_length(argument: &'static str, value: &str) -> Result<(), Error> {
    if value.len() <= MAX_BYTES {
        return Ok(());
    }
    Err(Error::argument(
        format!("{argument} is too long"),
        format!("It is {} bytes long; {MAX_BYTES} are allowed.", value.len()),
        "Pass a shorter name, or a digest of it.",
    ))
}
