//! What a call comes to is counted here, on its way back to the caller.

use crate::convert::outcome::Outcome;
use crate::counters;
use crate::error::Error;

/// Counts the answer of a call; an error is counted when it is raised.
pub fn counted(operation: &str, result: Result<Outcome, Error>) -> Result<Outcome, Error> {
    match result {
        Ok(outcome) => {
            counters::answered(operation, outcome.word());
            Ok(outcome)
        }
        Err(error) => Err(error.of(operation)),
    }
}
