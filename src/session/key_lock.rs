//! The lock of a key: an ordinary transaction-level lock of PostgreSQL's lock manager, so that it
//! is released when its owner commits, rolls back, dies, or commits what it prepared.
//!
//! It sits in the advisory space under a class of its own (the fourth field of the lock tag).
//! PostgreSQL's own functions use classes 1 and 2 (lockfuncs.c) and Citus small numbers, so neither
//! can touch it; pg_locks shows it as `objsubid` [`CLASS`].

use idempotency_core::identity::Identity;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::prelude::*;

/// The class of our locks: "IK" in ASCII.
pub const CLASS: u16 = 0x494B;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Milliseconds from now, at least 1.
    Millis(i32),
    /// No end.
    Endless,
}

/// The lock of one key.
#[derive(Clone, Copy)]
pub struct KeyLock(pg_sys::LOCKTAG);

impl KeyLock {
    /// The lock that belongs to an identity in this database.
    pub fn of(identity: &Identity) -> Self {
        let hash = identity.lock_hash();
        Self(pg_sys::LOCKTAG {
            // SAFETY: set once when the backend starts.
            locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
            locktag_field2: (hash >> 32) as u32,
            locktag_field3: hash as u32,
            locktag_field4: CLASS,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        })
    }

    /// Takes the lock if nobody holds it.
    pub fn try_acquire(&self) -> bool {
        // SAFETY: the tag is complete; the lock belongs to the current (sub)transaction.
        unsafe {
            as_transaction(|| self.acquire(true))
                != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
        }
    }

    /// Waits for the lock; false where the patience (or the caller's own lock_timeout, whichever
    /// is shorter) ended before.
    ///
    /// Every other error, a cancel or a deadlock for example, is passed on with the server's state
    /// put back first. The wait runs in a subtransaction because only its rollback takes a waiting
    /// request back; PL/pgSQL's exception blocks do the same (pl_exec.c, exec_stmt_block).
    pub fn acquire_within(&self, patience: Patience) -> bool {
        // SAFETY: the state is saved before the subtransaction starts, and put back on both ways out.
        let saved = unsafe { Saved::now() };
        // SAFETY: we run inside a function call, so a transaction is in progress.
        unsafe { pg_sys::BeginInternalSubTransaction(std::ptr::null()) };
        // SAFETY: as above; LockTimeout is this backend's own variable.
        unsafe {
            pg_sys::CurrentMemoryContext = saved.memory_context;
            pg_sys::LockTimeout = patience.within(saved.lock_timeout);
        }
        let waited = PgTryBuilder::new(|| {
            // SAFETY: the tag is complete.
            unsafe { self.acquire(false) };
            Ok(())
        })
        .catch_others(|error| match error {
            // SAFETY: the server error that was just caught is still on PostgreSQL's error stack.
            CaughtError::PostgresError(_) => Err(unsafe { pg_sys::CopyErrorData() }),
            CaughtError::ErrorReport(_) | CaughtError::RustPanic { .. } => error.rethrow(),
        })
        .execute();
        // SAFETY: the subtransaction that was started above is the current one.
        unsafe {
            match waited {
                Ok(()) => saved.keep(),
                Err(error) => saved.give_up(error),
            }
        }
        waited.is_ok()
    }

    /// Gives the lock back before the transaction ends. Only for a lock that the current
    /// (sub)transaction took, and only where it protects nothing.
    pub fn release(&self) {
        // SAFETY: the tag is complete, and the lock was taken for the current (sub)transaction.
        unsafe {
            as_transaction(|| pg_sys::LockRelease(&self.0, pg_sys::ExclusiveLock as i32, false));
        }
    }

    unsafe fn acquire(&self, dont_wait: bool) -> pg_sys::LockAcquireResult::Type {
        // SAFETY: the caller has chosen the resource owner that the lock is to belong to.
        unsafe { pg_sys::LockAcquire(&self.0, pg_sys::ExclusiveLock as i32, false, dont_wait) }
    }
}

impl Patience {
    /// In the terms of lock_timeout, 0 being without end.
    fn within(self, lock_timeout: i32) -> i32 {
        match self {
            Patience::Millis(wait) if lock_timeout > 0 => wait.min(lock_timeout),
            Patience::Millis(wait) => wait,
            Patience::Endless => lock_timeout,
        }
    }
}

/// What a subtransaction changes and its end does not put back by itself.
#[derive(Clone, Copy)]
struct Saved {
    memory_context: pg_sys::MemoryContext,
    resource_owner: pg_sys::ResourceOwner,
    lock_timeout: i32,
}

impl Saved {
    unsafe fn now() -> Self {
        // SAFETY: plain reads of this backend's variables.
        unsafe {
            Self {
                memory_context: pg_sys::CurrentMemoryContext,
                resource_owner: pg_sys::CurrentResourceOwner,
                lock_timeout: pg_sys::LockTimeout,
            }
        }
    }

    unsafe fn put_back(self) {
        // SAFETY: both outlive the subtransaction, which was started after they were saved.
        unsafe {
            pg_sys::CurrentMemoryContext = self.memory_context;
            pg_sys::CurrentResourceOwner = self.resource_owner;
            pg_sys::LockTimeout = self.lock_timeout;
        }
    }

    unsafe fn keep(self) {
        // SAFETY: the caller runs in the subtransaction.
        unsafe {
            pg_sys::ReleaseCurrentSubTransaction();
            self.put_back();
        }
    }

    /// Rolls the subtransaction back; returns where its error was the lock's timeout, and raises
    /// the same error again where it was any other.
    unsafe fn give_up(self, error: *mut pg_sys::ErrorData) {
        // SAFETY: the caller runs in the subtransaction; `error` was copied outside of it.
        unsafe {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
            self.put_back();
            if (*error).sqlerrcode != PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE as i32 {
                pg_sys::ReThrowError(error);
            }
            pg_sys::FreeErrorData(error);
        }
    }
}

/// Runs `f` with the current (sub)transaction as the owner of what it acquires. The owner during a
/// call is the portal's, and a lock can only be given back by the owner that took it.
unsafe fn as_transaction<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: the transaction's owner outlives the call; an error puts the owner back by itself,
    // as every abort does.
    unsafe {
        let portal_owner = pg_sys::CurrentResourceOwner;
        pg_sys::CurrentResourceOwner = pg_sys::CurTransactionResourceOwner;
        let result = f();
        pg_sys::CurrentResourceOwner = portal_owner;
        result
    }
}
