//! The composite `idempotency_outcome`, and rows of it with an ordinal.

use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::pg_sys;

use idempotency_core::Micros;
use idempotency_core::problem::Answer;

use super::datum;
use crate::error::Error;
use crate::{majors, unguarded};

/// How many columns the composite has.
pub const COLUMNS: usize = 15;

/// The columns, in the order of `sql/types.sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The outcome's word.
    Outcome,
    /// HTTP status.
    Status,
    /// Headers to send.
    Headers,
    /// Body to send.
    Body,
    /// Pointer: type.
    ResourceType,
    /// Pointer: id.
    ResourceId,
    /// The claim's token.
    Token,
    /// 1 for the first execution.
    Attempt,
    /// Last checkpoint.
    RecoveryPoint,
    /// Its data.
    RecoveryData,
    /// The recorded request's fingerprint.
    Fingerprint,
    /// When the key was won.
    CreatedAt,
    /// When the answer was recorded.
    CompletedAt,
    /// When the record expires.
    ExpiresAt,
    /// Seconds until a retry makes sense.
    RetryAfter,
}

const TYPES: [pg_sys::Oid; COLUMNS] = [
    pg_sys::TEXTOID,
    pg_sys::INT4OID,
    pg_sys::JSONBOID,
    pg_sys::BYTEAOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::UUIDOID,
    pg_sys::INT4OID,
    pg_sys::TEXTOID,
    pg_sys::JSONBOID,
    pg_sys::BYTEAOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::INT4OID,
];

/// An ordinal, and the same.
const BEHIND_ORDINAL: [pg_sys::Oid; COLUMNS + 1] = {
    let mut types = [pg_sys::INT4OID; COLUMNS + 1];
    types.split_at_mut(1).1.copy_from_slice(&TYPES);
    types
};

/// One value of `idempotency_outcome`. It may point into PostgreSQL's memory of the current call.
#[derive(Clone, Copy)]
pub struct Outcome {
    values: [pg_sys::Datum; COLUMNS],
    nulls: [bool; COLUMNS],
}

impl Outcome {
    /// An outcome with nothing but its word.
    pub fn new(word: &str) -> Self {
        let empty = Self { values: [pg_sys::Datum::null(); COLUMNS], nulls: [true; COLUMNS] };
        empty.with(Column::Outcome, Some(datum::text(word)))
    }

    /// A complete answer: status, headers, body.
    pub fn answer(word: &str, answer: &Answer) -> Self {
        Self::new(word)
            .with(Column::Status, Some(answer.status.into()))
            .with(Column::Headers, Some(datum::jsonb(&answer.headers.to_json())))
            .with(Column::Body, Some(datum::bytea(answer.body.as_bytes())))
    }

    /// Its word.
    pub fn word(&self) -> &str {
        let word = self.values[Column::Outcome as usize];
        // SAFETY: the column is a text that `new` has made.
        let bytes = unsafe { datum::varlena_bytes(self, word.cast_mut_ptr()) };
        str::from_utf8(bytes).unwrap_or_default()
    }

    /// With a column set; `None` is NULL.
    pub fn with(mut self, column: Column, value: Option<pg_sys::Datum>) -> Self {
        let i = column as usize;
        self.nulls[i] = value.is_none();
        self.values[i] = value.unwrap_or(pg_sys::Datum::null());
        self
    }

    /// With a timestamp set.
    pub fn at(self, column: Column, instant: Option<Micros>) -> Self {
        self.with(column, instant.map(pg_sys::Datum::from))
    }
}

// SAFETY: the SQL signature says `RETURNS idempotency_outcome`, and the tuple is formed by the
// descriptor of just that type.
unsafe impl BoxRet for Outcome {
    unsafe fn box_into<'fcx>(mut self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: the descriptor is pinned while the tuple is formed; HeapTupleHeaderGetDatum
        // replaces values that are still in a TOAST table, as a composite datum must not hold any.
        unsafe {
            let function = (*(*fcinfo.as_mut_ptr()).flinfo).fn_oid;
            let (values, nulls) = (self.values.as_mut_ptr(), self.nulls.as_mut_ptr());
            let composite = unguarded::together(|| {
                let result = unguarded::get_func_rettype(function);
                let descriptor = unguarded::lookup_rowtype_tupdesc(result, -1);
                if !has_columns(descriptor, &TYPES) {
                    release(descriptor);
                    return None;
                }
                let tuple = unguarded::heap_form_tuple(descriptor, values, nulls);
                release(descriptor);
                Some(unguarded::HeapTupleHeaderGetDatum((*tuple).t_data))
            });
            fcinfo.return_raw_datum(composite.unwrap_or_else(|| raise_unexpected()))
        }
    }
}

/// Whether a row has just the columns that it is to be filled with: what is no pointer must not be
/// taken for one.
pub unsafe fn has_columns(descriptor: pg_sys::TupleDesc, types: &[pg_sys::Oid]) -> bool {
    // SAFETY: the caller's descriptor is alive.
    let columns = unsafe { majors::attributes(descriptor) };
    columns.iter().map(|column| column.atttypid).eq(types.iter().copied())
}

/// The SQL objects are newer or older than this library.
#[cold]
fn raise_unexpected() -> ! {
    Error::not_installed("The type idempotency_outcome is not as expected.".into()).raise()
}

/// ReleaseTupleDesc of tupdesc.h: descriptors of the type cache are counted, others are not.
unsafe fn release(descriptor: pg_sys::TupleDesc) {
    // SAFETY: the caller holds one reference.
    unsafe {
        if (*descriptor).tdrefcount >= 0 {
            unguarded::DecrTupleDescRefCount(descriptor);
        }
    }
}

/// Outcomes in the caller's order, each to be returned behind its ordinal.
pub struct Rows(pub Vec<Outcome>);

// SAFETY: the SQL signature returns a set of just these columns; InitMaterializedSRF (funcapi.c)
// raises where the caller cannot take a set.
unsafe impl BoxRet for Rows {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: InitMaterializedSRF sets up the store and the descriptor that the rows are put by.
        unsafe {
            pg_sys::InitMaterializedSRF(fcinfo.as_mut_ptr(), 0);
            let result = (*fcinfo.as_mut_ptr()).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            if !has_columns((*result).setDesc, &BEHIND_ORDINAL) {
                raise_unexpected();
            }
            for (i, row) in self.0.iter().enumerate() {
                put_row(result, i as i32 + 1, row);
            }
        }
        fcinfo.return_null()
    }
}

unsafe fn put_row(result: *mut pg_sys::ReturnSetInfo, ordinal: i32, row: &Outcome) {
    let mut values = [pg_sys::Datum::from(ordinal); COLUMNS + 1];
    let mut nulls = [false; COLUMNS + 1];
    values[1..].copy_from_slice(&row.values);
    nulls[1..].copy_from_slice(&row.nulls);
    // SAFETY: the descriptor has an ordinal and the columns of the composite.
    unsafe {
        pg_sys::tuplestore_putvalues(
            (*result).setResult,
            (*result).setDesc,
            values.as_mut_ptr(),
            nulls.as_mut_ptr(),
        );
    }
}
