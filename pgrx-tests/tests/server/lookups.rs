//! What the extension's SQL was found to mean when it was created: everything is pg_catalog's or the extension's.

use pg_idempotency_tests::paths;
use pg_idempotency_tests::prelude::*;

/// The extension's members, and the rules, defaults, constraints, triggers and row types that belong to them.
const MEMBERS: &str = "
    WITH RECURSIVE extension AS (SELECT oid, extnamespace FROM pg_extension WHERE extname = 'pg_idempotency'),
    member AS (
        SELECT d.classid, d.objid FROM pg_depend AS d JOIN extension AS e
            ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
        UNION
        SELECT d.classid, d.objid FROM member AS m JOIN pg_depend AS d
            ON d.refclassid = m.classid AND d.refobjid = m.objid AND d.deptype IN ('i', 'a')
    )";

/// Every parsed expression of the members, as PostgreSQL stores it.
const TREES: &str = ",
    tree AS (
        SELECT r.ev_action::text AS t FROM pg_rewrite AS r JOIN member AS m ON m.classid = 'pg_rewrite'::regclass AND m.objid = r.oid
        UNION ALL
        SELECT concat(p.prosqlbody, p.proargdefaults) FROM pg_proc AS p JOIN member AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
        UNION ALL
        SELECT d.adbin::text FROM pg_attrdef AS d JOIN member AS m ON m.classid = 'pg_attrdef'::regclass AND m.objid = d.oid
        UNION ALL
        SELECT c.conbin::text FROM pg_constraint AS c JOIN member AS m ON m.classid = 'pg_constraint'::regclass AND m.objid = c.oid
        UNION ALL
        SELECT t.tgqual::text FROM pg_trigger AS t JOIN member AS m ON m.classid = 'pg_trigger'::regclass AND m.objid = t.oid
        UNION ALL
        SELECT concat(i.indexprs, i.indpred) FROM pg_index AS i JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = i.indexrelid
    ),
    field AS (
        SELECT f[1] AS name, unnest(string_to_array(trim(f[2]), ' '))::oid AS oid
        FROM tree, regexp_matches(t, ':(\\w+) (?:\\(o )?(\\d+(?: \\d+)*)', 'g') AS f
    ),
    used AS (
        SELECT 'pg_operator'::regclass AS class, oid FROM field WHERE name IN ('opno', 'eqop', 'sortop', 'opnos')
        UNION SELECT 'pg_proc', oid FROM field WHERE name IN ('funcid', 'opfuncid', 'aggfnoid', 'winfnoid', 'hashfuncid', 'negfuncid')
        UNION SELECT 'pg_type', oid FROM field WHERE name ~ 'types?(id)?$' AND name NOT IN ('nulltesttype', 'booltesttype', 'jointype')
        UNION SELECT 'pg_collation', oid FROM field WHERE name ~ 'coll(id|ation|ations)?$'
        UNION SELECT 'pg_class', oid FROM field WHERE name = 'relid'
        UNION SELECT 'pg_opfamily', oid FROM field WHERE name = 'opfamilies'
    )";

fn lines(db: &Database<'_>, query: &str) -> Vec<String> {
    let mut session = db.session_as(Role::Superuser, "catalog");
    session.rows(query).iter().map(|row| row.get(0)).collect()
}

/// Catches an operator, a function, a type, a collation or a relation that was found in somebody else's schema.
#[test]
fn every_name_in_a_view_or_a_body_is_pg_catalogs_or_ours() {
    let db = Database::fresh();
    let all = format!(
        "{MEMBERS}{TREES} SELECT DISTINCT concat(class, ' ', pg_describe_object(class, oid, 0)) FROM used WHERE oid <> 0"
    );
    let used = lines(&db, &all);
    for (class, least) in [("pg_operator", 10), ("pg_proc", 15), ("pg_type", 15), ("pg_class", 5)] {
        let count = used.iter().filter(|line| line.starts_with(&format!("{class} "))).count();
        assert!(count >= least, "only {count} of {class} are found in {used:#?}");
    }
    let others = format!(
        "{MEMBERS}{TREES} SELECT pg_describe_object(class, oid, 0) FROM used
         WHERE oid <> 0 AND (pg_identify_object(class, oid, 0)).schema <> 'pg_catalog'
           AND NOT EXISTS (SELECT FROM member AS m WHERE m.classid = class AND m.objid = oid)"
    );
    assert_eq!(lines(&db, &others), Vec::<String>::new());
}

/// Most of pg_catalog is not listed at all; what is listed besides has to be of it, or the extension's.
#[test]
fn the_extension_depends_on_nothing_else() {
    let db = Database::fresh();
    let others = format!(
        "{MEMBERS} SELECT DISTINCT pg_describe_object(d.refclassid, d.refobjid, 0)
         FROM member AS m JOIN pg_depend AS d ON d.classid = m.classid AND d.objid = m.objid
         WHERE NOT EXISTS (SELECT FROM member AS o WHERE o.classid = d.refclassid AND o.objid = d.refobjid)
           AND NOT EXISTS (SELECT FROM extension AS e WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
                           OR d.refclassid = 'pg_namespace'::regclass AND d.refobjid = e.extnamespace)
           AND (pg_identify_object(d.refclassid, d.refobjid, 0)).schema IS DISTINCT FROM 'pg_catalog'"
    );
    assert_eq!(lines(&db, &others), ["language plpgsql"]);
}

/// What is parsed anew at each call looks names up by a path of its own; what is parsed once depends on what it found.
#[test]
fn bodies_are_parsed_once_or_by_a_path_of_their_own() {
    let db = Database::fresh();
    let open = format!(
        "{MEMBERS} SELECT p.oid::regprocedure::text FROM pg_proc AS p
         JOIN member AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid JOIN pg_language AS l ON l.oid = p.prolang
         WHERE l.lanname <> 'c' AND (l.lanname <> 'sql' OR p.prosqlbody IS NULL)
           AND NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(p.proconfig, '{{}}'))"
    );
    assert_eq!(lines(&db, &open), Vec::<String>::new());
}

/// The first statement takes the extension's schema out of the search path, before anything is looked up; and nothing
/// that is there already is adopted.
#[test]
fn the_script_looks_nothing_up_elsewhere() {
    let folder = paths::repository().join("sql");
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).expect("SQL");
    let schema = read(folder.join("schema.sql"));
    let first = schema.lines().find(|line| !line.is_empty() && !line.starts_with("--"));
    assert_eq!(first, Some("SET LOCAL search_path = pg_catalog, pg_temp;"));
    let functions = std::fs::read_dir(folder.join("functions"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    let rest = ["types.sql", "grants.sql"].map(|file| folder.join(file));
    for file in functions.chain(rest).map(read).chain([schema]) {
        // In PL/pgSQL `IF NOT EXISTS (` is a condition.
        let file = file.replace("IF NOT EXISTS (", "");
        for adopts in ["OR REPLACE", "IF NOT EXISTS", "search_path = public"] {
            assert!(!file.contains(adopts), "{adopts} in {file}");
        }
    }
}
