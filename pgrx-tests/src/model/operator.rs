//! What an operator does, each in a transaction of its own.

use super::machine::{Machine, Result};
use super::transaction::Recorded;
use super::{Answer, Command, SESSIONS};

impl Machine {
    pub(super) fn operate(&mut self, command: &Command) -> Answer {
        let done = match *command {
            Command::Settle { key, status } => self.settle(key, status),
            Command::Configure { operation, holds } => {
                if self.is_at_rest() {
                    self.holds[operation] = holds;
                }
                Ok(Answer::Done)
            }
            Command::Purge => Ok(self.purge()),
            Command::Forget { key, operation, force } => self.forget(key, operation, force),
            _ => unreachable!("{command:?} is no operator's"),
        };
        done.unwrap_or_else(Answer::Error)
    }

    /// No session holds the key, and nothing that is prepared.
    fn is_free_for_all(&self, key: usize) -> bool {
        (0..SESSIONS).all(|session| self.is_free(key, session))
            && (0..SESSIONS).all(|session| self.own(session, key).is_none())
    }

    fn settle(&mut self, key: usize, status: Option<i32>) -> Result<Answer> {
        let body = self.body();
        self.bodies += 1;
        if !self.is_free_for_all(key) {
            return Err("55P03");
        }
        let record = self.records.get_mut(&key).filter(|it| it.answer.is_none() && it.expired);
        let record = record.ok_or("55000")?;
        let Some(status) = status else {
            self.records.remove(&key);
            let word = "released";
            return Ok(Answer::Outcome { word, status: None, body: None, attempt: None });
        };
        if status == 503 {
            return Err("22023");
        }
        record.answer = Some(Recorded { status, body: body.clone(), withheld: false });
        record.expired = false;
        let (word, body) = ("completed", Some(body));
        Ok(Answer::Outcome { word, status: Some(status), body, attempt: None })
    }

    /// Finished records that have expired go, but for those that a transaction is about to replace.
    fn purge(&mut self) -> Answer {
        let sessions = &self.sessions;
        let is_in_hand = |key: &usize| {
            sessions.iter().any(|it| {
                it.open.as_ref().is_some_and(|open| open.now.replaces(key))
                    || it.prepared.as_ref().is_some_and(|done| done.replaces(key))
            })
        };
        let before = self.records.len();
        self.records
            .retain(|key, record| record.answer.is_none() || !record.expired || is_in_hand(key));
        Answer::Count(before - self.records.len())
    }

    fn forget(&mut self, key: usize, operation: usize, force: bool) -> Result<Answer> {
        if !self.is_free_for_all(key) {
            return Err("55P03");
        }
        let meant = self.records.get(&key).filter(|it| it.operation == operation);
        if meant.is_some_and(|it| it.answer.is_none() && !it.expired && !force) {
            return Err("55006");
        }
        let erased = usize::from(meant.is_some());
        if meant.is_some() {
            self.records.remove(&key);
        }
        self.blank(key);
        Ok(Answer::Count(erased))
    }

    /// Nothing but the tokens is left of the leases on a key whose record is gone. They do not know their
    /// operations, which share their keys.
    fn blank(&mut self, key: usize) {
        let current = self.records.get(&key).map(|record| record.token);
        for (token, lease) in &mut self.leases {
            lease.is_blank |= lease.key == key && current != Some(*token);
        }
    }
}
