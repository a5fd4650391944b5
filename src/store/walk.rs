//! Walks over many rows of a table of ours, under SnapshotSelf: each row version counts as it is at
//! the moment in which it is met, whatever snapshot the transaction has, and no predicate lock is
//! taken (one on a whole table would make every claim at SERIALIZABLE fail). Who needs to have met
//! every row that is there must keep its writers out: a row that is replaced meanwhile may be met
//! twice, or not at all.

use std::ffi::CStr;
use std::ptr::null_mut;

use idempotency_core::Micros;
use pgrx::pg_sys;

use super::relation::{SCHEMA, Table};
use crate::convert::datum;
use crate::{majors, unguarded};

/// A time in a table, and the index that has the rows in its order, NULLs left out.
pub struct ByTime {
    /// The index's name. Where there is none, the whole table is read.
    pub index: &'static CStr,
    /// The number of the time's column, a `timestamptz`, from 1.
    pub column: i16,
}

/// A walk under way. After an error PostgreSQL ends it by itself.
pub struct Walk {
    slot: *mut pg_sys::TupleTableSlot,
    over: Over,
}

enum Over {
    Table(pg_sys::TableScanDesc),
    Index(pg_sys::Relation, pg_sys::IndexScanDesc),
}

impl Walk {
    /// Over all rows, as they lie.
    ///
    /// # Safety
    /// The slot is one of the table's, and outlives the walk, as the table does.
    pub unsafe fn through(table: &Table, slot: *mut pg_sys::TupleTableSlot) -> Self {
        let snapshot = &raw mut pg_sys::SnapshotSelfData;
        // SAFETY: the caller's promise. The buffers of a large table go round in a ring, so that
        // others keep theirs.
        let scan = unsafe {
            pg_sys::table_beginscan_strat(table.relation(), snapshot, 0, null_mut(), true, false)
        };
        Self { slot, over: Over::Table(scan) }
    }

    /// Over the rows in so many blocks from the first one named; the table reaches at least so far.
    ///
    /// # Safety
    /// As for [`Walk::through`].
    pub unsafe fn part(
        table: &Table,
        first: u32,
        blocks: u32,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> Self {
        // SAFETY: the caller's promise. The scan has not begun, and its table is a heap.
        unsafe {
            let walk = Self::through(table, slot);
            if let Over::Table(scan) = walk.over {
                pg_sys::heap_setscanlimits(scan, first, blocks);
            }
            walk
        }
    }

    /// Over rows whose time is not after `until`, oldest first where there is the index for it;
    /// where there is none, over all rows.
    ///
    /// # Safety
    /// As for [`Walk::through`].
    pub unsafe fn until(
        table: &Table,
        time: &ByTime,
        until: Micros,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> Self {
        // SAFETY: the caller's promise; an index that was found is one of the table's.
        unsafe {
            let Some(index) = find_index(table, time) else { return Self::through(table, slot) };
            let index = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
            let mut key = pg_sys::ScanKeyData::default();
            let not_after = pg_sys::BTLessEqualStrategyNumber as u16;
            let function = pg_sys::F_TIMESTAMPTZ_LE.into();
            pg_sys::ScanKeyInit(&mut key, 1, not_after, function, until.into());
            let snapshot = &raw mut pg_sys::SnapshotSelfData;
            let scan = unguarded::together(|| {
                majors::index_beginscan(table.relation(), index, snapshot, 1)
            });
            pg_sys::index_rescan(scan, &mut key, 1, null_mut(), 0);
            Self { slot, over: Over::Index(index, scan) }
        }
    }

    /// The slot with the next row; `None` at the end.
    pub fn next(&mut self) -> Option<*mut pg_sys::TupleTableSlot> {
        let forward = pg_sys::ScanDirection::ForwardScanDirection;
        // SAFETY: the scan is under way, and the slot is the table's.
        let found = unsafe {
            match self.over {
                Over::Table(scan) => pg_sys::table_scan_getnextslot(scan, forward, self.slot),
                Over::Index(_, scan) => pg_sys::index_getnext_slot(scan, forward, self.slot),
            }
        };
        found.then_some(self.slot)
    }

    /// Ends the walk.
    pub fn end(self) {
        // SAFETY: begun by us, ended once.
        unsafe {
            pg_sys::ExecClearTuple(self.slot);
            match self.over {
                Over::Table(scan) => pg_sys::table_endscan(scan),
                Over::Index(index, scan) => {
                    pg_sys::index_endscan(scan);
                    pg_sys::index_close(index, pg_sys::NoLock as i32);
                }
            }
        }
    }
}

/// The index, if it is there and what its name says: somebody may have dropped it, or be building it.
unsafe fn find_index(table: &Table, time: &ByTime) -> Option<pg_sys::Oid> {
    // SAFETY: look-ups in the system caches; an index of a table that is open is not dropped.
    unsafe {
        let schema = pg_sys::get_namespace_oid(SCHEMA.as_ptr(), true);
        let oid = pg_sys::get_relname_relid(time.index.as_ptr(), schema);
        if oid == pg_sys::InvalidOid || pg_sys::IndexGetRelation(oid, true) != table.oid() {
            return None;
        }
        let index = pg_sys::index_open(oid, pg_sys::AccessShareLock as i32);
        let form = (*index).rd_index;
        let serves = (*form).indisvalid
            && (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
            && (*form).indkey.values.as_slice(1)[0] == time.column;
        pg_sys::index_close(index, pg_sys::NoLock as i32);
        serves.then_some(oid)
    }
}

/// A column of the row in a slot, which it points into.
///
/// # Safety
/// The slot has a row of a table with such a column.
pub unsafe fn column(slot: *mut pg_sys::TupleTableSlot, number: i16) -> Option<pg_sys::Datum> {
    let mut is_null = false;
    // SAFETY: the caller's promise.
    let value = unsafe { pg_sys::slot_getattr(slot, number.into(), &mut is_null) };
    (!is_null).then_some(value)
}

/// Whether a column of type `text` has this value, byte for byte.
///
/// # Safety
/// As for [`column`]; the value is a `text`.
pub unsafe fn is_text(
    slot: *mut pg_sys::TupleTableSlot,
    number: i16,
    value: pg_sys::Datum,
) -> bool {
    // SAFETY: the caller's promise. A copy that had to be made is freed: there are many rows.
    unsafe {
        let Some(stored) = column(slot, number) else { return false };
        let stored = stored.cast_mut_ptr::<pg_sys::varlena>();
        let plain = pg_sys::pg_detoast_datum_packed(stored);
        let is_same = datum::varlena_bytes(&plain, plain) == datum::bytes(&value, value);
        if plain != stored {
            pg_sys::pfree(plain.cast());
        }
        is_same
    }
}

/// A column of type `text` as Rust has it; nothing where it is NULL.
///
/// # Safety
/// As for [`column`].
pub unsafe fn text(slot: *mut pg_sys::TupleTableSlot, number: i16) -> String {
    // SAFETY: the caller's promise.
    unsafe {
        let text = column(slot, number);
        text.map(|text| datum::stored_utf8(datum::bytes(&text, text)).to_owned())
            .unwrap_or_default()
    }
}
