//! Whether one of ours is slower than it was when the ratios were written last.

use crate::ratios::{self, Entry};

/// Those of ours that fell back, by name.
pub fn fallen(now: &[Entry], before: &[Entry]) -> Vec<String> {
    let fell_back = |entry: &&Entry| {
        old(entry, before).is_some_and(|old| ratios::fell_back(old.spread, entry.spread))
    };
    ours(now).filter(fell_back).map(name).collect()
}

/// Those of ours of which nothing was written, or in relation to something else: nobody can say
/// whether they fell back.
pub fn missing(now: &[Entry], before: &[Entry]) -> Vec<String> {
    ours(now).filter(|entry| old(entry, before).is_none()).map(name).collect()
}

fn ours(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| entry.is_ours())
}

fn old<'b>(now: &Entry, before: &'b [Entry]) -> Option<&'b Entry> {
    let key = |entry: &Entry| [&entry.game, &entry.contender, &entry.by].map(String::clone);
    before.iter().find(|old| key(old) == key(now))
}

fn name(entry: &Entry) -> String {
    format!("{}: {}", entry.game, entry.contender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Spread;

    fn entry(contender: &str, by: &str, median: f64) -> Entry {
        let [game, contender, by] = ["replay", contender, by].map(str::to_owned);
        Entry { game, contender, by, spread: Spread { median, noise: 0.01 } }
    }

    #[test]
    fn slower_by_more_than_the_noise_of_both_has_fallen_back() {
        let before = [entry("ours", "select", 1.0)];
        let fallen = |median| fallen(&[entry("ours", "select", median)], &before);
        assert!(fallen(1.039).is_empty());
        assert_eq!(fallen(1.041), ["replay: ours"]);
    }

    #[test]
    fn only_ours_can_fall_back() {
        let before = [entry("plpgsql", "select", 1.0)];
        assert!(fallen(&[entry("plpgsql", "select", 2.0)], &before).is_empty());
    }

    #[test]
    fn what_has_no_old_row_is_missing() {
        let now = [entry("ours", "select", 1.0), entry("ours, inline", "select", 1.0)];
        assert!(missing(&now, &now).is_empty());
        assert_eq!(missing(&now, &now[..1]), ["replay: ours, inline"]);
        assert_eq!(missing(&now, &[]).len(), 2);
        assert!(missing(&[entry("plpgsql", "select", 1.0)], &[]).is_empty());
    }

    #[test]
    fn a_row_in_relation_to_something_else_is_no_old_row() {
        let before = [entry("ours", "floor", 1.0)];
        assert_eq!(missing(&[entry("ours", "select", 1.0)], &before), ["replay: ours"]);
    }
}
