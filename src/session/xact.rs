//! The claims of the current transaction, kept in step with its savepoints, and the refusal to
//! commit or prepare while one of them is unsettled.
//!
//! The ledger is never borrowed across a call into the server, which may call us again.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};

use idempotency_core::held::{Claim, Ledger, Unsettled};
use idempotency_core::identity::Identity;
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::error::Error;
use crate::once::Once;
use crate::unguarded;

thread_local! {
    static LEDGER: RefCell<Ledger> = const { RefCell::new(Ledger::new()) };
    static ON_TRANSACTION: Once = const { Once::new() };
    static ON_SUBTRANSACTION: Once = const { Once::new() };
}

/// Reads the ledger. `read` must not call into the server.
pub fn with_ledger<R>(read: impl FnOnce(&Ledger) -> R) -> R {
    LEDGER.with_borrow(read)
}

/// Changes the ledger. `write` must not call into the server.
pub fn with_ledger_mut<R>(write: impl FnOnce(&mut Ledger) -> R) -> R {
    register_callbacks();
    LEDGER.with_borrow_mut(write)
}

/// Notes a claim that was won, or raises 53200.
pub fn hold(claim: Claim, wrote: bool) {
    if with_ledger_mut(Ledger::reserve).is_err() {
        Error::out_of_memory().raise();
    }
    with_ledger_mut(|ledger| ledger.hold(claim, wrote));
}

/// Whether the transaction has a transaction id: it wrote, or locked a row. Subtransactions have
/// one only where their parents do.
pub fn has_transaction_id() -> bool {
    // SAFETY: a plain read of the transaction's state.
    unsafe { unguarded::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// The nest level of the current (sub)transaction: 1 outside of savepoints.
pub fn nest_level() -> i32 {
    // SAFETY: a plain read of the transaction's state.
    unsafe { unguarded::GetCurrentTransactionNestLevel() }
}

/// The callbacks do nothing while the ledger is empty. They are registered by the first claim, not
/// when the library is loaded: the last one registered runs first, and postgres_fdw's commits
/// elsewhere. Where it was used before the first claim, ours refuses before anything is committed
/// there.
fn register_callbacks() {
    ON_TRANSACTION.with(|once| {
        // SAFETY: the function is static and has the signature of xact.h. Where memory is short it
        // raises 53200 before anything is registered.
        once.ensure(|| unsafe {
            pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
        });
    });
    ON_SUBTRANSACTION.with(|once| {
        // SAFETY: as for the transaction's.
        once.ensure(|| unsafe {
            pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
        });
    });
}

/// Called by xact.c. Before a commit an error aborts the transaction cleanly; afterwards nothing
/// may be raised.
#[pg_guard]
unsafe extern "C-unwind" fn on_transaction(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    use pg_sys::XactEvent::*;
    match event {
        XACT_EVENT_PRE_COMMIT => refuse_unsettled(has_transaction_id(), Error::commit_unsettled),
        // Nobody can complete a claim of a prepared transaction, and it would hold its key until
        // somebody ends it. (Besides, PrepareTransaction has assigned a transaction id by now, so
        // whether anything was written can no longer be told.)
        XACT_EVENT_PRE_PREPARE => refuse_unsettled(true, Error::prepare_unsettled),
        XACT_EVENT_COMMIT | XACT_EVENT_ABORT | XACT_EVENT_PREPARE => forget(),
        _ => {}
    }
}

/// Called by xact.c; nothing may be raised.
#[pg_guard]
unsafe extern "C-unwind" fn on_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    _subtransaction: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut c_void,
) {
    use pg_sys::SubXactEvent::*;
    if LEDGER.with_borrow(Ledger::is_empty) {
        return;
    }
    let level = nest_level();
    LEDGER.with_borrow_mut(|ledger| match event {
        SUBXACT_EVENT_COMMIT_SUB => ledger.subtransaction_committed(level),
        SUBXACT_EVENT_ABORT_SUB => ledger.subtransaction_aborted(level),
        _ => {}
    });
}

/// IK003 where a claim stands in the way.
fn refuse_unsettled(wrote: bool, refusal: fn(&Identity, Unsettled) -> Error) {
    let refused = with_ledger(|ledger| {
        let (identity, why) = ledger.unsettled(wrote)?;
        let error = refusal(identity, why);
        Some(match ledger.own(identity) {
            Some(claim) => error.of(&claim.operation),
            None => error,
        })
    });
    if let Some(error) = refused {
        error.raise();
    }
}

/// Raises 25000 in a parallel worker and in its leader meanwhile: what a worker holds, nobody knows
/// of. The functions are PARALLEL UNSAFE; a function around them may say otherwise.
pub fn refuse_parallel(command: &CStr) {
    // SAFETY: a zero-terminated name.
    unsafe {
        if unguarded::IsInParallelMode() {
            pg_sys::PreventCommandIfParallelMode(command.as_ptr());
        }
    }
}

/// Raises 25006 where nothing may be written: READ ONLY, and on a standby.
pub fn refuse_read_only(command: &CStr) {
    // SAFETY: a zero-terminated name.
    unsafe {
        if pg_sys::XactReadOnly {
            pg_sys::PreventCommandIfReadOnly(command.as_ptr());
        }
    }
}

/// Refuses to run where other statements share the transaction, and has it end with this one.
///
/// # Errors
/// 25001.
pub fn check_alone(command: &CStr) -> Result<(), Error> {
    // SAFETY: plain looks at the transaction's state.
    let is_shared = unsafe { pg_sys::IsInTransactionBlock(true) };
    if is_shared || has_transaction_id() || !with_ledger(Ledger::is_empty) {
        return Err(Error::in_transaction_block(&command.to_string_lossy()));
    }
    // SAFETY: as above; it cannot fail now, and has a pipeline of statements commit behind this one.
    unsafe { pg_sys::PreventInTransactionBlock(true, command.as_ptr()) };
    Ok(())
}

fn forget() {
    LEDGER.with_borrow_mut(|ledger| {
        if !ledger.is_empty() {
            *ledger = Ledger::new();
        }
    });
}
