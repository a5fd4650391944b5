//! The table `idempotency.records`: one look-up, one insert.

use idempotency_core::Micros;
use idempotency_core::held::Claim;
use idempotency_core::identity::Identity;
use idempotency_core::lease::Lease;
use idempotency_core::record::{Record, State};
use pgrx::pg_sys;
use uuid::Uuid;

use super::relation::{Layout, Table};
use super::walk;
use super::write::{self, Locked};
use crate::convert::datum;
use crate::error::Error;

const COLUMNS: usize = 17;

/// The columns, in the order of `sql/schema.sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The primary key: the digest of scope, key space and key.
    Digest,
    /// Principal or tenant.
    Scope,
    /// The operation, or the name that several share.
    KeySpace,
    /// The key.
    Key,
    /// The executed operation.
    Operation,
    /// The request's fingerprint.
    Fingerprint,
    /// HTTP status.
    Status,
    /// Headers.
    Headers,
    /// Body.
    Body,
    /// Pointer: type.
    ResourceType,
    /// Pointer: id.
    ResourceId,
    /// Why the answer was not kept.
    Withheld,
    /// The claim's token.
    Token,
    /// 1 for the first execution.
    Attempt,
    /// When the key was won.
    CreatedAt,
    /// When the answer was recorded.
    CompletedAt,
    /// When the record expires.
    ExpiresAt,
}

impl Column {
    /// Its number in the table, from 1.
    pub const fn number(self) -> i16 {
        self as i16 + 1
    }
}

static LAYOUT: Layout = Layout { name: c"records", columns: &TYPES, survives: true };

const TYPES: [pg_sys::Oid; COLUMNS] = [
    pg_sys::UUIDOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::BYTEAOID,
    pg_sys::INT4OID,
    pg_sys::JSONBOID,
    pg_sys::BYTEAOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::UUIDOID,
    pg_sys::INT4OID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
];

/// One row, found or to be inserted. It points into PostgreSQL's memory of the current call.
#[derive(Clone, Copy)]
pub struct Row([Option<pg_sys::Datum>; COLUMNS]);

impl Row {
    /// A row of nothing but NULLs.
    fn new() -> Self {
        Self([None; COLUMNS])
    }

    /// A row of nothing but what names it.
    fn named(identity: &Identity) -> Self {
        Self::new()
            .with(Column::Digest, Some(datum::uuid(identity.digest())))
            .with(Column::Scope, Some(datum::text(&identity.scope)))
            .with(Column::KeySpace, Some(datum::text(&identity.key_space)))
            .with(Column::Key, Some(datum::text(&identity.key)))
    }

    /// The row of a claim, without an answer.
    pub fn of(claim: &Claim) -> Self {
        Self::named(&claim.identity)
            .with(Column::Operation, Some(datum::text(&claim.operation)))
            .with(Column::Fingerprint, claim.fingerprint.as_deref().map(datum::bytea))
            .with(Column::Token, Some(datum::uuid(claim.token)))
            .with(Column::Attempt, Some(claim.attempt.into()))
            .with(Column::CreatedAt, Some(claim.created_at.into()))
    }

    /// With a column set; `None` is NULL.
    pub fn with(mut self, column: Column, value: Option<pg_sys::Datum>) -> Self {
        self.0[column as usize] = value;
        self
    }

    /// A column's value.
    pub fn get(&self, column: Column) -> Option<pg_sys::Datum> {
        self.0[column as usize]
    }

    /// A column of type `text`.
    pub fn text(&self, column: Column) -> Option<&str> {
        // SAFETY: the column's type was checked when the table was opened.
        self.get(column).map(|value| datum::stored_utf8(unsafe { datum::bytes(self, value) }))
    }

    /// A column of type `uuid`.
    pub fn uuid(&self, column: Column) -> Option<Uuid> {
        // SAFETY: the column's type was checked when the table was opened.
        self.get(column).map(|value| unsafe { datum::to_uuid(value) })
    }

    /// The identity.
    pub fn identity(&self) -> Identity {
        let text = |column| self.text(column).unwrap_or_default().to_owned();
        Identity::new(text(Column::Scope), text(Column::KeySpace), text(Column::Key))
    }

    /// The row, found by its digest, if it is that of the identity.
    ///
    /// # Errors
    /// XX001 where it is another's: a record was written by hand, or two identities share a digest.
    fn of_identity(self, identity: &Identity) -> Result<Self, Error> {
        let names = [Column::Scope, Column::KeySpace, Column::Key].map(|column| self.text(column));
        let wanted = [&identity.scope, &identity.key_space, &identity.key];
        if names == wanted.map(|name| Some(name.as_str())) {
            Ok(self)
        } else {
            Err(Error::wrong_record(identity))
        }
    }

    /// When the key was won, and how many workers have had the request.
    pub fn earlier(&self) -> (Micros, i32) {
        let created_at = self.get(Column::CreatedAt).map_or(0, |at| at.value() as Micros);
        let attempt = self.get(Column::Attempt).map_or(1, |attempt| attempt.value() as i32);
        (created_at, attempt)
    }

    /// Whether the request is finished; while it is not, it is on lease.
    pub fn is_finished(&self) -> bool {
        self.get(Column::CompletedAt).is_some()
    }

    /// What decisions need of the row; `lease` is that of a request that is not finished.
    pub fn record(&self, lease: Option<Lease>) -> Record<'_> {
        let finished = || State::Finished {
            withheld: self.text(Column::Withheld),
            expires_at: self.get(Column::ExpiresAt).map(|value| value.value() as Micros),
        };
        Record {
            operation: self.text(Column::Operation).unwrap_or_default(),
            // SAFETY: the column's type was checked when the table was opened.
            fingerprint: self
                .get(Column::Fingerprint)
                .map(|value| unsafe { datum::bytes(self, value) }),
            state: lease.map_or_else(finished, State::Leased),
        }
    }
}

/// The row of an identity, as it is committed now or was written by this transaction, for who only
/// reads.
///
/// # Errors
/// 55000 where the table is not as this library expects, XX001 where the row is another identity's.
pub fn read(identity: &Identity) -> Result<Option<Row>, Error> {
    look_up(identity, pg_sys::AccessShareLock)
}

/// The same, for who may write later in the transaction. The table's lock is the one for writing from
/// the start: who first read, and then wrote, would deadlock with a REINDEX that came between and waits for
/// its index.
///
/// # Errors
/// As for [`read`].
pub fn find(identity: &Identity) -> Result<Option<Row>, Error> {
    look_up(identity, pg_sys::RowExclusiveLock)
}

fn look_up(identity: &Identity, lock: u32) -> Result<Option<Row>, Error> {
    let table = Table::open(&LAYOUT, lock)?;
    let row = table.find(datum::uuid(identity.digest()));
    table.close();
    row.map(|row| Row(row).of_identity(identity)).transpose()
}

/// Inserts a record; where `replaces` says so, the one that is there gives way.
///
/// # Errors
/// As for [`find`]. What PostgreSQL and the table's triggers raise is passed on.
pub fn insert(identity: &Identity, row: &Row, replaces: bool) -> Result<(), Error> {
    let table = Table::open(&LAYOUT, pg_sys::RowExclusiveLock)?;
    if replaces {
        remove(&table, identity, pg_sys::LockWaitPolicy::LockWaitBlock)?;
    }
    write::insert(&table, &row.0)?;
    table.close();
    Ok(())
}

/// Deletes the record of an identity whose lock the transaction holds. Where another transaction has it in
/// hand, `policy` says what to do.
///
/// # Errors
/// As for [`insert`].
pub fn delete(identity: &Identity, policy: pg_sys::LockWaitPolicy::Type) -> Result<Locked, Error> {
    let table = Table::open(&LAYOUT, pg_sys::RowExclusiveLock)?;
    let deleted = remove(&table, identity, policy)?;
    table.close();
    Ok(deleted)
}

/// Waits until no other transaction has the record in hand. Who calls undoes what that takes.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn wait_for(identity: &Identity) -> Result<(), Error> {
    let table = Table::open(&LAYOUT, pg_sys::RowExclusiveLock)?;
    write::wait_for(&table, datum::uuid(identity.digest()));
    table.close();
    Ok(())
}

/// The table, open to delete rows of it.
///
/// # Errors
/// 55000 where the table is not as this library expects.
pub fn open_to_write() -> Result<Table, Error> {
    Table::open(&LAYOUT, pg_sys::RowExclusiveLock)
}

/// Whether the request is finished.
///
/// # Safety
/// The slot has a record.
pub unsafe fn is_finished(slot: *mut pg_sys::TupleTableSlot) -> bool {
    // SAFETY: the caller's promise.
    unsafe { walk::column(slot, Column::CompletedAt.number()) }.is_some()
}

/// When the record expires.
///
/// # Safety
/// The slot has a record.
pub unsafe fn expires_at(slot: *mut pg_sys::TupleTableSlot) -> Option<Micros> {
    // SAFETY: the caller's promise.
    unsafe { walk::column(slot, Column::ExpiresAt.number()).map(|at| at.value() as Micros) }
}

/// Operation, key and time of the completion.
///
/// # Safety
/// The slot has a record.
pub unsafe fn completion(slot: *mut pg_sys::TupleTableSlot) -> (String, String, Micros) {
    // SAFETY: the caller's promise.
    unsafe {
        let text = |column: Column| walk::text(slot, column.number());
        let completed_at = walk::column(slot, Column::CompletedAt.number());
        let completed_at = completed_at.map_or(Micros::MAX, |at| at.value() as Micros);
        (text(Column::Operation), text(Column::Key), completed_at)
    }
}

/// The token of the claim.
///
/// # Safety
/// The slot has a record.
pub unsafe fn token(slot: *mut pg_sys::TupleTableSlot) -> Option<Uuid> {
    // SAFETY: the caller's promise.
    unsafe { walk::column(slot, Column::Token.number()).map(|token| datum::to_uuid(token)) }
}

/// Which key it is of.
///
/// # Safety
/// The slot has a record.
pub unsafe fn identity(slot: *mut pg_sys::TupleTableSlot) -> Identity {
    // SAFETY: the caller's promise.
    let text = |column: Column| unsafe { walk::text(slot, column.number()) };
    Identity::new(text(Column::Scope), text(Column::KeySpace), text(Column::Key))
}

fn remove(
    table: &Table,
    identity: &Identity,
    policy: pg_sys::LockWaitPolicy::Type,
) -> Result<Locked, Error> {
    let digest = datum::uuid(identity.digest());
    write::delete(table, digest, policy, |row| Row(row).of_identity(identity).map(drop))
}
