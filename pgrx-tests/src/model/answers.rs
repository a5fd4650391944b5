//! What the records answer.

use super::Answer;
use super::transaction::{Record, Recorded};

/// What a record answers to a request; none where it is to be executed. `holds`: a lease that has run out
/// stays blocked.
pub fn answered(
    found: Option<&Record>,
    operation: usize,
    fingerprint: Option<usize>,
    holds: bool,
) -> Option<Answer> {
    let record = found?;
    let is_finished = record.answer.is_some();
    if is_finished && record.expired {
        return None;
    }
    let differs = fingerprint.is_some_and(|fingerprint| fingerprint != record.fingerprint);
    if record.operation != operation || differs {
        return Some(refusal("mismatch", 422));
    }
    match (is_finished, record.expired) {
        (true, _) => Some(finished(record)),
        (false, true) if !holds => None,
        (false, _) => Some(refusal("in_progress", 409)),
    }
}

pub fn finished(record: &Record) -> Answer {
    match &record.answer {
        Some(Recorded { withheld: false, status, body }) => Answer::Outcome {
            word: "replayed",
            status: Some(*status),
            body: Some(body.clone()),
            attempt: None,
        },
        _ => refusal("withheld", 409),
    }
}

pub fn refusal(word: &'static str, status: i32) -> Answer {
    Answer::Outcome { word, status: Some(status), body: None, attempt: None }
}

pub fn claimed(attempt: i32) -> Answer {
    Answer::Outcome { word: "claimed", status: None, body: None, attempt: Some(attempt) }
}
