//! What every call that names a key begins with.

use std::rc::Rc;

use idempotency_core::decide::{Compare, Request};
use idempotency_core::identity::{Identity, MAX_BYTES};
use idempotency_core::key;
use idempotency_core::late::{self, MAX_AHEAD};
use idempotency_core::policy::{Anonymous, FingerprintRule, LateRetry, Mode, Policy};

use uuid::Uuid;

use crate::clock;
use crate::convert::args::Text;
use crate::error::Error;
use crate::session::xact;
use crate::store::settings;

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
    /// 22004 where the operation is NULL, 22021 where it or the scope holds bytes that are not valid,
    /// 22023 where it is too long, or the scope is empty.
    pub fn new(
        scope: Option<&'a Text<'a>>,
        operation: Option<&'a Text<'a>>,
    ) -> Result<Self, Error> {
        xact::refuse_parallel(c"a call on idempotency keys");
        let operation = Text::required("operation", operation)?;
        check_length("operation", operation)?;
        let scope = Text::read("scope", scope)?;
        if scope == Some("") {
            return Err(Error::empty_scope());
        }
        check_length("scope", scope.unwrap_or_default())?;
        Ok(Self { operation, policy: settings::policy(operation)?, scope })
    }

    /// The scope; `None` where keys have no effect on this call, whatever the key. Looked at before
    /// the key: a malformed key of an anonymous caller is no error.
    fn keyed_scope(&self) -> Result<Option<&'a str>, Error> {
        match (self.policy.mode, self.scope, self.policy.anonymous) {
            (Mode::Ignored, _, _) | (_, None, Anonymous::Bypass) => Ok(None),
            (_, None, Anonymous::Error) => Err(Error::anonymous(self.operation)),
            (_, scope, _) => Ok(scope),
        }
    }

    /// What a key comes to.
    ///
    /// # Errors
    /// IK007 where the operation must not be called with a key, 22004 where it does not take
    /// anonymous calls.
    pub fn address(&self, header: Option<&str>) -> Result<Addressed, Error> {
        if self.policy.mode == Mode::Forbidden && header.is_some() {
            return Err(Error::not_keyed(self.operation));
        }
        let Some(scope) = self.keyed_scope()? else { return Ok(Addressed::Bypassed) };
        Ok(match (header, self.policy.mode) {
            (Some(header), _) => self.identify(scope, header),
            (None, Mode::Required) => Addressed::Invalid(key::Fault::Missing),
            (None, Mode::Optional | Mode::Ignored | Mode::Forbidden) => Addressed::Bypassed,
        })
    }

    fn identify(&self, scope: &str, header: &str) -> Addressed {
        match key::parse(header, &self.policy.key) {
            Err(fault) => Addressed::Invalid(fault),
            Ok(key) if self.is_from_the_future(&key) => Addressed::Invalid(key::Fault::InTheFuture),
            Ok(key) => {
                let key_space = self.policy.key_space(self.operation);
                Addressed::To(Identity::new(scope.into(), key_space.into(), key.into_owned()))
            }
        }
    }

    /// The same call with the settings as they are now. Whoever waited for a key, or found that its
    /// record is gone, must not decide by settings that were changed before that.
    ///
    /// # Errors
    /// As for [`settings::policy`].
    pub fn renewed(&self) -> Result<Self, Error> {
        settings::take_in_changes();
        Ok(Self { policy: settings::policy(self.operation)?, ..*self })
    }

    /// The request as the decision table sees it.
    pub fn request<'f>(
        &'f self,
        identity: &Identity,
        fingerprint: Option<&'f [u8]>,
        token: Option<Uuid>,
    ) -> Request<'f> {
        Request {
            operation: self.operation,
            fingerprint: self.compare(fingerprint),
            refused_from: self.policy.refused_from(&identity.key),
            token,
            on_lease_expiry: self.policy.on_lease_expiry,
        }
    }

    fn compare<'f>(&self, fingerprint: Option<&'f [u8]>) -> Compare<'f> {
        match self.policy.fingerprint {
            FingerprintRule::Ignored => Compare::Skip,
            FingerprintRule::Optional | FingerprintRule::Required => Compare::With(fingerprint),
        }
    }

    /// The fingerprint, checked.
    ///
    /// # Errors
    /// 22023 where it is not 32 bytes long, 22004 where there is none and `must_have` as well as the
    /// operation wants one.
    pub fn check_fingerprint(
        &self,
        fingerprint: Option<&[u8]>,
        must_have: bool,
    ) -> Result<(), Error> {
        match fingerprint.map(<[u8]>::len) {
            Some(FINGERPRINT_BYTES) => Ok(()),
            Some(length) => Err(wrong_length(length)),
            None if must_have && self.policy.fingerprint == FingerprintRule::Required => {
                Err(Error::no_fingerprint(self.operation))
            }
            None => Ok(()),
        }
    }

    fn is_from_the_future(&self, key: &str) -> bool {
        let latest = || clock::now().saturating_add(MAX_AHEAD);
        self.policy.late_retry == LateRetry::Refuse
            && late::key_time(key).is_some_and(|time| time > latest())
    }
}

fn wrong_length(length: usize) -> Error {
    Error::argument(
        "fingerprint must be 32 bytes long",
        format!("It is {length} bytes long."),
        "Pass what idempotency_fingerprint returns, or another SHA-256.",
    )
}

/// # Errors
/// 22023 where a name is longer than [`MAX_BYTES`].
pub fn check_length(argument: &'static str, value: &str) -> Result<(), Error> {
    if value.len() <= MAX_BYTES {
        return Ok(());
    }
    Err(Error::argument(
        format!("{argument} is too long"),
        format!("It is {} bytes long; {MAX_BYTES} are allowed.", value.len()),
        "Pass a shorter name, or a digest of it.",
    ))
}
