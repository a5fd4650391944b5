//! The Markdown page.

use crate::ratios::Entry;
use std::fmt::Write;

const HEAD: &str = "\
# Measurements

Written by `make bench`. Each figure is the time per transaction of a contender relative to the one
that it is measured by: 1.00 is as fast, 2.00 takes twice as long. Contenders run in turn, in many
short rounds; the figure is the median of the ratios within the rounds, and ± is half the distance
between their quartiles. One client changes between the contenders with every transaction, and the
time of a contender in a round is the mean of the middle half of its latencies; several clients run
one contender after the other, and the time is that of the whole load. What each contender sends is
in `bench/pg/scripts`.

![ratios](ratios.svg)
";

pub fn page(entries: &[Entry]) -> String {
    let mut page = HEAD.to_owned();
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
        let _ = writeln!(
            page,
            "| {} | {:.2} | {:.2} |",
            entry.contender, entry.spread.median, entry.spread.noise
        );
    }
    page
}

fn title(game: &str) -> String {
    let mut letters = game.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
