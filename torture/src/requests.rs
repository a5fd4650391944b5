//! The kinds of requests that are one transaction.

use crate::client::{Client, ERASED, ORDERS, SHORT, Tried, addressed, token_of};
use crate::execution::work;
use crate::history::Name;
use crate::plan;
use pg_idempotency_tests::outcome::Outcome;

/// As for the others, and into a table of the operation's own, with the times of the record.
const WORK_AND_COMPLETE: &str = "
    WITH done AS (SELECT * FROM idempotency_complete(201, $2, headers => $5, withhold => $3, token => $4)),
         effect AS (INSERT INTO {table} SELECT $1, $2, created_at, expires_at FROM done)
    SELECT * FROM done";

impl Client<'_> {
    pub fn replay_first(&mut self, key: &str) -> Tried {
        let call = addressed("idempotency_replay", ORDERS).with("key", key);
        let outcome = Outcome::only(&self.session.attempt(call)?);
        match outcome.outcome.as_str() {
            "replayed" | "withheld" => {
                self.acknowledge(key, &outcome);
                Ok(true)
            }
            "unknown" => self.plain(key),
            _ => {
                // Not in_progress either: these keys are not claimed on lease.
                self.ledger.violation(format!("{key}: replay: {outcome:?}"));
                Ok(false)
            }
        }
    }

    pub fn plain(&mut self, key: &str) -> Tried {
        let (isolation, timeout) = (plan::isolation(&mut self.dice), self.dice.below(20));
        let timeout = match timeout {
            0 => "; SET LOCAL lock_timeout = '10ms'",
            1 => "; SET LOCAL statement_timeout = '40ms'",
            _ => "",
        };
        self.moment.lock_timeout = timeout.contains("lock_timeout");
        self.moment.statement_timeout = timeout.contains("statement_timeout");
        self.begin(isolation, timeout)?;
        let outcome = self.claim(key, ORDERS)?;
        if !timeout.is_empty() {
            // A commit is not to be timed out: see Site::fail_over.
            self.session.attempt("SET LOCAL statement_timeout = 0")?;
            self.moment.statement_timeout = false;
        }
        match outcome.outcome.as_str() {
            "claimed" => {
                let fate = plan::fate(&mut self.dice);
                self.execute(key, token_of(&outcome), fate)
            }
            _ => self.not_claimed(key, &outcome),
        }
    }

    /// Several keys in one transaction; what is claimed is executed, whatever the others come to.
    pub fn many(&mut self, keys: &[String]) -> Tried {
        let mut keys = keys.to_vec();
        keys.sort();
        keys.dedup();
        let turn = self.dice.below(3).min(keys.len() - 1);
        keys.rotate_left(turn);
        let isolation = plan::isolation(&mut self.dice);
        self.begin(isolation, "")?;
        let call = addressed("idempotency_claim_many", ORDERS).with("keys", keys.clone());
        let names: Vec<Name> = keys.iter().map(|key| (ORDERS, key.clone())).collect();
        let mut answers = Vec::new();
        for (at, outcome) in self.claim_by(call, &names)? {
            let key = &keys[at];
            match outcome.outcome.as_str() {
                "claimed" => {
                    let body = self.body(key);
                    let sent = self.work_and_complete(key, &body, None, token_of(&outcome))?;
                    answers.push((key, sent));
                }
                "replayed" | "withheld" => answers.push((key, outcome)),
                _ => {
                    self.surprise(key, &outcome);
                }
            }
        }
        let executed = answers.iter().filter(|(_, outcome)| outcome.outcome == "completed").count();
        if self.commit()? {
            answers.iter().for_each(|(key, outcome)| self.acknowledge(key, outcome));
        }
        if executed > 1 {
            self.ledger.count("claim_many that executed several");
        }
        self.ledger.count("claim_many");
        Ok(true)
    }

    /// A key whose record expires at once, so that it is executed again and again.
    pub fn short_lived(&mut self, key: &str) -> Tried {
        self.again(key, SHORT, "short_lived")
    }

    /// A key that may be erased at any moment: the same.
    pub fn erased(&mut self, key: &str) -> Tried {
        self.again(key, ERASED, "erased")
    }

    fn again(&mut self, key: &str, operation: &'static str, table: &'static str) -> Tried {
        let isolation = plan::isolation(&mut self.dice);
        self.begin(isolation, "")?;
        let outcome = self.claim(key, operation)?;
        match outcome.outcome.as_str() {
            "claimed" => {
                let body = self.body(key);
                let sql = WORK_AND_COMPLETE.replace("{table}", table);
                self.session.attempt(work(&sql, key, &body, None, token_of(&outcome)))?;
                if self.dice.below(8) == 0 {
                    self.session.attempt("ROLLBACK")?;
                    return Ok(false);
                }
                if self.commit()? {
                    self.ledger.acknowledge_one_of(table, key, body.into_bytes());
                    self.ledger.count(&format!("executed: {table}"));
                }
                Ok(true)
            }
            "replayed" => {
                self.session.attempt("COMMIT")?;
                let body = outcome.body.expect("it is kept");
                self.ledger.acknowledge_one_of(table, key, body);
                self.ledger.count(&format!("replayed: {table}"));
                Ok(true)
            }
            _ => {
                self.session.attempt("COMMIT")?;
                Ok(self.surprise(key, &outcome))
            }
        }
    }
}
