//! What is known of automatic purge, in shared memory: written by the launcher and its workers, read
//! by the view `idempotency.automatic_purge`.

use std::cell::UnsafeCell;

use pgrx::pg_sys;

use super::databases::MAX_DATABASES;
use crate::clock;
use crate::shared::{self, Held, Lock};

/// Room for an error's message, in bytes; a longer one is cut.
const MESSAGE_BYTES: usize = 256;

/// One row for each database that is purged. Empty ones have no database.
#[repr(C)]
pub struct Board {
    rows: UnsafeCell<[Row; MAX_DATABASES]>,
}

/// The state of one database. Times are PostgreSQL's microseconds, 0 for never.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Row {
    database: pg_sys::Oid,
    /// The worker that is in the database now; 0 for none.
    pub pid: i32,
    /// When a worker last went into the database.
    pub started_at: i64,
    /// When a worker last found nothing more to purge.
    pub finished_at: i64,
    /// Records that were purged since the server started.
    pub purged: i64,
    /// Whether there was more to purge when the last worker left.
    pub has_more: bool,
    /// Whether the last attempt failed.
    pub is_failing: bool,
    /// When an attempt last failed.
    pub failed_at: i64,
    error: Message,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Message {
    length: u16,
    bytes: [u8; MESSAGE_BYTES],
}

impl Default for Message {
    fn default() -> Self {
        Self { length: 0, bytes: [0; MESSAGE_BYTES] }
    }
}

impl Row {
    /// The last error.
    pub fn error(&self) -> &str {
        let bytes = &self.error.bytes[..self.error.length as usize];
        str::from_utf8(bytes).unwrap_or("?")
    }

    /// A worker is in the database.
    pub fn start(&mut self, pid: i32) {
        self.pid = pid;
        self.started_at = clock::now();
        self.has_more = false;
    }

    /// A batch was purged. True where this is news: the last attempt has failed.
    pub fn purge(&mut self, records: i64) -> bool {
        self.purged += records;
        std::mem::replace(&mut self.is_failing, false)
    }

    /// The worker is gone, whether or not it could say so.
    pub fn is_gone(&mut self) {
        self.pid = 0;
    }

    /// The worker leaves; another one is to go on where it has left something.
    pub fn leave(&mut self, has_more: bool) {
        self.pid = 0;
        self.has_more = has_more;
        if !has_more && !self.is_failing {
            self.finished_at = clock::now();
        }
    }

    /// An attempt has failed. True where this is news: it is not what failed the last time.
    pub fn fail(&mut self, error: &str) -> bool {
        let before = std::mem::replace(&mut self.error, Message::new(error));
        let is_news = !self.is_failing || !before.is(&self.error);
        self.is_failing = true;
        self.failed_at = clock::now();
        is_news
    }
}

impl Message {
    fn new(text: &str) -> Self {
        let mut end = text.len().min(MESSAGE_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let cut = &text[..end];
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..cut.len()].copy_from_slice(cut.as_bytes());
        Self { length: cut.len() as u16, bytes }
    }

    fn is(&self, other: &Self) -> bool {
        self.length == other.length && self.bytes == other.bytes
    }
}

/// The state of a database; `None` where it has none, or there is no shared memory.
pub fn read(database: pg_sys::Oid) -> Option<Row> {
    with_rows(Lock::share, |rows| rows.iter().find(|row| row.database == database).copied())?
}

/// Changes the state of a database; `None` where it has none.
pub fn change<R>(database: pg_sys::Oid, change: impl FnOnce(&mut Row) -> R) -> Option<R> {
    if database == pg_sys::InvalidOid {
        return None;
    }
    with_rows(Lock::exclude, |rows| {
        rows.iter_mut().find(|row| row.database == database).map(change)
    })?
}

/// Gives a database a row if it has none: an empty one, or that of a database that is not listed any
/// more. There is one, as long as no more are listed than there are rows.
pub fn enter(database: pg_sys::Oid, listed: &[pg_sys::Oid]) {
    with_rows(Lock::exclude, |rows| {
        if rows.iter().any(|row| row.database == database) {
            return;
        }
        let is_free = |row: &&mut Row| row.pid == 0 && !listed.contains(&row.database);
        if let Some(row) = rows.iter_mut().find(is_free) {
            *row = Row { database, ..Row::default() };
        }
    });
}

fn with_rows<R>(
    lock: fn(Lock) -> Held,
    work: impl FnOnce(&mut [Row; MAX_DATABASES]) -> R,
) -> Option<R> {
    let shared = shared::get()?;
    let _held = lock(Lock::Board);
    // SAFETY: the lock is held, alone by whoever writes; no reference outlives it, and what is done
    // under it takes no other.
    Some(work(unsafe { &mut *shared.board.rows.get() }))
}
