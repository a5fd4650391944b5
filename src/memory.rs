//! Memory, with reserves put by: one for Rust, one for PostgreSQL.
//!
//! Where an allocation of Rust's fails, the process ends, and PostgreSQL restarts every session of the
//! cluster. So what a caller can make large is asked for in a way that may fail: `try_reserve`, or
//! [`ensure`]. What is left is small and bounded, and comes out of a reserve where the system has no more.
//!
//! Where an allocation of PostgreSQL's fails, it raises an error, and memory is needed to handle that
//! (`entry.rs`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use pgrx::pg_sys;

use crate::error::Error;

/// The largest allocation that may take Rust's reserve, in bytes.
const SMALL: usize = 256 * 1024;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// More than the small allocations of one call come to, but for what it makes sure of by [`ensure`]: 6 KB in a claim
/// with the longest names, 46 KB in settings, 247 KB in a completion with 64 KB of headers. `tests.rs` measures it.
static RUST: Reserve = Reserve::new(RUST_RESERVE);

/// The size of Rust's reserve, in bytes.
pub const RUST_RESERVE: usize = 1024 * 1024;

/// What PostgreSQL handles an error with. Its memory contexts grow by blocks of up to 1 MiB where more
/// is not to be had (aset.c), and two may grow: a call may call another one.
static POSTGRES: Reserve = Reserve::new(5 * 512 * 1024);

/// Memory put by. Nothing touches it, so it takes address space and no memory.
struct Reserve {
    memory: AtomicPtr<u8>,
    layout: Layout,
}

impl Reserve {
    const fn new(bytes: usize) -> Self {
        let Ok(layout) = Layout::from_size_align(bytes, 16) else {
            panic!("a size and an alignment")
        };
        Self { memory: AtomicPtr::new(null_mut()), layout }
    }

    /// Gives it back to the system; true where there was one.
    #[cold]
    fn spend(&self) -> bool {
        let memory = self.memory.swap(null_mut(), SeqCst);
        if !memory.is_null() {
            // SAFETY: allocated in `renew` with this layout, and taken by nobody else.
            unsafe { System.dealloc(memory, self.layout) };
        }
        !memory.is_null()
    }

    /// Whether it is there, be it from now on.
    fn put_by(&self) -> bool {
        !self.memory.load(SeqCst).is_null() || self.renew()
    }

    #[cold]
    fn renew(&self) -> bool {
        // SAFETY: a layout that is not empty.
        let memory = unsafe { System.alloc(self.layout) };
        if self.memory.compare_exchange(null_mut(), memory, SeqCst, SeqCst).is_err() {
            // SAFETY: allocated just now, and not handed on.
            unsafe { System.dealloc(memory, self.layout) };
        }
        !memory.is_null()
    }
}

struct Allocator;

impl Allocator {
    /// Makes room for an allocation that failed; true where there was a reserve for it.
    #[cold]
    fn spend(&self, size: usize) -> bool {
        size <= SMALL && RUST.spend()
    }
}

// SAFETY: all memory is the system allocator's; nothing here unwinds.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            let memory = System.alloc(layout);
            measured::add(layout.size());
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
            measured::add(layout.size());
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
            measured::take(layout.size());
            measured::add(size);
            if memory.is_null() && self.spend(size) {
                System.realloc(old, layout, size)
            } else {
                memory
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        measured::take(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// What the small allocations come to, for the unit tests alone.
pub mod measured {
    #[cfg(feature = "pg_test")]
    use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

    #[cfg(feature = "pg_test")]
    static LIVE: AtomicIsize = AtomicIsize::new(0);
    #[cfg(feature = "pg_test")]
    static MOST: AtomicIsize = AtomicIsize::new(0);

    /// An allocation.
    #[inline]
    pub fn add(_bytes: usize) {
        #[cfg(feature = "pg_test")]
        if _bytes <= super::SMALL {
            let live = LIVE.fetch_add(_bytes as isize, Relaxed) + _bytes as isize;
            MOST.fetch_max(live, Relaxed);
        }
    }

    /// An allocation that is given back.
    #[inline]
    pub fn take(_bytes: usize) {
        #[cfg(feature = "pg_test")]
        if _bytes <= super::SMALL {
            LIVE.fetch_sub(_bytes as isize, Relaxed);
        }
    }

    /// How many bytes more than now `call` has at once.
    #[cfg(feature = "pg_test")]
    #[allow(dead_code, reason = "pgrx leaves its tests out of some builds with the feature")]
    pub fn most_during(call: impl FnOnce()) -> usize {
        let before = LIVE.load(Relaxed);
        MOST.store(before, Relaxed);
        call();
        (MOST.load(Relaxed) - before) as usize
    }
}

/// Gives PostgreSQL its reserve: it needs memory to report an error.
pub fn make_room_for_an_error() {
    POSTGRES.spend();
}

/// Puts by what there is not; false where there is no memory for it.
pub fn put_by() -> bool {
    RUST.put_by() && POSTGRES.put_by()
}

/// Makes sure that so many bytes can be allocated, in small pieces too.
///
/// # Errors
/// 53200.
pub fn ensure(bytes: usize) -> Result<(), Error> {
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(bytes).map_err(|_| Error::out_of_memory())
}

/// Puts the reserves by, now and whenever a transaction has ended without them; every call does it too.
/// Called once, when the library is loaded.
pub fn init() {
    put_by();
    // SAFETY: the function is static and matches the signature of xact.h.
    unsafe { pg_sys::RegisterXactCallback(Some(after_transaction), null_mut()) };
}

/// Called by xact.c; raises nothing.
unsafe extern "C-unwind" fn after_transaction(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    use pg_sys::XactEvent::{XACT_EVENT_ABORT, XACT_EVENT_COMMIT};
    if event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT {
        put_by();
    }
}
