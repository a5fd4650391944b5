//! What the extension's functions are called with, as the catalog has it: a new function is fuzzed
//! from the day it is declared.

use crate::database::Database;
use crate::paths;
use crate::session::Role;

/// A function or procedure of the extension.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub is_procedure: bool,
    pub arguments: Vec<Argument>,
    /// How many arguments, the last ones, may be left out.
    pub defaults: usize,
}

#[derive(Clone, Debug)]
pub struct Argument {
    pub name: String,
    /// As `format_type` writes it.
    pub sql_type: String,
}

const FUNCTIONS: &str = "
    SELECT p.proname::text, p.prokind = 'p', p.pronargdefaults::int4,
           coalesce(array_agg(coalesce(p.proargnames[a.n], '')::text ORDER BY a.n) FILTER (WHERE a.n IS NOT NULL), '{}'),
           coalesce(array_agg(format_type(a.type, NULL) ORDER BY a.n) FILTER (WHERE a.n IS NOT NULL), '{}')
    FROM pg_proc AS p
    JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
    JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    LEFT JOIN LATERAL unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, n) ON true
    WHERE e.extname = 'pg_idempotency'
    GROUP BY p.oid ORDER BY p.proname, p.oid";

/// All functions of the extension.
pub fn functions(db: &Database<'_>) -> Vec<Function> {
    let rows = db.session_as(Role::Superuser, "catalog").rows(FUNCTIONS);
    let function = |row: &postgres::Row| {
        let (names, types): (Vec<String>, Vec<String>) = (row.get(3), row.get(4));
        let defaults: i32 = row.get(2);
        Function {
            name: row.get(0),
            is_procedure: row.get(1),
            defaults: usize::try_from(defaults).expect("a count"),
            arguments: names
                .into_iter()
                .zip(types)
                .map(|(name, sql_type)| Argument { name, sql_type })
                .collect(),
        }
    };
    rows.iter().map(function).collect()
}

/// The names of the settings of operations, as the reference's table has them.
///
/// # Panics
/// When the reference has no such table.
pub fn settings() -> Vec<String> {
    let reference = std::fs::read_to_string(paths::repository().join("docs/reference.md"));
    let reference = reference.expect("the reference");
    let (_, behind) = reference.split_once("\n## Settings of operations\n").expect("the heading");
    let (table, _) = behind.split_once("\n## ").expect("a heading behind it");
    let names: Vec<String> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned))
        .collect();
    assert!(names.iter().any(|name| name == "kept_statuses"), "the table is found: {names:?}");
    names
}
