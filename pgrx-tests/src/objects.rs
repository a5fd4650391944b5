//! The extension's objects in a database, to be compared with those of another one.

use crate::database::Database;
use crate::session::Role;
use std::collections::BTreeSet;

/// A line for each fact.
#[track_caller]
pub fn of(db: &Database<'_>) -> BTreeSet<String> {
    let mut session = db.session_as(Role::Superuser, "objects");
    let rows = session.rows(include_str!("objects.sql"));
    rows.iter().map(|row| row.get(0)).collect()
}

/// The lines that are in one of the two only, each with a sign.
pub fn differences(one: &BTreeSet<String>, other: &BTreeSet<String>) -> Vec<String> {
    let here = one.difference(other).map(|line| format!("- {line}"));
    here.chain(other.difference(one).map(|line| format!("+ {line}"))).collect()
}
