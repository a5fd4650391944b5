//! Automatic purge: a launcher, which sleeps, and one short-lived worker at a time in each database
//! of the setting `purge_databases`.
//!
//! Nobody stays in a database between two rounds, so that it can be dropped, and none has a
//! transaction open while it sleeps, so that VACUUM is not held up.

pub mod board;
pub mod databases;
mod launcher;
mod process;
mod round;

use std::time::Duration;

use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::pg_sys;

/// How long the postmaster waits before it starts a launcher anew that has ended.
const RESTART: Duration = Duration::from_secs(5);

/// Has the postmaster start the launcher, once the server takes writes; called while it loads the
/// library. Always, since the setting that switches it on can change later.
pub fn init() {
    // SAFETY: a plain read of the process' own variable.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return;
    }
    BackgroundWorkerBuilder::new("pg_idempotency launcher")
        .set_type("pg_idempotency launcher")
        .set_library("pg_idempotency")
        .set_function("pg_idempotency_launcher_main")
        .enable_spi_access()
        .set_restart_time(Some(RESTART))
        .load();
}
