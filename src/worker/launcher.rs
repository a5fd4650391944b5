//! The launcher: starts a worker in each listed database, round by round. It is in no database
//! itself.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use pgrx::bgworkers::BackgroundWorkerBuilder;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::{board, databases, process};
use crate::entry::prepared;
use crate::guc;

/// How many workers run at the same time, so that a long list does not take all of the server's
/// background workers.
const AT_ONCE: usize = 2;

/// How long a database is left alone when its worker has left with work to do. DROP DATABASE looks
/// for others every tenth of a second.
const PAUSE: Duration = Duration::from_millis(500);

/// One listed database.
struct Target {
    name: CString,
    /// As it was looked up for the last round.
    database: pg_sys::Oid,
    /// Its worker; null where none runs.
    worker: *mut pg_sys::BackgroundWorkerHandle,
    /// When it is to be purged next.
    due: Instant,
    /// Whether it is still listed: one that is not goes when its worker has ended.
    is_listed: bool,
    /// What was logged last, so that it is logged once.
    said: Option<&'static str>,
}

/// Called by PostgreSQL in the launcher's process.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_idempotency_launcher_main(argument: pg_sys::Datum) {
    // SAFETY: a guarded function does not unwind.
    unsafe { prepared(|| launch(argument)) }
}

#[pg_guard]
extern "C-unwind" fn launch(_argument: pg_sys::Datum) {
    process::handle_signals();
    // SAFETY: no database: only what all databases share can be read.
    unsafe { pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0) };
    process::set(c"application_name", c"pg_idempotency launcher");
    let mut targets = Vec::new();
    reload(&mut targets);
    loop {
        if process::serve_signals() {
            reload(&mut targets);
        }
        process::sleep(step(&mut targets));
    }
}

/// Takes over the list and the interval as they are set now.
fn reload(targets: &mut Vec<Target>) {
    let now = Instant::now();
    let names = databases::parse(&guc::purge_databases()).unwrap_or_default();
    for target in targets.iter_mut() {
        target.is_listed = names.contains(&target.name);
        target.due = target.due.min(now + guc::purge_interval());
    }
    for name in names {
        if !targets.iter().any(|target| target.name == name) {
            targets.push(Target::new(name, now));
        }
    }
}

/// Looks after the workers; how long there is nothing to do, without an end where only a signal or
/// the end of a worker brings something.
fn step(targets: &mut Vec<Target>) -> Option<Duration> {
    targets.iter_mut().for_each(Target::look_after);
    targets.retain(|target| target.is_listed || target.runs());
    if guc::purge_interval().is_zero() {
        return None;
    }
    while let Some(at) = next(targets) {
        if targets.iter().filter(|target| target.runs()).count() >= AT_ONCE {
            return None;
        }
        let wait = targets[at].due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Some(wait);
        }
        let listed: Vec<_> = targets.iter().filter_map(Target::entered).collect();
        targets[at].start(&listed);
    }
    None
}

/// The target that is due next, of those without a worker.
fn next(targets: &[Target]) -> Option<usize> {
    let idle = targets.iter().enumerate().filter(|(_, target)| target.is_listed && !target.runs());
    idle.min_by_key(|(_, target)| target.due).map(|(at, _)| at)
}

impl Target {
    fn new(name: CString, due: Instant) -> Self {
        let (database, worker) = (pg_sys::InvalidOid, null_mut());
        Self { name, database, worker, due, is_listed: true, said: None }
    }

    /// The database, if it was found: it then has a row on the board.
    fn entered(&self) -> Option<pg_sys::Oid> {
        (self.database != pg_sys::InvalidOid).then_some(self.database)
    }

    fn runs(&self) -> bool {
        !self.worker.is_null()
    }

    /// Takes notice of a worker that has ended.
    fn look_after(&mut self) {
        let mut pid = 0;
        // SAFETY: the handle is of a worker of ours, and is given back once.
        unsafe {
            if !self.runs()
                || pg_sys::GetBackgroundWorkerPid(self.worker, &mut pid)
                    != pg_sys::BgwHandleStatus::BGWH_STOPPED
            {
                return;
            }
            pg_sys::pfree(self.worker.cast());
        }
        self.worker = null_mut();
        board::change(self.database, board::Row::is_gone);
        let has_more = board::read(self.database).is_some_and(|row| row.has_more);
        self.due = Instant::now() + if has_more { PAUSE } else { guc::purge_interval() };
    }

    /// Starts a round, or says why none can be started.
    fn start(&mut self, listed: &[pg_sys::Oid]) {
        self.due = Instant::now() + guc::purge_interval();
        let fault = match process::in_transaction(|| find(&self.name)) {
            Ok(database) => {
                self.database = database;
                board::enter(database, listed);
                self.start_in(database)
            }
            Err(fault) => {
                self.database = pg_sys::InvalidOid;
                Some(fault)
            }
        };
        if let Some(fault) = fault {
            board::change(self.database, |row| row.fail(fault));
            if fault != self.said.unwrap_or_default() {
                log!("automatic purge of database \"{}\" cannot start: {fault}", self.shown());
            }
        }
        self.said = fault;
    }

    fn start_in(&mut self, database: pg_sys::Oid) -> Option<&'static str> {
        let before = board::read(database).map_or(0, |row| row.pid);
        // SAFETY: reads shared memory; 0 is nobody's.
        if before != 0 && unsafe { !pg_sys::BackendPidGetProc(before).is_null() } {
            // Of a launcher before this one.
            self.due = Instant::now() + PAUSE;
            return self.said;
        }
        let worker =
            BackgroundWorkerBuilder::new(&format!("pg_idempotency purge of {}", self.shown()))
                .set_type("pg_idempotency purge")
                .set_library("pg_idempotency")
                .set_function("pg_idempotency_purge_main")
                .set_argument(Some(database.into()))
                // SAFETY: a plain read of the process' own variable.
                .set_notify_pid(unsafe { pg_sys::MyProcPid })
                .enable_spi_access();
        let mut worker = pg_sys::BackgroundWorker::from(&worker);
        // SAFETY: the handle is allocated in a context that lives as long as the process, and freed
        // when the worker has ended.
        let started = unsafe {
            pg_sys::MemoryContextSwitchTo(pg_sys::TopMemoryContext);
            pg_sys::RegisterDynamicBackgroundWorker(&mut worker, &mut self.worker)
        };
        (!started)
            .then_some("all of the server's background workers are in use (max_worker_processes)")
    }

    fn shown(&self) -> Cow<'_, str> {
        self.name.to_string_lossy()
    }
}

/// The database of that name, if one can go in. All rows are looked at, as autovacuum's launcher does:
/// who is in no database may find no index.
fn find(name: &CStr) -> Result<pg_sys::Oid, &'static str> {
    let mut found = Err("there is no such database");
    for_each_database(|row| {
        // SAFETY: a name is zero-terminated.
        if unsafe { CStr::from_ptr(row.datname.data.as_ptr()) } == name {
            // -2 marks a database whose removal was interrupted.
            let is_open = row.datallowconn && row.datconnlimit != -2;
            found =
                if is_open { Ok(row.oid) } else { Err("the database does not take connections") };
        }
    });
    found
}

fn for_each_database(mut visit: impl FnMut(&pg_sys::FormData_pg_database)) {
    let (lock, forward) =
        (pg_sys::AccessShareLock as i32, pg_sys::ScanDirection::ForwardScanDirection);
    // SAFETY: a scan of the shared catalog, in a transaction; rows are looked at while they are pinned.
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::DatabaseRelationId, lock);
        let scan = pg_sys::table_beginscan_catalog(catalog, 0, null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, forward);
            if tuple.is_null() {
                break;
            }
            visit(&*pg_sys::heap_tuple_get_struct(tuple));
        }
        pg_sys::heap_endscan(scan);
        pg_sys::table_close(catalog, lock);
    }
}
