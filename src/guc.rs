//! The extension's settings (GUCs), as typed values.

use std::ffi::CString;

use pgrx::pg_sys;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

use crate::convert::datum;

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

static LOCK_ORDER: GucSetting<LockOrder> = GucSetting::<LockOrder>::new(LockOrder::Error);
static UNLISTED: GucSetting<Unlisted> = GucSetting::<Unlisted>::new(Unlisted::Optional);
static WAIT_MS: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static MAX_BODY: GucSetting<i32> = GucSetting::<i32>::new(1024 * 1024);
static PROBLEM_TYPE_BASE: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c""));

/// What happens to a claim that comes out of order.
pub fn lock_order() -> LockOrder {
    LOCK_ORDER.get()
}

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
    PROBLEM_TYPE_BASE
        .get()
        .map(|base| datum::to_utf8(base.to_bytes()).to_owned())
        .unwrap_or_default()
}

/// Defines the settings; called once, when the library is loaded.
pub fn init() {
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
        GucContext::Userset,
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
        GucContext::Userset,
        GucFlags::UNIT_BYTE,
    );
    GucRegistry::define_string_guc(
        c"pg_idempotency.problem_type_base",
        c"What the type of a problem answer starts with.",
        c"The outcome is appended to it. Empty for about:blank.",
        &PROBLEM_TYPE_BASE,
        GucContext::Userset,
        GucFlags::default(),
    );
    // SAFETY: a constant prefix; a misspelled setting is then an error instead of a silent nothing.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"pg_idempotency".as_ptr()) };
}
