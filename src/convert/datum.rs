//! Single datums.

use std::ffi::{CStr, CString, c_int};

use pgrx::datum::DatumWithOid;
use pgrx::fcinfo::direct_function_call_as_datum;
use pgrx::pg_sys;
use pgrx::prelude::*;
use serde_json::Value;

use crate::error::Error;
use crate::unguarded;

/// `text` from UTF-8.
pub fn text(utf8: &str) -> pg_sys::Datum {
    varlena(from_utf8(utf8))
}

/// A `text` parameter of a statement.
pub fn text_arg(utf8: &str) -> DatumWithOid<'_> {
    // SAFETY: the datum is of the type.
    unsafe { DatumWithOid::new(text(utf8), pg_sys::TEXTOID) }
}

/// An `integer` parameter of a statement.
pub fn integer_arg(value: i32) -> DatumWithOid<'static> {
    // SAFETY: the datum is of the type.
    unsafe { DatumWithOid::new(value, pg_sys::INT4OID) }
}

/// A `jsonb` parameter of a statement.
pub fn jsonb_arg(json: &Value) -> DatumWithOid<'static> {
    // SAFETY: the datum is of the type.
    unsafe { DatumWithOid::new(jsonb(json), pg_sys::JSONBOID) }
}

/// A zero-terminated string in the database's encoding; `None` where there is a zero byte inside.
pub fn cstring(utf8: &str) -> Option<CString> {
    CString::new(from_utf8(utf8)).ok()
}

/// `bytea`.
pub fn bytea(bytes: &[u8]) -> pg_sys::Datum {
    // text and bytea have one layout.
    varlena(bytes)
}

/// Where there are too many bytes for a value, PostgreSQL refuses.
fn varlena(bytes: &[u8]) -> pg_sys::Datum {
    let size = pg_sys::VARHDRSZ + bytes.len();
    let varlena = unguarded::allocate(size).cast::<pg_sys::varlena>();
    // SAFETY: there is room for the header and the bytes; no memory of PostgreSQL's has a size beyond i32.
    unsafe {
        pgrx::set_varsize_4b(varlena, size as i32);
        let data = varlena.cast::<u8>().add(pg_sys::VARHDRSZ);
        data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
    varlena.into()
}

/// `uuid`.
pub fn uuid(id: uuid::Uuid) -> pg_sys::Datum {
    // SAFETY: pg_uuid_t is 16 bytes (uuid.h).
    unsafe {
        let copy = unguarded::allocate(16).cast::<u8>();
        copy.copy_from_nonoverlapping(id.as_bytes().as_ptr(), 16);
        pg_sys::Datum::from(copy)
    }
}

/// From a `uuid`.
///
/// # Safety
/// The datum is a `uuid`.
pub unsafe fn to_uuid(datum: pg_sys::Datum) -> uuid::Uuid {
    // SAFETY: the caller's promise.
    unsafe { uuid::Uuid::from_bytes(*datum.cast_mut_ptr::<[u8; 16]>()) }
}

/// `jsonb`.
pub fn jsonb(json: &Value) -> pg_sys::Datum {
    let text = json.to_string();
    let text = from_utf8(&text);
    // SAFETY: jsonb_in takes a zero-terminated string, which pnstrdup makes; JSON has no other zero byte.
    unsafe {
        let text = pg_sys::pnstrdup(text.as_ptr().cast(), text.len());
        direct_function_call_as_datum(pg_sys::jsonb_in, &[Some(text.into())])
    }
    .unwrap_or(pg_sys::Datum::null())
}

/// What `make` allocates, for as long as the backend lives.
pub fn for_ever(make: impl FnOnce() -> pg_sys::Datum) -> pg_sys::Datum {
    // SAFETY: the context is never reset; an error puts the caller's back, as every abort does.
    unsafe {
        let context = pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
        let made = make();
        pg_sys::MemoryContextSwitchTo(context);
        made
    }
}

/// The text of a `jsonb` in UTF-8; `None` where it holds bytes that are not valid (see [`to_utf8`]).
///
/// # Safety
/// The datum is a `jsonb`.
pub unsafe fn jsonb_text<'a>(datum: pg_sys::Datum) -> Option<&'a str> {
    // SAFETY: the caller's promise; jsonb_out returns a zero-terminated string.
    let text = unsafe {
        let text = direct_function_call_as_datum(pg_sys::jsonb_out, &[Some(datum)]);
        text.map_or(c"null", |text| CStr::from_ptr(text.cast_mut_ptr()))
    };
    to_utf8(text.to_bytes())
}

/// Whether the names and strings of a `jsonb` are valid (see [`is_valid`]): what is stored as it is, is
/// not written out.
///
/// # Safety
/// The datum is a `jsonb`.
pub unsafe fn is_valid_jsonb(datum: pg_sys::Datum) -> bool {
    let is_fine = |value: &pg_sys::JsonbValue| {
        // SAFETY: a value of this type has a string, which is as long as it says (jsonb.h).
        value.type_ != pg_sys::jbvType::jbvString
            || unsafe {
                let string = value.val.string;
                is_valid(std::slice::from_raw_parts(string.val.cast(), string.len as usize))
            }
    };
    // SAFETY: the caller's promise.
    unsafe { all_values(datum, is_fine) }
}

/// Whether the numbers of a `jsonb` come to so many characters at most when they are written out: ten
/// bytes may stand for a hundred thousand digits.
///
/// # Safety
/// The datum is a `jsonb`.
pub unsafe fn has_short_numbers(datum: pg_sys::Datum, most: usize) -> bool {
    let mut written = 0;
    let is_short = |value: &pg_sys::JsonbValue| {
        if value.type_ == pg_sys::jbvType::jbvNumeric {
            // SAFETY: a value of this type has a number.
            written += unsafe { numeric_length(value.val.numeric) };
        }
        written <= most
    };
    // SAFETY: the caller's promise.
    unsafe { all_values(datum, is_short) }
}

/// Whether all names and scalars of a `jsonb` are such; at the first that is not, it ends.
unsafe fn all_values(
    datum: pg_sys::Datum,
    mut is_such: impl FnMut(&pg_sys::JsonbValue) -> bool,
) -> bool {
    // SAFETY: the steps of JsonbToCStringWorker (jsonb.c), which does not recurse; these tokens have a
    // value, and it points into the jsonb.
    unsafe {
        let jsonb = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast::<pg_sys::Jsonb>();
        let mut iterator = pg_sys::JsonbIteratorInit(&raw mut (*jsonb).root);
        let mut value = pg_sys::JsonbValue::default();
        loop {
            use pg_sys::JsonbIteratorToken::{WJB_DONE, WJB_ELEM, WJB_KEY, WJB_VALUE};
            check_for_interrupts!();
            let token = pg_sys::JsonbIteratorNext(&mut iterator, &mut value, false);
            if token == WJB_DONE {
                return true;
            }
            if [WJB_KEY, WJB_ELEM, WJB_VALUE].contains(&token) && !is_such(&value) {
                return false;
            }
        }
    }
}

/// How long a `numeric` is when written out.
unsafe fn numeric_length(numeric: pg_sys::Numeric) -> usize {
    // SAFETY: the caller's numeric; numeric_out returns a zero-terminated string.
    unsafe {
        let text = direct_function_call_as_datum(pg_sys::numeric_out, &[Some(numeric.into())]);
        text.map_or(0, |text| {
            let length = CStr::from_ptr(text.cast_mut_ptr()).count_bytes();
            pg_sys::pfree(text.cast_mut_ptr());
            length
        })
    }
}

/// One `jsonb` object with the members of both, the second one's where they share a name.
///
/// # Safety
/// Both datums are `jsonb`.
pub unsafe fn jsonb_concat(one: pg_sys::Datum, other: pg_sys::Datum) -> pg_sys::Datum {
    // SAFETY: the caller's promise.
    unsafe { direct_function_call_as_datum(pg_sys::jsonb_concat, &[Some(one), Some(other)]) }
        .unwrap_or(one)
}

/// The bytes of a detoasted varlena, for as long as its owner is there: an argument, a row, a datum.
///
/// # Safety
/// The pointer is to a varlena that is not compressed or external, and lives as long as its owner.
pub unsafe fn varlena_bytes<Owner: ?Sized>(
    _owner: &Owner,
    varlena: *const pg_sys::varlena,
) -> &[u8] {
    // SAFETY: the caller's promise.
    unsafe {
        let length = pgrx::varsize_any_exhdr(varlena);
        std::slice::from_raw_parts(pgrx::vardata_any(varlena).cast(), length)
    }
}

/// The bytes of a varlena datum, detoasted where needed, for as long as its owner is there. What detoasting
/// allocates lives as long as the call, and so as long as any owner. Raises what detoasting raises.
///
/// # Safety
/// The datum is a varlena that lives as long as its owner.
pub unsafe fn bytes<Owner: ?Sized>(owner: &Owner, datum: pg_sys::Datum) -> &[u8] {
    // SAFETY: the caller's promise.
    unsafe { varlena_bytes(owner, detoasted(datum)) }
}

/// The varlena as it can be read: itself, unless it is compressed or stored elsewhere.
///
/// # Safety
/// The datum is a varlena.
pub unsafe fn detoasted(datum: pg_sys::Datum) -> *mut pg_sys::varlena {
    let varlena = datum.cast_mut_ptr::<pg_sys::varlena>();
    // SAFETY: the caller's promise; what pg_detoast_datum_packed returns unchanged (fmgr.c).
    unsafe {
        let is_plain = pgrx::varatt_is_4b_u(varlena)
            || (pgrx::varatt_is_1b(varlena) && !pgrx::varatt_is_1b_e(varlena));
        if is_plain { varlena } else { pg_sys::pg_detoast_datum_packed(varlena) }
    }
}

/// How many elements an array has; `None` where it has several dimensions.
///
/// # Safety
/// The datum is an array.
pub unsafe fn array_length(array: pg_sys::Datum) -> Option<usize> {
    // SAFETY: the caller's promise; the lengths of the dimensions follow the header (array.h).
    unsafe {
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        match (*array).ndim {
            0 => Some(0),
            1 => Some(*array.add(1).cast::<i32>() as usize),
            _ => None,
        }
    }
}

/// The elements of an array of a varlena type; `None` where it has several dimensions. Who calls has
/// looked at its length: the elements are listed in Rust's memory.
///
/// # Safety
/// The datum is an array of `element_type`, which is a varlena.
pub unsafe fn array_elements(
    array: pg_sys::Datum,
    element_type: pg_sys::Oid,
) -> Option<Vec<Option<pg_sys::Datum>>> {
    let (mut values, mut nulls, mut length) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    // SAFETY: the caller's promise; a varlena has typlen -1 and alignment `i`.
    unsafe {
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        if (*array).ndim > 1 {
            return None;
        }
        pg_sys::deconstruct_array(
            array,
            element_type,
            -1,
            false,
            b'i' as i8,
            &mut values,
            &mut nulls,
            &mut length,
        );
        let element = |i: usize| (!*nulls.add(i)).then(|| *values.add(i));
        Some((0..length as usize).map(element).collect())
    }
}

/// A name as SQL takes it, quoted where that is needed. Raises what [`stored_utf8`] raises.
pub fn quote(name: &CStr) -> String {
    // SAFETY: zero-terminated in and out.
    let quoted = unsafe { CStr::from_ptr(pg_sys::quote_identifier(name.as_ptr())) };
    stored_utf8(quoted.to_bytes()).to_owned()
}

/// What is stored, in UTF-8. Raises XX001 where it is not valid (see [`is_valid`]): nothing writes such
/// bytes through a function of ours.
pub fn stored_utf8(server: &[u8]) -> &str {
    to_utf8(server).unwrap_or_else(|| Error::stored_not_encoded().raise())
}

/// From the database's encoding; `None` where the bytes are not valid (see [`is_valid`]). Raises where a
/// character has no equivalent in UTF-8. What has to be converted is in PostgreSQL's memory, not in
/// Rust's, and lives as long as the call.
pub fn to_utf8(server: &[u8]) -> Option<&str> {
    if has_utf8() {
        return str::from_utf8(server).ok();
    }
    if !is_valid(server) {
        return None;
    }
    // SAFETY: the conversion returns either the same pointer or a new zero-terminated string
    // (mbutils.c).
    let converted = unsafe {
        let pointer = server.as_ptr().cast();
        let encoding = pg_sys::pg_enc::PG_UTF8 as c_int;
        let converted = pg_sys::pg_server_to_any(pointer, server.len() as c_int, encoding);
        if std::ptr::eq(converted, pointer) { server } else { CStr::from_ptr(converted).to_bytes() }
    };
    str::from_utf8(converted).ok()
}

/// Whether bytes are valid in the database's encoding, and in UTF-8 where that is SQL_ASCII, which has
/// no rule. The server does not see to it: it does not check the settings that a session starts with,
/// and `current_setting` returns them as they came.
pub fn is_valid(server: &[u8]) -> bool {
    if has_utf8() {
        return str::from_utf8(server).is_ok();
    }
    // SAFETY: told so, it raises nothing (mbutils.c). No value of PostgreSQL's is longer than an int.
    unsafe {
        let encoding = unguarded::GetDatabaseEncoding();
        unguarded::pg_verify_mbstr(encoding, server.as_ptr().cast(), server.len() as c_int, true)
    }
}

/// The name of the encoding that texts have to be valid in.
pub fn encoding() -> &'static str {
    // SAFETY: a name from a table of the server's; all of them are ASCII (encnames.c).
    let name = unsafe { CStr::from_ptr(pg_sys::GetDatabaseEncodingName()) };
    if has_utf8() { "UTF8" } else { name.to_str().unwrap_or_default() }
}

/// Into the database's encoding; raises where a character has no equivalent there. As in [`to_utf8`],
/// what has to be converted is in PostgreSQL's memory.
fn from_utf8(utf8: &str) -> &[u8] {
    // A zero byte is for the server to refuse.
    if is_utf8_database() && !utf8.as_bytes().contains(&0) {
        return utf8.as_bytes();
    }
    // SAFETY: as for to_utf8, in the other direction.
    unsafe {
        let pointer = utf8.as_ptr().cast();
        let encoding = pg_sys::pg_enc::PG_UTF8 as c_int;
        let converted = pg_sys::pg_any_to_server(pointer, utf8.len() as c_int, encoding);
        if std::ptr::eq(converted, pointer) {
            return utf8.as_bytes();
        }
        CStr::from_ptr(converted).to_bytes()
    }
}

fn is_utf8_database() -> bool {
    database_encoding() == pg_sys::pg_enc::PG_UTF8
}

/// Whether texts are UTF-8: a database in SQL_ASCII stores what it is given, and is given UTF-8.
fn has_utf8() -> bool {
    is_utf8_database() || database_encoding() == pg_sys::pg_enc::PG_SQL_ASCII
}

fn database_encoding() -> pg_sys::pg_enc::Type {
    // SAFETY: a plain read; not kept, because a process has no database at first.
    unsafe { unguarded::GetDatabaseEncoding() as pg_sys::pg_enc::Type }
}
