//! One worker: goes into a database, purges batch by batch, each in a transaction of its own, and
//! leaves.

use std::ffi::{CStr, CString, c_char};
use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

use super::{board, databases, process};
use crate::entry::prepared;
use crate::guc;

/// The most records in one batch.
const BATCH: i32 = 1000;

/// How long a worker stays. DROP DATABASE waits five seconds for others to leave.
const STAY: Duration = Duration::from_secs(2);

/// What a worker sets for itself, whatever database or server say.
const SETTINGS: [(&CStr, &CStr); 8] = [
    (c"role", c"none"),
    (c"application_name", c"pg_idempotency purge"),
    (c"search_path", c"pg_catalog, pg_temp"),
    (c"default_transaction_isolation", c"read committed"),
    (c"default_transaction_read_only", c"off"),
    // It does not wait for whoever has locked a whole table.
    (c"lock_timeout", c"1s"),
    // Batches that a crash undoes are purged again.
    (c"synchronous_commit", c"off"),
    (c"session_replication_role", c"origin"),
];

/// The function, if it belongs to the extension: nobody else's of the same name is called.
/// NULL where the extension has none. Nothing is looked up outside of `pg_catalog`, whatever a trigger of
/// somebody's has set in an earlier batch.
const FUNCTION: &str = "SELECT p.oid FROM pg_catalog.pg_extension AS e \
    LEFT JOIN pg_catalog.pg_depend AS d ON d.refclassid OPERATOR(pg_catalog.=) e.tableoid \
        AND d.refobjid OPERATOR(pg_catalog.=) e.oid AND d.deptype OPERATOR(pg_catalog.=) 'e' \
        AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass \
    LEFT JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) d.objid \
        AND p.proname OPERATOR(pg_catalog.=) 'idempotency_purge' \
        AND p.prolang OPERATOR(pg_catalog.=) (SELECT l.oid FROM pg_catalog.pg_language AS l \
            WHERE l.lanname OPERATOR(pg_catalog.=) 'c') \
    WHERE e.extname OPERATOR(pg_catalog.=) 'pg_idempotency' ORDER BY p.oid LIMIT 1";

/// Called by PostgreSQL in a worker's process.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_idempotency_purge_main(database: pg_sys::Datum) {
    // SAFETY: a guarded function does not unwind.
    unsafe { prepared(|| run(database)) }
}

#[pg_guard]
extern "C-unwind" fn run(database: pg_sys::Datum) {
    let database = pg_sys::Oid::from(database.value() as u32);
    process::handle_signals();
    // SAFETY: as the superuser that the cluster was made with, who needs no password and no LOGIN.
    unsafe {
        pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0);
    }
    SETTINGS.iter().for_each(|(name, value)| process::set(name, value));
    // SAFETY: a plain read of the process' own variable.
    let pid = unsafe { pg_sys::MyProcPid };
    board::change(database, |row| row.start(pid));
    let has_more = work(database);
    board::change(database, |row| row.leave(has_more));
}

/// Purges until nothing is left, or it is time to leave; whether there is more.
fn work(database: pg_sys::Oid) -> bool {
    let (started, name) = (Instant::now(), name());
    while is_wanted(&name) {
        match batch() {
            Ok(purged) => {
                if board::change(database, |row| row.purge(purged)) == Some(true) {
                    log!("automatic purge of database \"{}\" works again", name.to_string_lossy());
                }
                if purged == 0 {
                    return false;
                }
            }
            Err(error) => {
                if board::change(database, |row| row.fail(&error)) == Some(true) {
                    log!(
                        "automatic purge of database \"{}\" failed: {error}",
                        name.to_string_lossy()
                    );
                }
                return false;
            }
        }
        if started.elapsed() > STAY {
            return true;
        }
    }
    false
}

/// Whether automatic purge of this database is on, as it is configured now.
fn is_wanted(name: &CStr) -> bool {
    process::serve_signals();
    let names = databases::parse(&guc::purge_databases()).unwrap_or_default();
    names.iter().any(|listed| **listed == *name) && !guc::purge_interval().is_zero()
}

/// One batch; how many records were purged, or what went wrong. What is left of a transaction that
/// failed is put away.
fn batch() -> Result<i64, String> {
    report(pg_sys::BackendState::STATE_RUNNING, c"SELECT idempotency_purge(1000)".as_ptr());
    let done = PgTryBuilder::new(|| process::in_transaction(purge))
        .catch_others(|error| {
            let error = match &error {
                CaughtError::PostgresError(report)
                | CaughtError::ErrorReport(report)
                | CaughtError::RustPanic { ereport: report, .. } => report.message().to_owned(),
            };
            // SAFETY: a transaction is under way and has failed.
            unsafe { pg_sys::AbortCurrentTransaction() };
            Err(error)
        })
        .execute();
    report(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
    // SAFETY: between transactions.
    unsafe { pg_sys::pgstat_report_stat(true) };
    done
}

fn purge() -> Result<i64, String> {
    let function = function()?;
    // SAFETY: the function takes an integer and returns a bigint.
    let purged = restricted(|| unsafe {
        pg_sys::OidFunctionCall1Coll(function, pg_sys::InvalidOid, pg_sys::Datum::from(BATCH))
    });
    Ok(purged.value() as i64)
}

/// Runs `f` such that PostgreSQL lets no trigger defer anything to the commit (trigger.c,
/// afterTriggerMarkEvents): before 18 that would run as this worker, a superuser, and the tables may have been
/// given to a role that is none.
fn restricted<R>(f: impl FnOnce() -> R) -> R {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: in a transaction; after an error its abort puts the context back (xact.c).
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        let restricted = context | pg_sys::SECURITY_RESTRICTED_OPERATION as i32;
        pg_sys::SetUserIdAndSecContext(user, restricted);
        let result = f();
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}

fn function() -> Result<pg_sys::Oid, String> {
    let found = Spi::connect(|client| -> Result<_, pgrx::spi::Error> {
        let row = client.select(FUNCTION, Some(1), &[])?.first();
        if row.is_empty() { Ok(None) } else { row.get::<pg_sys::Oid>(1).map(Some) }
    });
    match found {
        Ok(Some(Some(function))) => Ok(function),
        Ok(Some(None)) => {
            Err("the extension is older than the library: ALTER EXTENSION pg_idempotency UPDATE"
                .into())
        }
        Ok(None) => Err("the extension pg_idempotency is not created there".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn report(state: pg_sys::BackendState::Type, activity: *const c_char) {
    // SAFETY: a zero-terminated string or null.
    unsafe { pg_sys::pgstat_report_activity(state, activity) };
}

/// The name of this database.
fn name() -> CString {
    process::in_transaction(|| {
        // SAFETY: a look-up in the catalog, in a transaction; the name is zero-terminated.
        unsafe {
            let name = pg_sys::get_database_name(pg_sys::MyDatabaseId);
            if name.is_null() { CString::default() } else { CStr::from_ptr(name).to_owned() }
        }
    })
}
