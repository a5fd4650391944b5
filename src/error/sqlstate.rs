//! Raises an ERROR with any SQLSTATE.
//!
//! `PgSqlErrorCode` is a closed enum, so pgrx's `ErrorReport` cannot carry a SQLSTATE of our own.
//! But PostgreSQL runs each entry of `error_context_stack` inside `errfinish()` (elog.c), before
//! it throws, and lets such a callback call `geterrcode()` and `errcode()`. So we report with a
//! marker code that nothing else raises, and leave one callback there that swaps the marker for
//! ours. By then the Rust stack has unwound: destructors have run, nothing is jumped over.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::memory;

/// 0F000, locator exception: never raised by PostgreSQL itself.
const MARKER: PgSqlErrorCode = PgSqlErrorCode::ERRCODE_LOCATOR_EXCEPTION;

/// PostgreSQL links the frame into its own list, so it must stay where it is.
struct Frame(UnsafeCell<pg_sys::ErrorContextCallback>);

// SAFETY: a backend has one thread that calls into PostgreSQL; only that thread touches the frame.
unsafe impl Sync for Frame {}

static FRAME: Frame = Frame(UnsafeCell::new(pg_sys::ErrorContextCallback {
    previous: null_mut(),
    callback: Some(swap_marker),
    arg: null_mut(),
}));

thread_local! {
    static PENDING: Cell<c_int> = const { Cell::new(0) };
}

/// `MAKE_SQLSTATE` of elog.h.
const fn encode(sqlstate: &str) -> c_int {
    let chars = sqlstate.as_bytes();
    assert!(chars.len() == 5);
    let (mut code, mut i) = (0, 0);
    while i < 5 {
        code |= ((chars[i] as c_int - '0' as c_int) & 0x3F) << (6 * i);
        i += 1;
    }
    code
}

unsafe extern "C-unwind" fn swap_marker(_arg: *mut c_void) {
    unsafe extern "C-unwind" {
        fn errcode(sqlerrcode: c_int) -> c_int;
        fn geterrcode() -> c_int;
    }
    // SAFETY: PostgreSQL calls this from errfinish(), where both functions are allowed.
    unsafe {
        if geterrcode() == MARKER as c_int && PENDING.get() != 0 {
            errcode(PENDING.take());
        }
    }
}

/// Puts the callback on PostgreSQL's list, unless it is there from an error that somebody caught.
fn arm(code: c_int) {
    PENDING.set(code);
    // SAFETY: the list belongs to this thread, its entries are alive while they are linked, and
    // ours is static.
    unsafe {
        let frame = FRAME.0.get();
        let mut at = pg_sys::error_context_stack;
        while !at.is_null() {
            if at == frame {
                return;
            }
            at = (*at).previous;
        }
        (*frame).previous = pg_sys::error_context_stack;
        pg_sys::error_context_stack = frame;
    }
}

/// Raises an ERROR.
pub fn raise(sqlstate: &str, message: &str, detail: &str, hint: &str) -> ! {
    // pgrx has PostgreSQL copy the texts where nothing catches that there is no memory for them.
    memory::make_room_for_an_error();
    arm(encode(sqlstate));
    let mut report = ErrorReport::new(MARKER, message, function_name!());
    if !detail.is_empty() {
        report = report.set_detail(detail);
    }
    if !hint.is_empty() {
        report = report.set_hint(hint);
    }
    report.report(PgLogLevel::ERROR);
    unreachable!("reporting at ERROR does not return");
}
