//! ALTER EXTENSION UPDATE: an updated installation is the same as a fresh one, object by object, and
//! keeps its records.

use pg_idempotency_tests::moves::{assert_replayed, everything, order};
use pg_idempotency_tests::objects;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{installation, paths};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const NAME: &str = "pg_idempotency";

/// The directory of the server's extensions.
fn extensions() -> PathBuf {
    let share = installation::pg_config(&paths::pg_bin(), "--sharedir");
    Path::new(&share).join("extension")
}

fn current() -> String {
    Database::fresh().value("SELECT extversion FROM pg_extension WHERE extname = 'pg_idempotency'")
}

/// The versions whose scripts are kept.
fn released() -> Vec<String> {
    let files = fs::read_dir(paths::repository().join("sql/releases")).expect("the folder");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name"));
    let version = |name: String| {
        Some(name.strip_prefix("pg_idempotency--")?.strip_suffix(".sql")?.to_owned())
    };
    let mut versions: Vec<String> = names.filter_map(version).collect();
    versions.sort();
    versions
}

fn empty() -> Database<'static> {
    Cluster::shared().database_with("TEMPLATE template0")
}

fn fresh() -> Database<'static> {
    let db = empty();
    db.run("CREATE EXTENSION pg_idempotency");
    db
}

/// Creates a version, fills it, and brings it to the current one.
fn updated_from(version: &str) -> Database<'static> {
    Database::fresh(); // the roles
    let db = empty();
    db.run(&format!(
        "CREATE EXTENSION pg_idempotency VERSION '{version}';
         CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text)"
    ));
    db.run(&format!("ALTER EXTENSION pg_idempotency UPDATE TO '{}'", current()));
    db
}

#[test]
fn every_released_version_updates_to_what_a_fresh_one_is() {
    let new = objects::of(&fresh());
    for version in released() {
        let updated = objects::of(&updated_from(&version));
        assert_eq!(objects::differences(&updated, &new), Vec::<String>::new(), "from {version}");
    }
}

/// A path of scripts leads from each version to the current one.
#[test]
fn there_is_a_way_from_every_released_version() {
    let (db, current) = (fresh(), current());
    for version in released().iter().filter(|version| **version != current) {
        let path: Option<String> = db.value(&format!(
            "SELECT max(path) FROM pg_extension_update_paths('{NAME}') WHERE source = '{version}' AND target = '{current}'"
        ));
        assert!(path.is_some(), "from {version} to {current}");
    }
}

/// What was released as this version stays as it was.
#[test]
fn a_released_script_is_not_changed() {
    let current = current();
    if !released().contains(&current) {
        return;
    }
    let name = format!("{NAME}--{current}.sql");
    let kept = fs::read(paths::repository().join("sql/releases").join(&name)).expect("the script");
    let now = fs::read(extensions().join(&name)).expect("the installed script");
    assert!(
        kept == now,
        "sql/ has changed since {current} was released: Cargo.toml needs a new version"
    );
}

// ---- the machinery on versions made up ------------------------------------------------------

/// Scripts beside those of the extension, for as long as this value lives.
struct Scripts(Vec<PathBuf>);

impl Scripts {
    fn new(scripts: &[(&str, &str)]) -> Scripts {
        let paths = scripts.iter().map(|(versions, script)| {
            let path = extensions().join(format!("{NAME}--{versions}.sql"));
            fs::write(&path, script).expect("the tests' own tree");
            path
        });
        Scripts(paths.collect())
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        for path in &self.0 {
            let _gone_anyway = fs::remove_file(path);
        }
    }
}

/// The current script.
fn script() -> String {
    fs::read_to_string(extensions().join(format!("{NAME}--{}.sql", current()))).expect("the script")
}

/// An old version that lacked a column, an index, a function and a comment, and its way to the current one.
#[test]
fn records_survive_an_update() {
    let script = script();
    let older = format!(
        "{script}\nDROP FUNCTION @extschema@.idempotency_release; DROP INDEX idempotency.leases_open;"
    );
    let release = script
        .split("CREATE FUNCTION @extschema@.")
        .find(|part| part.starts_with("idempotency_release"))
        .expect("it is there");
    let index = "CREATE INDEX leases_open ON idempotency.leases (deadline) WHERE NOT ended;
                 COMMENT ON INDEX idempotency.leases_open IS 'Finds leases that have run out';";
    let to = format!("0.0.1-records--{}", current());
    let _scripts = Scripts::new(&[
        ("0.0.1-records", &older),
        (&to, &format!("CREATE FUNCTION @extschema@.{release}\n{index}")),
    ]);
    let new = objects::of(&fresh());

    let db = Database::fresh();
    db.run(
        "DROP EXTENSION pg_idempotency; CREATE EXTENSION pg_idempotency VERSION '0.0.1-records'",
    );
    let mut session = db.session_as(Role::Superuser, "session");
    let sent = order(&mut session, "k");
    let before = everything(&db);
    // A transaction that has claimed goes on over the update of another session's.
    session.run("BEGIN");
    session.call(claim("open")).expect("claimed");
    db.run("ALTER EXTENSION pg_idempotency UPDATE");
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    db.run("DELETE FROM idempotency.records WHERE key = 'open'");
    assert_eq!(everything(&db), before);
    assert_replayed(&mut session, "k", &sent);
    assert_eq!(objects::differences(&objects::of(&db), &new), Vec::<String>::new());
}

/// The comparison sees every kind of slip that an update script can make.
#[test]
fn the_comparison_sees_what_an_update_forgot() {
    let slips = [
        "ALTER TABLE idempotency.leases ALTER COLUMN ended DROP NOT NULL",
        "ALTER TABLE idempotency.leases ALTER COLUMN ended SET DEFAULT false",
        "ALTER TABLE idempotency.records ALTER COLUMN body SET STORAGE EXTERNAL",
        "ALTER TABLE idempotency.records ADD COLUMN more integer",
        "ALTER TABLE idempotency.records SET (fillfactor = 90)",
        "ALTER TABLE idempotency.operations DISABLE TRIGGER USER",
        "DROP INDEX idempotency.leases_open",
        "CREATE INDEX ON idempotency.records (expires_at)",
        "ALTER TABLE idempotency.leases ADD CHECK (token IS NOT NULL)",
        "COMMENT ON COLUMN idempotency.records.key IS 'another'",
        "COMMENT ON FUNCTION idempotency_release(uuid) IS NULL",
        "COMMENT ON INDEX idempotency.leases_open IS NULL",
        "GRANT EXECUTE ON FUNCTION idempotency_release(uuid) TO PUBLIC",
        "GRANT SELECT ON idempotency.records TO PUBLIC",
        "ALTER FUNCTION idempotency_release(uuid) PARALLEL SAFE",
        "ALTER FUNCTION idempotency_release(uuid) SET search_path = public",
        "ALTER FUNCTION idempotency_release(uuid) OWNER TO outsider",
        "ALTER EXTENSION pg_idempotency DROP FUNCTION idempotency_release(uuid)",
        "CREATE VIEW idempotency.more AS SELECT 1 AS one; ALTER EXTENSION pg_idempotency ADD VIEW idempotency.more",
        "CREATE OR REPLACE VIEW idempotency.abandoned AS SELECT * FROM (TABLE idempotency.abandoned) AS same WHERE NULL",
        "UPDATE pg_extension SET extconfig = extconfig[1:1], extcondition = extcondition[1:1] WHERE extname = 'pg_idempotency'",
        "ALTER TYPE idempotency_outcome ADD ATTRIBUTE more integer",
        "CREATE RULE r AS ON DELETE TO idempotency.leases DO INSTEAD NOTHING",
        "ALTER TABLE idempotency.leases ENABLE ROW LEVEL SECURITY",
    ];
    Database::fresh(); // the roles
    let new = objects::of(&fresh());
    assert!(new.len() > 100, "the extension is seen: {}", new.len());
    assert_eq!(objects::differences(&new, &objects::of(&fresh())), Vec::<String>::new());
    let db = fresh();
    let mut session = db.session_as(Role::Superuser, "slips");
    for slip in slips {
        let view: String = db.value("SELECT pg_get_viewdef('idempotency.abandoned'::regclass)");
        let slip = slip
            .replace("(TABLE idempotency.abandoned)", &format!("({})", view.trim_end_matches(';')));
        session.run("BEGIN");
        session.run(&slip);
        let rows = session.rows(include_str!("../../src/objects.sql"));
        let slipped: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
        session.run("ROLLBACK");
        assert_ne!(objects::differences(&slipped, &new), Vec::<String>::new(), "{slip}");
    }
}

/// A forgotten change in a script is found by the way of the scripts, not only by hand.
#[test]
fn an_update_that_forgets_a_change_is_found() {
    let script = script();
    let older =
        script.replace("VOLATILE PARALLEL UNSAFE ROWS 10", "VOLATILE PARALLEL UNSAFE ROWS 20");
    assert_ne!(older, script);
    let to = format!("0.0.1-forgets--{}", current());
    let _scripts = Scripts::new(&[("0.0.1-forgets", &older), (&to, "-- nothing\n")]);
    let differences =
        objects::differences(&objects::of(&updated_from("0.0.1-forgets")), &objects::of(&fresh()));
    assert!(differences.iter().any(|line| line.contains("ROWS 20")), "{differences:?}");
}
