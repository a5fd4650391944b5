//! pg_idempotency: idempotency keys kept by PostgreSQL.
//!
//! The map of the code. A request comes in at the SQL surface (`sql/`), is turned into plain values
//! at the boundary (`api/`, `convert/`), is decided in the core crate (`idempotency-core`, which
//! knows no PostgreSQL), and goes back the same way. `store/` alone knows the tables, `session/`
//! alone what the transaction holds, `error/` alone raises.
//!
//! The invariants are in ARCHITECTURE.md.
#![deny(unsafe_op_in_unsafe_fn)]

mod api;
mod clock;
mod convert;
mod counters;
mod entry;
mod error;
mod guc;
mod majors;
mod memory;
mod once;
mod session;
mod shared;
mod store;
#[cfg(any(test, feature = "pg_test"))]
mod tests;
mod unguarded;
mod worker;

use pgrx::prelude::*;

::pgrx::pg_module_magic!();

extension_sql_file!("../sql/schema.sql", name = "schema", bootstrap);
extension_sql_file!("../sql/types.sql", name = "types", requires = ["schema"]);
extension_sql_file!("../sql/functions/fingerprint.sql", name = "fingerprint", requires = ["types"]);
extension_sql_file!("../sql/functions/claim.sql", name = "claim", requires = ["fingerprint"]);
extension_sql_file!("../sql/functions/complete.sql", name = "complete", requires = ["claim"]);
extension_sql_file!("../sql/functions/replay.sql", name = "replay", requires = ["complete"]);
extension_sql_file!("../sql/functions/lease.sql", name = "lease", requires = ["replay"]);
extension_sql_file!("../sql/functions/settings.sql", name = "settings", requires = ["lease"]);
extension_sql_file!("../sql/functions/purge.sql", name = "purge", requires = ["settings"]);
extension_sql_file!("../sql/functions/forget.sql", name = "forget", requires = ["purge"]);
extension_sql_file!(
    "../sql/functions/in_progress.sql",
    name = "in_progress",
    requires = ["forget"]
);
extension_sql_file!("../sql/functions/stats.sql", name = "stats", requires = ["in_progress"]);
extension_sql_file!("../sql/grants.sql", name = "grants", requires = ["stats"]);

/// Called by PostgreSQL when it loads the library.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    memory::init();
    guc::init();
    if shared::is_preloading() {
        shared::init();
        worker::init();
    }
}

#[cfg(test)]
pub use tests::pg_test;
