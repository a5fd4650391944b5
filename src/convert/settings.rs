//! Reads the values of settings that are PostgreSQL's own types.

use std::ffi::{CStr, CString};

use idempotency_core::policy::Span;
use idempotency_core::settings::Types;
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::majors;
use crate::session::subtransaction::attempt;

/// What is looked up besides reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// Nothing: the settings were checked when they were set.
    Nothing,
    /// Whether named functions exist.
    Functions,
}

/// This server's types.
pub struct Server(pub Checks);

/// The longest retention: 10,000 years keep every sum within PostgreSQL's timestamps.
const MAX_DAYS: i64 = 10_000 * 366;

impl Types for Server {
    fn interval(&self, text: &str) -> Option<Span> {
        let interval = input(text, pg_sys::INTERVALOID)?;
        // SAFETY: interval_in returned it.
        let interval = unsafe { *interval.cast_mut_ptr::<pg_sys::Interval>() };
        let span = Span { months: interval.month, days: interval.day, micros: interval.time };
        let days =
            i64::from(span.months) * 30 + i64::from(span.days) + span.micros / 86_400_000_000;
        let is_positive = span.months >= 0
            && span.days >= 0
            && span.micros >= 0
            && span != Span { months: 0, days: 0, micros: 0 };
        (is_positive && days <= MAX_DAYS).then_some(span)
    }

    fn ranges(&self, text: &str) -> Option<Vec<(i32, i32)>> {
        let multirange = input(text, pg_sys::INT4MULTIRANGEOID)?;
        let canonical = output(multirange, pg_sys::INT4MULTIRANGEOID);
        canonical
            .trim_matches(['{', '}'])
            .split("),")
            .filter(|range| !range.is_empty())
            .map(range)
            .collect()
    }

    fn is_completion_check(&self, name: &str) -> bool {
        match self.0 {
            Checks::Nothing => true,
            Checks::Functions => {
                qualified_name(name).is_some_and(|(schema, function)| is_check(&schema, &function))
            }
        }
    }
}

/// Schema and name of a function, read as an SQL name; `None` where it is not just these two.
pub fn qualified_name(name: &str) -> Option<(CString, CString)> {
    let name = super::datum::cstring(name)?;
    attempt(
        // SAFETY: a zero-terminated string; what it raises is caught.
        move || unsafe {
            let parts = majors::qualified_name(&name);
            let part = |i: usize| {
                parts.get_ptr(i).map(|node| CStr::from_ptr(string_value(node)).to_owned())
            };
            if parts.len() == 2 { part(0).zip(part(1)) } else { None }
        },
        |code| {
            code == PgSqlErrorCode::ERRCODE_INVALID_NAME
                || code == PgSqlErrorCode::ERRCODE_SYNTAX_ERROR
        },
    )
    .flatten()
}

/// A value of a type from its text; `None` where the text does not fit the type.
pub fn input(text: &str, value_type: pg_sys::Oid) -> Option<pg_sys::Datum> {
    let text = super::datum::cstring(text)?;
    attempt(
        // SAFETY: the type exists; what its input function raises is caught.
        move || unsafe {
            let (mut function, mut parameter) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
            pg_sys::getTypeInputInfo(value_type, &mut function, &mut parameter);
            pg_sys::OidInputFunctionCall(function, text.as_ptr().cast_mut(), parameter, -1)
        },
        is_data_exception,
    )
}

/// Class 22, and what domains raise.
fn is_data_exception(code: PgSqlErrorCode) -> bool {
    let class = (code as i32) & 0xFFF;
    class == (PgSqlErrorCode::ERRCODE_DATA_EXCEPTION as i32) & 0xFFF
        || code == PgSqlErrorCode::ERRCODE_CHECK_VIOLATION
}

fn output(value: pg_sys::Datum, value_type: pg_sys::Oid) -> String {
    // SAFETY: the value is of the type; its output function returns a zero-terminated string.
    unsafe {
        let (mut function, mut is_varlena) = (pg_sys::InvalidOid, false);
        pg_sys::getTypeOutputInfo(value_type, &mut function, &mut is_varlena);
        CStr::from_ptr(pg_sys::OidOutputFunctionCall(function, value))
            .to_string_lossy()
            .into_owned()
    }
}

/// One range in canonical form, `[200,300` or `(,300` or `[200,`, as inclusive bounds.
fn range(canonical: &str) -> Option<(i32, i32)> {
    let (lower, upper) = canonical.trim_matches(['[', '(', ')']).split_once(',')?;
    let lower = if lower.is_empty() { i32::MIN } else { lower.parse().ok()? };
    let upper =
        if upper.is_empty() { i32::MAX } else { upper.parse::<i32>().ok()?.saturating_sub(1) };
    Some((lower, upper))
}

fn is_check(schema: &CStr, function: &CStr) -> bool {
    check_function(schema, function).is_some_and(returns_boolean)
}

/// The function of this name that takes what a completion check takes.
pub fn check_function(schema: &CStr, function: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: look-ups in the system catalogs by zero-terminated names; a schema that is not there
    // is looked for first, because the function's look-up would raise.
    unsafe {
        if pg_sys::get_namespace_oid(schema.as_ptr(), true) == pg_sys::InvalidOid {
            return None;
        }
        let mut name = pgrx::PgList::<pg_sys::Node>::new();
        for part in [schema, function] {
            name.push(pg_sys::makeString(pg_sys::pstrdup(part.as_ptr())).cast());
        }
        let arguments = [pg_sys::TEXTOID, pg_sys::TEXTOID, pg_sys::INT4OID];
        let oid = pg_sys::LookupFuncName(name.into_pg(), 3, arguments.as_ptr(), true);
        (oid != pg_sys::InvalidOid).then_some(oid)
    }
}

/// Whether a function returns one boolean; a set, an aggregate or a procedure does not.
pub fn returns_boolean(function: pg_sys::Oid) -> bool {
    // SAFETY: look-ups in the system cache by an OID that was just found there.
    unsafe {
        pg_sys::get_func_prokind(function) as u8 == pg_sys::PROKIND_FUNCTION
            && pg_sys::get_func_rettype(function) == pg_sys::BOOLOID
            && !pg_sys::get_func_retset(function)
    }
}

unsafe fn string_value(node: *mut pg_sys::Node) -> *const std::ffi::c_char {
    // SAFETY: an element of a name list is a String node.
    unsafe { (*node.cast::<pg_sys::String>()).sval }
}
