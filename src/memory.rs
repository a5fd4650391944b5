//! Rust's memory, with a reserve put by.
//!
//! Where an allocation of Rust's fails, the process ends, and PostgreSQL restarts every session of the
//! cluster. So what a caller can make large is asked for in a way that may fail: `try_reserve`, or
//! [`ensure`]. What is left is small and bounded, and comes out of the reserve where the system has no more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use pgrx::pg_sys;

use crate::error::Error;

/// What is put by, in bytes: more than the small allocations of one call come to. Nothing touches it,
/// so it takes address space and no memory.
const RESERVE: usize = 1024 * 1024;

/// The largest allocation that may take it.
const SMALL: usize = 256 * 1024;

const LAYOUT: Layout = match Layout::from_size_align(RESERVE, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a size and an alignment"),
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator { reserve: AtomicPtr::new(null_mut()) };

struct Allocator {
    reserve: AtomicPtr<u8>,
}

impl Allocator {
    /// Makes room; true where there was a reserve.
    #[cold]
    fn spend(&self, size: usize) -> bool {
        if size > SMALL {
            return false;
        }
        let reserve = self.reserve.swap(null_mut(), SeqCst);
        if !reserve.is_null() {
            // SAFETY: allocated in `put_by` with this layout, and taken by nobody else.
            unsafe { System.dealloc(reserve, LAYOUT) };
        }
        !reserve.is_null()
    }

    fn put_by(&self) {
        if self.reserve.load(SeqCst).is_null() {
            // SAFETY: a layout that is not empty.
            let reserve = unsafe { System.alloc(LAYOUT) };
            if self.reserve.compare_exchange(null_mut(), reserve, SeqCst, SeqCst).is_err() {
                // SAFETY: allocated just now, and not handed on.
                unsafe { System.dealloc(reserve, LAYOUT) };
            }
        }
    }
}

// SAFETY: all memory is the system allocator's; nothing here unwinds.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            let memory = System.alloc(layout);
            if memory.is_null() && self.spend(layout.size()) {
                System.alloc(layout)
            } else {
                memory
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            let memory = System.alloc_zeroed(layout);
            if memory.is_null() && self.spend(layout.size()) {
                System.alloc_zeroed(layout)
            } else {
                memory
            }
        }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise; a failed realloc leaves the old memory as it was.
        unsafe {
            let memory = System.realloc(old, layout, size);
            if memory.is_null() && self.spend(size) {
                System.realloc(old, layout, size)
            } else {
                memory
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Gives the reserve to PostgreSQL, which needs memory to report that there is none.
pub fn make_room_for_an_error() {
    ALLOCATOR.spend(0);
}

/// Makes sure that so many bytes can be allocated, in small pieces too.
///
/// # Errors
/// 53200.
pub fn ensure(bytes: usize) -> Result<(), Error> {
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(bytes).map_err(|_| Error::out_of_memory())
}

/// Puts the reserve by, now and whenever a transaction or subtransaction has ended without it. Called
/// once, when the library is loaded.
pub fn init() {
    ALLOCATOR.put_by();
    // SAFETY: both functions are static and match the signatures of xact.h.
    unsafe {
        pg_sys::RegisterXactCallback(Some(after_transaction), null_mut());
        pg_sys::RegisterSubXactCallback(Some(after_subtransaction), null_mut());
    }
}

/// Called by xact.c; raises nothing.
unsafe extern "C-unwind" fn after_transaction(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT};
    if event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT {
        ALLOCATOR.put_by();
    }
}

/// Called by xact.c; raises nothing.
unsafe extern "C-unwind" fn after_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    _subtransaction: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        ALLOCATOR.put_by();
    }
}
