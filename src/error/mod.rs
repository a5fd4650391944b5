//! The only place that raises. Everything else returns an [`Error`] with the facts.

mod lease;
mod sqlstate;

use std::borrow::Cow;
use std::ffi::CStr;

use idempotency_core::held::{NotHeld, Unsettled};
use idempotency_core::identity::Identity;
use idempotency_core::{headers, key, order, settings};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::convert::datum;
use crate::counters;

/// What goes wrong, as it will be reported: message in lower case without a full stop, DETAIL and
/// HINT in sentences.
#[derive(Debug)]
pub struct Error {
    sqlstate: &'static str,
    message: Cow<'static, str>,
    detail: String,
    hint: &'static str,
    operation: Option<String>,
}

const CLAIM_FIRST: &str = "Claim before anything else in the transaction. Usual causes are: no BEGIN, a write by middleware, \
     nextval by an ORM, a row lock by authentication.";

impl Error {
    fn new(
        sqlstate: &'static str,
        message: impl Into<Cow<'static, str>>,
        detail: String,
        hint: &'static str,
    ) -> Self {
        Self { sqlstate, message: message.into(), detail, hint, operation: None }
    }

    /// The error as one of a call of this operation, for which it is counted.
    pub fn of(self, operation: &str) -> Self {
        Self { operation: Some(operation.into()), ..self }
    }

    /// Raises this error.
    pub fn raise(self) -> ! {
        let operation = self.operation.as_deref().unwrap_or(counters::NO_OPERATION);
        counters::refused(operation, self.sqlstate);
        sqlstate::raise(self.sqlstate, &self.message, &self.detail, self.hint)
    }

    /// Reports this error as a WARNING and goes on.
    pub fn warn(self) {
        ErrorReport::new(PgSqlErrorCode::ERRCODE_WARNING, self.message, function_name!())
            .set_detail(self.detail)
            .set_hint(self.hint)
            .report(PgLogLevel::WARNING);
    }

    /// 22023: an argument has a value that it cannot have.
    pub fn argument(
        message: impl Into<Cow<'static, str>>,
        detail: String,
        hint: &'static str,
    ) -> Self {
        Self::new("22023", message, detail, hint)
    }

    /// 22004: an argument is NULL that must not be.
    pub fn null(argument: &str) -> Self {
        Self::new(
            "22004",
            format!("{argument} must not be null"),
            format!("The call has no value for {argument}."),
            "Pass a value for it.",
        )
    }

    /// 22021: an argument holds bytes that are no text.
    pub fn not_encoded(argument: &str) -> Self {
        Self::new(
            "22021",
            format!("invalid byte sequence in {argument}"),
            format!("It holds bytes that are not valid in encoding {}.", datum::encoding()),
            "Pass text that PostgreSQL has checked. It does not check the settings that a session starts with, which \
             current_setting() returns.",
        )
    }

    /// XX001: a row of ours, or a name in the catalogs, holds bytes that are no text.
    pub fn stored_not_encoded() -> Self {
        Self::new(
            "XX001",
            "a stored text holds an invalid byte sequence",
            format!("It holds bytes that are not valid in encoding {}.", datum::encoding()),
            "Nothing was executed. A row in the schema idempotency was changed by hand, or something in the database has \
             such a name: correct or delete it.",
        )
    }

    /// 22023: the headers of an answer cannot be sent.
    pub fn headers(fault: &headers::Fault) -> Self {
        let hint = match fault {
            headers::Fault::Character(..) => {
                "Leave control characters out, and encode others, as RFC 8187 has it for parameters and RFC 3986 for URIs."
            }
            _ => {
                "Pass an object such as {\"Location\": \"/orders/1\", \"Link\": [\"<a>\", \"<b>\"]}."
            }
        };
        Self::argument("invalid headers", fault.to_string(), hint)
    }

    /// 22023: a header value names no key.
    pub fn key(fault: key::Fault) -> Self {
        Self::argument(
            "invalid idempotency key",
            fault.to_string(),
            "A key is a header value such as 8e03978e-40d5-43dd-bc93-6894a57f9324, bare or in quotation marks.",
        )
    }

    /// 22032: a text has no canonical form.
    pub fn not_canonical(detail: String) -> Self {
        Self::new(
            "22032",
            "no canonical form",
            format!("The body has a fault: {detail}."),
            "Pass one JSON value without duplicate members and without integers that a double cannot hold.",
        )
    }

    /// 53200: an allocation failed.
    pub fn out_of_memory() -> Self {
        Self::new(
            "53200",
            "out of memory",
            "There is not enough memory for what was passed.".into(),
            "Send a smaller body, or try again when less is running.",
        )
    }

    /// 22023: a setting does not exist or has a wrong value.
    pub fn setting(operation: &str, fault: &settings::Fault) -> Self {
        Self::argument(
            format!("invalid settings of operation \"{operation}\""),
            fault.to_string(),
            "The reference lists all settings.",
        )
    }

    /// 42501: the completion check is changed by a role that does not own the extension.
    pub fn check_of_another() -> Self {
        Self::new(
            "42501",
            "must be owner of the extension to change completion_check",
            "The check runs as whoever completes or settles a request.".into(),
            "Have the owner of idempotency.operations or a superuser change it.",
        )
    }

    /// 39P01: a trigger function is called by hand.
    pub fn not_a_trigger() -> Self {
        Self::new(
            "39P01",
            "idempotency.settings_changed() can only be called as a trigger",
            "It was called by a statement.".into(),
            "It runs by itself when settings change.",
        )
    }

    /// XX000: what cannot happen.
    pub fn unexpected(message: String) -> Self {
        Self::new("XX000", message, String::new(), "")
    }

    /// IK004: a transaction erases what it has claimed itself.
    pub fn forgets_own(identity: &Identity) -> Self {
        Self::new(
            "IK004",
            "key already held by this transaction",
            format!("This transaction has claimed {} itself.", named(identity)),
            "Erase it in a transaction of its own: its record has to commit with its effects.",
        )
    }

    /// 55P03: a key's lock was not to be had in time.
    pub fn key_is_locked(identity: &Identity) -> Self {
        Self::new(
            "55P03",
            "could not obtain the lock of a key in time",
            format!("Another transaction holds {}.", named(identity)),
            "Try again later.",
        )
    }

    /// 25001: a command that has to be alone in its transaction.
    pub fn in_transaction_block(command: &str) -> Self {
        Self::new(
            "25001",
            format!("{command} cannot run inside a transaction block"),
            "What it does would stay locked until the transaction ends.".into(),
            "Call it by itself: outside of BEGIN and COMMIT, before anything is claimed or written.",
        )
    }

    /// 55000: the extension's objects are not what this library expects.
    pub fn not_installed(detail: String) -> Self {
        Self::new(
            "55000",
            "the tables of pg_idempotency are not as this library expects them",
            detail,
            "Run CREATE EXTENSION pg_idempotency, or ALTER EXTENSION pg_idempotency UPDATE.",
        )
    }

    /// 55000: a trigger has skipped a row of ours that was to be written or deleted.
    pub fn row_skipped(table: &CStr, what: &str) -> Self {
        let table = table.to_string_lossy();
        Self::new(
            "55000",
            format!("a row of idempotency.{table} was not {what}"),
            "A trigger on the table has skipped it.".into(),
            "Have BEFORE triggers on the tables of pg_idempotency return NEW, and OLD for a DELETE.",
        )
    }

    /// XX001: a record is not that of the key whose digest it has. It does not say whose it is: that
    /// may be another tenant.
    pub fn wrong_record(identity: &Identity) -> Self {
        Self::new(
            "XX001",
            "the record with this key's digest is that of another key",
            format!("The digest of {} is {}.", named(identity), identity.digest()),
            "Nothing was executed. The record was changed or inserted by hand, or two keys share 128 bits of SHA-256.",
        )
    }

    /// IK001: the claim comes too late.
    pub fn out_of_order(fault: &order::Fault, identity: &Identity) -> Self {
        match fault {
            order::Fault::AfterWrite => Self::new(
                "IK001",
                "claim out of order: this transaction has already written or locked rows",
                format!(
                    "The transaction has a transaction id, so {} comes too late.",
                    named(identity)
                ),
                CLAIM_FIRST,
            ),
            order::Fault::Descending { held } => Self::new(
                "IK001",
                "claim out of order: this transaction holds a greater key",
                format!("It holds {}, so {} comes too late.", named(held), named(identity)),
                "Claim several keys in ascending order, or all at once with idempotency_claim_many.",
            ),
        }
    }

    /// IK002: there is no claim to complete or release.
    pub fn not_held(why: NotHeld) -> Self {
        let (detail, hint) = match why {
            NotHeld::Nothing => (
                "This transaction holds no claim.",
                "Claim and complete in one transaction, between one BEGIN and one COMMIT.",
            ),
            NotHeld::UnknownToken => (
                "No claim of this transaction has this token.",
                "Pass the token that idempotency_claim returned in this transaction.",
            ),
            NotHeld::AlreadyCompleted => {
                ("The claim is already completed.", "Complete each claim once.")
            }
            NotHeld::AlreadyReleased => (
                "The claim was released, or completed with a status that is not kept.",
                "Roll the transaction back.",
            ),
            NotHeld::RolledBack => (
                "The claim was made after a savepoint that has been rolled back.",
                "Roll the transaction back, and claim outside of the savepoint.",
            ),
            NotHeld::Ambiguous(_) => return Self::ambiguous(why),
        };
        Self::new("IK002", "claim not held", detail.into(), hint)
    }

    fn ambiguous(why: NotHeld) -> Self {
        let NotHeld::Ambiguous(claims) = why else { return Self::not_held(why) };
        Self::argument(
            "token must be given where the transaction holds several claims",
            format!("This transaction holds {claims} claims."),
            "Pass the token that idempotency_claim returned.",
        )
    }

    /// IK003: the transaction may not commit its writes.
    pub fn commit_unsettled(identity: &Identity, why: Unsettled) -> Self {
        Self::new(
            "IK003",
            "cannot commit with an unsettled claim",
            match why {
                Unsettled::Forgotten => format!("The {} {}.", named(identity), unsettled(why)),
                _ => format!(
                    "The transaction has written, and {} {}.",
                    named(identity),
                    unsettled(why)
                ),
            },
            "Roll the transaction back. In the next attempt BEGIN before the claim, and complete or release it before \
             COMMIT; behind a release nothing may be written. Usual causes are: no BEGIN around claim and complete, a \
             write by middleware, nextval by an ORM, a row lock by authentication.",
        )
    }

    /// IK003: the transaction may not be prepared.
    pub fn prepare_unsettled(identity: &Identity, why: Unsettled) -> Self {
        Self::new(
            "IK003",
            "cannot prepare with an unsettled claim",
            format!("Nobody could complete it any more: {} {}.", named(identity), unsettled(why)),
            "Roll the transaction back, and complete the claim before PREPARE TRANSACTION in the next attempt.",
        )
    }

    /// IK006: the answer cannot be recorded, so the effect must not commit.
    pub fn answer_refused(detail: String, hint: &'static str) -> Self {
        Self::new("IK006", "answer refused", detail, hint)
    }

    /// IK007: the operation takes no keys.
    pub fn not_keyed(operation: &str) -> Self {
        Self::new(
            "IK007",
            "operation not keyed",
            format!("Operation \"{operation}\" must not be called with an idempotency key."),
            "Send the request without the key: a replay of this operation would be unsafe.",
        )
    }

    /// 22004: the operation is not for anonymous callers.
    pub fn anonymous(operation: &str) -> Self {
        Self::new(
            "22004",
            "scope must not be null",
            format!("Operation \"{operation}\" does not take anonymous calls."),
            "Pass the principal or the tenant.",
        )
    }

    /// 22023: an empty scope, as a principal that got lost on the way is.
    pub fn empty_scope() -> Self {
        Self::argument(
            "scope must not be empty",
            "The empty text names no principal and no tenant.".into(),
            "Pass NULL for nobody, and a constant for everybody.",
        )
    }

    /// 22004: the operation compares fingerprints.
    pub fn no_fingerprint(operation: &str) -> Self {
        Self::new(
            "22004",
            "fingerprint must not be null",
            format!("Operation \"{operation}\" requires a fingerprint."),
            "Pass what idempotency_fingerprint returns.",
        )
    }

    /// WARNING: nobody can tell whether a resource still exists.
    pub fn cannot_tell(resource_type: &str, reason: String) -> Self {
        Self::new(
            "01000",
            format!("cannot tell whether the resource of type \"{resource_type}\" still exists"),
            reason,
            "Register the type anew with idempotency_register_resource.",
        )
    }

    /// IK004: the transaction has this key already.
    pub fn already_held(identity: &Identity) -> Self {
        Self::new(
            "IK004",
            "key already held by this transaction",
            format!("This transaction has already claimed {}.", named(identity)),
            "Claim each key once in a transaction.",
        )
    }

    /// IK004: the same call again while the same row is evaluated.
    pub fn repeated(identity: &Identity) -> Self {
        Self::new(
            "IK004",
            "key already held by this transaction",
            format!("The same command called for {} more than once.", named(identity)),
            "Write SELECT * FROM idempotency_claim(...): (idempotency_claim(...)).* calls it once for each column.",
        )
    }
}

fn unsettled(why: Unsettled) -> &'static str {
    match why {
        Unsettled::Forgotten => "was claimed and not completed",
        Unsettled::Released => "was released, or completed with a status that is not kept",
        Unsettled::RolledBack => "was claimed after a savepoint that has been rolled back",
        Unsettled::LeaseLost => "was acted for on a lease that is lost",
    }
}

fn named(identity: &Identity) -> String {
    let Identity { scope, key_space, key, .. } = identity;
    format!("key \"{key}\" of scope \"{scope}\" in key space \"{key_space}\"")
}
