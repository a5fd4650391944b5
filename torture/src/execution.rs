//! What becomes of a request that has won its key.

use crate::client::{Client, Tried};
use crate::plan::Fate;
use pg_idempotency_tests::call::{Argument, Call, Statement};
use pg_idempotency_tests::outcome::Outcome;
use pg_idempotency_tests::refusal::Refusal;
use serde_json::{Value, json};
use uuid::Uuid;

/// Work and completion in one statement: the effect, and the answer.
const WORK_AND_COMPLETE: &str = "
    WITH done AS (SELECT * FROM idempotency_complete(201, $2, headers => $5, withhold => $3, token => $4)),
         effect AS (INSERT INTO effects (key, body) SELECT $1, $2 FROM done)
    SELECT * FROM done";

impl Client<'_> {
    pub fn execute(&mut self, key: &str, token: Uuid, fate: Fate) -> Tried {
        self.ledger
            .count(&format!("fate: {}", format!("{fate:?}").split(' ').next().unwrap_or_default()));
        self.moment.works = true;
        match fate {
            Fate::Releases => {
                self.session.attempt(Call::new("idempotency_release").with("token", token))?;
                self.session.attempt("COMMIT")?;
                return Ok(false);
            }
            Fate::Forgets => return self.forget(key),
            Fate::Recipe => return self.recipe(key, token),
            Fate::Deadlocks => {
                self.moment.locks_rows = true;
                self.lock_rows()?;
            }
            _ => {}
        }
        let body = self.body(key);
        let withhold = (fate == Fate::Withholds).then_some("one_time_secret");
        let sent = self.work_and_complete(key, &body, withhold, token)?;
        match fate {
            Fate::Aborts => {
                self.session.attempt("ROLLBACK")?;
                Ok(false)
            }
            Fate::HangsUp => {
                self.reconnect();
                Ok(false)
            }
            Fate::LosesTheAnswer => {
                self.session.attempt("COMMIT")?;
                self.reconnect();
                Ok(false)
            }
            Fate::Prepares { commits } => self.prepare(key, &sent, commits),
            _ => {
                if self.commit()? {
                    self.acknowledge(key, &sent);
                }
                Ok(true)
            }
        }
    }

    /// A body that no other execution has.
    pub fn body(&mut self, key: &str) -> String {
        self.serial += 1;
        format!("{{\"key\":\"{key}\",\"by\":\"{}-{}\"}}", self.at, self.serial)
    }

    pub fn work_and_complete(
        &mut self,
        key: &str,
        body: &str,
        withhold: Option<&str>,
        token: Uuid,
    ) -> Result<Outcome, Refusal> {
        let rows = self.session.attempt(work(WORK_AND_COMPLETE, key, body, withhold, token))?;
        let sent = Outcome::only(&rows);
        let is_mine = sent.body.as_deref() == Some(body.as_bytes())
            && sent.header("location") == Some(&Value::from(location(body)));
        if sent.outcome != "completed" || !is_mine {
            self.ledger.violation(format!("{key}: completed as {sent:?}"));
        }
        Ok(Outcome { body: sent.body.filter(|_| withhold.is_none()), ..sent })
    }

    fn forget(&mut self, key: &str) -> Tried {
        let insert = format!("INSERT INTO effects (key, body) VALUES ('{key}', 'forgotten')");
        self.session.attempt(insert)?;
        match self.session.attempt("COMMIT") {
            Err(refusal) if refusal.code() == Some("IK003") => Ok(false),
            Err(refusal) => Err(refusal),
            Ok(_) => {
                self.ledger.violation(format!("{key}: committed without completion"));
                Ok(true)
            }
        }
    }

    fn recipe(&mut self, key: &str, token: Uuid) -> Tried {
        let work = format!(
            "SAVEPOINT work; INSERT INTO effects (key, body) VALUES ('{key}', 'undone'); ROLLBACK TO work"
        );
        self.session.attempt_script(&work)?;
        let body = self.body(key);
        let headers = json!({"Location": location(&body)});
        let call = Call::new("idempotency_complete").with("status", 409).with("body", body);
        let call = call.with("headers", headers);
        let sent = Outcome::only(&self.session.attempt(call.with("token", token))?);
        if self.commit()? {
            self.acknowledge(key, &sent);
        }
        Ok(true)
    }

    /// Two rows, in whatever order, with other work between: others take them in the other.
    fn lock_rows(&mut self) -> Result<(), Refusal> {
        let first = self.dice.below(3);
        let second = (first + 1 + self.dice.below(2)) % 3;
        let lock = |item| format!("UPDATE stock SET pieces = pieces + 1 WHERE item = {item}");
        self.session.attempt(lock(first))?;
        // Paces the load, and waits for nothing: it is the other work, in which others may come.
        self.session.attempt("SELECT pg_sleep(0.02)")?;
        self.session.attempt(lock(second))?;
        Ok(())
    }
}

pub fn work(sql: &str, key: &str, body: &str, withhold: Option<&str>, token: Uuid) -> Statement {
    let headers = json!({"Location": location(body)}).param();
    let params = vec![key.param(), body.param(), withhold.param(), token.param(), headers];
    Statement { sql: sql.to_owned(), params }
}

/// A header that no other execution has, made of the end of the body.
fn location(body: &str) -> String {
    let by = body.rsplit('"').nth(1).expect("a body has strings");
    format!("/by/{by}")
}
