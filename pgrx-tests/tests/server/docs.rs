//! The documentation, executed, so that it cannot go stale.
//!
//! In README.md and docs/*.md:
//! - a fence ```` ```sql ```` is run by psql as the superuser, in an empty cluster that the fences
//!   of one page share, in their order; ```` ```sql as ROLE ```` runs as another role. A fence
//!   ```` ```text ```` right behind it is what psql prints, errors included; without one, the
//!   statements must succeed;
//! - ```` ```python ```` is run in the same way, by Debian's Python with its package psycopg;
//! - ```` ```LANGUAGE from PATH ```` is a part of an example, word for word but for its indentation; the
//!   example's own test runs it;
//! - ```` ```sql signature ```` is a function's signature, and compared with the catalog (docs_reference.rs);
//! - ```` ```sh run ```` is run by sh, with psql's variables for that database; any other ```` ```sh ````
//!   may call `make` with targets that exist.
//!
//! After a change that is meant, `BLESS=1 cargo test --package pg_idempotency-tests --test server docs::`
//! writes what was printed into the pages; read the difference before you commit it.

use pg_idempotency_tests::pages::{Fence, Page, pages};
use pg_idempotency_tests::paths;
use pg_idempotency_tests::prelude::*;
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

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
