//! The claims of the current transaction, kept in step with its savepoints, and the refusal to
//! commit or prepare writes while one of them is unsettled.
//!
//! The ledger is never borrowed across a call into the server, which may call us again.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;

use idempotency_core::held::Ledger;
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::error::Error;

thread_local! {
    static LEDGER: RefCell<Ledger> = const { RefCell::new(Ledger::new()) };
    static REGISTERED: Cell<bool> = const { Cell::new(false) };
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

/// Whether the transaction has a transaction id: it wrote, or locked a row. Subtransactions have
/// one only where their parents do.
pub fn has_transaction_id() -> bool {
    // SAFETY: a plain read of the transaction's state.
    unsafe { pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId }
}

/// The nest level of the current (sub)transaction: 1 outside of savepoints.
pub fn nest_level() -> i32 {
    // SAFETY: a plain read of the transaction's state.
    unsafe { pg_sys::GetCurrentTransactionNestLevel() }
}

/// Once for the life of the backend; the callbacks do nothing while the ledger is empty.
fn register_callbacks() {
    if REGISTERED.replace(true) {
        return;
    }
    // SAFETY: both functions are static and match the signatures of xact.h.
    unsafe {
        pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
    }
}

/// Called by xact.c. Before a commit an error aborts the transaction cleanly; afterwards nothing
/// may be raised.
#[pg_guard]
unsafe extern "C-unwind" fn on_transaction(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    use pg_sys::XactEvent::*;
    match event {
        XACT_EVENT_PRE_COMMIT => refuse_unsettled("commit"),
        XACT_EVENT_PRE_PREPARE => refuse_unsettled("prepare"),
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

/// IK003 where the transaction wrote and holds, or ever held, a claim that is not completed.
fn refuse_unsettled(action: &'static str) {
    if !has_transaction_id() {
        return;
    }
    let refusal = with_ledger(|ledger| {
        ledger.unsettled().map(|(identity, why)| Error::unsettled(action, identity, why))
    });
    if let Some(error) = refusal {
        error.raise();
    }
}

fn forget() {
    LEDGER.with_borrow_mut(|ledger| {
        if !ledger.is_empty() {
            *ledger = Ledger::new();
        }
    });
}
