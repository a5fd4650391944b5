//! PostgreSQL's functions without the guard that pgrx puts around each call of one.
//!
//! The guard (a saved jump buffer) turns an error of PostgreSQL's into a panic, so that Rust's frames
//! unwind. It costs about a hundred instructions, and a claim makes dozens of calls. Two kinds of calls
//! can do without one each: those of functions that raise nothing whatever happens, and several calls
//! one after the other, with nothing in between that would have to unwind: [`together`].

use pgrx::pg_sys::{
    self, AttrNumber, Datum, EState, HeapTuple, HeapTupleHeader, Index, IndexScanDesc, LOCKMODE,
    LOCKTAG, List, LockAcquireResult, MemoryContext, MemoryContextCallback, Oid, RegProcedure,
    Relation, ResultRelInfo, ScanDirection, ScanKey, StrategyNumber, TimestampTz, TransactionId,
    TupleDesc, TupleTableSlot, TupleTableSlotOps,
};
use std::ffi::{c_char, c_int, c_void};
use std::mem::needs_drop;

use crate::majors::{Nulls, Values};

/// Runs several of these functions behind one guard.
///
/// # Safety
/// An error of PostgreSQL's jumps out of `f` and leaves its frames as they are: nothing in them may
/// have a destructor, and `f` must not panic. The compiler checks what `f` owns and returns.
pub unsafe fn together<F: FnOnce() -> R, R>(f: F) -> R {
    const { assert!(!needs_drop::<F>() && !needs_drop::<R>(), "an error would jump over a destructor") };
    // SAFETY: the caller's promise. An error of PostgreSQL's becomes a panic here, behind `f`.
    unsafe { pgrx::pg_sys::ffi::pg_guard_ffi_boundary(f) }
}

/// The most that one piece of memory can have (memutils.h).
const MAX_ALLOC_SIZE: usize = 0x3fff_ffff;

/// So many bytes of the current memory context. Raises what palloc raises.
pub fn allocate(size: usize) -> *mut c_void {
    // SAFETY: of this size, and told not to for want of memory, palloc_extended raises nothing (mcxt.c).
    // What it would have raised, palloc does, which is guarded.
    unsafe {
        let no_error = pg_sys::MCXT_ALLOC_NO_OOM as c_int;
        let allowed = size <= MAX_ALLOC_SIZE;
        let memory = if allowed { palloc_extended(size, no_error) } else { std::ptr::null_mut() };
        if memory.is_null() { pg_sys::palloc(size) } else { memory }
    }
}

/// Declares functions of PostgreSQL's. The compiler compares each with pgrx' declaration of it, which is made of
/// the headers of the major version that is built for: another argument is an error here.
macro_rules! as_pgrx_declares {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        unsafe extern "C-unwind" {
            $($(#[$doc])* $vis fn $name($($arg: $kind),*) $(-> $result)?;)*
        }
        $(const _: unsafe fn($($kind),*) $(-> $result)? = pg_sys::$name;)*
    };
}

as_pgrx_declares! {
    fn palloc_extended(size: usize, flags: c_int) -> *mut c_void;
}

// Nothing is raised by these: each reads or sets variables of this backend's, or reads the clock.
as_pgrx_declares! {
    pub fn GetCurrentTimestamp() -> TimestampTz;
    pub fn GetCurrentTransactionNestLevel() -> c_int;
    pub fn GetDatabaseEncoding() -> c_int;
    pub fn GetTopTransactionIdIfAny() -> TransactionId;
    pub fn GetUserIdAndSecContext(user: *mut Oid, context: *mut c_int);
    pub fn IsInParallelMode() -> bool;
    pub fn MemoryContextRegisterResetCallback(
        context: MemoryContext,
        callback: *mut MemoryContextCallback,
    );
    pub fn SetUserIdAndSecContext(user: Oid, context: c_int);
}

as_pgrx_declares! {
    /// Raises nothing where `no_error` says so.
    pub fn pg_verify_mbstr(
        encoding: c_int,
        bytes: *const c_char,
        length: c_int,
        no_error: bool,
    ) -> bool;
}

// For `together` only.
as_pgrx_declares! {
    pub fn AfterTriggerBeginQuery();
    pub fn AfterTriggerEndQuery(estate: *mut EState);
    pub fn CreateExecutorState() -> *mut EState;
    pub fn DecrTupleDescRefCount(descriptor: TupleDesc);
    pub fn ExecCloseIndices(target: *mut ResultRelInfo);
    pub fn ExecDropSingleTupleTableSlot(slot: *mut TupleTableSlot);
    pub fn ExecFetchSlotHeapTuple(
        slot: *mut TupleTableSlot,
        materialize: bool,
        should_free: *mut bool,
    ) -> HeapTuple;
    pub fn ExecInitExtraTupleSlot(
        estate: *mut EState,
        descriptor: TupleDesc,
        ops: *const TupleTableSlotOps,
    ) -> *mut TupleTableSlot;
    pub fn ExecOpenIndices(target: *mut ResultRelInfo, speculative: bool);
    pub fn ExecResetTupleTable(slots: *mut List, should_free: bool);
    pub fn ExecSimpleRelationInsert(
        target: *mut ResultRelInfo,
        estate: *mut EState,
        slot: *mut TupleTableSlot,
    );
    pub fn ExecStoreAllNullTuple(slot: *mut TupleTableSlot) -> *mut TupleTableSlot;
    pub fn FreeExecutorState(estate: *mut EState);
    pub fn HeapTupleHeaderGetDatum(tuple: HeapTupleHeader) -> Datum;
    pub fn InitResultRelInfo(
        target: *mut ResultRelInfo,
        relation: Relation,
        range_table_index: Index,
        partition_root: *mut ResultRelInfo,
        instrument: c_int,
    );
    pub fn LockAcquire(
        tag: *const LOCKTAG,
        lock: LOCKMODE,
        for_session: bool,
        dont_wait: bool,
    ) -> LockAcquireResult::Type;
    pub fn LockRelationOid(relation: Oid, lock: LOCKMODE);
    pub fn MemoryContextAlloc(context: MemoryContext, size: usize) -> *mut c_void;
    pub fn ScanKeyInit(
        key: ScanKey,
        column: AttrNumber,
        strategy: StrategyNumber,
        function: RegProcedure,
        value: Datum,
    );
    pub fn UnlockRelationOid(relation: Oid, lock: LOCKMODE);
    pub fn get_func_rettype(function: Oid) -> Oid;
    pub fn heap_copytuple(tuple: HeapTuple) -> HeapTuple;
    pub fn heap_deform_tuple(
        tuple: HeapTuple,
        descriptor: TupleDesc,
        values: *mut Datum,
        nulls: *mut bool,
    );
    pub fn heap_form_tuple(
        descriptor: TupleDesc,
        values: Values,
        nulls: Nulls,
    ) -> HeapTuple;
    pub fn index_close(index: Relation, lock: LOCKMODE);
    pub fn index_endscan(scan: IndexScanDesc);
    pub fn index_getnext_slot(
        scan: IndexScanDesc,
        direction: ScanDirection::Type,
        slot: *mut TupleTableSlot,
    ) -> bool;
    pub fn index_open(index: Oid, lock: LOCKMODE) -> Relation;
    pub fn index_rescan(
        scan: IndexScanDesc,
        keys: ScanKey,
        key_count: c_int,
        order_bys: ScanKey,
        order_by_count: c_int,
    );
    pub fn lappend(list: *mut List, datum: *mut c_void) -> *mut List;
    pub fn lookup_rowtype_tupdesc(row_type: Oid, modifier: i32) -> TupleDesc;
    pub fn palloc(size: usize) -> *mut c_void;
    pub fn palloc0(size: usize) -> *mut c_void;
    pub fn pfree(memory: *mut c_void);
    pub fn table_open(table: Oid, lock: LOCKMODE) -> Relation;
    pub fn table_slot_create(relation: Relation, slots: *mut *mut List) -> *mut TupleTableSlot;
}
