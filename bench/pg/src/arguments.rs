//! What is to be done, as the command line says it. What nobody can have meant is refused.

use crate::rounds::Effort;
use crate::{growth, instructions, suite};

pub const USAGE: &str = "\
usage: idempotency-bench-pg [--quick] [--check] [--only NAME]... [--note WORDS]
       idempotency-bench-pg --instructions [--only SCRIPT]...
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
    Instructions { scripts: Vec<String> },
    /// Fill so many records and measure on the way.
    Growth { records: u64, note: Option<String> },
}

/// The words as they are, before it is known whether they go together.
#[derive(Default)]
struct Words {
    quick: bool,
    check: bool,
    instructions: bool,
    only: Vec<String>,
    note: Option<String>,
    growth: Option<String>,
}

/// # Errors
/// What is wrong with the words, in one line.
pub fn parse(words: impl Iterator<Item = String>) -> Result<Task, String> {
    let words = read(words)?;
    match (&words.growth, words.instructions) {
        (Some(_), true) => Err("--growth and --instructions do not go together".to_owned()),
        (Some(records), false) => growth(records, &words),
        (None, true) => instructions(words),
        (None, false) => measure(words),
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Words, String> {
    let mut given = Words::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => given.quick = true,
            "--check" => given.check = true,
            "--instructions" => given.instructions = true,
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

fn growth(records: &str, words: &Words) -> Result<Task, String> {
    refuse("--growth", &[("--quick", words.quick), ("--check", words.check)])?;
    refuse("--growth", &[("--only", !words.only.is_empty())])?;
    let allowed = growth::RECORDS;
    let number = records.parse().ok().filter(|number| allowed.contains(number));
    let records = number.ok_or_else(|| {
        let (least, most) = (allowed.start(), allowed.end());
        format!("--growth takes a number of records from {least} to {most}, not {records:?}")
    })?;
    Ok(Task::Growth { records, note: words.note.clone() })
}

fn instructions(words: Words) -> Result<Task, String> {
    let useless = [("--quick", words.quick), ("--check", words.check)];
    refuse("--instructions", &useless)?;
    refuse("--instructions", &[("--note", words.note.is_some())])?;
    let scripts = known(words.only, "script", &suite::scripts())?;
    Ok(Task::Instructions {
        scripts: match scripts.is_empty() {
            true => instructions::SCRIPTS.iter().map(|&script| script.to_owned()).collect(),
            false => scripts,
        },
    })
}

fn measure(words: Words) -> Result<Task, String> {
    let only = known(words.only, "measurement", &suite::names().collect::<Vec<_>>())?;
    let effort = if words.quick { QUICK } else { FULL };
    if !words.check {
        return Ok(Task::Measure { effort, only, note: words.note });
    }
    refuse("--check", &[("--note", words.note.is_some())])?;
    Ok(Task::Check { effort, only })
}

/// Where one of these is given beside an option that has no use for it.
fn refuse(option: &str, useless: &[(&str, bool)]) -> Result<(), String> {
    match useless.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((word, _)) => Err(format!("{word} means nothing beside {option}")),
    }
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
        let count = Task::Instructions { scripts: only("pipeline-ours") };
        assert_eq!(parsed(&["--instructions", "--only", "pipeline-ours"]), Ok(count));
        let growth = Task::Growth { records: 100_000, note: Some("quiet".to_owned()) };
        assert_eq!(parsed(&["--growth", "100000", "--note", "quiet"]), Ok(growth));
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
        refused(&["--growth", "10000", "--check"], "--check means nothing beside --growth");
        refused(&["--growth", "10000", "--only", "replay"], "--only means nothing beside --growth");
        refused(&["--instructions", "--quick"], "--quick means nothing beside --instructions");
        refused(&["--instructions", "--note", "n"], "--note means nothing beside --instructions");
        refused(&["--check", "--note", "n"], "--note means nothing beside --check");
        let both = ["--instructions", "--growth", "10000"];
        refused(&both, "--growth and --instructions do not go together");
    }

    #[test]
    fn what_is_counted_where_nothing_is_chosen_is_known() {
        let scripts = suite::scripts();
        assert!(instructions::SCRIPTS.iter().all(|script| scripts.contains(script)));
    }
}
