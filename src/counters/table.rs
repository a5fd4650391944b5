//! The counters in shared memory: a hash table with one entry for each database and operation.
//!
//! Entries are added and taken out under an exclusive lock; the counts themselves are atomic, so
//! counting takes no lock. The table has a fixed size. Names come from callers, who may invent as
//! many as they like: operations without settings get at most half of the places, and what finds no
//! room is counted together. So nobody can take the place of an operation that has settings.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use idempotency_core::identity::MAX_BYTES;
use pgrx::pg_sys;

use super::names::{OUTCOMES, SQLSTATES};
use crate::error::Error;
use crate::shared::{self, Lock, Shared};
use crate::{clock, guc, memory};

/// The longest name, with room to a multiple of eight.
const NAME_BYTES: usize = 256;
const _: () = assert!(MAX_BYTES <= NAME_BYTES);

/// What is counted for one operation.
#[repr(C)]
pub struct Counts {
    /// Answers, by outcome.
    pub outcomes: [AtomicU64; OUTCOMES.len()],
    /// Errors, by SQLSTATE.
    pub errors: [AtomicU64; SQLSTATES.len()],
    /// Calls that waited for the holder of a key.
    pub waits: AtomicU64,
    /// How long they waited, in microseconds.
    pub waited: AtomicU64,
    /// The longest wait, in microseconds.
    pub longest_wait: AtomicU64,
}

/// What there is once.
#[repr(C)]
pub struct Header {
    /// Moves when entries are taken out: what a session remembers of the table is void then.
    generation: AtomicU64,
    /// How many entries there are.
    entries: AtomicU32,
    /// How many of them are of operations without settings.
    unlisted: AtomicU32,
    /// Since when `others` counts, in PostgreSQL's microseconds.
    since: AtomicI64,
    /// All that found no room.
    pub others: Counts,
}

/// Compared byte by byte; behind the name are zeros.
#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    database: pg_sys::Oid,
    length: u32,
    name: [u8; NAME_BYTES],
}

#[repr(C)]
struct Entry {
    key: Key,
    is_listed: bool,
    since: i64,
    counts: Counts,
}

/// The counts of one operation at one moment.
pub struct Snapshot {
    /// The operation, or `NO_OPERATION`.
    pub operation: String,
    /// Since when it is counted.
    pub since: i64,
    /// Answers, by outcome.
    pub outcomes: [u64; OUTCOMES.len()],
    /// Errors, by SQLSTATE.
    pub errors: [u64; SQLSTATES.len()],
    /// Calls that waited.
    pub waits: u64,
    /// How long, in microseconds.
    pub waited: u64,
    /// The longest wait, in microseconds.
    pub longest_wait: u64,
}

/// How many bytes a table of so many entries takes.
pub fn size(entries: usize) -> usize {
    // SAFETY: plain arithmetic.
    unsafe { pg_sys::hash_estimate_size(entries as _, size_of::<Entry>()) }
}

/// Makes the table, or finds it; null where it is to have no entry.
///
/// # Safety
/// Called by the startup hook of shared memory, under its lock.
pub unsafe fn init(entries: usize) -> *mut pg_sys::HTAB {
    if entries == 0 {
        return std::ptr::null_mut();
    }
    let mut info = pg_sys::HASHCTL {
        keysize: size_of::<Key>(),
        entrysize: size_of::<Entry>(),
        ..Default::default()
    };
    let flags = (pg_sys::HASH_ELEM | pg_sys::HASH_BLOBS) as i32;
    let (name, entries) = (c"pg_idempotency counters".as_ptr(), entries as _);
    // SAFETY: the caller's promise; keys are blobs without padding.
    unsafe { pg_sys::ShmemInitHash(name, entries, entries, &mut info, flags) }
}

impl Header {
    /// The server has just started.
    pub fn started(&self) {
        self.since.store(clock::now(), Relaxed);
    }

    /// Moves when what a session remembers is void.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// How many operations are counted by their name, in all databases.
    pub fn entries(&self) -> u32 {
        self.entries.load(Relaxed)
    }

    fn has_room(&self, is_listed: bool) -> bool {
        let places = guc::max_counted_operations() as u32;
        let entries = self.entries.load(Relaxed);
        entries < places && (is_listed || self.unlisted.load(Relaxed) < places / 2)
    }

    /// Counts an entry that was added or taken out. Under the exclusive lock.
    fn moved(&self, by: i32, is_listed: bool) {
        self.entries.fetch_add(by as u32, Relaxed);
        if !is_listed {
            self.unlisted.fetch_add(by as u32, Relaxed);
        }
    }
}

/// The counts of an operation of this database, which is given an entry where there is room. `None`
/// where there is none; its calls are then counted among the others.
pub fn find(shared: &Shared, operation: &str, is_listed: bool) -> Option<&'static Counts> {
    let key = Key::new(operation)?;
    {
        let _held = Lock::Counters.share();
        // SAFETY: the lock is held.
        let found = unsafe { entry(&key, pg_sys::HASHACTION::HASH_FIND) };
        if !found.is_null() {
            // SAFETY: an entry of the table, which stays mapped.
            return Some(unsafe { &(*found).counts });
        }
    }
    if !shared.header.has_room(is_listed) {
        return None;
    }
    add(shared, &key, is_listed)
}

fn add(shared: &Shared, key: &Key, is_listed: bool) -> Option<&'static Counts> {
    let _held = Lock::Counters.exclude();
    // SAFETY: the lock is held alone. Somebody else may have added it meanwhile.
    unsafe {
        let mut found = entry(key, pg_sys::HASHACTION::HASH_FIND);
        if found.is_null() {
            if !shared.header.has_room(is_listed) {
                return None;
            }
            found = entry(key, pg_sys::HASHACTION::HASH_ENTER_NULL);
            if found.is_null() {
                return None;
            }
            // Atomically: a session that remembers the entry this place had before may count here.
            (*found).counts.clear();
            (*found).is_listed = is_listed;
            (*found).since = clock::now();
            shared.header.moved(1, is_listed);
        }
        Some(&(*found).counts)
    }
}

/// The counts of this database's operations, and the others of all databases.
///
/// # Errors
/// 53200.
pub fn read(shared: &Shared) -> Result<(Vec<Snapshot>, Snapshot), Error> {
    let mut mine = Vec::new();
    // Before the lock is taken: what is under it must not fail.
    let entries = shared.header.entries() as usize + 1;
    memory::ensure(2 * entries * (size_of::<Snapshot>() + NAME_BYTES))?;
    let _held = Lock::Counters.share();
    for_each(|entry| {
        if entry.key.database == my_database() {
            let name = &entry.key.name[..entry.key.length as usize];
            mine.push(entry.counts.read(String::from_utf8_lossy(name).into_owned(), entry.since));
        }
    });
    let since = shared.header.since.load(Relaxed);
    Ok((mine, shared.header.others.read(String::new(), since)))
}

/// The databases that have entries.
pub fn databases() -> Vec<pg_sys::Oid> {
    let mut found = Vec::new();
    let _held = Lock::Counters.share();
    for_each(|entry| {
        if !found.contains(&entry.key.database) {
            found.push(entry.key.database);
        }
    });
    found
}

/// Takes out the entries of these databases, and sets the others to zero. A call that is counted
/// at this very moment may be lost, or be counted for the name that gets the place next.
pub fn forget(shared: &Shared, databases: &[pg_sys::Oid]) {
    let _held = Lock::Counters.exclude();
    for_each(|found| {
        if databases.contains(&found.key.database) {
            let (key, is_listed) = (found.key, found.is_listed);
            // SAFETY: the lock is held alone; the entry that a scan has just returned may be taken
            // out (dynahash.c).
            unsafe { entry(&key, pg_sys::HASHACTION::HASH_REMOVE) };
            shared.header.moved(-1, is_listed);
        }
    });
    shared.header.others.clear();
    shared.header.since.store(clock::now(), Relaxed);
    shared.header.generation.fetch_add(1, Relaxed);
}

/// All entries. The lock is held.
fn for_each(mut visit: impl FnMut(&Entry)) {
    let table = shared::table();
    if table.is_null() {
        return;
    }
    let mut scan = pg_sys::HASH_SEQ_STATUS::default();
    // SAFETY: the caller holds the lock, so that entries neither come nor go but by itself.
    unsafe {
        pg_sys::hash_seq_init(&mut scan, table);
        while let Some(entry) = pg_sys::hash_seq_search(&mut scan).cast::<Entry>().as_ref() {
            visit(entry);
        }
    }
}

/// # Safety
/// The lock is held, alone where the action changes something.
unsafe fn entry(key: &Key, action: pg_sys::HASHACTION::Type) -> *mut Entry {
    let key = std::ptr::from_ref(key).cast::<c_void>();
    // SAFETY: the caller's promise; the key is of the table's kind.
    unsafe { pg_sys::hash_search(shared::table(), key, action, std::ptr::null_mut()) }.cast()
}

impl Key {
    fn new(operation: &str) -> Option<Self> {
        let mut name = [0; NAME_BYTES];
        name.get_mut(..operation.len())?.copy_from_slice(operation.as_bytes());
        Some(Self { database: my_database(), length: operation.len() as u32, name })
    }
}

fn my_database() -> pg_sys::Oid {
    // SAFETY: set once when the backend starts.
    unsafe { pg_sys::MyDatabaseId }
}

impl Counts {
    fn read(&self, operation: String, since: i64) -> Snapshot {
        Snapshot {
            operation,
            since,
            outcomes: std::array::from_fn(|i| self.outcomes[i].load(Relaxed)),
            errors: std::array::from_fn(|i| self.errors[i].load(Relaxed)),
            waits: self.waits.load(Relaxed),
            waited: self.waited.load(Relaxed),
            longest_wait: self.longest_wait.load(Relaxed),
        }
    }

    fn clear(&self) {
        let single = [&self.waits, &self.waited, &self.longest_wait];
        for count in self.outcomes.iter().chain(&self.errors).chain(single) {
            count.store(0, Relaxed);
        }
    }
}
