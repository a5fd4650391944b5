//! Results that are not an outcome.

use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::pg_sys;

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
