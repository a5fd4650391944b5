//! The Markdown page.

use crate::ratios::Entry;
use crate::rounds::Effort;
use pg_idempotency_tests::paths;
use std::fmt::Write;
use std::process::Command;

/// From here on the rounds of a row lie so far apart that it says little.
const NOISY: f64 = 0.05;

const HEAD: &str = "\
# Measurements

Written by `make bench`. Each figure is the time per transaction of a contender relative to the one
that it is measured by: 1.00 is as fast, 2.00 takes twice as long. Contenders run in turn, in many
short rounds; the figure is the median of the ratios within the rounds, and ± is half the distance
between their quartiles. One client changes between the contenders with every transaction, and the
time of a contender in a round is the mean of the middle half of its latencies; several clients run
one contender after the other, and the time is that of the whole load. What each contender sends is
in `bench/pg/scripts`. Who changes with whom matters: code that the transaction before ran too is
still in the processor's caches, and the floor shares its code with most of the others. So ours meets
the floor, and the select, without the others too. A row in parentheses is noise: its rounds lie further apart than 0.05 to
either side.

Times depend on what else the machine does. [Instruction counts](instructions.md) do not, and
[where the time goes](../design/performance.md) has a page of its own.
";

/// How a run was made.
pub fn run(effort: Effort, note: Option<&str>) -> String {
    let Effort { rounds, slice } = effort;
    let note = note.map(|note| format!(" {note}")).unwrap_or_default();
    let commit = commit().map(|commit| format!(", of commit {commit}")).unwrap_or_default();
    format!("This run: {rounds} rounds, {slice} s for each contender in each{commit}.{note}")
}

/// Of the work tree, `-dirty` where it has changes; `None` where it is none of git's.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty"]).current_dir(paths::repository());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

pub fn page(entries: &[Entry], run: &str) -> String {
    let mut page = format!("{HEAD}\n{run}\n\n![ratios](ratios.svg)\n");
    let mut game = "";
    for entry in entries {
        if entry.game != game {
            game = &entry.game;
            let _ = write!(
                page,
                "\n## {}\n\n| contender | × {} | ± |\n|---|---|---|\n",
                title(game),
                entry.by
            );
        }
        let Entry { contender, spread, .. } = entry;
        let figures = format!("{:.2} | {:.2}", spread.median, spread.noise);
        let _ = if spread.noise < NOISY {
            writeln!(page, "| {contender} | {figures} |")
        } else {
            writeln!(page, "| ({contender}) | ({}) |", figures.replace(" | ", ") | ("))
        };
    }
    page
}

fn title(game: &str) -> String {
    let mut letters = game.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
