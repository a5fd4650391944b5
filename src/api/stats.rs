//! What has been counted, and how automatic purge is doing: the functions behind the views.

use std::time::Duration;

use pgrx::pg_sys;
use pgrx::prelude::*;
use serde_json::{Map, Value};

use crate::convert::datum;
use crate::convert::returned::{Row, Set};
use crate::counters::names::{OUTCOMES, SQLSTATES};
use crate::counters::table::{self, Snapshot};
use crate::counters::{self, NO_OPERATION};
use crate::worker::{board, databases};
use crate::{guc, shared};

/// Why something needs the library in the postmaster.
const NOT_PRELOADED: &str = "pg_idempotency is not in shared_preload_libraries";

const COUNTERS: [pg_sys::Oid; 8] = [
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::JSONBOID,
    pg_sys::JSONBOID,
    pg_sys::INT8OID,
    pg_sys::FLOAT8OID,
    pg_sys::FLOAT8OID,
    pg_sys::TIMESTAMPTZOID,
];

const COUNTING: [pg_sys::Oid; 4] =
    [pg_sys::BOOLOID, pg_sys::TEXTOID, pg_sys::INT4OID, pg_sys::INT4OID];

const AUTOMATIC_PURGE: [pg_sys::Oid; 8] = [
    pg_sys::BOOLOID,
    pg_sys::TEXTOID,
    pg_sys::INT4OID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::INT8OID,
    pg_sys::TEXTOID,
    pg_sys::TIMESTAMPTZOID,
];

/// `sql/functions/stats.sql`.
#[pg_extern(sql = false)]
fn idempotency_counters() -> Set<8> {
    let Some(shared) = counters::counting() else {
        return Set { types: &COUNTERS, rows: Vec::new() };
    };
    let (mine, others) = table::read(shared).unwrap_or_else(|error| error.raise());
    let mut rows: Vec<_> = mine.iter().map(row).collect();
    let mut others = row(&others);
    (others[0], others[1]) = (Some(datum::text("others")), None);
    rows.push(others);
    Set { types: &COUNTERS, rows }
}

fn row(counts: &Snapshot) -> Row<8> {
    let is_named = counts.operation != NO_OPERATION;
    let millis = |micros: u64| Some(pg_sys::Datum::from((micros as f64 / 1000.0).to_bits()));
    [
        Some(datum::text(if is_named { "operation" } else { "none" })),
        is_named.then(|| datum::text(&counts.operation)),
        Some(object(&OUTCOMES, &counts.outcomes, |_| true)),
        Some(object(&SQLSTATES, &counts.errors, |count| count > 0)),
        Some(pg_sys::Datum::from(counts.waits as i64)),
        millis(counts.waited),
        millis(counts.longest_wait),
        Some(pg_sys::Datum::from(counts.since)),
    ]
}

fn object(names: &[&str], counts: &[u64], shows: impl Fn(u64) -> bool) -> pg_sys::Datum {
    let members = names.iter().zip(counts).filter(|(_, count)| shows(**count));
    let object: Map<_, _> =
        members.map(|(name, count)| ((*name).to_owned(), Value::from(*count))).collect();
    datum::jsonb(&Value::Object(object))
}

/// `sql/functions/stats.sql`.
#[pg_extern(sql = false)]
fn idempotency_counting() -> Set<4> {
    let why_not = match (counters::counting(), shared::get()) {
        (Some(_), _) => None,
        (None, Some(_)) => Some("pg_idempotency.max_counted_operations is 0"),
        (None, None) => Some(NOT_PRELOADED),
    };
    let counting = counters::counting();
    let (entries, most) =
        (counting.map(|shared| shared.header.entries() as i32), guc::max_counted_operations());
    let row = [
        Some(why_not.is_none().into()),
        why_not.map(datum::text),
        entries.map(pg_sys::Datum::from),
        counting.map(|_| (most as i32).into()),
    ];
    Set { types: &COUNTING, rows: vec![row] }
}

/// `sql/functions/stats.sql`.
#[pg_extern(sql = false)]
fn idempotency_stats_reset() {
    let Some(shared) = counters::counting() else { return };
    // SAFETY: look-ups in the catalog; the names are not kept.
    let is_gone = |database: &pg_sys::Oid| unsafe {
        *database == pg_sys::MyDatabaseId || pg_sys::get_database_name(*database).is_null()
    };
    let forgotten: Vec<_> = table::databases().into_iter().filter(is_gone).collect();
    table::forget(shared, &forgotten);
}

/// `sql/functions/stats.sql`.
#[pg_extern(sql = false)]
fn idempotency_automatic_purge() -> Set<8> {
    // SAFETY: set once when the backend starts.
    let state = board::read(unsafe { pg_sys::MyDatabaseId });
    let why_not = why_no_purge();
    let at = |instant: i64| (instant != 0).then(|| pg_sys::Datum::from(instant));
    let of = |field: fn(&board::Row) -> i64| state.as_ref().and_then(|state| at(field(state)));
    let purged = state.as_ref().map(|state| state.purged);
    let failed = state.as_ref().filter(|state| state.failed_at != 0);
    let row = [
        Some(why_not.is_none().into()),
        why_not.map(datum::text),
        state.as_ref().filter(|state| state.pid != 0).map(|state| state.pid.into()),
        of(|state| state.started_at),
        of(|state| state.finished_at),
        purged.map(pg_sys::Datum::from),
        failed.map(|state| datum::text(state.error())),
        of(|state| state.failed_at),
    ];
    Set { types: &AUTOMATIC_PURGE, rows: vec![row] }
}

/// Why this database is not purged automatically; `None` where it is.
fn why_no_purge() -> Option<&'static str> {
    let is_listed = || {
        let names = databases::parse(&guc::purge_databases()).unwrap_or_default();
        // SAFETY: a look-up in the catalog; this database exists.
        let own =
            unsafe { std::ffi::CStr::from_ptr(pg_sys::get_database_name(pg_sys::MyDatabaseId)) };
        names.iter().any(|name| **name == *own)
    };
    match () {
        () if shared::get().is_none() => Some(NOT_PRELOADED),
        () if guc::purge_interval() == Duration::ZERO => Some("pg_idempotency.purge_interval is 0"),
        () if !is_listed() => Some("pg_idempotency.purge_databases does not have this database"),
        // SAFETY: reads shared memory.
        () if unsafe { pg_sys::RecoveryInProgress() } => Some("the server is a standby"),
        () => None,
    }
}
