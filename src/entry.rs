//! Where PostgreSQL comes in: the C functions that the SQL functions name.
//!
//! pgrx catches PostgreSQL's errors, and copies them into memory of PostgreSQL's. Where the error is that
//! there is no memory, the copy fails too, and so does the copy of that error, until PostgreSQL gives up
//! with a PANIC, which ends every session of the cluster. So each entry puts a callback on PostgreSQL's
//! list (elog.c), which runs before pgrx sees the error, and gives back the memory that was put by for it.
//!
//! An error jumps over an entry; who catches it takes the callback off the list, as it does with
//! PostgreSQL's own. So nothing here has a destructor.

use std::ffi::{c_char, c_int, c_void};
use std::mem::needs_drop;
use std::ptr::null_mut;

use pgrx::pg_sys;
use pgrx::{PgLogLevel, PgSqlErrorCode};

use crate::memory;

const OUT_OF_MEMORY: c_int = PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY as c_int;

// What PostgreSQL's ereport() is made of (elog.h), without pgrx's guards.
unsafe extern "C-unwind" {
    fn errstart(level: c_int, domain: *const c_char) -> bool;
    fn errcode(code: c_int) -> c_int;
    fn geterrcode() -> c_int;
    fn errmsg_internal(format: *const c_char, ...) -> c_int;
    fn errdetail_internal(format: *const c_char, ...) -> c_int;
    fn errfinish(file: *const c_char, line: c_int, function: *const c_char);
}

/// What is on PostgreSQL's list during a call, and what was there before.
struct Frame {
    callback: pg_sys::ErrorContextCallback,
    outer: *mut pg_sys::ErrorContextCallback,
}

/// Calls `f` such that an error for want of memory can be handled.
///
/// # Safety
/// `f` raises errors as C does, and never unwinds; the caller has nothing to drop. The compiler checks what `f`
/// owns and returns.
pub unsafe fn prepared<F: FnOnce() -> R, R>(f: F) -> R {
    const { assert!(!needs_drop::<F>() && !needs_drop::<R>(), "an error would jump over a destructor") };
    if !memory::put_by() {
        // SAFETY: the caller's promise.
        unsafe { refuse() };
    }
    // SAFETY: the list is this thread's, and the frame is on it only while this function runs.
    unsafe {
        let outer = pg_sys::error_context_stack;
        let callback = pg_sys::ErrorContextCallback {
            previous: outer,
            callback: Some(before_error),
            arg: null_mut(),
        };
        let mut frame = Frame { callback, outer };
        frame.callback.arg = (&raw mut frame).cast();
        pg_sys::error_context_stack = &raw mut frame.callback;
        let result = f();
        pg_sys::error_context_stack = outer;
        result
    }
}

/// Called by errfinish(). Who stands further out on the list would add what is being done there, a text
/// of any size: where memory is short that is left out.
unsafe extern "C-unwind" fn before_error(frame: *mut c_void) {
    let frame = frame.cast::<Frame>();
    // SAFETY: the argument is the frame, which lives while it is on the list.
    unsafe {
        let is_short = geterrcode() == OUT_OF_MEMORY;
        if is_short {
            memory::make_room_for_an_error();
        }
        (*frame).callback.previous = if is_short { null_mut() } else { (*frame).outer };
    }
}

/// 53200, without any memory but what PostgreSQL keeps for errors.
#[cold]
unsafe fn refuse() {
    // SAFETY: errstart() at ERROR or above returns true, or does not return; no text has a format.
    unsafe {
        if errstart(PgLogLevel::ERROR as c_int, std::ptr::null()) {
            errcode(OUT_OF_MEMORY);
            errmsg_internal(c"out of memory".as_ptr());
            errdetail_internal(c"There is no memory to handle errors with.".as_ptr());
            errfinish(c"entry.rs".as_ptr(), 0, c"refuse".as_ptr());
        }
    }
}

macro_rules! entries {
    ($($function:ident)*) => { $(
        const _: () = {
            unsafe extern "C-unwind" {
                // pgrx's, made by #[pg_extern].
                #[link_name = concat!(stringify!($function), "_wrapper")]
                fn wrapper(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
            }

            #[unsafe(export_name = stringify!($function))]
            unsafe extern "C-unwind" fn entry(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
                // SAFETY: pgrx' wrapper turns panics into errors; the call is PostgreSQL's.
                unsafe { prepared(|| wrapper(call)) }
            }

            /// What PostgreSQL wants to know of a C function (fmgr.h).
            #[unsafe(export_name = concat!("pg_finfo_", stringify!($function)))]
            extern "C" fn info() -> *const pg_sys::Pg_finfo_record {
                static VERSION_1: pg_sys::Pg_finfo_record =
                    pg_sys::Pg_finfo_record { api_version: 1 };
                &VERSION_1
            }
        };
    )* };
}

entries! {
    idempotency_automatic_purge
    idempotency_canonicalize
    idempotency_checkpoint
    idempotency_claim
    idempotency_claim_many
    idempotency_complete
    idempotency_configure
    idempotency_counters
    idempotency_counting
    idempotency_extend
    idempotency_fingerprint
    idempotency_forget
    idempotency_key_lock
    idempotency_parse_key
    idempotency_purge
    idempotency_register_resource
    idempotency_release
    idempotency_replay
    idempotency_resume
    idempotency_settings_changed
    idempotency_settle
    idempotency_stats_reset
}
