//! Which table has a name of ours: looked up once in a backend, and again after a message that
//! something about the table, or about a schema, has changed.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int};

use pgrx::pg_sys;

use super::relation::SCHEMA;
use crate::once::Once;

struct Known {
    name: &'static CStr,
    table: pg_sys::Oid,
    is_checked: bool,
}

thread_local! {
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
    /// Moves when what is known is void. The callbacks do nothing else, so that they need no borrow.
    static GENERATION: Cell<u64> = const { Cell::new(0) };
    /// The generation that KNOWN is of.
    static KNOWN_AT: Cell<u64> = const { Cell::new(0) };
    static REGISTERED: Once = const { Once::new() };
}

/// The table of this name in our schema. Where [`generation`] is still the same once the table is
/// locked, it is still the one.
pub fn find(name: &'static CStr) -> Option<pg_sys::Oid> {
    let known =
        with_known(|known| known.iter().find(|known| known.name == name).map(|known| known.table));
    known.or_else(|| look_up(name))
}

/// What is known and not void. `use_it` must not call into the server.
fn with_known<R>(use_it: impl FnOnce(&mut Vec<Known>) -> R) -> R {
    KNOWN.with_borrow_mut(|known| {
        if KNOWN_AT.replace(generation()) != generation() {
            known.clear();
        }
        use_it(known)
    })
}

/// How often what is known was thrown away.
pub fn generation() -> u64 {
    GENERATION.get()
}

/// Whether the table of this name was found to be as expected since it was looked up.
pub fn is_checked(name: &CStr) -> bool {
    with_known(|known| known.iter().any(|known| known.name == name && known.is_checked))
}

/// Notes that the table of this name is as expected.
pub fn note_checked(name: &CStr) {
    with_known(|known| {
        for known in known.iter_mut().filter(|known| known.name == name) {
            known.is_checked = true;
        }
    });
}

fn look_up(name: &'static CStr) -> Option<pg_sys::Oid> {
    register_callbacks();
    let before = generation();
    // SAFETY: look-ups in the system cache.
    let table = unsafe {
        let schema = pg_sys::get_namespace_oid(SCHEMA.as_ptr(), true);
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    };
    if table == pg_sys::InvalidOid {
        return None;
    }
    if generation() == before {
        with_known(|known| known.push(Known { name, table, is_checked: false }));
    }
    Some(table)
}

/// Each of the two takes a place in an array of PostgreSQL's, or ends the session where it is full.
fn register_callbacks() {
    // SAFETY: both functions are static and match the signatures of inval.h.
    let register = || unsafe {
        let nothing = pg_sys::Datum::null();
        pg_sys::CacheRegisterRelcacheCallback(Some(on_table_change), nothing);
        let schemas = pg_sys::SysCacheIdentifier::NAMESPACEOID as c_int;
        pg_sys::CacheRegisterSyscacheCallback(schemas, Some(on_schema_change), nothing);
    };
    REGISTERED.with(|once| once.ensure(register));
}

/// Called by inval.c whenever a relation has changed; all of them where `table` is 0. It neither raises nor
/// panics: where what is known is in use, the change counts as one of ours.
unsafe extern "C-unwind" fn on_table_change(_arg: pg_sys::Datum, table: pg_sys::Oid) {
    let is_ours = |known: &Vec<Known>| known.iter().any(|known| known.table == table);
    let concerns_us = table == pg_sys::InvalidOid
        || KNOWN.with(|known| known.try_borrow().map_or(true, |known| is_ours(&known)));
    if concerns_us {
        forget();
    }
}

/// Called by inval.c whenever a schema has changed: a rename changes no relation.
unsafe extern "C-unwind" fn on_schema_change(_arg: pg_sys::Datum, _cache: c_int, _hash: u32) {
    forget();
}

fn forget() {
    GENERATION.set(generation() + 1);
}
