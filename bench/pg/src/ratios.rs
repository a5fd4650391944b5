//! The ratios of a run, as a file: one line each, `match<TAB>contender<TAB>ratio<TAB>noise`.

use crate::stats::Spread;
use std::fmt::Write;

/// One ratio. Smaller is better.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub game: String,
    pub contender: String,
    pub by: String,
    pub spread: Spread,
}

impl Entry {
    /// Whether it is ours, in whatever form it is called.
    pub fn is_ours(&self) -> bool {
        self.contender == "ours" || self.contender.starts_with("ours, ")
    }
}

const HEAD: &str = "match\tcontender\tmeasured by\tratio\tnoise";

pub fn write(entries: &[Entry]) -> String {
    let mut text = format!("{HEAD}\n");
    for Entry { game, contender, by, spread } in entries {
        // Infallible: a String takes everything.
        let _ =
            writeln!(text, "{game}\t{contender}\t{by}\t{:.4}\t{:.4}", spread.median, spread.noise);
    }
    text
}

/// # Panics
/// Where a line is not as [`write`] writes it, or has a ratio that nothing can be compared with.
pub fn read(text: &str) -> Vec<Entry> {
    text.lines()
        .skip(1)
        .map(|line| entry(line).unwrap_or_else(|| panic!("ratios: {line}")))
        .collect()
}

fn entry(line: &str) -> Option<Entry> {
    let mut fields = line.split('\t');
    let mut text = || fields.next().map(str::to_owned);
    let (game, contender, by) = (text()?, text()?, text()?);
    let mut number = || text()?.parse().ok().filter(|number: &f64| number.is_finite());
    let (median, noise) = (number()?, number()?);
    Some(Entry { game, contender, by, spread: Spread { median, noise } })
}

/// The most noise that excuses anything: on a busy machine the rounds lie so far apart that twice the
/// time would pass.
const MOST_NOISE: f64 = 0.05;

/// Whether `now` is worse than `before` by more than the rounds of both lie apart.
pub fn fell_back(before: Spread, now: Spread) -> bool {
    let noise = before.noise.min(MOST_NOISE) + now.noise.min(MOST_NOISE);
    now.median - before.median > 2.0 * noise
}
