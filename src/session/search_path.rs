//! The search path of what is not the caller's.

use pgrx::pg_sys;

/// Runs `f` with a search path that the caller cannot fill: functions of triggers, views and checks must not
/// find the caller's where they mean their own.
pub fn with_safe_search_path<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: a setting that every session has; after an error the abort of the (sub)transaction
    // undoes the nest level (guc.c).
    unsafe {
        let level = pg_sys::NewGUCNestLevel();
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            c"pg_catalog, pg_temp".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        let result = f();
        pg_sys::AtEOXact_GUC(false, level);
        result
    }
}
