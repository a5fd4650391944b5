//! Runs something that may fail in an expected way, and goes on if it does.
//!
//! Only the rollback of a subtransaction puts the server back into the state before an error: locks
//! that were waited for, buffers, memory. PL/pgSQL's exception blocks do the same (pl_exec.c,
//! exec_stmt_block). It assigns no transaction id and writes nothing.

use std::panic::UnwindSafe;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

/// The result of `f`; `None` where it raised an error whose code is `expected`.
///
/// Every other error, a cancel or a deadlock for example, is raised again as it was, with the
/// server's state put back first.
pub fn attempt<R>(
    f: impl FnOnce() -> R + UnwindSafe,
    expected: impl Fn(PgSqlErrorCode) -> bool,
) -> Option<R> {
    match run(f) {
        (saved, Ok(result)) => {
            saved.keep();
            Some(result)
        }
        (saved, Err(error)) => {
            // SAFETY: `error` was copied into memory of the caller's.
            unsafe { saved.give_up(error, expected) };
            None
        }
    }
}

/// The result of `f`; where that is an `Err`, nothing that it did is left: no row, and no lock.
///
/// # Errors
/// That of `f`. What PostgreSQL raises is passed on, as by [`attempt`].
pub fn all_or_nothing<R, E>(f: impl FnOnce() -> Result<R, E> + UnwindSafe) -> Result<R, E> {
    match run(f) {
        (saved, Ok(Ok(result))) => {
            saved.keep();
            Ok(result)
        }
        (saved, Ok(Err(refusal))) => {
            saved.undo();
            Err(refusal)
        }
        (saved, Err(error)) => {
            // SAFETY: `error` was copied into memory of the caller's. It is raised again.
            unsafe { saved.give_up(error, |_| false) };
            unreachable!("the error was raised again")
        }
    }
}

/// Runs `f` in a subtransaction, which is still to be ended.
fn run<R>(f: impl FnOnce() -> R + UnwindSafe) -> (Saved, Result<R, *mut pg_sys::ErrorData>) {
    let saved = Saved::now();
    // SAFETY: we run inside a function call, so a transaction is in progress.
    unsafe {
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::CurrentMemoryContext = saved.memory_context;
    }
    let result = PgTryBuilder::new(|| Ok(f()))
        .catch_others(|error| match error {
            // SAFETY: the server error that was just caught is still on PostgreSQL's error stack.
            CaughtError::PostgresError(_) => Err(unsafe { pg_sys::CopyErrorData() }),
            CaughtError::ErrorReport(_) | CaughtError::RustPanic { .. } => error.rethrow(),
        })
        .execute();
    (saved, result)
}

/// What a subtransaction changes and its end does not put back by itself.
struct Saved {
    memory_context: pg_sys::MemoryContext,
    resource_owner: pg_sys::ResourceOwner,
}

impl Saved {
    fn now() -> Self {
        // SAFETY: plain reads of this backend's variables.
        unsafe {
            Self {
                memory_context: pg_sys::CurrentMemoryContext,
                resource_owner: pg_sys::CurrentResourceOwner,
            }
        }
    }

    fn put_back(&self) {
        // SAFETY: both outlive the subtransaction, which was started after they were saved.
        unsafe {
            pg_sys::CurrentMemoryContext = self.memory_context;
            pg_sys::CurrentResourceOwner = self.resource_owner;
        }
    }

    /// Commits the subtransaction; what it locked now belongs to its parent.
    fn keep(&self) {
        // SAFETY: the subtransaction that was started is the current one.
        unsafe { pg_sys::ReleaseCurrentSubTransaction() };
        self.put_back();
    }

    /// Rolls the subtransaction back.
    fn undo(&self) {
        // SAFETY: the subtransaction that was started is the current one.
        unsafe { pg_sys::RollbackAndReleaseCurrentSubTransaction() };
        self.put_back();
    }

    unsafe fn give_up(
        &self,
        error: *mut pg_sys::ErrorData,
        expected: impl Fn(PgSqlErrorCode) -> bool,
    ) {
        self.undo();
        // SAFETY: the caller's promise.
        unsafe {
            if !expected(PgSqlErrorCode::from((*error).sqlerrcode)) {
                pg_sys::ReThrowError(error);
            }
            pg_sys::FreeErrorData(error);
        }
    }
}
