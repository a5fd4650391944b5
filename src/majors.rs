//! What has another name or shape in other major versions of PostgreSQL: the only place that asks
//! which one this is built for.

use std::ffi::{CStr, c_int};

use pgrx::pg_sys::{self, IndexScanDesc, Oid, Relation, Snapshot};

/// How many transactions that had a transaction id have ended; the struct was renamed in 17
/// (transam.h).
///
/// # Safety
/// For backends only: the struct is set up before any of them runs.
pub unsafe fn xact_completion_count() -> u64 {
    // SAFETY: the caller's promise; eight aligned bytes are read in one piece.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        let counted = pg_sys::ShmemVariableCache;
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let counted = pg_sys::TransamVariables;
        (&raw const (*counted).xactCompletionCount).read_volatile()
    }
}

/// Has a backend's signal handled; 18 has two functions for it, and this is the one for backends
/// (port.h).
///
/// # Safety
/// The handler does only what a handler may.
pub unsafe fn handle_signal(signal: u32, handler: unsafe extern "C-unwind" fn(c_int)) {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(signal as c_int, Some(handler));
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(signal as c_int, Some(handler));
    }
}

/// The parts of a qualified name; since 16 it says where an error goes, which is NULL for "raise it".
///
/// # Safety
/// A zero-terminated string. It raises where that is no name.
pub unsafe fn qualified_name(name: &CStr) -> pgrx::PgList<pg_sys::Node> {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(feature = "pg15")]
        let parts = pg_sys::stringToQualifiedNameList(name.as_ptr());
        #[cfg(not(feature = "pg15"))]
        let parts = pg_sys::stringToQualifiedNameList(name.as_ptr(), std::ptr::null_mut());
        pgrx::PgList::from_pg(parts)
    }
}

/// The attributes of a tuple descriptor; in 18 they lie behind the compact ones (tupdesc.h).
///
/// # Safety
/// A valid descriptor, which outlives the result.
pub unsafe fn attributes<'a>(descriptor: pg_sys::TupleDesc) -> &'a [pg_sys::FormData_pg_attribute] {
    // SAFETY: a descriptor has as many attributes as it says.
    unsafe {
        let count = (*descriptor).natts as usize;
        #[cfg(not(feature = "pg18"))]
        return (*descriptor).attrs.as_slice(count);
        #[cfg(feature = "pg18")]
        return std::slice::from_raw_parts(
            (*descriptor).compact_attrs.as_ptr().add(count).cast(),
            count,
        );
    }
}

// For [`crate::unguarded::together`] only, as the two functions that call them.
unsafe extern "C-unwind" {
    #[cfg(not(feature = "pg18"))]
    fn RelationGetPrimaryKeyIndex(relation: Relation) -> Oid;
    #[cfg(feature = "pg18")]
    fn RelationGetPrimaryKeyIndex(relation: Relation, deferrable_ok: bool) -> Oid;
    #[cfg(not(feature = "pg18"))]
    #[link_name = "index_beginscan"]
    fn begin_scan(
        relation: Relation,
        index: Relation,
        snapshot: Snapshot,
        keys: c_int,
        order_bys: c_int,
    ) -> IndexScanDesc;
    #[cfg(feature = "pg18")]
    #[link_name = "index_beginscan"]
    fn begin_scan(
        relation: Relation,
        index: Relation,
        snapshot: Snapshot,
        instrumentation: *mut pg_sys::IndexScanInstrumentation,
        keys: c_int,
        order_bys: c_int,
    ) -> IndexScanDesc;
}

/// The index of a table's primary key; in 18 one says whether it may be deferrable.
///
/// # Safety
/// An open relation; in [`crate::unguarded::together`].
pub unsafe fn primary_key(relation: Relation) -> Oid {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return RelationGetPrimaryKeyIndex(relation);
        #[cfg(feature = "pg18")]
        return RelationGetPrimaryKeyIndex(relation, false);
    }
}

/// Starts an index scan; in 18 one can have it measured.
///
/// # Safety
/// As index_beginscan says; in [`crate::unguarded::together`].
pub unsafe fn index_beginscan(
    relation: Relation,
    index: Relation,
    snapshot: Snapshot,
    keys: i32,
) -> IndexScanDesc {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return begin_scan(relation, index, snapshot, keys, 0);
        #[cfg(feature = "pg18")]
        return begin_scan(relation, index, snapshot, std::ptr::null_mut(), keys, 0);
    }
}

/// A state for rechecking rows that others changed, without a plan; since 16 one names the result
/// relations.
///
/// # Safety
/// A valid executor state, which outlives `epq`.
pub unsafe fn init_recheck(epq: &mut pg_sys::EPQState, estate: *mut pg_sys::EState) {
    let (no_plan, no_marks) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(feature = "pg15")]
        pg_sys::EvalPlanQualInit(epq, estate, no_plan, no_marks, -1);
        #[cfg(not(feature = "pg15"))]
        pg_sys::EvalPlanQualInit(epq, estate, no_plan, no_marks, -1, std::ptr::null_mut());
    }
}

/// The values of a row, as heap_form_tuple() takes them.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub type Values = *mut pg_sys::Datum;
/// The values of a row, as heap_form_tuple() takes them.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub type Values = *const pg_sys::Datum;

/// Which of them are NULL.
#[cfg(any(feature = "pg15", feature = "pg16"))]
pub type Nulls = *mut bool;
/// Which of them are NULL.
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
pub type Nulls = *const bool;
