//! Executions that are prepared, and committed or rolled back some requests later.

use crate::client::{Client, Tried, answer_of};
use crate::expected::Moment;
use crate::history::{Held, Holder};
use crate::ledger::Answer;
use crate::site::PATIENCE;
use pg_idempotency_tests::outcome::Outcome;
use pg_idempotency_tests::wait;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A transaction that was prepared, and what was decided about it.
pub struct Prepared {
    gid: String,
    commits: bool,
    /// Whether the server has said that it is prepared.
    is_certain: bool,
    /// Its request's answer.
    key: String,
    answer: Answer,
    held: Vec<Held>,
    /// After how many further requests it is resolved.
    left: usize,
    generation: usize,
}

/// How telling the server of a decision ended.
enum Resolved {
    AsDecided,
    /// It was resolved by an earlier try, whose answer got lost.
    Before,
    /// There is none, and whether there was one nobody knows.
    Uncertain,
}

impl Client<'_> {
    pub fn prepare(&mut self, key: &str, sent: &Outcome, commits: bool) -> Tried {
        self.serial += 1;
        let gid = format!("{}-{}", self.at, self.serial);
        let prepared = self.session.attempt(format!("PREPARE TRANSACTION '{gid}'"));
        let held = std::mem::take(&mut self.holding).into_iter();
        self.prepared.push(Prepared {
            gid,
            commits,
            is_certain: prepared.is_ok(),
            key: key.to_owned(),
            answer: answer_of(sent),
            held: held.map(|held| Held { by: Holder::Prepared, ..held }).collect(),
            left: 2 + self.dice.below(12),
            generation: self.site.generation.load(SeqCst),
        });
        prepared?;
        // It has no answer yet; the decision brings it.
        Ok(true)
    }

    pub fn resolve_all(&mut self) {
        self.prepared.iter_mut().for_each(|prepared| prepared.left = 0);
        self.resolve_what_is_due();
    }

    pub fn resolve_what_is_due(&mut self) {
        for prepared in std::mem::take(&mut self.prepared) {
            if prepared.left == 0 {
                self.resolve(prepared);
            } else {
                self.prepared.push(Prepared { left: prepared.left - 1, ..prepared });
            }
        }
    }

    /// Says what was decided, until the server has heard it.
    fn resolve(&mut self, mut prepared: Prepared) {
        let mut may_have_been_heard = false;
        self.moment = Moment { resolves: true, ..Moment::default() };
        let what = format!("a server that resolves {}", prepared.gid);
        let resolved = wait::until_within(PATIENCE, &what, || {
            self.say_what_was_decided(&prepared, &mut may_have_been_heard)
        });
        let held = std::mem::take(&mut prepared.held).into_iter();
        let history = &mut self.ledger.history.held;
        match resolved {
            // Its end may still be on the way, or its beginning.
            Resolved::Uncertain => {
                history.extend(held);
                self.ledger.uncertain.push(prepared.gid);
            }
            Resolved::Before => history.extend(held.map(|held| held.end(Duration::ZERO))),
            Resolved::AsDecided => {
                history.extend(held.map(|held| held.end(Duration::ZERO)));
                self.resolved(prepared);
            }
        }
    }

    fn say_what_was_decided(&mut self, prepared: &Prepared, heard: &mut bool) -> Option<Resolved> {
        let word = if prepared.commits { "COMMIT" } else { "ROLLBACK" };
        self.session.take_notices();
        match self.session.attempt(format!("{word} PREPARED '{}'", prepared.gid)) {
            Ok(_) => Some(Resolved::AsDecided),
            Err(refusal) if refusal.code() == Some("42704") && !prepared.is_certain => {
                Some(Resolved::Uncertain)
            }
            Err(refusal) if refusal.code() == Some("42704") => {
                if !*heard {
                    self.ledger.violation(format!("{} is not prepared any more", prepared.gid));
                }
                Some(Resolved::Before)
            }
            Err(refusal) => {
                *heard = true;
                self.recover(&refusal);
                None
            }
        }
    }

    fn resolved(&mut self, prepared: Prepared) {
        let word = if prepared.commits { "committed" } else { "rolled back" };
        self.ledger.count(&format!("prepared, then {word}"));
        if self.site.generation.load(SeqCst) != prepared.generation {
            self.ledger.count("prepared across a restart or failover");
        }
        if prepared.commits && !self.is_in_doubt() {
            self.ledger.acknowledge(&prepared.key, prepared.answer);
        }
    }
}
