//! The reference, held against the catalog.

use pg_idempotency_tests::pages::reference;
use pg_idempotency_tests::preloaded;
use pg_idempotency_tests::prelude::*;
use std::collections::BTreeSet;

const MEMBERS: &str =
    "FROM pg_depend d WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
    AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_idempotency')";

fn texts(db: &Database<'_>, sql: &str) -> Vec<String> {
    let mut session = db.session_as(Role::Superuser, "docs");
    session.rows(sql).iter().map(|row| row.get(0)).collect()
}

/// In one line, with single blanks and without those at brackets.
fn squeezed(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace("( ", "(").replace(" )", ")").trim_end_matches(';').to_owned()
}

#[test]
fn every_function_is_in_the_reference_with_its_signature() {
    let db = Database::fresh();
    let sql = format!(
        "SELECT CASE pronamespace WHEN 'idempotency'::regnamespace THEN 'idempotency.' ELSE '' END || proname
             || '(' || regexp_replace(pg_get_function_arguments(oid), '::[a-z]+(\\[\\])?', '', 'g')
             || ') RETURNS ' || pg_get_function_result(oid)
         FROM pg_proc WHERE oid IN (SELECT objid {MEMBERS} AND classid = 'pg_proc'::regclass)"
    );
    let declared: BTreeSet<String> = texts(&db, &sql).into_iter().collect();
    let page = reference();
    let signatures = page.fences().into_iter().filter(|fence| fence.info == "sql signature");
    let described: BTreeSet<String> = signatures
        .map(|fence| {
            squeezed(&page.text(&fence)).replace("timestamptz", "timestamp with time zone")
        })
        .collect();
    assert_eq!(described, declared);
}

/// The reference says of whom each function is: everybody's, backends', or the owner's.
#[test]
fn every_function_of_the_owner_is_named_as_such() {
    let db = Database::fresh();
    let sql = format!(
        "SELECT proname::text FROM pg_proc WHERE oid IN (SELECT objid {MEMBERS} AND classid = 'pg_proc'::regclass)
         AND pronamespace <> 'idempotency'::regnamespace AND NOT has_function_privilege('backend', oid, 'EXECUTE')"
    );
    let owners: BTreeSet<String> = texts(&db, &sql).into_iter().collect();
    let section = reference().section("## Functions");
    let (_, list) = section.split_once("By the owner only:").expect("the list");
    let list = list.split_once(". ").map_or(list, |(list, _)| list);
    let named = list.split('`').skip(1).step_by(2).filter(|name| name.contains('_'));
    assert_eq!(named.map(str::to_owned).collect::<BTreeSet<_>>(), owners);
}

#[test]
fn every_parameter_is_described() {
    let db = Database::fresh();
    let sql = format!(
        "SELECT proname || ' ' || name FROM pg_proc, unnest(proargnames[:pronargs]) AS name
         WHERE oid IN (SELECT objid {MEMBERS} AND classid = 'pg_proc'::regclass)"
    );
    let page = reference();
    let mut missing = Vec::new();
    for parameter in texts(&db, &sql) {
        let (function, name) = parameter.split_once(' ').expect("two words");
        let section = page.section(&format!("### {function}"));
        if !section.lines().any(|line| line.starts_with(&format!("| `{name}` |"))) {
            missing.push(parameter);
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_column_is_described() {
    let db = Database::fresh();
    let relations = [
        ("idempotency_outcome", "## The outcome"),
        ("idempotency.records", "### idempotency.records"),
        ("idempotency.operations", "### idempotency.operations"),
        ("idempotency.resource_types", "### idempotency.resource_types"),
        ("idempotency.leases", "### idempotency.leases"),
        ("idempotency.abandoned", "### idempotency.abandoned"),
        ("idempotency.in_progress", "### idempotency.in_progress"),
        ("idempotency.stretches", "### idempotency.stretches"),
        ("idempotency.stats", "### idempotency.stats"),
        ("idempotency.counting", "### idempotency.counting"),
        ("idempotency.automatic_purge", "### idempotency.automatic_purge"),
    ];
    let sql = format!(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'v') AND oid IN (SELECT objid {MEMBERS} AND classid = 'pg_class'::regclass)
         UNION SELECT oid::regtype::text FROM pg_type WHERE typtype = 'c' AND oid IN (SELECT objid {MEMBERS} AND classid = 'pg_type'::regclass)"
    );
    let exist: BTreeSet<String> = texts(&db, &sql).into_iter().collect();
    assert_eq!(exist, relations.iter().map(|(name, _)| (*name).to_owned()).collect());
    let page = reference();
    for (relation, heading) in relations {
        let section = page.section(heading);
        let columns = texts(
            &db,
            &format!(
                "SELECT format('| `%s` | %s |', attname, replace(format_type(atttypid, atttypmod), 'timestamp with time zone', 'timestamptz'))
                 FROM pg_attribute WHERE attrelid = '{relation}'::regclass AND attnum > 0 AND NOT attisdropped"
            ),
        );
        assert!(columns.len() > 1, "{relation} has columns");
        for column in columns {
            assert!(section.contains(&column), "{relation}: {column}");
        }
    }
}

/// The comment of the column lists the words; the functions' tests hold the words themselves.
#[test]
fn every_outcome_is_described() {
    let db = Database::fresh();
    let words: String = db.value("SELECT col_description('idempotency_outcome'::regclass, 1)");
    let words: Vec<_> =
        words.split([',', ' ']).filter(|word| !matches!(*word, "" | "or")).collect();
    assert!(words.len() >= 12, "{words:?}");
    let section = reference().section("## The outcome");
    for word in words {
        let row = format!("| `{word}` |");
        assert!(section.lines().any(|line| line.starts_with(&row)), "{row}");
    }
}

#[test]
fn every_server_setting_is_described_with_its_default() {
    // Some settings are known only where the postmaster has loaded the library.
    let cluster = preloaded::cluster("docs-preloaded", &[]);
    let db = cluster.database();
    let mut session = db.session_as(Role::Superuser, "docs");
    let rows = session.rows(
        "SELECT name, boot_val, coalesce(enumvals, '{}') FROM pg_settings WHERE name LIKE 'pg_idempotency.%'",
    );
    assert!(rows.len() >= 8, "there are settings");
    let section = reference().section("## Server settings");
    for row in rows {
        let (name, default, values): (String, String, Vec<String>) =
            (row.get(0), row.get(1), row.get(2));
        let line = section.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let line = line.unwrap_or_else(|| panic!("{name} is not described"));
        let default = if default.is_empty() { "empty".into() } else { format!("`{default}`") };
        assert!(line.contains(&format!("| {default} |")), "{name}: {default} in {line}");
        for value in values {
            assert!(line.contains(&format!("`{value}`")), "{name}: {value} in {line}");
        }
    }
}

#[test]
fn every_setting_of_operations_is_described() {
    let db = Database::fresh();
    let mut session = db.session_as(Role::Superuser, "docs");
    let refusal = session.refused("SELECT idempotency_configure('o', '{\"no such setting\": 1}')");
    let detail = refusal.db().detail().expect("the names").to_owned();
    let (_, names) = detail.split_once("one of ").expect("a list");
    let exist: BTreeSet<_> = names.trim_end_matches('.').split(", ").collect();
    assert!(exist.len() > 20, "{exist:?}");
    let section = reference().section("## Settings of operations");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let described: BTreeSet<_> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(described, exist);
}
