//! The lock of a key: an ordinary transaction-level lock of PostgreSQL's lock manager, so that it
//! is released when its owner commits, rolls back, dies, or commits what it prepared.
//!
//! It sits in the advisory space under a class of its own (the fourth field of the lock tag).
//! PostgreSQL's own functions use classes 1 and 2 (lockfuncs.c) and Citus small numbers, so neither
//! can touch it; pg_locks shows it as `objsubid` [`CLASS`].

use std::panic::UnwindSafe;

use idempotency_core::identity::Identity;
use pgrx::pg_sys;
use pgrx::prelude::*;

use super::subtransaction;
use crate::unguarded;

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

    /// Waits for the lock; false where the patience ended before.
    pub fn acquire_within(&self, patience: Patience) -> bool {
        let lock = *self;
        patience.allows(move || {
            // SAFETY: the tag is complete; the subtransaction hands the lock to its parent.
            unsafe { lock.acquire(false) };
        })
    }

    /// How many sessions hold the lock or wait for it.
    pub fn requests(&self) -> i32 {
        // SAFETY: the tag is complete.
        unsafe { pg_sys::LockWaiterCount(&self.0) }
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
        unsafe {
            // Where there is no memory to note who owns a lock, LockAcquire leaves an entry without it,
            // and the next request for the lock crashes (lock.c, GrantLockLocal). So a piece of that size
            // is asked for, and given back for LockAcquire to find.
            let owners = 8 * size_of::<pg_sys::LOCALLOCKOWNER>();
            unguarded::together(|| {
                let context = pg_sys::TopMemoryContext;
                unguarded::pfree(unguarded::MemoryContextAlloc(context, owners));
                unguarded::LockAcquire(&self.0, pg_sys::ExclusiveLock as i32, false, dont_wait)
            })
        }
    }
}

impl Patience {
    /// Does what waits for a lock; false where the patience (or the caller's own lock_timeout, whichever
    /// is shorter) ended before. Only the rollback of a subtransaction takes a waiting request back.
    pub fn allows(self, wait: impl FnOnce() + UnwindSafe) -> bool {
        // SAFETY: this backend's own variable.
        let callers = unsafe { pg_sys::LockTimeout };
        let _timeout = LockTimeout::set(self.within(callers));
        let waited = subtransaction::attempt(
            || {
                wait();
                // The timeout may have come between the lock and its being switched off (proc.c, ProcSleep):
                // it is taken at its word here, and not by whatever looks next.
                check_for_interrupts!();
            },
            |code| code == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE,
        );
        waited.is_some()
    }

    /// In the terms of lock_timeout, 0 being without end.
    fn within(self, lock_timeout: i32) -> i32 {
        match self {
            Patience::Millis(wait) if lock_timeout > 0 => wait.min(lock_timeout),
            Patience::Millis(wait) => wait,
            Patience::Endless => lock_timeout,
        }
    }
}

/// This backend's `lock_timeout`, put back when it goes out of scope, on an error too.
struct LockTimeout(i32);

impl LockTimeout {
    fn set(millis: i32) -> Self {
        // SAFETY: this backend's own variable.
        unsafe {
            let before = Self(pg_sys::LockTimeout);
            pg_sys::LockTimeout = millis;
            before
        }
    }
}

impl Drop for LockTimeout {
    fn drop(&mut self) {
        // SAFETY: this backend's own variable; nothing is called.
        unsafe { pg_sys::LockTimeout = self.0 };
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
