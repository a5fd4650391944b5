//! Arguments of the SQL functions.
//!
//! pgrx's own `&str` assumes a database in UTF-8. Databases in other encodings are rare and legal,
//! so [`Text`] converts. Arguments that are only handed on ([`Bytes`], [`Jsonb`]) stay datums: a
//! large body is not copied through Rust's allocator, which would abort the process where
//! PostgreSQL's raises an error.

use std::ffi::{CStr, c_char};

use pgrx::callconv::{Arg, ArgAbi};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, Returns, ReturnsError, SqlMapping, SqlTranslatable,
};

use serde_json::Value;

use super::datum;
use crate::error::Error;
use crate::memory;

/// The most that a JSON argument may hold where it is read into Rust's memory, in bytes. Proxies
/// let no more headers through either.
const MAX_JSON: usize = 64 * 1024;

/// From this size on, in bytes, it matters what a number is when it is written out.
const MANY: usize = 1024;

/// How many bytes of Rust's memory one byte of a JSON argument may come to: members of one character
/// take a node of a map each.
const READ_FACTOR: usize = 128;

/// A `text` argument.
pub struct Text<'a> {
    varlena: *mut pg_sys::varlena,
    utf8: &'a str,
}

/// A `bytea` argument, detoasted.
pub struct Bytes(*mut pg_sys::varlena);

/// A `jsonb` argument.
pub struct Jsonb(pg_sys::Datum);

/// A `uuid` argument.
pub struct Uuid(pub uuid::Uuid);

/// A `name` argument.
pub struct Name(*const c_char);

/// A `text[]` or `bytea[]` argument.
pub struct Array(pg_sys::Datum);

impl<'a> Text<'a> {
    /// The text in UTF-8.
    pub fn as_str(&self) -> &'a str {
        self.utf8
    }

    /// The same in UTF-8 as a `bytea` datum.
    pub fn to_bytea(&self) -> pg_sys::Datum {
        // SAFETY: a detoasted varlena that lives as long as the call's arguments.
        let argument = unsafe { datum::varlena_bytes(self.varlena) };
        if std::ptr::eq(argument, self.utf8.as_bytes()) {
            // text and bytea have one layout, so the argument serves as it is.
            return self.varlena.into();
        }
        datum::bytea(self.utf8.as_bytes())
    }
}

impl Bytes {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: a detoasted varlena that lives as long as the call's arguments.
        unsafe { datum::varlena_bytes(self.0) }
    }

    /// The argument itself.
    pub fn datum(&self) -> pg_sys::Datum {
        self.0.into()
    }
}

impl Jsonb {
    /// The value, read into Rust's memory.
    ///
    /// # Errors
    /// 22023 where it is larger than [`MAX_JSON`]; `argument` names it.
    pub fn to_json(&self, argument: &'static str) -> Result<Value, Error> {
        // SAFETY: the argument is a jsonb.
        let length = unsafe { datum::bytes(self.0) }.len();
        if length > MAX_JSON {
            return Err(Error::argument(
                format!("{argument} are too large"),
                format!("They take {length} bytes; {MAX_JSON} are allowed."),
                "Pass fewer or shorter ones.",
            ));
        }
        // SAFETY: as above.
        if length > MANY && unsafe { !datum::has_short_numbers(self.0, MAX_JSON) } {
            return Err(Error::argument(
                format!("{argument} are too large"),
                format!("Their numbers have more than {MAX_JSON} digits."),
                "Pass plain numbers.",
            ));
        }
        memory::ensure(length * READ_FACTOR)?;
        // SAFETY: as above.
        unsafe { datum::to_json(self.0) }.ok_or_else(|| {
            Error::argument(
                format!("{argument} cannot be read"),
                "A number is beyond the range of a double, or the nesting is too deep.".into(),
                "Pass a flat object of strings and plain numbers.",
            )
        })
    }

    /// The argument itself.
    pub fn datum(&self) -> pg_sys::Datum {
        self.0
    }

    /// Its text in UTF-8 as a `bytea` datum.
    pub fn to_bytea(&self) -> pg_sys::Datum {
        // SAFETY: the argument is a jsonb.
        unsafe { datum::jsonb_to_bytea(self.0) }
    }
}

impl Name {
    /// Zero-terminated, in the database's encoding.
    pub fn as_ptr(&self) -> *const c_char {
        self.0
    }

    /// In UTF-8.
    pub fn to_utf8(&self) -> String {
        // SAFETY: a name is zero-terminated.
        datum::to_utf8(unsafe { CStr::from_ptr(self.0) }.to_bytes()).to_owned()
    }
}

impl Array {
    /// The elements of an array of a varlena type.
    ///
    /// # Errors
    /// 22023 where it has several dimensions (`argument` names it), and what `check` says of its
    /// length.
    pub fn one_dimension(
        &self,
        argument: &'static str,
        element_type: pg_sys::Oid,
        check: impl FnOnce(usize) -> Result<(), Error>,
    ) -> Result<Vec<Option<pg_sys::Datum>>, Error> {
        let several = || {
            Error::argument(
                format!("{argument} must be a one-dimensional array"),
                "It has several dimensions.".into(),
                "Pass a plain list.",
            )
        };
        // SAFETY: the SQL signature says that this is an array, and its element type is passed on.
        unsafe {
            check(datum::array_length(self.0).ok_or_else(several)?)?;
            datum::array_elements(self.0, element_type).ok_or_else(several)
        }
    }
}

// SAFETY: each reads the argument as what the hand-written SQL signature declares it to be; the
// catalog test compares the two.
unsafe impl<'fcx> ArgAbi<'fcx> for Text<'fcx> {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: see above.
        unsafe {
            let varlena = detoasted(arg);
            Self { varlena, utf8: datum::to_utf8(datum::varlena_bytes(varlena)) }
        }
    }
}

// SAFETY: as for Text.
unsafe impl<'fcx> ArgAbi<'fcx> for Bytes {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: see above.
        Self(unsafe { detoasted(arg) })
    }
}

// SAFETY: as for Text.
unsafe impl<'fcx> ArgAbi<'fcx> for Jsonb {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        Self(raw(arg))
    }
}

// SAFETY: as for Text.
unsafe impl<'fcx> ArgAbi<'fcx> for Name {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        Self(raw(arg).cast_mut_ptr())
    }
}

// SAFETY: as for Text.
unsafe impl<'fcx> ArgAbi<'fcx> for Array {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        Self(raw(arg))
    }
}

// SAFETY: as for Text.
unsafe impl<'fcx> ArgAbi<'fcx> for Uuid {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: a uuid is 16 bytes by reference (uuid.h).
        Self(unsafe { datum::to_uuid(raw(arg)) })
    }
}

fn raw(arg: Arg<'_, '_>) -> pg_sys::Datum {
    // SAFETY: hands the datum on as it is; pgrx asks for no argument that is null.
    unsafe { arg.unbox_arg_using_from_datum::<pg_sys::Datum>() }.unwrap_or(pg_sys::Datum::null())
}

unsafe fn detoasted(arg: Arg<'_, '_>) -> *mut pg_sys::varlena {
    // SAFETY: the caller's type is a varlena.
    unsafe { datum::detoasted(raw(arg)) }
}

macro_rules! translates_to {
    ($($type:ty => $sql:literal),* $(,)?) => { $(
        // SAFETY: only read when SQL is generated, and ours is written by hand.
        unsafe impl SqlTranslatable for $type {
            fn argument_sql() -> Result<SqlMapping, ArgumentError> {
                Ok(SqlMapping::literal($sql))
            }
            fn return_sql() -> Result<Returns, ReturnsError> {
                Ok(Returns::One(SqlMapping::literal($sql)))
            }
        }
    )* };
}

translates_to! {
    Text<'_> => "text",
    Bytes => "bytea",
    Jsonb => "jsonb",
    Uuid => "uuid",
    Name => "name",
    Array => "text[]",
    super::outcome::Outcome => "idempotency_outcome",
    super::outcome::Rows => "record",
    super::returned::Set<4> => "record",
    super::returned::Set<8> => "record",
    super::returned::Done => "trigger",
    super::returned::Returned => "text",
}
