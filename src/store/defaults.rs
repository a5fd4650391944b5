//! Columns that somebody has added to a table of ours, behind our own, get the default that INSERT
//! would give them. Logical replication does the same for columns that only the subscriber has
//! (worker.c, slot_fill_defaults).

use pgrx::pg_sys;

use crate::{majors, unguarded};

/// Puts the defaults of all columns behind the first `ours` into a slot that has NULLs there.
///
/// # Safety
/// The slot is one of the relation's, which is open, and the current memory lives as long as the slot. The
/// current user is the table's owner, with a safe search path: defaults may call functions.
pub unsafe fn fill(
    relation: pg_sys::Relation,
    estate: *mut pg_sys::EState,
    slot: *mut pg_sys::TupleTableSlot,
    ours: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (i, column) in majors::attributes((*relation).rd_att).iter().enumerate().skip(ours) {
            // A generated column is computed by the insertion.
            if column.attisdropped || column.attgenerated != 0 {
                continue;
            }
            let default = pg_sys::build_column_default(relation, i as i32 + 1);
            if !default.is_null() {
                let is_null = (*slot).tts_isnull.add(i);
                *(*slot).tts_values.add(i) = evaluate(default.cast(), estate, is_null);
            }
        }
    }
}

/// # Safety
/// An expression without columns.
unsafe fn evaluate(
    expression: *mut pg_sys::Expr,
    estate: *mut pg_sys::EState,
    is_null: *mut bool,
) -> pg_sys::Datum {
    // SAFETY: the caller's promise; what is called behind the guard has nothing to unwind.
    unsafe {
        let expression = pg_sys::expression_planner(expression);
        let state = pg_sys::ExecInitExpr(expression, std::ptr::null_mut());
        if (*estate).es_per_tuple_exprcontext.is_null() {
            pg_sys::MakePerTupleExprContext(estate);
        }
        let context = (*estate).es_per_tuple_exprcontext;
        match (*state).evalfunc {
            Some(evaluate) => unguarded::together(|| evaluate(state, context, is_null)),
            None => pg_sys::Datum::null(),
        }
    }
}
