//! The table `idempotency.leases`: one row per token. Rows are changed by holders of the key's lock
//! only.

use idempotency_core::Micros;
use idempotency_core::identity::Identity;
use idempotency_core::lease::Lease;
use pgrx::pg_sys;
use uuid::Uuid;

use super::relation::{Layout, Table};
use super::walk::{self, ByTime};
use super::write;
use crate::convert::datum;
use crate::error::Error;

const COLUMNS: usize = 11;

static LAYOUT: Layout = Layout {
    name: c"leases",
    columns: &[
        pg_sys::UUIDOID,
        pg_sys::UUIDOID,
        pg_sys::TEXTOID,
        pg_sys::TEXTOID,
        pg_sys::TEXTOID,
        pg_sys::TIMESTAMPTZOID,
        pg_sys::TEXTOID,
        pg_sys::JSONBOID,
        pg_sys::JSONBOID,
        pg_sys::BOOLOID,
        pg_sys::JSONBOID,
    ],
    survives: true,
};

/// The numbers of columns in the table, from 1.
const TOKEN: i16 = 1;
/// Of the scope.
pub const SCOPE: i16 = 3;
const KEY_SPACE: i16 = 4;
/// Of the key.
pub const KEY: i16 = 5;
const DEADLINE: i16 = 6;
const ENDED: i16 = 10;

/// The order in which rows of ended leases are purged.
pub static BY_DEADLINE: ByTime = ByTime { index: c"leases_ended", column: DEADLINE };

/// A row. What is a datum points into PostgreSQL's memory of the current call.
#[derive(Clone, Debug)]
pub struct LeaseRow {
    /// Token and deadline.
    pub lease: Lease,
    /// The key.
    pub identity: Identity,
    /// The last checkpoint, a `text`.
    pub recovery_point: Option<pg_sys::Datum>,
    /// What it kept, a `jsonb`.
    pub recovery_data: Option<pg_sys::Datum>,
    /// What a completer needs, a `jsonb`.
    pub data: Option<pg_sys::Datum>,
    /// Whether the request was completed, given back or taken over.
    pub ended: bool,
    /// The operation's settings when it was claimed, a `jsonb`.
    pub settings: Option<pg_sys::Datum>,
}

/// The lease of a token, for who only reads. Its identity never changes; the rest is certain for holders
/// of the key's lock.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn read(token: Uuid) -> Result<Option<LeaseRow>, Error> {
    look_up(token, pg_sys::AccessShareLock)
}

/// The same, for who may write later in the transaction; see `records::find`.
///
/// # Errors
/// As for [`read`].
pub fn find(token: Uuid) -> Result<Option<LeaseRow>, Error> {
    look_up(token, pg_sys::RowExclusiveLock)
}

fn look_up(token: Uuid, lock: u32) -> Result<Option<LeaseRow>, Error> {
    let table = Table::open(&LAYOUT, lock)?;
    let row = table.find(datum::uuid(token));
    table.close();
    Ok(row.map(|row| LeaseRow::from_columns(&row)))
}

/// Adds a lease.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn insert(row: &LeaseRow) -> Result<(), Error> {
    let table = Table::open(&LAYOUT, pg_sys::RowExclusiveLock)?;
    write::insert(&table, &row.columns())?;
    table.close();
    Ok(())
}

/// Changes a lease.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn update(row: &LeaseRow) -> Result<(), Error> {
    let table = Table::open(&LAYOUT, pg_sys::RowExclusiveLock)?;
    write::replace(&table, &row.columns())?;
    table.close();
    Ok(())
}

/// Ends the lease of a token.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn end(token: Uuid) -> Result<(), Error> {
    match find(token)? {
        Some(row) => update(&LeaseRow { ended: true, ..row }),
        None => Ok(()),
    }
}

/// Waits until no other transaction has the row in hand. Who calls undoes what that takes.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn wait_for(token: Uuid) -> Result<(), Error> {
    let table = open_to_write()?;
    write::wait_for(&table, datum::uuid(token));
    table.close();
    Ok(())
}

/// The table, open to be written.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn open_to_write() -> Result<Table, Error> {
    Table::open(&LAYOUT, pg_sys::RowExclusiveLock)
}

/// Whether the lease has ended.
///
/// # Safety
/// The slot has a lease.
pub unsafe fn is_ended(slot: *mut pg_sys::TupleTableSlot) -> bool {
    // SAFETY: the caller's promise.
    unsafe { walk::column(slot, ENDED) }.is_some_and(|ended| ended.value() != 0)
}

/// Its deadline.
///
/// # Safety
/// The slot has a lease.
pub unsafe fn deadline(slot: *mut pg_sys::TupleTableSlot) -> Micros {
    // SAFETY: the caller's promise; the column is NOT NULL.
    unsafe { walk::column(slot, DEADLINE) }.map_or(Micros::MIN, |at| at.value() as Micros)
}

/// Its token.
///
/// # Safety
/// The slot has a lease.
pub unsafe fn token(slot: *mut pg_sys::TupleTableSlot) -> Option<Uuid> {
    // SAFETY: the caller's promise.
    unsafe { walk::column(slot, TOKEN).map(|token| datum::to_uuid(token)) }
}

/// Which key it is of.
///
/// # Safety
/// The slot has a lease.
pub unsafe fn identity(slot: *mut pg_sys::TupleTableSlot) -> Identity {
    // SAFETY: the caller's promise.
    let text = |column| unsafe { walk::text(slot, column) };
    Identity::new(text(SCOPE), text(KEY_SPACE), text(KEY))
}

/// The row of the same lease, ended, with nothing but token and deadline.
///
/// # Safety
/// The slot has a lease.
pub unsafe fn blank(slot: *mut pg_sys::TupleTableSlot) -> [Option<pg_sys::Datum>; COLUMNS] {
    // SAFETY: the caller's promise.
    let (token, deadline) = unsafe { (token(slot), deadline(slot)) };
    let lease = Lease { token: token.unwrap_or_default(), deadline };
    let nothing = String::new;
    let identity = Identity::new(nothing(), nothing(), nothing());
    LeaseRow { ended: true, ..LeaseRow::new(lease, identity) }.columns()
}

impl LeaseRow {
    /// A lease that has come to nothing yet.
    pub fn new(lease: Lease, identity: Identity) -> Self {
        Self {
            lease,
            identity,
            recovery_point: None,
            recovery_data: None,
            data: None,
            ended: false,
            settings: None,
        }
    }

    /// Whether the request was erased, and with it all that was known of the lease: no key is empty.
    pub fn is_blank(&self) -> bool {
        self.identity.key.is_empty()
    }

    fn columns(&self) -> [Option<pg_sys::Datum>; COLUMNS] {
        [
            Some(datum::uuid(self.lease.token)),
            Some(datum::uuid(self.identity.digest())),
            Some(datum::text(&self.identity.scope)),
            Some(datum::text(&self.identity.key_space)),
            Some(datum::text(&self.identity.key)),
            Some(self.lease.deadline.into()),
            self.recovery_point,
            self.recovery_data,
            self.data,
            Some(self.ended.into()),
            self.settings,
        ]
    }

    fn from_columns(columns: &[Option<pg_sys::Datum>; COLUMNS]) -> Self {
        let [
            token,
            _,
            scope,
            key_space,
            key,
            deadline,
            recovery_point,
            recovery_data,
            data,
            ended,
            settings,
        ] = *columns;
        // SAFETY: the columns' types were checked when the table was opened.
        let text = |column: Option<pg_sys::Datum>| unsafe {
            column
                .map(|text| datum::stored_utf8(datum::bytes(&text, text)).to_owned())
                .unwrap_or_default()
        };
        Self {
            lease: Lease {
                // SAFETY: as above.
                token: token.map(|token| unsafe { datum::to_uuid(token) }).unwrap_or_default(),
                deadline: deadline.map_or(Micros::MIN, |deadline| deadline.value() as Micros),
            },
            identity: Identity::new(text(scope), text(key_space), text(key)),
            recovery_point,
            recovery_data,
            data,
            ended: ended.is_some_and(|ended| ended.value() != 0),
            settings,
        }
    }
}
