//! An error of the server, and what the tests demand of it.

use postgres::error::DbError;
use std::fmt;

/// A statement that failed.
pub struct Refusal(postgres::Error);

impl Refusal {
    /// The error as the server sent it.
    ///
    /// # Panics
    /// When the connection broke without a word.
    #[track_caller]
    pub fn db(&self) -> &DbError {
        self.0.as_db_error().unwrap_or_else(|| panic!("no error of the server's: {:?}", self.0))
    }

    /// SQLSTATE; `None` where the connection broke without a word.
    pub fn code(&self) -> Option<&str> {
        self.0.code().map(|state| state.code())
    }

    /// # Panics
    /// When the SQLSTATE is another.
    #[track_caller]
    pub fn expect(self, code: &str) -> Refusal {
        assert_eq!(self.code(), Some(code), "SQLSTATE of {self:?}");
        self
    }

    /// The end of a backend that was told to go: its last word, where it got through.
    ///
    /// # Panics
    /// When it is another error.
    #[track_caller]
    pub fn expect_termination(self) {
        let ended = match self.code() {
            Some(code) => code == "57P01",
            // A reset can overtake the last word.
            None => self.0.is_closed() || self.broke(),
        };
        assert!(ended, "the connection's end, in {self:?}");
    }

    /// Whether the other side had gone when something was read or written.
    fn broke(&self) -> bool {
        use std::io::{Error, ErrorKind};
        let cause = std::error::Error::source(&self.0).and_then(|cause| cause.downcast_ref());
        let kind = cause.map(Error::kind);
        matches!(kind, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe))
    }

    /// An error that the extension raises: SQLSTATE as given, and message, DETAIL and HINT present
    /// and written the way PostgreSQL writes them.
    #[track_caller]
    pub fn expect_ours(self, code: &str) -> Refusal {
        let refusal = self.expect(code);
        let error = refusal.db();
        assert!(is_message(error.message()), "message of {refusal:?}");
        assert!(error.detail().is_some_and(is_sentence), "DETAIL of {refusal:?}");
        assert!(error.hint().is_some_and(is_sentence), "HINT of {refusal:?}");
        refusal
    }

    /// Asserts that message, DETAIL or HINT speak of `what`.
    #[track_caller]
    pub fn mentions(self, what: &str) -> Refusal {
        let error = self.db();
        let parts = [Some(error.message()), error.detail(), error.hint()];
        assert!(parts.iter().flatten().any(|part| part.contains(what)), "{what:?} in {self:?}");
        self
    }

    /// Asserts that the HINT speaks of `what`.
    #[track_caller]
    pub fn hints(self, what: &str) -> Refusal {
        let hint = self.db().hint().unwrap_or_default();
        assert!(hint.contains(what), "{what:?} in the HINT of {self:?}");
        self
    }
}

/// Lower case, no full stop: PostgreSQL's style for primary messages.
fn is_message(text: &str) -> bool {
    text.starts_with(|first: char| !first.is_uppercase()) && !text.ends_with('.')
}

/// A sentence: it may begin with the name of a function or setting, and ends with a full stop.
fn is_sentence(text: &str) -> bool {
    let first_word = text.split_whitespace().next().unwrap_or_default();
    let begins = first_word.contains('_') || !first_word.starts_with(char::is_lowercase);
    begins && !text.trim().is_empty() && text.ends_with('.')
}

impl From<postgres::Error> for Refusal {
    fn from(error: postgres::Error) -> Refusal {
        Refusal(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_db_error() {
            Some(error) => write!(out, "{} {}", error.code().code(), error.message()),
            None => write!(out, "{}", self.0),
        }
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_db_error() {
            Some(error) => write!(
                out,
                "{} {}: {:?}\n  DETAIL: {:?}\n  HINT: {:?}\n  CONTEXT: {:?}",
                error.severity(),
                error.code().code(),
                error.message(),
                error.detail(),
                error.hint(),
                error.where_()
            ),
            None => write!(out, "{:?}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_message, is_sentence};

    #[test]
    fn style_of_messages_and_sentences() {
        assert!(is_message("claim not held") && !is_message("Claim not held"));
        assert!(!is_message("claim not held."));
        assert!(is_sentence("The key is held.") && is_sentence("idempotency_claim comes first."));
        assert!(
            !is_sentence("the key is held.") && !is_sentence("The key is held") && !is_sentence("")
        );
    }
}
