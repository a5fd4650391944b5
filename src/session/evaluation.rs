//! Recognises the same call made twice while one row is evaluated.
//!
//! PostgreSQL turns `SELECT (f(...)).*` into one call of `f` for each column. The second call would
//! see what the first one did and answer something else, so one row would be patched together from
//! two answers. The executor evaluates all columns of a row in one per-tuple memory context and
//! resets it before the next row; a reset callback there (mcxt.c) marks where an evaluation ends.

use std::cell::RefCell;
use std::ffi::c_void;

use idempotency_core::identity::Identity;
use pgrx::pg_sys;
use uuid::Uuid;

use crate::unguarded;

thread_local! {
    /// Who was called for, by its digest, in which memory context.
    static CALLS: RefCell<Vec<(usize, Uuid)>> = const { RefCell::new(Vec::new()) };
}

/// Notes a call; true where the same evaluation has called for the same identity before.
pub fn is_repeated(identity: &Identity) -> bool {
    // SAFETY: a plain read; inside a function call there is always a current memory context.
    let context = unsafe { pg_sys::CurrentMemoryContext };
    let address = context as usize;
    let (known, repeated) = CALLS.with_borrow(|calls| {
        let mut here = calls.iter().filter(|(at, _)| *at == address).peekable();
        (here.peek().is_some(), here.any(|(_, other)| *other == identity.digest()))
    });
    if !known {
        // SAFETY: the context is alive, and forgets the callback when it is reset.
        unsafe { forget_when_reset(context) };
    }
    if !repeated {
        CALLS.with_borrow_mut(|calls| calls.push((address, identity.digest())));
    }
    repeated
}

/// The context is the current one.
unsafe fn forget_when_reset(context: pg_sys::MemoryContext) {
    // SAFETY: the callback struct lives in the context whose reset calls and then frees it.
    unsafe {
        let size = size_of::<pg_sys::MemoryContextCallback>();
        let callback = unguarded::allocate(size).cast::<pg_sys::MemoryContextCallback>();
        (*callback).func = Some(forget);
        (*callback).arg = context.cast();
        unguarded::MemoryContextRegisterResetCallback(context, callback);
    }
}

/// Called by mcxt.c, also while a transaction aborts: it neither raises nor panics, and touches nothing of
/// PostgreSQL's. The list is never in use then: nothing calls into the server while it is.
unsafe extern "C-unwind" fn forget(context: *mut c_void) {
    CALLS.with(|calls| {
        if let Ok(mut calls) = calls.try_borrow_mut() {
            calls.retain(|(at, _)| *at != context as usize);
        }
    });
}
