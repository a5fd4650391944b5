//! What is to be done, as the command line says it. What nobody can have meant is refused.

use crate::instructions::{Circumstances, INDEXES, ORDINARY};
use crate::rounds::Effort;
use crate::{growth, instructions, suite};

pub const USAGE: &str = "\
usage: idempotency-bench-pg [--quick] [--check] [--only NAME]... [--note WORDS]
       idempotency-bench-pg --instructions [--only SCRIPT]... [--with-index none|btree|brin|brin-32]
                           [--retention INTERVAL] [--counters on|off] [--caches]
       idempotency-bench-pg --key-sizes
       idempotency-bench-pg --growth RECORDS [--note WORDS]";

const FULL: Effort = Effort { rounds: 11, slice: 1.0 };
const QUICK: Effort = Effort { rounds: 7, slice: 0.25 };

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Task {
    /// Measure, and write the page where nothing was left out.
    Measure { effort: Effort, only: Vec<String>, note: Option<String> },
    /// Measure, and compare with what was written last.
    Check { effort: Effort, only: Vec<String> },
    /// Count the instructions of these scripts.
    Instructions { scripts: Vec<String>, circumstances: Circumstances },
    /// Compare what records take under two primary keys.
    KeySizes,
    /// Fill so many records and measure on the way.
    Growth { records: u64, note: Option<String> },
}

/// The words as they are, before it is known whether they go together.
#[derive(Default)]
struct Words {
    quick: bool,
    check: bool,
    instructions: bool,
    key_sizes: bool,
    only: Vec<String>,
    index: Option<String>,
    retention: Option<String>,
    counters: Option<String>,
    caches: bool,
    note: Option<String>,
    growth: Option<String>,
}

/// # Errors
/// What is wrong with the words, in one line.
pub fn parse(words: impl Iterator<Item = String>) -> Result<Task, String> {
    let words = read(words)?;
    words.check()?;
    match &words.growth {
        Some(records) => growth(records, words.note.clone()),
        None if words.instructions => instructions(words),
        None if words.key_sizes => Ok(Task::KeySizes),
        None => measure(words),
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Words, String> {
    let mut given = Words::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => given.quick = true,
            "--check" => given.check = true,
            "--instructions" => given.instructions = true,
            "--key-sizes" => given.key_sizes = true,
            "--caches" => given.caches = true,
            "--with-index" => once(&mut given.index, &word, words.next())?,
            "--retention" => once(&mut given.retention, &word, words.next())?,
            "--counters" => once(&mut given.counters, &word, words.next())?,
            "--only" => given.only.push(value(&word, words.next())?),
            "--note" => once(&mut given.note, &word, words.next())?,
            "--growth" => once(&mut given.growth, &word, words.next())?,
            _ => return Err(format!("unknown argument {word:?}")),
        }
    }
    Ok(given)
}

fn value(option: &str, word: Option<String>) -> Result<String, String> {
    let is_value = |word: &String| !word.is_empty() && !word.starts_with("--");
    word.filter(is_value).ok_or_else(|| format!("{option} has no value"))
}

fn once(place: &mut Option<String>, option: &str, word: Option<String>) -> Result<(), String> {
    match place.replace(value(option, word)?) {
        None => Ok(()),
        Some(_) => Err(format!("{option} is given twice")),
    }
}

impl Words {
    /// Refuses what the task would ignore.
    fn check(&self) -> Result<(), String> {
        let tasks = [
            ("--growth", self.growth.is_some(), &["--note"][..]),
            (
                "--instructions",
                self.instructions,
                &["--only", "--with-index", "--retention", "--counters", "--caches"],
            ),
            ("--key-sizes", self.key_sizes, &[]),
            ("--check", self.check, &["--quick", "--only"]),
        ];
        let mut chosen = tasks.iter().filter(|(_, is_chosen, _)| *is_chosen);
        let (task, _, useful) =
            chosen.next().unwrap_or(&("", true, &["--quick", "--only", "--note"]));
        if let Some((other, ..)) = chosen.next() {
            return Err(format!("{task} and {other} do not go together"));
        }
        match self.options().into_iter().find(|option| !useful.contains(option)) {
            None => Ok(()),
            Some(option) if task.is_empty() => Err(format!("{option} is for --instructions")),
            Some(option) => Err(format!("{option} means nothing beside {task}")),
        }
    }

    /// What is given besides the task.
    fn options(&self) -> Vec<&'static str> {
        let given = [
            ("--quick", self.quick),
            ("--only", !self.only.is_empty()),
            ("--note", self.note.is_some()),
            ("--with-index", self.index.is_some()),
            ("--retention", self.retention.is_some()),
            ("--counters", self.counters.is_some()),
            ("--caches", self.caches),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect()
    }
}

fn growth(records: &str, note: Option<String>) -> Result<Task, String> {
    let allowed = growth::RECORDS;
    let number = records.parse().ok().filter(|number| allowed.contains(number));
    let records = number.ok_or_else(|| {
        let (least, most) = (allowed.start(), allowed.end());
        format!("--growth takes a number of records from {least} to {most}, not {records:?}")
    })?;
    Ok(Task::Growth { records, note })
}

fn instructions(words: Words) -> Result<Task, String> {
    let scripts = known(words.only, "script", &suite::scripts())?;
    let scripts = match scripts.is_empty() {
        true => instructions::SCRIPTS.iter().map(|&script| script.to_owned()).collect(),
        false => scripts,
    };
    let counters = one_of(words.counters.as_deref().unwrap_or("on"), "--counters", &["on", "off"])?;
    let index = words.index.as_deref().unwrap_or(ORDINARY.index);
    let index = one_of(index, "--with-index", &INDEXES.map(|(name, _)| name))?;
    let counters = counters == "on";
    let Words { retention, caches, .. } = words;
    let circumstances = Circumstances { index, retention, counters, caches };
    Ok(Task::Instructions { scripts, circumstances })
}

fn measure(words: Words) -> Result<Task, String> {
    let only = known(words.only, "measurement", &suite::names().collect::<Vec<_>>())?;
    let effort = if words.quick { QUICK } else { FULL };
    Ok(match words.check {
        true => Task::Check { effort, only },
        false => Task::Measure { effort, only, note: words.note },
    })
}

fn one_of(value: &str, option: &str, values: &[&'static str]) -> Result<&'static str, String> {
    let found = values.iter().find(|known| **known == value);
    found.copied().ok_or_else(|| format!("{option} is one of {}, not {value:?}", values.join(", ")))
}

fn known(only: Vec<String>, what: &str, names: &[&str]) -> Result<Vec<String>, String> {
    match only.iter().find(|only| !names.contains(&only.as_str())) {
        None => Ok(only),
        Some(only) => {
            let names = names.join("\n  ");
            Err(format!("there is no {what} {only:?}; there are\n  {names}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Task, String> {
        parse(words.iter().map(|&word| word.to_owned()))
    }

    fn refused(words: &[&str], message: &str) {
        let error = parsed(words).expect_err("it is refused");
        assert_eq!(error.lines().next(), Some(message), "{words:?}");
    }

    #[test]
    fn what_goes_together_is_done() {
        let only = |name: &str| vec![name.to_owned()];
        let measure = Task::Measure { effort: FULL, only: Vec::new(), note: None };
        assert_eq!(parsed(&[]), Ok(measure));
        let check = Task::Check { effort: QUICK, only: only("replay") };
        assert_eq!(parsed(&["--quick", "--check", "--only", "replay"]), Ok(check));
        let scripts = only("pipeline-ours");
        let count = Task::Instructions { scripts, circumstances: ORDINARY };
        assert_eq!(parsed(&["--instructions", "--only", "pipeline-ours"]), Ok(count));
        assert_eq!(parsed(&["--key-sizes"]), Ok(Task::KeySizes));
        let growth = Task::Growth { records: 100_000, note: Some("quiet".to_owned()) };
        assert_eq!(parsed(&["--growth", "100000", "--note", "quiet"]), Ok(growth));
    }

    #[test]
    fn circumstances_are_those_that_are_named() {
        let words = ["--instructions", "--only", "create-ours", "--with-index", "brin-32"];
        let more = ["--retention", "30 days", "--counters", "off", "--caches"];
        let retention = Some("30 days".to_owned());
        let circumstances =
            Circumstances { index: "brin-32", retention, counters: false, caches: true };
        let count = Task::Instructions { scripts: vec!["create-ours".to_owned()], circumstances };
        assert_eq!(parsed(&[&words[..], &more].concat()), Ok(count));
        refused(
            &["--instructions", "--with-index", "hash"],
            r#"--with-index is one of none, btree, brin, brin-32, not "hash""#,
        );
        refused(
            &["--instructions", "--counters", "no"],
            r#"--counters is one of on, off, not "no""#,
        );
    }

    #[test]
    fn unknown_names_are_refused_with_those_that_are_there() {
        refused(&["--only", "replays"], r#"there is no measurement "replays"; there are"#);
        refused(&["--check", "--only", ""], "--only has no value");
        refused(&["--only", "--check"], "--only has no value");
        let unknown = ["--instructions", "--only", "growth-create"];
        refused(&unknown, r#"there is no script "growth-create"; there are"#);
        let error = parsed(&["--only", "keyed  create"]).expect_err("two blanks");
        assert!(suite::names().all(|name| error.contains(&format!("\n  {name}"))), "{error}");
    }

    #[test]
    fn what_is_no_number_of_records_is_refused() {
        for word in ["x", "9999", "17000001", "-1", "1e7", "10_000_000"] {
            refused(
                &["--growth", word],
                &format!("--growth takes a number of records from 10000 to 17000000, not {word:?}"),
            );
        }
        refused(&["--growth"], "--growth has no value");
        refused(&["--growth", "10000", "--growth", "10000"], "--growth is given twice");
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        refused(&["--grow"], r#"unknown argument "--grow""#);
        refused(&["--growth", "10000", "--quick"], "--quick means nothing beside --growth");
        let both = ["--growth", "10000", "--check"];
        refused(&both, "--growth and --check do not go together");
        refused(&["--growth", "10000", "--only", "replay"], "--only means nothing beside --growth");
        refused(&["--instructions", "--quick"], "--quick means nothing beside --instructions");
        refused(&["--instructions", "--note", "n"], "--note means nothing beside --instructions");
        refused(&["--check", "--note", "n"], "--note means nothing beside --check");
        refused(&["--key-sizes", "--only", "replay"], "--only means nothing beside --key-sizes");
        refused(&["--counters", "off"], "--counters is for --instructions");
        refused(&["--check", "--retention", "1 h"], "--retention means nothing beside --check");
        let both = ["--key-sizes", "--instructions"];
        refused(&both, "--instructions and --key-sizes do not go together");
        let both = ["--instructions", "--growth", "10000"];
        refused(&both, "--growth and --instructions do not go together");
    }

    #[test]
    fn what_is_counted_where_nothing_is_chosen_is_known() {
        let scripts = suite::scripts();
        assert!(instructions::SCRIPTS.iter().all(|script| scripts.contains(script)));
    }
}
