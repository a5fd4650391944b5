//! One row of the composite type `idempotency_outcome`.

use postgres::Row;
use serde_json::Value;
use std::fmt;
use std::time::SystemTime;
use uuid::Uuid;

/// The columns of the contract, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub outcome: String,
    pub status: Option<i32>,
    pub headers: Option<Value>,
    pub body: Option<Vec<u8>>,
    pub resource_type: Option<String>,
    pub resource_id: Option<String>,
    pub token: Option<Uuid>,
    pub attempt: Option<i32>,
    pub recovery_point: Option<String>,
    pub recovery_data: Option<Value>,
    pub fingerprint: Option<Vec<u8>>,
    pub created_at: Option<SystemTime>,
    pub completed_at: Option<SystemTime>,
    pub expires_at: Option<SystemTime>,
    pub retry_after: Option<i32>,
}

/// What the backend sends: the part of an outcome that must be the same for every caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: Option<i32>,
    pub body: Option<Vec<u8>>,
}

impl From<&Row> for Outcome {
    fn from(row: &Row) -> Outcome {
        Outcome {
            outcome: row.get("outcome"),
            status: row.get("status"),
            headers: row.get("headers"),
            body: row.get("body"),
            resource_type: row.get("resource_type"),
            resource_id: row.get("resource_id"),
            token: row.get("token"),
            attempt: row.get("attempt"),
            recovery_point: row.get("recovery_point"),
            recovery_data: row.get("recovery_data"),
            fingerprint: row.get("fingerprint"),
            created_at: row.get("created_at"),
            completed_at: row.get("completed_at"),
            expires_at: row.get("expires_at"),
            retry_after: row.get("retry_after"),
        }
    }
}

impl Outcome {
    /// The one row that every function of the contract answers with.
    ///
    /// # Panics
    /// When there is not exactly one.
    pub fn only(rows: &[Row]) -> Outcome {
        assert_eq!(rows.len(), 1, "an outcome is exactly one row");
        Outcome::from(&rows[0])
    }

    /// # Panics
    /// When the outcome is another word.
    #[track_caller]
    pub fn expect(self, word: &str) -> Outcome {
        assert_eq!(self.outcome, word, "in {self:?}");
        self
    }

    pub fn answer(&self) -> Answer {
        Answer { status: self.status, body: self.body.clone() }
    }

    /// The header of this name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&Value> {
        let headers = self.headers.as_ref()?.as_object()?;
        headers
            .iter()
            .find(|(spelled, _)| spelled.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The body as text.
    ///
    /// # Panics
    /// When there is none, or it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        let body = self.body.as_deref().unwrap_or_else(|| panic!("a body is expected in {self:?}"));
        std::str::from_utf8(body).expect("the body is text")
    }

    /// Asserts a whole `application/problem+json` answer and returns its body as JSON.
    #[track_caller]
    pub fn expect_problem(&self, status: i32) -> Value {
        assert_eq!(self.status, Some(status), "in {self:?}");
        assert_eq!(self.header("content-type"), Some(&Value::from("application/problem+json")));
        let problem: Value = serde_json::from_str(self.text()).expect("a problem is JSON");
        assert_eq!(problem["status"], status, "the body repeats the status");
        for member in ["type", "title", "detail"] {
            assert!(
                problem[member].as_str().is_some_and(|text| !text.is_empty()),
                "{member} in {problem}"
            );
        }
        problem
    }
}

/// One line for people: `replayed 201 {"order":7}`.
impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.outcome)?;
        if let Some(status) = self.status {
            write!(out, " {status}")?;
        }
        match &self.body {
            Some(body) => write!(out, " {}", String::from_utf8_lossy(body)),
            None => Ok(()),
        }
    }
}
