//! Both sides of the extension held together: the SQL that declares it and the library behind it.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{installation, paths, process};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Every function: name, arguments with their defaults, result, volatility (v), parallel safety
/// (u), strictness. The contract's signatures; a new function goes here too.
const FUNCTIONS: &[(&str, &str, &str, &str)] = &[
    (
        "automatic_purge",
        "OUT is_on boolean, OUT reason text, OUT pid integer, OUT last_started_at timestamp with \
         time zone, OUT last_finished_at timestamp with time zone, OUT purged bigint, OUT \
         last_error text, OUT last_error_at timestamp with time zone",
        "SETOF record",
        "v s false",
    ),
    (
        "counters",
        "OUT kind text, OUT operation text, OUT outcomes jsonb, OUT errors jsonb, OUT waits \
         bigint, OUT waited_ms double precision, OUT longest_wait_ms double precision, OUT \
         counted_since timestamp with time zone",
        "SETOF record",
        "v s false",
    ),
    (
        "counting",
        "OUT is_on boolean, OUT reason text, OUT operations integer, OUT max_operations integer",
        "SETOF record",
        "v s false",
    ),
    (
        "idempotency_abandoned",
        "max_rows integer DEFAULT 100",
        "SETOF idempotency.abandoned",
        "v u false",
    ),
    (
        "idempotency_canonicalize",
        "body text DEFAULT NULL::text, body_bytes bytea DEFAULT NULL::bytea",
        "text",
        "i s false",
    ),
    (
        "idempotency_checkpoint",
        "token uuid, recovery_point text, data jsonb DEFAULT NULL::jsonb",
        "idempotency_outcome",
        "v u false",
    ),
    (
        "idempotency_claim",
        "scope text, operation text, key text, fingerprint bytea DEFAULT NULL::bytea, \
         wait_ms integer DEFAULT NULL::integer, lease_ms integer DEFAULT NULL::integer, \
         token uuid DEFAULT NULL::uuid, data jsonb DEFAULT NULL::jsonb",
        "idempotency_outcome",
        "v u false",
    ),
    (
        "idempotency_claim_many",
        "scope text, operation text, keys text[], fingerprints bytea[] DEFAULT \
         NULL::bytea[], wait_ms integer DEFAULT NULL::integer, OUT ordinal integer, OUT \
         outcome text, OUT status integer, OUT headers jsonb, OUT body bytea, OUT \
         resource_type text, OUT resource_id text, OUT token uuid, OUT attempt integer, \
         OUT recovery_point text, OUT recovery_data jsonb, OUT fingerprint bytea, OUT \
         created_at timestamp with time zone, OUT completed_at timestamp with time \
         zone, OUT expires_at timestamp with time zone, OUT retry_after integer",
        "SETOF record",
        "v u false",
    ),
    (
        "idempotency_complete",
        "status integer, body text DEFAULT NULL::text, body_json jsonb DEFAULT \
         NULL::jsonb, body_bytes bytea DEFAULT NULL::bytea, content_type text DEFAULT \
         NULL::text, headers jsonb DEFAULT NULL::jsonb, resource_type text DEFAULT \
         NULL::text, resource_id text DEFAULT NULL::text, withhold text DEFAULT \
         NULL::text, token uuid DEFAULT NULL::uuid",
        "idempotency_outcome",
        "v u false",
    ),
    ("idempotency_configure", "operation text, settings jsonb", "jsonb", "v u false"),
    ("idempotency_extend", "token uuid, lease_ms integer", "idempotency_outcome", "v u false"),
    (
        "idempotency_fingerprint",
        "method text, path text, body text DEFAULT NULL::text, body_bytes bytea DEFAULT \
         NULL::bytea, exclude text[] DEFAULT '{}'::text[], include_query boolean \
         DEFAULT false, hmac_key bytea DEFAULT NULL::bytea",
        "bytea",
        "i s false",
    ),
    (
        "idempotency_forget",
        "scope text, operation text DEFAULT NULL::text, key text DEFAULT NULL::text, \
         force boolean DEFAULT false",
        "bigint",
        "v u false",
    ),
    ("idempotency_grant", "role name", "void", "v u false"),
    ("idempotency_key_lock", "scope text, key_space text, key text", "bigint", "i s true"),
    (
        "idempotency_parse_key",
        "header text, format text DEFAULT 'opaque'::text, max_length integer DEFAULT \
         255",
        "text",
        "i s false",
    ),
    ("idempotency_purge", "max_rows integer DEFAULT 10000", "bigint", "v u false"),
    (
        "idempotency_register_resource",
        "resource_type text, relation regclass, id_column name",
        "void",
        "v u false",
    ),
    ("idempotency_release", "token uuid DEFAULT NULL::uuid", "void", "v u false"),
    (
        "idempotency_replay",
        "scope text, operation text, key text, fingerprint bytea DEFAULT NULL::bytea",
        "idempotency_outcome",
        "v u false",
    ),
    ("idempotency_resume", "token uuid", "idempotency_outcome", "v u false"),
    (
        "idempotency_settle",
        "scope text, operation text, key text, status integer DEFAULT NULL::integer, \
         body text DEFAULT NULL::text, body_json jsonb DEFAULT NULL::jsonb, body_bytes \
         bytea DEFAULT NULL::bytea, content_type text DEFAULT NULL::text, headers jsonb \
         DEFAULT NULL::jsonb, resource_type text DEFAULT NULL::text, resource_id text \
         DEFAULT NULL::text, withhold text DEFAULT NULL::text",
        "idempotency_outcome",
        "v u false",
    ),
    ("idempotency_stats_reset", "", "void", "v s false"),
    ("settings_changed", "", "trigger", "v u false"),
];

/// The functions that read and write nothing: the only ones that everybody may execute.
const PURE: &[&str] = &[
    "idempotency_fingerprint",
    "idempotency_canonicalize",
    "idempotency_parse_key",
    "idempotency_key_lock",
];

const MEMBERS: &str =
    "FROM pg_depend d WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
    AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_idempotency')";

fn texts(db: &Database<'_>, sql: &str) -> Vec<String> {
    let mut session = db.session_as(Role::Superuser, "catalog");
    session.rows(sql).iter().map(|row| row.get(0)).collect()
}

#[test]
fn every_function_is_declared_as_the_contract_says() {
    let db = Database::fresh();
    let declared = texts(
        &db,
        &format!(
            "SELECT concat_ws(E'\\n', proname, pg_get_function_arguments(oid), pg_get_function_result(oid),
                              concat_ws(' ', provolatile, proparallel, proisstrict::text))
             FROM pg_proc WHERE prokind = 'f' AND oid IN (SELECT objid {MEMBERS} AND classid = 'pg_proc'::regclass)
             ORDER BY proname"
        ),
    );
    let expected = FUNCTIONS.iter().map(|(name, arguments, result, properties)| {
        format!("{name}\n{arguments}\n{result}\n{properties}")
    });
    assert_eq!(declared, expected.collect::<Vec<_>>());
}

#[test]
fn the_outcome_has_the_columns_of_the_contract() {
    let db = Database::fresh();
    let columns = texts(
        &db,
        "SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
         WHERE attrelid = 'idempotency_outcome'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
    );
    let expected = [
        "outcome text",
        "status integer",
        "headers jsonb",
        "body bytea",
        "resource_type text",
        "resource_id text",
        "token uuid",
        "attempt integer",
        "recovery_point text",
        "recovery_data jsonb",
        "fingerprint bytea",
        "created_at timestamp with time zone",
        "completed_at timestamp with time zone",
        "expires_at timestamp with time zone",
        "retry_after integer",
    ];
    assert_eq!(columns, expected);
}

/// Types that come with a relation, or for arrays: members of their own since 17, and nothing to say about them.
const IMPLICIT_TYPE: &str = "(classid = 'pg_type'::regclass AND EXISTS (SELECT FROM pg_type AS t WHERE t.oid = objid
    AND (t.typcategory = 'A' OR EXISTS (SELECT FROM pg_class WHERE oid = t.typrelid AND relkind <> 'c'))))";

#[test]
fn every_object_has_a_comment() {
    let db = Database::fresh();
    let silent = texts(
        &db,
        &format!(
            "SELECT pg_describe_object(classid, objid, 0) {MEMBERS}
                 AND obj_description(objid, classid::regclass::name) IS NULL AND NOT {IMPLICIT_TYPE}
             UNION ALL
             SELECT format('column %s of %s', attname, attrelid::regclass) FROM pg_attribute
             WHERE attnum > 0 AND NOT attisdropped AND col_description(attrelid, attnum) IS NULL
               AND attrelid IN (SELECT objid {MEMBERS} AND classid = 'pg_class'::regclass
                                UNION SELECT typrelid FROM pg_type WHERE typrelid <> 0 AND oid IN
                                    (SELECT objid {MEMBERS} AND classid = 'pg_type'::regclass))"
        ),
    );
    assert_eq!(silent, Vec::<String>::new(), "objects and columns without a comment");
    let members: i64 = db.value(&format!("SELECT count(*) {MEMBERS}"));
    assert!(members > 8, "the extension has members: {members}");
}

#[test]
fn everybody_may_execute_pure_functions_only() {
    let db = Database::fresh();
    let open = texts(
        &db,
        &format!(
            "SELECT proname::text FROM pg_proc WHERE oid IN (SELECT objid {MEMBERS} AND classid = 'pg_proc'::regclass)
             AND has_function_privilege('outsider', oid, 'EXECUTE') ORDER BY 1"
        ),
    );
    let not_pure: Vec<_> = open.iter().filter(|name| !PURE.contains(&name.as_str())).collect();
    assert_eq!(not_pure, Vec::<&String>::new());
    let untrusted: bool = db.value("SELECT NOT trusted AND superuser FROM pg_available_extension_versions WHERE name = 'pg_idempotency' AND installed");
    assert!(untrusted, "a superuser installs it, and owns the tables");
}

/// What runs with the owner's rights must say where it finds things.
#[test]
fn functions_that_look_names_up_have_a_search_path_of_their_own() {
    let db = Database::fresh();
    let open = texts(
        &db,
        &format!(
            "SELECT proname::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
             WHERE p.oid IN (SELECT objid {MEMBERS} AND classid = 'pg_proc'::regclass)
               AND (l.lanname <> 'c' OR p.prosecdef) AND NOT coalesce(p.proconfig::text LIKE '%search_path=%', false)"
        ),
    );
    assert_eq!(open, Vec::<String>::new());
}

/// A function without a declaration is dead; a declaration without a function fails when called. Each
/// is an entry (src/entry.rs) and not the wrapper behind it.
#[test]
fn every_exported_function_has_exactly_one_declaration() {
    let db = Database::fresh();
    let declared = texts(
        &db,
        &format!(
            "SELECT prosrc FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'c'
             WHERE p.oid IN (SELECT objid {MEMBERS} AND classid = 'pg_proc'::regclass)"
        ),
    );
    let wrappers = declared.iter().map(|name| format!("{name}_wrapper"));
    let expected: BTreeSet<String> = declared.iter().cloned().chain(wrappers).collect();
    assert_eq!(expected.len(), 2 * declared.len(), "each is declared once: {declared:?}");
    let exported = exported_symbols();
    let (infos, others): (BTreeSet<&String>, BTreeSet<&String>) =
        exported.iter().partition(|name| name.starts_with("pg_finfo_"));
    let infos: BTreeSet<String> =
        infos.iter().map(|name| name["pg_finfo_".len()..].to_owned()).collect();
    let functions: BTreeSet<String> = others
        .into_iter()
        .filter(|name| !name.starts_with("__pgrx_internals_") && !LOADED.contains(&name.as_str()))
        .cloned()
        .collect();
    assert_eq!(infos, expected, "what is said to be callable");
    assert_eq!(functions, expected, "what is there to be called");
}

/// What PostgreSQL finds by its name alone, when it loads the library and starts a worker.
const LOADED: [&str; 4] =
    ["Pg_magic_func", "_PG_init", "pg_idempotency_launcher_main", "pg_idempotency_purge_main"];

fn exported_symbols() -> BTreeSet<String> {
    let folder = installation::pg_config(&paths::pg_bin(), "--pkglibdir");
    let library = Path::new(&folder).join("pg_idempotency.so");
    let table = process::output_of(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    table.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

#[test]
fn records_are_logged_and_dumped() {
    let db = Database::fresh();
    let persistence: String = db.value(
        "SELECT relpersistence::text FROM pg_class WHERE oid = 'idempotency.records'::regclass",
    );
    assert_eq!(persistence, "p", "never UNLOGGED");
    let dumped: bool = db.value(
        "SELECT extconfig @> ARRAY['idempotency.records'::regclass::oid] FROM pg_extension
         WHERE extname = 'pg_idempotency'",
    );
    assert!(dumped, "a dump contains the records");
}

/// reg* columns keep pg_upgrade from working.
#[test]
fn no_table_has_a_column_that_pg_upgrade_refuses() {
    let db = Database::fresh();
    let reg = "SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
               WHERE c.relnamespace = 'idempotency'::regnamespace AND a.atttypid::regtype::text LIKE 'reg%'";
    assert_eq!(db.value::<i64>(reg), 0);
}

/// Keys are compared byte for byte, whatever the database's collation.
#[test]
fn every_text_column_of_the_tables_is_collated_c() {
    let db = Database::fresh();
    let others = texts(
        &db,
        "SELECT format('%s.%s', a.attrelid::regclass, a.attname) FROM pg_attribute a
         JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
         WHERE c.relnamespace = 'idempotency'::regnamespace AND a.attnum > 0 AND a.attcollation NOT IN (0, '\"C\"'::regcollation)",
    );
    assert_eq!(others, Vec::<String>::new());
}

/// The core decides; it knows nothing of PostgreSQL.
#[test]
fn the_core_does_not_depend_on_pgrx() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(paths::repository());
    cargo.args([
        "tree",
        "--offline",
        "--package",
        "idempotency-core",
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    let tree = process::output_of(&mut cargo);
    assert!(tree.starts_with("idempotency-core "), "{tree}");
    assert!(tree.contains("serde_json "), "the tree is a tree: {tree}");
    assert!(!tree.contains("pgrx") && !tree.contains("postgres"), "{tree}");
}
