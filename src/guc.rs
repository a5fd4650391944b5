//! The extension's settings (GUCs), as typed values.

use std::ffi::{CStr, CString, c_char, c_void};
use std::time::Duration;

use pgrx::pg_sys;
use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

use crate::shared;
use crate::worker::databases;

/// What happens to a claim that comes out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, pgrx::PostgresGucEnum)]
pub enum LockOrder {
    /// IK001.
    #[name = c"error"]
    Error,
    /// A WARNING.
    #[name = c"warning"]
    Warning,
    /// Nothing: PostgreSQL's own deadlock detection is all that is left.
    #[name = c"off"]
    Off,
}

/// What an operation without settings does with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, pgrx::PostgresGucEnum)]
pub enum Unlisted {
    /// It takes keys, by the default settings.
    #[name = c"optional"]
    Optional,
    /// Keys have no effect.
    #[name = c"ignored"]
    Ignored,
    /// A call with a key is an error.
    #[name = c"forbidden"]
    Forbidden,
}

/// A week, in seconds.
const MAX_PURGE_INTERVAL: i32 = 7 * 24 * 60 * 60;

static LOCK_ORDER: GucSetting<LockOrder> = GucSetting::<LockOrder>::new(LockOrder::Error);
static UNLISTED: GucSetting<Unlisted> = GucSetting::<Unlisted>::new(Unlisted::Optional);
static WAIT_MS: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static MAX_BODY: GucSetting<i32> = GucSetting::<i32>::new(1024 * 1024);
static PROBLEM_TYPE_BASE: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c""));

static PURGE_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(0);
static PURGE_DATABASES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static MAX_COUNTED_OPERATIONS: GucSetting<i32> = GucSetting::<i32>::new(1000);

/// What happens to a claim that comes out of order.
pub fn lock_order() -> LockOrder {
    LOCK_ORDER.get()
}

/// The most that `pg_idempotency.problem_type_base` may hold, in bytes.
const MAX_PROBLEM_TYPE_BASE: usize = 255;

/// What an operation without settings does with keys.
pub fn unlisted() -> Unlisted {
    UNLISTED.get()
}

/// How long a claim waits for the holder of its key: milliseconds, -1 without end.
pub fn wait_ms() -> i32 {
    WAIT_MS.get()
}

/// The largest body that is recorded, in bytes.
pub fn max_body() -> usize {
    MAX_BODY.get() as usize
}

/// What the `type` of a problem answer starts with; empty for `about:blank`.
pub fn problem_type_base() -> String {
    PROBLEM_TYPE_BASE.get().and_then(|base| base.into_string().ok()).unwrap_or_default()
}

/// How long automatic purge pauses between two rounds in a database; zero where it is off.
pub fn purge_interval() -> Duration {
    Duration::from_secs(PURGE_INTERVAL.get() as u64)
}

/// The list of databases that are purged automatically.
pub fn purge_databases() -> CString {
    PURGE_DATABASES.get().unwrap_or_default()
}

/// How many operations are counted by their name; 0 where nothing is counted.
pub fn max_counted_operations() -> usize {
    MAX_COUNTED_OPERATIONS.get() as usize
}

/// Defines the settings; called once, when the library is loaded.
pub fn init() {
    define_for_callers();
    define_for_purge();
    if shared::is_preloading() {
        define_for_counters();
    }
    // SAFETY: a constant prefix; a misspelled setting is then an error instead of a silent nothing.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"pg_idempotency".as_ptr()) };
}

fn define_for_purge() {
    GucRegistry::define_int_guc(
        c"pg_idempotency.purge_interval",
        c"How long automatic purge pauses between two rounds.",
        c"0 switches it off. It needs the library in shared_preload_libraries.",
        &PURGE_INTERVAL,
        0,
        MAX_PURGE_INTERVAL,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    // SAFETY: the hook is guarded.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"pg_idempotency.purge_databases",
            c"The databases that are purged automatically.",
            c"A list of names, separated by commas.",
            &PURGE_DATABASES,
            GucContext::Sighup,
            GucFlags::default(),
            Some(check_databases),
            None,
            None,
        );
    }
}

/// Called by guc.c with a new value.
#[pg_guard]
unsafe extern "C-unwind" fn check_databases(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: a zero-terminated string, or null; the detail is copied.
    unsafe {
        let list = if (*value).is_null() { c"" } else { CStr::from_ptr(*value) };
        let Err(fault) = databases::parse(list) else { return true };
        pg_sys::GUC_check_errdetail_string = pg_sys::pstrdup(fault.detail().as_ptr());
        false
    }
}

/// Shared memory of this size is taken while the server starts, so it cannot change later.
fn define_for_counters() {
    GucRegistry::define_int_guc(
        c"pg_idempotency.max_counted_operations",
        c"How many operations are counted by their name.",
        c"Others are counted together. 0 switches the counters off.",
        &MAX_COUNTED_OPERATIONS,
        0,
        10_000,
        GucContext::Postmaster,
        GucFlags::default(),
    );
}

/// What decides whether a request is executed, or its answer kept, is for superusers and whoever was granted
/// SET on it: a caller of a SECURITY DEFINER function chooses all others for the call.
fn define_for_callers() {
    GucRegistry::define_enum_guc(
        c"pg_idempotency.lock_order",
        c"What happens to a claim that comes after a write or in descending key order.",
        c"",
        &LOCK_ORDER,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_enum_guc(
        c"pg_idempotency.unlisted",
        c"What an operation without settings does with keys.",
        c"",
        &UNLISTED,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_idempotency.wait_ms",
        c"How long a claim waits for the holder of its key.",
        c"0 never waits, -1 waits without end.",
        &WAIT_MS,
        -1,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"pg_idempotency.max_body",
        c"The largest body that is recorded.",
        c"A larger one is sent once; later callers are told that it was not kept.",
        &MAX_BODY,
        0,
        i32::MAX,
        GucContext::Suset,
        GucFlags::UNIT_BYTE,
    );
    // SAFETY: the hook is guarded.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"pg_idempotency.problem_type_base",
            c"What the type of a problem answer starts with.",
            c"The outcome is appended to it. Empty for about:blank.",
            &PROBLEM_TYPE_BASE,
            GucContext::Userset,
            GucFlags::default(),
            Some(check_problem_type_base),
            None,
            None,
        );
    }
}

/// Called by guc.c with a new value: what any user can set is read into Rust's memory, so it is bounded;
/// and a URI is ASCII (RFC 3986), so it is text in every encoding.
#[pg_guard]
unsafe extern "C-unwind" fn check_problem_type_base(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: a zero-terminated string, or null; the detail is copied.
    unsafe {
        let base = if (*value).is_null() { c"" } else { CStr::from_ptr(*value) }.to_bytes();
        if base.len() <= MAX_PROBLEM_TYPE_BASE && base.iter().all(u8::is_ascii_graphic) {
            return true;
        }
        let detail = c"It has to be the beginning of a URI: at most 255 characters of ASCII, without spaces.";
        pg_sys::GUC_check_errdetail_string = pg_sys::pstrdup(detail.as_ptr());
        false
    }
}
