//! The pages of the documentation: their sections and fences.

use crate::paths;
use std::fs;
use std::path::{Path, PathBuf};

/// A page in Markdown.
pub struct Page {
    /// Where it is.
    pub path: PathBuf,
    /// Its lines.
    pub lines: Vec<String>,
}

/// A fence: its lines without the marks.
pub struct Fence {
    /// What stands behind the opening marks.
    pub info: String,
    /// The first line inside, counted from 0.
    pub start: usize,
    /// Behind the last line inside.
    pub end: usize,
}

impl Page {
    /// # Panics
    /// Where there is none.
    pub fn read(path: PathBuf) -> Page {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Page { lines: text.lines().map(str::to_owned).collect(), path }
    }

    /// The path inside the repository.
    pub fn name(&self) -> String {
        let inside = self.path.strip_prefix(paths::repository()).expect("a page of ours");
        inside.display().to_string()
    }

    /// All fences, in their order.
    pub fn fences(&self) -> Vec<Fence> {
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

    /// What is inside a fence.
    pub fn text(&self, fence: &Fence) -> String {
        self.lines[fence.start..fence.end].join("\n")
    }

    /// Whether `next` stands right behind `fence`, but for empty lines.
    pub fn follows(&self, fence: &Fence, next: &Fence) -> bool {
        self.lines[fence.end + 1..next.start - 1].iter().all(|line| line.trim().is_empty())
    }

    /// The lines below a heading, down to the next heading of its level or above.
    pub fn section(&self, heading: &str) -> String {
        let at = self.lines.iter().position(|line| line == heading);
        let at = at.unwrap_or_else(|| panic!("{} has no heading {heading:?}", self.name()));
        let level = |line: &str| line.chars().take_while(|&c| c == '#').count();
        let is_end = |line: &&String| (1..=level(heading)).contains(&level(line));
        let below = &self.lines[at + 1..];
        let end = below.iter().position(|line| is_end(&line)).unwrap_or(below.len());
        below[..end].join("\n")
    }
}

/// README.md and docs/*.md: what is run.
pub fn pages() -> Vec<Page> {
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

/// The reference.
pub fn reference() -> Page {
    Page::read(paths::repository().join("docs/reference.md"))
}

/// All pages of the repository.
pub fn all_pages() -> Vec<Page> {
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

/// A file of the repository.
///
/// # Panics
/// Where there is none.
pub fn file(name: &str) -> String {
    let path = paths::repository().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// All sources below a folder of the repository, Rust and SQL, with their paths.
pub fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    fn below(folder: &Path, into: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                below(&path, into);
            } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "sql") {
                let source = fs::read_to_string(&path).expect("a source file");
                into.push((path, source));
            }
        }
    }
    let mut found = Vec::new();
    below(&paths::repository().join(folder), &mut found);
    found
}
