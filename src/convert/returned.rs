//! Results that are not an outcome.

use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::pg_sys;

use super::outcome::has_columns;
use crate::error::Error;

/// A datum of the type that the SQL signature returns.
pub struct Returned(pub pg_sys::Datum);

// SAFETY: who makes one keeps to the SQL signature.
unsafe impl BoxRet for Returned {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: see above.
        unsafe { fcinfo.return_raw_datum(self.0) }
    }
}

/// What a trigger function returns whose result is not looked at.
pub struct Done;

// SAFETY: after-statement triggers return a pointer that may be null, but not SQL's NULL (trigger.c).
unsafe impl BoxRet for Done {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: see above.
        unsafe { fcinfo.return_raw_datum(pg_sys::Datum::null()) }
    }
}

/// A row of values of the types that the SQL signature returns.
pub type Row<const COLUMNS: usize> = [Option<pg_sys::Datum>; COLUMNS];

/// A set of rows.
pub struct Set<const COLUMNS: usize> {
    /// The types of the columns.
    pub types: &'static [pg_sys::Oid; COLUMNS],
    /// The rows, of such columns.
    pub rows: Vec<Row<COLUMNS>>,
}

// SAFETY: the SQL signature returns a set of just these columns; InitMaterializedSRF (funcapi.c)
// raises where the caller cannot take a set.
unsafe impl<const COLUMNS: usize> BoxRet for Set<COLUMNS> {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: InitMaterializedSRF sets up the store and the descriptor that the rows are put by.
        unsafe {
            pg_sys::InitMaterializedSRF(fcinfo.as_mut_ptr(), 0);
            let result = (*fcinfo.as_mut_ptr()).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            let descriptor = (*result).setDesc;
            if !has_columns(descriptor, self.types) {
                Error::not_installed("A function returns other columns.".into()).raise();
            }
            for row in &self.rows {
                let mut values = row.map(|value| value.unwrap_or(pg_sys::Datum::null()));
                let mut nulls = row.map(|value| value.is_none());
                let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                pg_sys::tuplestore_putvalues((*result).setResult, descriptor, values, nulls);
            }
        }
        fcinfo.return_null()
    }
}
