//! Arguments of the SQL functions.
//!
//! pgrx's own `&str` assumes a database in UTF-8, and valid bytes. Databases in other encodings are rare
//! and legal, and a text of any caller's may hold any bytes, so [`Text`] converts and checks. Arguments that are only handed on ([`Bytes`], [`Jsonb`]) stay datums: a
//! large body is not copied through Rust's allocator, which would abort the process where
//! PostgreSQL's raises an error.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

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

/// A `text` argument, detoasted.
pub struct Text<'a> {
    varlena: *mut pg_sys::varlena,
    lives: PhantomData<&'a ()>,
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
    /// An argument in UTF-8; `None` where it is NULL.
    ///
    /// # Errors
    /// 22021 where it holds bytes that are not valid; `argument` names it.
    pub fn read(argument: &'static str, text: Option<&Self>) -> Result<Option<&'a str>, Error> {
        text.map(|text| text.to_utf8(argument)).transpose()
    }

    /// An argument in UTF-8 that must not be NULL.
    ///
    /// # Errors
    /// 22004, and those of [`Text::read`].
    pub fn required(argument: &'static str, text: Option<&Self>) -> Result<&'a str, Error> {
        text.ok_or_else(|| Error::null(argument))?.to_utf8(argument)
    }

    /// In UTF-8.
    ///
    /// # Errors
    /// Those of [`Text::read`].
    pub fn to_utf8(&self, argument: &'static str) -> Result<&'a str, Error> {
        // SAFETY: a detoasted varlena that lives as long as the call's arguments, which `'a` stands for.
        to_utf8(argument, unsafe { datum::varlena_bytes(&(), self.varlena) })
    }

    /// The same in UTF-8 as a `bytea` datum; `utf8` is what it is in UTF-8.
    pub fn to_bytea(&self, utf8: &str) -> pg_sys::Datum {
        // SAFETY: a detoasted varlena that lives as long as the call's arguments.
        let argument = unsafe { datum::varlena_bytes(self, self.varlena) };
        if std::ptr::eq(argument, utf8.as_bytes()) {
            // text and bytea have one layout, so the argument serves as it is.
            return self.varlena.into();
        }
        datum::bytea(utf8.as_bytes())
    }
}

fn to_utf8<'a>(argument: &'static str, bytes: &'a [u8]) -> Result<&'a str, Error> {
    datum::to_utf8(bytes).ok_or_else(|| Error::not_encoded(argument))
}

impl Bytes {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: a detoasted varlena that lives as long as the call's arguments.
        unsafe { datum::varlena_bytes(self, self.0) }
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
    /// 22021 where it holds bytes that are not valid, 22023 where it is larger than [`MAX_JSON`] or
    /// cannot be read; `argument` names it.
    pub fn to_json(&self, argument: &'static str) -> Result<Value, Error> {
        // SAFETY: the argument is a jsonb.
        let length = unsafe { datum::bytes(self, self.0) }.len();
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
        serde_json::from_str(self.text(argument)?).map_err(|_| {
            Error::argument(
                format!("{argument} cannot be read"),
                "A number is beyond the range of a double, or the nesting is too deep.".into(),
                "Pass a flat object of strings and plain numbers.",
            )
        })
    }

    /// The argument itself, which was read.
    pub fn datum(&self) -> pg_sys::Datum {
        self.0
    }

    /// The argument itself, to be stored as it is.
    ///
    /// # Errors
    /// 22021 where it holds bytes that are not valid; `argument` names it.
    pub fn to_store(&self, argument: &'static str) -> Result<pg_sys::Datum, Error> {
        // SAFETY: the argument is a jsonb.
        let is_valid = unsafe { datum::is_valid_jsonb(self.0) };
        if is_valid { Ok(self.0) } else { Err(Error::not_encoded(argument)) }
    }

    /// Its text in UTF-8.
    ///
    /// # Errors
    /// Those of [`Jsonb::to_store`].
    pub fn text(&self, argument: &'static str) -> Result<&str, Error> {
        // SAFETY: the argument is a jsonb.
        unsafe { datum::jsonb_text(self.0) }.ok_or_else(|| Error::not_encoded(argument))
    }
}

impl Name {
    /// Zero-terminated, in the database's encoding.
    pub fn as_ptr(&self) -> *const c_char {
        self.0
    }

    /// In UTF-8.
    ///
    /// # Errors
    /// 22021 where it holds bytes that are not valid; `argument` names it.
    pub fn to_utf8(&self, argument: &'static str) -> Result<String, Error> {
        // SAFETY: a name is zero-terminated.
        let bytes = unsafe { CStr::from_ptr(self.0) }.to_bytes();
        to_utf8(argument, bytes).map(str::to_owned)
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

impl Array {
    /// The elements of a `text[]`, in UTF-8.
    ///
    /// # Errors
    /// Those of [`Array::one_dimension`], and 22021 where an element holds bytes that are not valid;
    /// `element` names it.
    pub fn texts(
        &self,
        argument: &'static str,
        element: &'static str,
        check: impl FnOnce(usize) -> Result<(), Error>,
    ) -> Result<Vec<Option<&str>>, Error> {
        let elements = self.one_dimension(argument, pg_sys::TEXTOID, check)?;
        // SAFETY: elements of a text[].
        let utf8 = |text| to_utf8(element, unsafe { datum::bytes(self, text) });
        elements.into_iter().map(|text| text.map(utf8).transpose()).collect()
    }
}

// SAFETY: each reads the argument as what the hand-written SQL signature declares it to be; the
// catalog test compares the two.
unsafe impl<'fcx> ArgAbi<'fcx> for Text<'fcx> {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: see above.
        Self { varlena: unsafe { detoasted(arg) }, lives: PhantomData }
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
