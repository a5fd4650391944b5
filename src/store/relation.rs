//! Opening a table of ours.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::error::Error;

const SCHEMA: &CStr = c"idempotency";

/// An open table. It stays locked until the transaction ends, as a table in use by SQL would;
/// after an error PostgreSQL closes it by itself.
pub struct Table(pg_sys::Relation);

impl Table {
    /// Opens a table of the schema `idempotency` whose columns have the given types.
    ///
    /// The name is looked up each time (in the system cache), so nothing goes stale when the
    /// extension is dropped and created again.
    ///
    /// # Errors
    /// 55000 where there is no such table, or a column has another type: the library is then newer
    /// or older than the SQL objects.
    pub fn open(name: &CStr, columns: &[pg_sys::Oid], lock: u32) -> Result<Self, Error> {
        // SAFETY: look-ups in the system cache; the table is opened only where it was found.
        let table = unsafe {
            let schema = pg_sys::get_namespace_oid(SCHEMA.as_ptr(), true);
            let oid = pg_sys::get_relname_relid(name.as_ptr(), schema);
            if oid == pg_sys::InvalidOid {
                return Err(Error::not_installed(format!(
                    "There is no table idempotency.{}.",
                    name.to_string_lossy()
                )));
            }
            Self(pg_sys::table_open(oid, lock as i32))
        };
        table.check(name, columns)?;
        Ok(table)
    }

    /// PostgreSQL's own handle.
    pub fn relation(&self) -> pg_sys::Relation {
        self.0
    }

    /// Closes the table and keeps its lock.
    pub fn close(self) {
        // SAFETY: opened by us, closed once.
        unsafe { pg_sys::table_close(self.0, pg_sys::NoLock as i32) }
    }

    fn check(&self, name: &CStr, columns: &[pg_sys::Oid]) -> Result<(), Error> {
        // SAFETY: the descriptor of an open table has `natts` attributes.
        let attributes = unsafe {
            let descriptor = (*self.0).rd_att;
            (*descriptor).attrs.as_slice((*descriptor).natts as usize)
        };
        let as_expected = attributes.len() >= columns.len()
            && attributes
                .iter()
                .zip(columns)
                .all(|(attribute, oid)| attribute.atttypid == *oid && !attribute.attisdropped);
        if as_expected {
            return Ok(());
        }
        Err(Error::not_installed(format!(
            "The columns of idempotency.{} are not as expected.",
            name.to_string_lossy()
        )))
    }
}
