//! The documentation, executed and held against the catalog, so that it cannot go stale.
//!
//! In README.md and docs/*.md:
//! - a fence ```` ```sql ```` is run by psql as the superuser, in an empty cluster that the fences
//!   of one page share, in their order; ```` ```sql as ROLE ```` runs as another role. A fence
//!   ```` ```text ```` right behind it is what psql prints, errors included; without one, the
//!   statements must succeed;
//! - ```` ```python ```` is run in the same way, by Debian's Python with its package psycopg;
//! - ```` ```LANGUAGE from PATH ```` is a part of an example, word for word but for its indentation; the
//!   example's own test runs it;
//! - ```` ```sql signature ```` is a function's signature, and compared with the catalog;
//! - ```` ```sh run ```` is run by sh, with psql's variables for that database; any other ```` ```sh ````
//!   may call `make` with targets that exist.
//!
//! After a change that is meant, `BLESS=1 cargo test --package pg_idempotency-tests --test docs`
//! writes what was printed into the pages; read the difference before you commit it.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{paths, preloaded};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

// ---- pages -----------------------------------------------------------------------------------

struct Page {
    path: PathBuf,
    lines: Vec<String>,
}

/// A fence: its lines without the marks.
struct Fence {
    info: String,
    /// The first line inside, counted from 0.
    start: usize,
    /// Behind the last line inside.
    end: usize,
}

impl Page {
    fn read(path: PathBuf) -> Page {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Page { lines: text.lines().map(str::to_owned).collect(), path }
    }

    fn name(&self) -> String {
        let inside = self.path.strip_prefix(paths::repository()).expect("a page of ours");
        inside.display().to_string()
    }

    fn fences(&self) -> Vec<Fence> {
        let mut marks = self.lines.iter().enumerate().filter(|(_, line)| line.starts_with("```"));
        let mut fences = Vec::new();
        while let Some((open, line)) = marks.next() {
            let (close, _) =
                marks.next().unwrap_or_else(|| panic!("{}:{}: no end", self.name(), open + 1));
            let info = line.trim_start_matches('`').trim().to_owned();
            fences.push(Fence { info, start: open + 1, end: close });
        }
        fences
    }

    fn text(&self, fence: &Fence) -> String {
        self.lines[fence.start..fence.end].join("\n")
    }

    /// Whether `next` stands right behind `fence`, but for empty lines.
    fn follows(&self, fence: &Fence, next: &Fence) -> bool {
        self.lines[fence.end + 1..next.start - 1].iter().all(|line| line.trim().is_empty())
    }

    /// The lines below a heading, down to the next heading of its level or above.
    fn section(&self, heading: &str) -> String {
        let at = self.lines.iter().position(|line| line == heading);
        let at = at.unwrap_or_else(|| panic!("{} has no heading {heading:?}", self.name()));
        let level = |line: &str| line.chars().take_while(|&c| c == '#').count();
        let is_end = |line: &&String| (1..=level(heading)).contains(&level(line));
        let below = &self.lines[at + 1..];
        let end = below.iter().position(|line| is_end(&line)).unwrap_or(below.len());
        below[..end].join("\n")
    }
}

fn pages() -> Vec<Page> {
    let root = paths::repository();
    let mut found = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).expect("the folder docs") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found.into_iter().map(Page::read).collect()
}

fn reference() -> Page {
    Page::read(paths::repository().join("docs/reference.md"))
}

/// All pages of the repository.
fn all_pages() -> Vec<Page> {
    fn below(folder: &Path, into: &mut Vec<Page>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && name != "node_modules" && !name.starts_with('.')
            {
                below(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                into.push(Page::read(path));
            }
        }
    }
    let mut pages = Vec::new();
    below(&paths::repository(), &mut pages);
    assert!(pages.len() > 20, "{}", pages.len());
    pages
}

// ---- running fences --------------------------------------------------------------------------

/// A fence to run, and what the page says it prints.
struct Example {
    runner: Runner,
    script: String,
    line: usize,
    /// The lines of the page that hold the output.
    printed: Option<(usize, usize)>,
}

#[derive(Clone, PartialEq)]
enum Runner {
    Psql { role: String },
    Python,
    Shell,
}

fn runner(page: &Page, fence: &Fence) -> Option<Runner> {
    match fence.info.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["sql"] => Some(Runner::Psql { role: Role::Superuser.name().into() }),
        ["sql", "as", role] => Some(Runner::Psql { role: (*role).into() }),
        ["python"] => Some(Runner::Python),
        ["sh", "run"] => Some(Runner::Shell),
        ["sql", "signature"] | [_, "from", _] | ["text"] | ["sh"] | ["mermaid"] => None,
        _ => {
            panic!("{}:{}: what kind of fence is {:?}?", page.name(), fence.start, fence.info)
        }
    }
}

fn examples(page: &Page) -> Vec<Example> {
    let fences = page.fences();
    let mut examples = Vec::new();
    for (i, fence) in fences.iter().enumerate() {
        let Some(runner) = runner(page, fence) else { continue };
        let printed = fences.get(i + 1).filter(|next| next.info == "text");
        let printed = printed.filter(|next| page.follows(fence, next));
        examples.push(Example {
            runner,
            script: page.text(fence),
            line: fence.start,
            printed: printed.map(|fence| (fence.start, fence.end)),
        });
    }
    examples
}

/// What a program prints on both channels, in their order, and whether it succeeded.
fn printed_by(mut command: Command, script: &str) -> (String, bool) {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    command.stdin(Stdio::piped()).stdout(writer.try_clone().expect("a pipe")).stderr(writer);
    let mut child = command.spawn().expect("the program starts");
    drop(command);
    child.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it listens");
    let mut printed = String::new();
    reader.read_to_string(&mut printed).expect("text");
    (printed, child.wait().expect("the child is ours").success())
}

fn run(example: &Example, db: &Database<'_>) -> (String, bool) {
    let mut command = match &example.runner {
        Runner::Psql { role } => {
            let mut psql = Command::new(paths::pg_bin().join("psql"));
            psql.args(["--no-psqlrc", "--file=-", "--username", role]);
            let stops = if example.printed.is_some() { "0" } else { "1" };
            psql.arg(format!("--set=ON_ERROR_STOP={stops}"));
            psql
        }
        Runner::Python => {
            let mut python = Command::new("/usr/bin/python3");
            python.arg("-").env("PGUSER", Role::Superuser.name());
            python
        }
        Runner::Shell => {
            let mut shell = Command::new("sh");
            let path = std::env::var("PATH").unwrap_or_default();
            shell.env("PATH", format!("{}:{path}", paths::pg_bin().display()));
            shell.arg("-s").env("PGUSER", Role::Superuser.name());
            shell
        }
    };
    command.env("PGHOST", db.server().sockets()).env("PGDATABASE", db.name());
    let (printed, succeeded) = printed_by(command, &example.script);
    (printed.lines().map(tidy).collect::<Vec<_>>().join("\n"), succeeded)
}

/// A line without psql's word about where it was and the blanks that end it.
fn tidy(line: &str) -> &str {
    let place = line.strip_prefix("psql:<stdin>:").and_then(|rest| rest.split_once(": "));
    place.map_or(line, |(_, said)| said).trim_end()
}

/// Runs the examples of a page and returns what is not as it says.
fn faults(page: &mut Page, bless: bool) -> Vec<String> {
    let examples = examples(page);
    if examples.is_empty() {
        return Vec::new();
    }
    let cluster = Cluster::start(&page.name().replace(['/', '.'], "-"), &[]);
    let db = cluster.database_with("TEMPLATE template0");
    let mut faults = Vec::new();
    // From the end, so that writing does not move what comes.
    let ran: Vec<_> = examples.iter().map(|example| run(example, &db)).collect();
    for (example, (printed, succeeded)) in examples.iter().zip(ran).rev() {
        let place = format!("{}:{}", page.name(), example.line);
        let printed = printed.trim_matches('\n');
        match example.printed {
            None if succeeded => {}
            None => faults.push(format!("{place} fails:\n{printed}")),
            Some((start, end)) if bless => {
                page.lines.splice(start..end, printed.lines().map(str::to_owned));
            }
            Some((start, end)) => {
                let said = page.lines[start..end].join("\n");
                if said != printed {
                    faults.push(format!("{place} says\n{said}\nand prints\n{printed}"));
                }
            }
        }
    }
    faults.reverse();
    faults
}

#[test]
fn every_fence_does_what_the_page_says() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut all = Vec::new();
    let mut count = 0;
    for mut page in pages() {
        count += examples(&page).len();
        all.extend(faults(&mut page, bless));
        if bless {
            fs::write(&page.path, page.lines.join("\n") + "\n").expect("the page can be written");
        }
    }
    assert!(count > 20, "the pages have examples: {count}");
    assert!(all.is_empty(), "{}", all.join("\n\n"));
}

// ---- links, commands, packages, crates -------------------------------------------------------

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in all_pages() {
        // The book's list of pages counts from the root.
        let folder = match &*page.name() {
            "docs/book/SUMMARY.md" => paths::repository(),
            _ => page.path.parent().expect("a folder").to_owned(),
        };
        let text = page.lines.join("\n");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => page.path.clone(),
                file => folder.join(file),
            };
            let is_there = path.exists() && (anchor.is_empty() || has_anchor(&path, anchor));
            if !is_there {
                broken.push(format!("{}: {target}", page.name()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

/// Whether a page has a heading that this anchor names.
fn has_anchor(path: &Path, anchor: &str) -> bool {
    let slug = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect::<String>()
    };
    let page = Page::read(path.to_owned());
    page.lines.iter().any(|line| line.starts_with('#') && slug(line) == anchor)
}

fn file(name: &str) -> String {
    let path = paths::repository().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

#[test]
fn every_make_target_exists() {
    let makefile = file("Makefile");
    for page in all_pages() {
        for fence in page.fences().iter().filter(|fence| fence.info == "sh") {
            for line in page.text(fence).lines() {
                let words = line.split_whitespace().skip_while(|word| *word != "make").skip(1);
                let targets = words.take_while(|word| *word != "#" && *word != "&&");
                for target in targets.filter(|word| !word.contains('=')) {
                    let exists = makefile.lines().any(|l| l.starts_with(&format!("{target}:")));
                    assert!(exists, "{}: make {target}", page.name());
                }
            }
        }
    }
}

/// Whether a file is there; the last part may have one asterisk.
fn is_there(path: &str) -> bool {
    let path = paths::repository().join(path);
    let (folder, name) = (path.parent().expect("a folder"), path.file_name().expect("a name"));
    let Some((start, end)) = name.to_str().and_then(|name| name.split_once('*')) else {
        return path.exists();
    };
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).any(|name| {
        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
    })
}

/// What is named between backticks and begins with a folder of ours.
#[test]
fn every_file_that_is_named_is_there() {
    const FOLDERS: [&str; 12] = [
        "src",
        "crates",
        "sql",
        "pgrx-tests",
        "tools",
        "docs",
        "examples",
        "contrib",
        "mutants",
        "torture",
        "fuzz",
        "bench",
    ];
    let mut seen = 0;
    let mut missing = Vec::new();
    for page in all_pages() {
        let text = page.lines.iter().filter(|line| !line.starts_with("```"));
        let text = text.map(String::as_str).collect::<Vec<_>>().join("\n");
        for named in text.split('`').skip(1).step_by(2) {
            let named = named.split_whitespace().next().unwrap_or_default();
            let Some((folder, _)) = named.split_once('/') else { continue };
            if FOLDERS.contains(&folder) && !named.contains("X.Y.Z") {
                seen += 1;
                if !is_there(named) {
                    missing.push(format!("{}: {named}", page.name()));
                }
            }
        }
    }
    assert!(seen > 40, "{seen}");
    assert_eq!(missing, Vec::<String>::new());
}

/// CONTRIBUTING names them by file and function.
#[test]
fn every_test_that_notices_a_fault_is_there() {
    let page = Page::read(paths::repository().join("CONTRIBUTING.md"));
    let mut seen = 0;
    for row in page.section("## Tests of the tests").lines() {
        let columns: Vec<_> = row.split(" | ").collect();
        let Some((name, test)) = columns.get(2).and_then(|test| test.split_once(": ")) else {
            continue;
        };
        let source = file(&format!("pgrx-tests/tests/{name}.rs"));
        assert!(source.contains(&format!("fn {test}(")), "{name}: {test}");
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
}

#[test]
fn the_major_version_is_asked_for_in_one_place() {
    let mut files = Vec::new();
    named_sources(&paths::repository().join("src"), &mut files);
    let asking = files.iter().filter(|(_, source)| source.contains("feature = \"pg1"));
    let asking: Vec<_> = asking.map(|(path, _)| path).collect();
    assert_eq!(asking, [&paths::repository().join("src/majors.rs")]);
}

/// Without the blanks that all lines begin with, and those at their ends.
fn unindented(text: &str) -> String {
    let blanks = |line: &str| line.len() - line.trim_start().len();
    let full = || text.lines().filter(|line| !line.trim().is_empty());
    let indent = full().map(blanks).min().unwrap_or_default();
    let lines = text.lines().map(|line| line.get(indent..).unwrap_or_default().trim_end());
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether the lines of `part` stand in `whole`, one behind the other, all moved by as much.
fn contains(whole: &str, part: &str) -> bool {
    let (lines, part) = (whole.lines().collect::<Vec<_>>(), unindented(part));
    lines.windows(part.lines().count()).any(|window| unindented(&window.join("\n")) == part)
}

#[test]
fn what_is_said_to_be_of_an_example_is_there() {
    let mut seen = 0;
    for page in pages() {
        for fence in page.fences() {
            let Some((_, path)) = fence.info.split_once(" from ") else { continue };
            let (name, line) = (page.name(), fence.start);
            assert!(contains(&file(path), &page.text(&fence)), "{name}:{line}: not in {path}");
            seen += 1;
        }
    }
    assert!(seen > 5, "{seen}");
}

#[test]
fn every_package_that_is_installed_is_named() {
    let readme = file("README.md");
    let scripts = file("tools/setup") + &file("tools/setup-examples");
    let lines = scripts.lines().filter(|line| !line.trim_start().starts_with('#'));
    let lists = lines.filter_map(|line| {
        let behind = |mark| line.split_once(mark).map(|(_, behind)| behind);
        behind("packages+=(").or_else(|| behind("|| need ")).or_else(|| line.strip_prefix("need "))
    });
    let words = lists.flat_map(|list| list.split(')').next().unwrap_or(list).split_whitespace());
    let packages: Vec<_> = words.filter(|word| !word.contains("[@]")).collect();
    assert!(packages.len() > 12, "{packages:?}");
    for package in packages {
        assert!(readme.contains(&format!("`{package}`")), "{package}");
    }
}

#[test]
fn versions_are_those_of_the_build() {
    let manifest = file("Cargo.toml");
    let value = |name: &str| {
        let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
        line.unwrap_or_else(|| panic!("{name} in Cargo.toml")).trim_matches('"').to_owned()
    };
    let (ours, rust) = (value("version"), format!("Rust {} or later", value("rust-version")));
    for (page, text) in [
        ("README.md", format!("**Version {ours},")),
        ("docs/reference.md", format!("pg_idempotency {ours}.")),
        ("CHANGELOG.md", format!("## {ours}")),
        ("README.md", rust.clone()),
        ("CONTRIBUTING.md", rust),
        ("docs/decisions.md", format!("pinned to {}.", value("pgrx").trim_start_matches('='))),
    ] {
        assert!(file(page).contains(&text), "{page}: {text}");
    }
}

/// The manifests of all packages: the workspace's members, and who stays outside.
fn manifests() -> Vec<String> {
    let root = file("Cargo.toml");
    let list = |name: &str| {
        let line = root.lines().find_map(|line| line.strip_prefix(&format!("{name} = [")));
        let line = line.unwrap_or_else(|| panic!("{name} in Cargo.toml")).trim_end_matches(']');
        line.split(", ").map(|folder| folder.trim_matches('"').to_owned()).collect::<Vec<_>>()
    };
    let folders = list("members").into_iter().chain(list("exclude"));
    folders.map(|folder| format!("{folder}/Cargo.toml")).collect()
}

#[test]
fn every_crate_has_its_reason() {
    let decisions = Page::read(paths::repository().join("docs/decisions.md"));
    // The odd parts between backticks, of the first column.
    let section = decisions.section("### Crates");
    let columns = section.lines().filter_map(|line| line.strip_prefix("| "));
    let firsts = columns.filter_map(|line| line.split(" |").next());
    let named: BTreeSet<_> = firsts.flat_map(|first| first.split('`').skip(1).step_by(2)).collect();
    let mut without = BTreeSet::new();
    let manifests = manifests();
    assert!(manifests.len() > 9, "{manifests:?}");
    for manifest in manifests {
        let manifest = file(&manifest);
        let mut is_list = false;
        for line in manifest.lines() {
            if line.starts_with('[') {
                is_list = line.ends_with("dependencies]");
            } else if let (true, Some((name, _))) = (is_list, line.split_once(" = ")) {
                let is_ours = line.contains("path = ");
                if !is_ours && !named.contains(name) {
                    without.insert(name.to_owned());
                }
            }
        }
    }
    assert_eq!(without, BTreeSet::new());
}

// ---- the reference and the catalog -----------------------------------------------------------

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

// ---- errors ----------------------------------------------------------------------------------

/// All sources below a folder, Rust and SQL.
fn named_sources(folder: &Path, into: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            named_sources(&path, into);
        } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "sql") {
            let source = fs::read_to_string(&path).expect("a source file");
            into.push((path, source));
        }
    }
}

/// SQLSTATE and message of what SQL raises by `RAISE condition USING MESSAGE = …`.
fn raised_in_sql(source: &str) -> Vec<(String, String)> {
    let raised = source.split("RAISE ").skip(1).map(|rest| {
        let (condition, rest) = rest.split_once(" USING MESSAGE = ").expect("a message");
        let sqlstate = match condition.trim() {
            "null_value_not_allowed" => "22004",
            "undefined_object" => "42704",
            other => panic!("the SQLSTATE of {other}"),
        };
        let message = rest.split('\'').nth(1).expect("a literal").replace("%s", "{}");
        (sqlstate.to_owned(), message)
    });
    raised.collect()
}

/// The string literal that a text starts with, and the rest.
fn literal(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &inside[at + 1..])),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    None
}

/// SQLSTATE and message of each error in a source file; the SQLSTATE is empty for bad arguments.
fn errors(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for call in ["Self::new(", "Error::new(", "Self::argument(", "Error::argument("] {
        for rest in source.split(call).skip(1) {
            let mut rest = rest.trim_start();
            let mut sqlstate = "22023".to_owned();
            if call.ends_with("::new(") {
                let Some((code, behind)) = literal(rest) else { continue };
                (sqlstate, rest) = (code, behind.trim_start_matches(',').trim_start());
            }
            let rest = rest.strip_prefix("format!(").unwrap_or(rest).trim_start();
            if let Some((message, _)) = literal(rest) {
                found.push((sqlstate, message));
            }
        }
    }
    found
}

/// What must not be null is not named one by one.
fn general(message: &str) -> String {
    let is_null = message.ends_with(" must not be null");
    if is_null { "{} must not be null".to_owned() } else { message.to_owned() }
}

/// A message as the reference writes it: what is filled in is an ellipsis.
fn written(message: &str) -> String {
    let mut parts = message.split('{');
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        written.push('…');
        written.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    written
}

#[test]
fn every_error_is_described() {
    let mut files = Vec::new();
    named_sources(&paths::repository().join("src"), &mut files);
    let mut raised: BTreeSet<_> = files.iter().flat_map(|(_, source)| errors(source)).collect();
    let mut scripts = Vec::new();
    named_sources(&paths::repository().join("sql"), &mut scripts);
    let by_sql = scripts.iter().flat_map(|(_, source)| raised_in_sql(source)).collect::<Vec<_>>();
    assert!(by_sql.len() >= 2, "{by_sql:?}");
    raised.extend(by_sql.into_iter().map(|(sqlstate, message)| (sqlstate, general(&message))));
    assert!(raised.len() > 25, "errors are found in the source: {raised:?}");
    let section = reference().section("## Errors");
    let missing: Vec<_> = raised
        .iter()
        .map(|(sqlstate, message)| format!("| `{sqlstate}` | {} |", written(message)))
        .filter(|row| !section.lines().any(|line| line.starts_with(row.as_str())))
        .collect();
    assert!(missing.is_empty(), "not in the reference:\n{}", missing.join("\n"));
}
