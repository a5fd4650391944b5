//! How the values of a column are compared: as a foreign key to it compares them (ri_triggers.c), whatever
//! operators others have made.

use std::ffi::{CStr, CString, c_void};

use pgrx::pg_sys;

use crate::convert::datum::{self, quote};

/// The operator by which a foreign key to a column would find it, and the type that it takes on both sides.
pub struct Equality {
    schema: CString,
    name: CString,
    input: pg_sys::Oid,
}

impl Equality {
    /// The operator of the column's unique index, as a foreign key takes it (transformFkeyCheckAttrs), or else
    /// the one of the type itself; `None` where there is none.
    ///
    /// # Safety
    /// The relation is locked and has the column, whose type is `base_type` or a domain over it.
    pub unsafe fn of(
        relation: pg_sys::Oid,
        column: pg_sys::AttrNumber,
        base_type: pg_sys::Oid,
    ) -> Option<Self> {
        // SAFETY: the relation is locked; the type is a column's.
        unsafe {
            let by_type = || {
                let what = pg_sys::TYPECACHE_EQ_OPR as i32;
                (*pg_sys::lookup_type_cache(base_type, what)).eq_opr
            };
            let operator = operator_of_unique_index(relation, column).unwrap_or_else(by_type);
            Self::read(operator, base_type)
        }
    }

    unsafe fn read(operator: pg_sys::Oid, base_type: pg_sys::Oid) -> Option<Self> {
        // SAFETY: look-ups in the system caches; what is kept is copied before its row is given back.
        unsafe {
            let cache = pg_sys::SysCacheIdentifier::OPEROID as i32;
            let tuple = pg_sys::SearchSysCache1(cache, operator.into());
            if tuple.is_null() {
                return None;
            }
            let form = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_operator>();
            let (schema, input) = (form.oprnamespace, form.oprleft);
            let name = CStr::from_ptr(form.oprname.data.as_ptr()).to_owned();
            pg_sys::ReleaseSysCache(tuple);
            // An operator for many types (enums, rows, arrays) takes the very type; outside of pg_catalog
            // anybody's for that type could be beside it.
            let is_for_many = pg_sys::get_typtype(input) as u8 == pg_sys::TYPTYPE_PSEUDO;
            if is_for_many && schema != pg_sys::Oid::from(pg_sys::PG_CATALOG_NAMESPACE) {
                return None;
            }
            let input = if is_for_many { base_type } else { input };
            Some(Self { schema: name_of_schema(schema)?, name, input })
        }
    }

    /// `left = right`, each cast to the operator's own type: an operator of somebody's that takes a domain, or
    /// whatever else the two are, would match better without (ruleutils.c, generate_operator_clause).
    ///
    /// # Safety
    /// The operator's type exists.
    pub unsafe fn clause(
        &self,
        left: &str,
        left_type: pg_sys::Oid,
        right: &str,
        right_type: pg_sys::Oid,
    ) -> String {
        // SAFETY: a type of an operator.
        let cast = unsafe { type_name(self.input) };
        let cast_from = |from| if from == self.input { "" } else { cast.as_str() };
        let (left_cast, right_cast) = (cast_from(left_type), cast_from(right_type));
        let (schema, name) = (quote(&self.schema), datum::stored_utf8(self.name.to_bytes()));
        format!("{left}{left_cast} OPERATOR({schema}.{name}) {right}{right_cast}")
    }
}

/// The equality of a unique index on just this column; `None` where there is none.
unsafe fn operator_of_unique_index(
    relation: pg_sys::Oid,
    column: pg_sys::AttrNumber,
) -> Option<pg_sys::Oid> {
    // SAFETY: the relation is locked, so it is there; its list of indexes is a copy.
    unsafe {
        let relation = pg_sys::relation_open(relation, pg_sys::NoLock as i32);
        let indexes = pgrx::PgList::<c_void>::from_pg(pg_sys::RelationGetIndexList(relation));
        let operator = indexes.iter_oid().find_map(|index| operator_of_index(index, column));
        pg_sys::relation_close(relation, pg_sys::NoLock as i32);
        operator
    }
}

/// The same of one index, if a foreign key could refer to it.
unsafe fn operator_of_index(index: pg_sys::Oid, column: pg_sys::AttrNumber) -> Option<pg_sys::Oid> {
    // SAFETY: an index of a locked table; one key column has one family and one type.
    unsafe {
        let index = pg_sys::index_open(index, pg_sys::AccessShareLock as i32);
        let form = &*(*index).rd_index;
        let is_for_column = form.indnkeyatts == 1
            && form.indkey.values.as_slice(1).first() == Some(&column)
            && form.indisunique
            && form.indimmediate
            && form.indisvalid
            && pg_sys::RelationGetIndexPredicate(index).is_null();
        let operator = is_for_column.then(|| {
            let (family, input) = (*(*index).rd_opfamily, *(*index).rd_opcintype);
            let equal = pg_sys::BTEqualStrategyNumber as i16;
            pg_sys::get_opfamily_member(family, input, input, equal)
        });
        pg_sys::index_close(index, pg_sys::NoLock as i32);
        operator.filter(|operator| *operator != pg_sys::InvalidOid)
    }
}

/// A cast to a type, spelt out (ruleutils.c, add_cast_to).
unsafe fn type_name(value_type: pg_sys::Oid) -> String {
    // SAFETY: a look-up in the system cache; what is kept is copied before the row is given back.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::TYPEOID as i32;
        let tuple = pg_sys::SearchSysCache1(cache, value_type.into());
        if tuple.is_null() {
            return String::new();
        }
        let form = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_type>();
        let schema = form.typnamespace;
        let name = CStr::from_ptr(form.typname.data.as_ptr()).to_owned();
        pg_sys::ReleaseSysCache(tuple);
        let schema = name_of_schema(schema).unwrap_or_default();
        format!("::{}.{}", quote(&schema), quote(&name))
    }
}

unsafe fn name_of_schema(schema: pg_sys::Oid) -> Option<CString> {
    // SAFETY: a look-up in the system cache, which returns a copy or null.
    unsafe {
        let name = pg_sys::get_namespace_name(schema);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_owned())
    }
}
