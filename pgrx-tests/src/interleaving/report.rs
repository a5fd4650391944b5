//! Reading what the isolationtester printed.

use super::spec::Spec;
use std::collections::BTreeMap;

/// What one permutation printed.
#[derive(Debug, Default, PartialEq)]
pub struct Report {
    pub steps: Vec<String>,
    /// What each session was told, notices without their prefix and errors with theirs.
    pub said: BTreeMap<String, Vec<String>>,
    /// The rows of `what_is_left()`.
    pub left: Vec<Left>,
}

/// One row of `what_is_left()`.
#[derive(Debug, PartialEq)]
pub struct Left {
    pub key: String,
    /// By whom it was executed.
    pub effects: Vec<String>,
    /// Whose answers are recorded: one, or one in each key space.
    pub records: Vec<String>,
    /// How many keys were held when all was over.
    pub held: u64,
}

/// All permutations of an output of `spec`.
pub fn read(spec: &Spec, output: &str) -> Vec<Report> {
    let mut reports: Vec<Report> = Vec::new();
    let mut speaker = None;
    for line in output.lines() {
        if let Some(steps) = line.strip_prefix("starting permutation: ") {
            let steps = steps.split_whitespace().map(str::to_owned).collect();
            let said = spec.sessions.iter().map(|session| (session.name.clone(), Vec::new()));
            reports.push(Report { steps, said: said.collect(), left: Vec::new() });
        } else if let Some(step) = line.strip_prefix("step ") {
            speaker = step.split(':').next().and_then(|step| session_of(spec, step));
        }
        let Some(report) = reports.last_mut() else { continue };
        let told = match line.split_once(": NOTICE:  ") {
            Some((session, text)) => Some((session.to_owned(), text)),
            None => speaker.clone().filter(|_| line.starts_with("ERROR:")).map(|who| (who, line)),
        };
        if let Some((session, text)) = told {
            report.said.entry(session).or_default().push(text.to_owned());
        }
        report.left.extend(row(line));
    }
    reports
}

fn session_of(spec: &Spec, step: &str) -> Option<String> {
    let has = |names: &&super::spec::Session| names.steps.iter().any(|known| known.name == step);
    spec.sessions.iter().find(has).map(|session| session.name.clone())
}

/// `k  |s1     |s1    |   0`; nothing for the heading and other lines.
fn row(line: &str) -> Option<Left> {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [key, effects, records, held] = columns[..] else { return None };
    let names = |column: &str| column.split_whitespace().map(str::to_owned).collect();
    let (effects, records) = (names(effects), names(records));
    Some(Left { key: key.to_owned(), effects, records, held: held.parse().ok()? })
}
