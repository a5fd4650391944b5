//! The setting `purge_databases`: a list of names, as the server's own lists are written.

use std::ffi::{CStr, CString, c_char};

use pgrx::pg_sys;

/// The most databases that are purged automatically: as many have a place in shared memory.
pub const MAX_DATABASES: usize = 64;

/// What is wrong with a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is no list of names.
    Syntax,
    /// It has too many.
    TooMany,
}

impl Fault {
    /// In a sentence.
    pub fn detail(self) -> &'static CStr {
        match self {
            Fault::Syntax => c"It has to be a list of database names, separated by commas.",
            Fault::TooMany => c"At most 64 databases are purged automatically.",
        }
    }
}

/// The names in a list, each once. Names without quotation marks are folded to lower case.
pub fn parse(list: &CStr) -> Result<Vec<CString>, Fault> {
    // SAFETY: a copy, since the split writes into it; the names point into the copy.
    unsafe {
        let copy = pg_sys::pstrdup(list.as_ptr());
        let mut names = std::ptr::null_mut();
        let is_list = pg_sys::SplitIdentifierString(copy, b',' as c_char, &mut names);
        let split = is_list.then(|| read(names));
        pg_sys::list_free(names);
        pg_sys::pfree(copy.cast());
        let mut split = split.ok_or(Fault::Syntax)?;
        split.sort();
        split.dedup();
        if split.len() > MAX_DATABASES { Err(Fault::TooMany) } else { Ok(split) }
    }
}

/// # Safety
/// A list of zero-terminated strings, or null.
unsafe fn read(names: *mut pg_sys::List) -> Vec<CString> {
    if names.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise; a list has `length` elements (pg_list.h).
    unsafe {
        let cells = std::slice::from_raw_parts((*names).elements, (*names).length as usize);
        cells.iter().map(|cell| CStr::from_ptr(cell.ptr_value.cast()).to_owned()).collect()
    }
}
