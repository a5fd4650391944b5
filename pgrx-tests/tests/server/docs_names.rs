//! What the documentation names is there: links, commands, files, packages, crates, versions.

use pg_idempotency_tests::pages::{Page, all_pages, file, pages, sources};
use pg_idempotency_tests::paths;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

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
        let source = file(&format!("pgrx-tests/tests/server/{name}.rs"));
        assert!(source.contains(&format!("fn {test}(")), "{name}: {test}");
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
}

#[test]
fn the_major_version_is_asked_for_in_one_place() {
    let files = sources("src");
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
    let page = file("CONTRIBUTING.md");
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
        assert!(page.contains(&format!("`{package}`")), "{package}");
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
        ("examples/Cargo.toml", format!("rust-version = \"{}\"", value("rust-version"))),
    ] {
        assert!(file(page).contains(&text), "{page}: {text}");
    }
}

/// The manifests of all packages: members of the workspace, and of those that stay outside.
fn manifests() -> Vec<String> {
    let list = |folder: &str, name: &str| {
        let manifest = file(&format!("{folder}/Cargo.toml"));
        let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{name} = [")));
        let named = line.unwrap_or("\".\"").trim_end_matches(']').split(", ");
        named.map(|member| format!("{folder}/{}", member.trim_matches('"'))).collect::<Vec<_>>()
    };
    let workspaces = list(".", "exclude").into_iter().chain([".".to_owned()]);
    let folders = workspaces.flat_map(|workspace| list(&workspace, "members"));
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
