//! Shared memory: counters and the state of automatic purge, which all sessions of the cluster see.
//!
//! It can be had only while the postmaster starts, so it is there only where the library is in
//! `shared_preload_libraries`; everything else works without it. A crash of the cluster makes it
//! anew, empty.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::OnceLock;

use pgrx::pg_sys;
use pgrx::pg_sys::submodules::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

use crate::counters::table::{self, Header};
use crate::guc;
use crate::worker::board::Board;

/// What is shared, behind the hash table of the counters, which has its own place.
#[repr(C)]
pub struct Shared {
    /// The counters' own part; [`Lock::Counters`] protects what is not atomic in it.
    pub header: Header,
    /// The state of automatic purge, protected by [`Lock::Board`].
    pub board: Board,
}

/// The name of the area and of the locks.
const NAME: &std::ffi::CStr = c"pg_idempotency";

/// The locks, in their order in the tranche.
#[derive(Clone, Copy)]
pub enum Lock {
    /// Who may add counters to the hash table or take them out.
    Counters,
    /// Who may change the board.
    Board,
}

const LOCKS: i32 = 2;

type Hook = Option<unsafe extern "C-unwind" fn()>;

/// The hooks that were there before ours.
static BEFORE: OnceLock<(Hook, Hook)> = OnceLock::new();

thread_local! {
    static SHARED: Cell<*mut Shared> = const { Cell::new(null_mut()) };
    static TABLE: Cell<*mut pg_sys::HTAB> = const { Cell::new(null_mut()) };
    static TRANCHE: Cell<*mut pg_sys::LWLockPadded> = const { Cell::new(null_mut()) };
}

/// Whether the library is loaded by the postmaster, so that shared memory can still be had.
pub fn is_preloading() -> bool {
    // SAFETY: a plain read of the process' own variable.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// Asks for the memory; called once, while the postmaster loads the library.
pub fn init() {
    // SAFETY: the postmaster has one thread; both hooks call those that were there before.
    unsafe {
        BEFORE.get_or_init(|| (pg_sys::shmem_request_hook, pg_sys::shmem_startup_hook));
        pg_sys::shmem_request_hook = Some(on_request);
        pg_sys::shmem_startup_hook = Some(on_startup);
    }
}

/// The shared memory; `None` where the library was not preloaded.
pub fn get() -> Option<&'static Shared> {
    // SAFETY: where it is set, it is mapped for the life of the process.
    unsafe { SHARED.get().as_ref() }
}

/// The hash table of the counters; null where there is none.
pub fn table() -> *mut pg_sys::HTAB {
    TABLE.get()
}

/// A lock that is held; given back when it goes out of scope.
pub struct Held(*mut pg_sys::LWLock);

impl Lock {
    /// Takes the lock, together with others who only read.
    pub fn share(self) -> Held {
        self.acquire(pg_sys::LWLockMode::LW_SHARED)
    }

    /// Takes the lock alone.
    pub fn exclude(self) -> Held {
        self.acquire(pg_sys::LWLockMode::LW_EXCLUSIVE)
    }

    fn acquire(self, mode: pg_sys::LWLockMode::Type) -> Held {
        // SAFETY: the tranche has `LOCKS` locks; callers have seen that the memory is there.
        unsafe {
            let lock = &raw mut (*TRANCHE.get().add(self as usize)).lock;
            pg_sys::LWLockAcquire(lock, mode);
            Held(lock)
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: it was taken by `acquire`, and nothing in between lets go of it: what is done
        // under a lock of ours does not raise.
        unsafe { pg_sys::LWLockRelease(self.0) };
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_request() {
    call_before(|hooks| hooks.0);
    let counters = table::size(guc::max_counted_operations());
    // SAFETY: this is the time to ask (ipci.c).
    unsafe {
        pg_sys::RequestAddinShmemSpace(size_of::<Shared>() + counters);
        pg_sys::RequestNamedLWLockTranche(NAME.as_ptr(), LOCKS);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn on_startup() {
    call_before(|hooks| hooks.1);
    // SAFETY: this is the time to take what was asked for (ipci.c). All bytes zero is an empty
    // `Shared`.
    unsafe {
        let lock = addin_lock();
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let mut found = false;
        let size = size_of::<Shared>();
        let shared = pg_sys::ShmemInitStruct(NAME.as_ptr(), size, &mut found).cast::<Shared>();
        if !found {
            shared.write_bytes(0, 1);
            (*shared).header.started();
        }
        TABLE.set(table::init(guc::max_counted_operations()));
        TRANCHE.set(pg_sys::GetNamedLWLockTranche(NAME.as_ptr()));
        SHARED.set(shared);
        pg_sys::LWLockRelease(lock);
    }
}

fn call_before(which: impl Fn(&(Hook, Hook)) -> Hook) {
    if let Some(hook) = BEFORE.get().and_then(which) {
        // SAFETY: a hook of another library, called as ours is; an error of its passes through.
        unsafe { pg_guard_ffi_boundary(|| hook()) };
    }
}

/// AddinShmemInitLock, the 21st of lwlocknames.txt in all majors that we build for.
unsafe fn addin_lock() -> *mut pg_sys::LWLock {
    // SAFETY: the array is there before any hook is called.
    unsafe { &raw mut (*pg_sys::MainLWLockArray.add(21)).lock }
}
