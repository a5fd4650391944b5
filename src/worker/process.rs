//! What the launcher and its workers have in common, as background processes of the server.

use std::ffi::{CStr, c_int};
use std::time::Duration;

use pgrx::bgworkers::{BackgroundWorker, SignalWakeFlags};
use pgrx::pg_sys;
use pgrx::prelude::*;

use crate::majors;

unsafe extern "C-unwind" {
    /// PostgreSQL's handler of SIGTERM: whatever waits then ends, a lock's waiter too.
    fn die(signal: c_int);
}

/// Handles the signals; from now on they arrive.
pub fn handle_signals() {
    // SAFETY: a handler of PostgreSQL's own, for processes that check for interrupts.
    unsafe { majors::handle_signal(pg_sys::SIGTERM, die) };
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
}

/// Sets one of the server's settings in this process, whatever the configuration says.
pub fn set(name: &CStr, value: &CStr) {
    // SAFETY: settings of the server, with values that they take.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
}

/// Does what signals ask for: ends the process, takes part in what all processes have to take part in
/// (DROP DATABASE waits for that), reads the configuration anew. True where the latter was done.
pub fn serve_signals() -> bool {
    // SAFETY: plain reads of the process' own variables, set by signal handlers.
    if unsafe { (&raw const pg_sys::ProcDiePending).read_volatile() } != 0 {
        // Not 0, after which the launcher would not be started again.
        // SAFETY: outside of transactions, nothing is left to be put right.
        unsafe { pg_sys::proc_exit(1) };
    }
    check_for_interrupts!();
    if !BackgroundWorker::sighup_received() {
        return false;
    }
    // SAFETY: between transactions; a file with errors changes nothing, and is logged.
    unsafe {
        pg_sys::ConfigReloadPending = 0;
        pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
    }
    true
}

/// Sleeps until something happens, or the time is over. The process ends with the postmaster.
pub fn sleep(time: Option<Duration>) {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_EXIT_ON_PM_DEATH;
    let (events, millis) = match time {
        Some(time) => (events | pg_sys::WL_TIMEOUT, time.as_millis().min(i32::MAX as u128) + 1),
        None => (events, 0),
    };
    // SAFETY: the process' own latch.
    unsafe {
        pg_sys::WaitLatch(pg_sys::MyLatch, events as c_int, millis as _, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
}

/// Runs something in a transaction of its own.
pub fn in_transaction<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: no transaction is under way; an error leaves it to be aborted by whoever catches it, or
    // by the process' end.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        let result = work();
        pg_sys::PopActiveSnapshot();
        pg_sys::CommitTransactionCommand();
        result
    }
}
