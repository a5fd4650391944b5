//! The book that `make docs` builds has every page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pg_idempotency_tests::paths;

/// The chapters of `docs/book/SUMMARY.md`, as paths in the repository.
fn chapters() -> Vec<String> {
    let summary = paths::repository().join("docs/book/SUMMARY.md");
    let summary = fs::read_to_string(summary).expect("the summary can be read");
    let links = summary.split("](").skip(1);
    links.filter_map(|link| link.split(')').next()).map(str::to_owned).collect()
}

/// The pages below a folder, as paths in the repository.
fn pages_below(folder: &Path) -> Vec<String> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages.extend(pages_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let inside = path.strip_prefix(paths::repository()).expect("a page of ours");
            pages.push(inside.display().to_string());
        }
    }
    pages
}

#[test]
fn every_page_is_a_chapter_once() {
    let chapters = chapters();
    let once: BTreeSet<_> = chapters.iter().cloned().collect();
    assert_eq!(once.len(), chapters.len(), "{chapters:?}");

    let pages = pages_below(&paths::repository().join("docs"));
    let missing: Vec<_> = pages.iter().filter(|page| !once.contains(*page)).collect();
    assert_eq!(missing, ["docs/book/SUMMARY.md"]);
}

#[test]
fn every_chapter_is_there() {
    let missing: Vec<_> =
        chapters().into_iter().filter(|page| !paths::repository().join(page).exists()).collect();
    assert_eq!(missing, Vec::<String>::new());
}
