//! The Debian package: what is in it, and that a server which has it can use it. `make package-test`
//! installs it into a bare Debian. And every place that says a version says the same one.

use pg_idempotency_tests::{installation, paths, process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The newest build, packaged, and unpacked into a folder.
struct Package {
    deb: PathBuf,
    root: PathBuf,
}

static PACKAGE: LazyLock<Package> = LazyLock::new(|| {
    let profile = std::env::var("PROFILE").unwrap_or_else(|_| "debug".into());
    let built = process::output_of(tool("package").env("PROFILE", profile));
    let deb = paths::repository().join(built.trim());
    let root = paths::scratch("package");
    process::remove_at_the_end(&root);
    process::output_of(Command::new("dpkg-deb").arg("--extract").arg(&deb).arg(&root));
    Package { deb, root }
});

fn tool(name: &str) -> Command {
    let mut command = Command::new(paths::repository().join("tools").join(name));
    command.env("PG_MAJOR", major());
    command
}

fn major() -> String {
    installation::major().to_string()
}

fn file(name: &str) -> String {
    let path = paths::repository().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// The version, from the one place that has it.
fn version() -> String {
    let manifest = file("Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    line.expect("a version").trim_matches('"').to_owned()
}

fn field(name: &str) -> String {
    let deb = &PACKAGE.deb;
    process::output_of(Command::new("dpkg-deb").arg("--field").arg(deb).arg(name)).trim().to_owned()
}

/// The paths of all files below `folder`, relative to `root`, sorted.
fn files(root: &Path, folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(root, &path));
        } else {
            found.push(path.strip_prefix(root).expect("below").display().to_string());
        }
    }
    found.sort();
    found
}

#[test]
fn it_has_the_extension_and_its_documents_and_runs_nothing() {
    let (major, version) = (major(), version());
    let doc = format!("usr/share/doc/postgresql-{major}-idempotency");
    let all = files(&PACKAGE.root, &PACKAGE.root);
    let (documents, others): (Vec<_>, Vec<_>) =
        all.iter().partition(|path| path.starts_with(&format!("{doc}/docs/")));
    let extension = format!("usr/share/postgresql/{major}/extension");
    let scripts = |folder| fs::read_dir(paths::repository().join(folder)).expect("a folder");
    let scripts = scripts("sql").chain(scripts("sql/releases"));
    let scripts = scripts.map(|entry| entry.expect("an entry").file_name().into_string().unwrap());
    let mut expected = vec![
        format!("usr/lib/postgresql/{major}/lib/pg_idempotency.so"),
        format!("{extension}/pg_idempotency--{version}.sql"),
        format!("{extension}/pg_idempotency.control"),
    ];
    expected.extend(
        ["README.md", "changelog.Debian.gz", "changelog.gz", "copyright"]
            .map(|name| format!("{doc}/{name}")),
    );
    expected.extend(
        scripts.filter(|name| name.contains("--")).map(|name| format!("{extension}/{name}")),
    );
    expected.sort();
    expected.dedup();
    assert_eq!(others.into_iter().cloned().collect::<Vec<_>>(), expected);
    for page in ["guide", "reference", "operations", "decisions"] {
        assert!(documents.contains(&&format!("{doc}/docs/{page}.md")), "{page}: {documents:?}");
    }
    // Without preinst, postinst, prerm, postrm it does on every machine what dpkg does.
    let control = tempfile("control");
    process::output_of(Command::new("dpkg-deb").arg("--control").arg(&PACKAGE.deb).arg(&control));
    assert_eq!(files(&control, &control), ["control", "md5sums"]);
}

fn tempfile(name: &str) -> PathBuf {
    let folder = paths::scratch(&format!("package-{name}"));
    process::remove_at_the_end(&folder);
    folder
}

#[test]
fn its_fields_say_what_it_is() {
    let major = major();
    assert_eq!(field("Package"), format!("postgresql-{major}-idempotency"));
    assert_eq!(field("Version"), format!("{}-1", version()));
    let depends = field("Depends");
    assert!(depends.starts_with(&format!("postgresql-{major}, libc6 (>= 2.")), "{depends}");
    assert!(depends.ends_with(", libgcc-s1"), "{depends}");
    assert!(field("Maintainer").ends_with('>'), "a name and an address");
    assert!(field("Description").contains(&format!("PostgreSQL {major}")));
    let doc = PACKAGE.root.join(format!("usr/share/doc/postgresql-{major}-idempotency"));
    let copyright = fs::read_to_string(doc.join("copyright")).expect("the copyright");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let license = file("LICENSE");
    let license = license.split_once("Permission").expect("the licence").1;
    let whole = words(&copyright.replace("\n .\n", "\n\n")).join(" ");
    assert!(whole.ends_with(&words(license).join(" ")), "{copyright}");
}

/// In a PostgreSQL that has the package's files and nothing else of ours.
#[test]
fn a_server_that_has_it_claims_and_replays() {
    let tree = tempfile("server");
    process::output_of(tool("postgres-tree").arg(major()).arg(&tree));
    let origin = paths::pg_bin();
    let ours =
        origin.ancestors().find(|path| path.parent() == Some(&paths::repository().join("target")));
    let bin = tree.join(origin.strip_prefix(ours.expect("a tree under target/")).expect("below"));
    let directory = |option| installation::pg_config(&bin, option);
    let (lib, share) = (directory("--pkglibdir"), directory("--sharedir"));
    let from = |below: &str| PACKAGE.root.join(below.replace('N', &major()));
    let copy = |from: PathBuf, to: String| {
        process::output_of(Command::new("cp").arg("--recursive").arg(from.join(".")).arg(to));
    };
    copy(from("usr/lib/postgresql/N/lib"), lib);
    copy(from("usr/share/postgresql/N/extension"), format!("{share}/extension"));

    let data = tree.join("data");
    let mut initdb = pg_idempotency_tests::server::as_nobody_special(&bin.join("initdb"));
    process::output_of(
        initdb.args(["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", "--pgdata"]).arg(&data),
    );
    let claim = "SELECT outcome FROM idempotency_claim('alice', 'POST /orders', 'k1', sha256(''));";
    let script = tree.join("script");
    let complete = "SELECT outcome FROM idempotency_complete(201, '{}');";
    fs::write(
        &script,
        format!(
            "CREATE EXTENSION pg_idempotency;\nBEGIN;\n{claim}\n{complete}\nCOMMIT;\n{claim}\n"
        ),
    )
    .expect("a file");
    let mut alone = pg_idempotency_tests::server::as_nobody_special(&bin.join("postgres"));
    alone.arg("--single").arg("-D").arg(&data).arg("postgres");
    let said = process::output_of(alone.stdin(fs::File::open(&script).expect("the script")));
    let outcomes: Vec<_> =
        said.split("outcome = \"").skip(1).filter_map(|text| text.split('"').next()).collect();
    assert_eq!(outcomes, ["claimed", "completed", "replayed"], "{said}");
}

/// What the PGXN Meta Spec 1.0.0 requires, and the files that it names.
#[test]
fn the_pgxn_metadata_is_complete() {
    let meta: Value = serde_json::from_str(&file("META.json")).expect("JSON");
    let text = |pointer: &str| {
        meta.pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_else(|| panic!("META.json: {pointer}"))
    };
    assert_eq!(text("/name"), "pg_idempotency");
    assert_eq!(text("/license"), "postgresql");
    assert_eq!(text("/meta-spec/version"), "1.0.0");
    assert_eq!(text("/meta-spec/url"), "https://pgxn.org/meta/spec.txt");
    assert!(!text("/abstract").is_empty() && !text("/maintainer").is_empty());
    assert!(["stable", "testing", "unstable"].contains(&text("/release_status")));
    for part in ["file", "docfile"] {
        let path = text(&format!("/provides/pg_idempotency/{part}")).to_owned();
        assert!(paths::repository().join(&path).exists(), "{path}");
    }
    assert_eq!(text("/prereqs/runtime/requires/PostgreSQL"), "15.0.0");
}

#[test]
fn everything_has_the_version_of_cargo_toml() {
    let version = version();
    let meta: Value = serde_json::from_str(&file("META.json")).expect("JSON");
    assert_eq!(meta["version"], version.as_str());
    assert_eq!(meta["provides"]["pg_idempotency"]["version"], version.as_str());
    assert!(file("pg_idempotency.control").contains("default_version = '@CARGO_VERSION@'"));
    let extension = PACKAGE.root.join(format!("usr/share/postgresql/{}/extension", major()));
    let control =
        fs::read_to_string(extension.join("pg_idempotency.control")).expect("the control file");
    assert!(control.contains(&format!("default_version = '{version}'\n")), "{control}");
    for (page, text) in [
        ("CHANGELOG.md", format!("\n## {version}")),
        ("clients/python/pyproject.toml", format!("\nversion = \"{version}\"\n")),
        ("clients/node/package.json", format!("\"version\": \"{version}\"")),
        ("README.md", format!("postgresql-15-idempotency_{version}-1_amd64.deb")),
        ("docs/operations.md", format!("postgresql-15-idempotency_{version}-1_amd64.deb")),
    ] {
        assert!(file(page).contains(&text), "{page}: {text}");
    }
}
