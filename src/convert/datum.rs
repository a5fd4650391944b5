//! Single datums.

use std::ffi::{CStr, CString, c_int};

use pgrx::datum::DatumWithOid;
use pgrx::fcinfo::direct_function_call_as_datum;
use pgrx::pg_sys;
use serde_json::Value;

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

/// From a `jsonb`, by way of its text; `None` where a number is beyond a double, or the nesting beyond
/// what is read.
///
/// # Safety
/// The datum is a `jsonb`.
pub unsafe fn to_json(datum: pg_sys::Datum) -> Option<Value> {
    // SAFETY: the caller's promise.
    let text = unsafe { jsonb_text(datum) };
    serde_json::from_str(to_utf8(text.to_bytes())).ok()
}

/// Whether the numbers of a `jsonb` come to so many characters at most when they are written out: ten
/// bytes may stand for a hundred thousand digits.
///
/// # Safety
/// The datum is a `jsonb`.
pub unsafe fn has_short_numbers(datum: pg_sys::Datum, most: usize) -> bool {
    let mut written = 0;
    // SAFETY: the steps of JsonbToCStringWorker (jsonb.c); a token of a scalar has a value of its type.
    unsafe {
        let jsonb = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast::<pg_sys::Jsonb>();
        let mut iterator = pg_sys::JsonbIteratorInit(&raw mut (*jsonb).root);
        let mut value = pg_sys::JsonbValue::default();
        loop {
            use pg_sys::JsonbIteratorToken::{WJB_DONE, WJB_ELEM, WJB_VALUE};
            let token = pg_sys::JsonbIteratorNext(&mut iterator, &mut value, false);
            let is_scalar = token == WJB_ELEM || token == WJB_VALUE;
            if token == WJB_DONE {
                return true;
            }
            if is_scalar && value.type_ == pg_sys::jbvType::jbvNumeric {
                written += numeric_length(value.val.numeric);
            }
            if written > most {
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

/// The text of a `jsonb` as `bytea` in UTF-8.
///
/// # Safety
/// The datum is a `jsonb`.
pub unsafe fn jsonb_to_bytea(datum: pg_sys::Datum) -> pg_sys::Datum {
    // SAFETY: the caller's promise.
    let text = unsafe { jsonb_text(datum) };
    bytea(to_utf8(text.to_bytes()).as_bytes())
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

/// The bytes of a detoasted varlena.
///
/// # Safety
/// The pointer is to a varlena that is not compressed or external, and lives for `'a`.
pub unsafe fn varlena_bytes<'a>(varlena: *const pg_sys::varlena) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe {
        let length = pgrx::varsize_any_exhdr(varlena);
        std::slice::from_raw_parts(pgrx::vardata_any(varlena).cast(), length)
    }
}

/// The bytes of a varlena datum, detoasted where needed.
///
/// # Safety
/// The datum is a varlena that lives for `'a`.
pub unsafe fn bytes<'a>(datum: pg_sys::Datum) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { varlena_bytes(detoasted(datum)) }
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

/// A name as SQL takes it, quoted where that is needed.
pub fn quote(name: &CStr) -> String {
    // SAFETY: zero-terminated in and out.
    let quoted = unsafe { CStr::from_ptr(pg_sys::quote_identifier(name.as_ptr())) };
    to_utf8(quoted.to_bytes()).to_owned()
}

/// From the database's encoding. What has to be converted is in PostgreSQL's memory, not in
/// Rust's, and lives as long as the call.
pub fn to_utf8(server: &[u8]) -> &str {
    if is_utf8_database() {
        // SAFETY: what the server holds is valid in its encoding; it would return it as it is.
        return unsafe { str::from_utf8_unchecked(server) };
    }
    // SAFETY: the conversion returns either the same pointer or a new zero-terminated string, in
    // UTF-8 both; it raises where the bytes cannot be converted (mbutils.c).
    unsafe {
        let pointer = server.as_ptr().cast();
        let encoding = pg_sys::pg_enc::PG_UTF8 as c_int;
        let converted = pg_sys::pg_server_to_any(pointer, server.len() as c_int, encoding);
        if std::ptr::eq(converted, pointer) {
            return str::from_utf8_unchecked(server);
        }
        str::from_utf8_unchecked(CStr::from_ptr(converted).to_bytes())
    }
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
    // SAFETY: a plain read; not kept, because a process has no database at first.
    unsafe { unguarded::GetDatabaseEncoding() == pg_sys::pg_enc::PG_UTF8 as c_int }
}

unsafe fn jsonb_text<'a>(datum: pg_sys::Datum) -> &'a CStr {
    // SAFETY: the caller's promise; jsonb_out returns a zero-terminated string.
    unsafe {
        let text = direct_function_call_as_datum(pg_sys::jsonb_out, &[Some(datum)]);
        text.map_or(c"null", |text| CStr::from_ptr(text.cast_mut_ptr()))
    }
}
