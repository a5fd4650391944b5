//! Many clients that retry, disconnect and abort at random; what they were told is kept and compared.

use crate::call::claim;
use crate::dice::Dice;
use crate::isolation::Isolation;
use crate::outcome::{Answer, Outcome};
use crate::refusal::Refusal;
use crate::session::Session;
use crate::shop;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// What is to be sent. The same seed makes the same plan, though not the same order of events.
pub struct Storm {
    pub connections: usize,
    pub requests: usize,
    pub keys: usize,
    pub seed: u64,
}

impl Storm {
    /// Every key is asked for at least once; the other requests are retries that come close before
    /// or behind it, so that many meet.
    fn key(&self, request: usize, dice: &mut Dice) -> String {
        let per_key = self.requests / self.keys;
        let spread = if request.is_multiple_of(per_key) { 0 } else { dice.below(4) };
        format!("key-{:04}", (request / per_key + spread) % self.keys)
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Seen {
    /// For each key the different answers that its requests got, and how often.
    pub answers: BTreeMap<String, Vec<(Answer, usize)>>,
    pub completed: usize,
    pub replayed: usize,
    pub disconnects: usize,
    pub aborts: usize,
    pub lost_answers: usize,
}

/// What befalls one attempt.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lives,
    /// The client rolls back after the work.
    Aborts,
    /// The connection goes away after the work.
    Disconnects,
    /// The connection goes away after the commit: the client knows no answer and must retry.
    LosesTheAnswer,
}

impl Fate {
    fn by(dice: &mut Dice) -> Fate {
        match dice.below(20) {
            0..2 => Fate::Aborts,
            2..4 => Fate::Disconnects,
            4 => Fate::LosesTheAnswer,
            _ => Fate::Lives,
        }
    }
}

/// Sends the requests of `plan` over connections made by `connect`.
pub fn run(plan: &Storm, connect: impl Fn(&str) -> Session + Sync) -> Seen {
    let seen = Mutex::new(Seen::default());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for n in 0..plan.connections {
            let (seen, next, connect) = (&seen, &next, &connect);
            scope.spawn(move || {
                let name = format!("client {n}");
                let mut client =
                    Client { session: connect(&name), connect: &|| connect(&name), seen };
                client.work_off(plan, next);
            });
        }
    });
    seen.into_inner().expect("no client panicked")
}

struct Client<'s> {
    session: Session,
    connect: &'s dyn Fn() -> Session,
    seen: &'s Mutex<Seen>,
}

impl Client<'_> {
    /// Takes one request after the other.
    fn work_off(&mut self, plan: &Storm, next: &AtomicUsize) {
        loop {
            let request = next.fetch_add(1, Relaxed);
            if request >= plan.requests {
                return;
            }
            let mut dice = Dice::new(plan.seed ^ (request as u64) << 20);
            self.request(&plan.key(request, &mut dice), &mut dice);
        }
    }

    /// One request, sent again until it has an answer.
    fn request(&mut self, key: &str, dice: &mut Dice) {
        loop {
            let answered = self.attempt(key, Fate::by(dice));
            let answered = answered.unwrap_or_else(|refusal| panic!("{key}: {refusal:?}"));
            if let Some(outcome) = answered {
                return self.note(key, &outcome);
            }
        }
    }

    fn attempt(&mut self, key: &str, fate: Fate) -> Result<Option<Outcome>, Refusal> {
        self.session.begin(Isolation::ReadCommitted);
        let found = Outcome::only(&self.session.attempt(claim(key).with("wait_ms", -1))?);
        let fresh = found.outcome == "claimed";
        let sent = if fresh { shop::work(&mut self.session, key)? } else { found };
        match fate {
            Fate::Aborts => self.abort(),
            Fate::Disconnects => self.disconnect(|seen| seen.disconnects += 1),
            Fate::LosesTheAnswer => {
                self.session.attempt("COMMIT")?;
                self.count(|seen| seen.completed += usize::from(fresh));
                self.disconnect(|seen| seen.lost_answers += 1);
            }
            Fate::Lives => {
                self.session.attempt("COMMIT")?;
                self.count(|seen| seen.completed += usize::from(fresh));
                return Ok(Some(sent));
            }
        }
        Ok(None)
    }

    fn abort(&mut self) {
        self.session.run("ROLLBACK");
        self.count(|seen| seen.aborts += 1);
    }

    fn disconnect(&mut self, count: impl FnOnce(&mut Seen)) {
        // First gone, then back: behind a pooler the new connection may need the old one's place.
        self.session.hang_up();
        self.session = (self.connect)();
        self.count(count);
    }

    fn count(&self, count: impl FnOnce(&mut Seen)) {
        count(&mut self.seen.lock().expect("no client panicked"));
    }

    fn note(&self, key: &str, outcome: &Outcome) {
        let answer = outcome.answer();
        self.count(|seen| {
            seen.replayed += usize::from(outcome.outcome == "replayed");
            let answers = seen.answers.entry(key.to_owned()).or_default();
            match answers.iter_mut().find(|(known, _)| *known == answer) {
                Some((_, times)) => *times += 1,
                None => answers.push((answer, 1)),
            }
        });
    }
}

impl Seen {
    /// How many requests got an answer.
    pub fn answered(&self) -> usize {
        self.answers.values().flatten().map(|(_, times)| times).sum()
    }

    /// The keys whose requests were not all told the same.
    pub fn inconsistent(&self) -> Vec<&str> {
        let differ = self.answers.iter().filter(|(_, answers)| answers.len() != 1);
        differ.map(|(key, _)| key.as_str()).collect()
    }

    /// # Panics
    /// When a request has no answer, a key has two, or a key was executed to the end twice.
    #[track_caller]
    pub fn assert_consistent(&self, plan: &Storm) {
        assert_eq!(self.answered(), plan.requests, "every request has an answer");
        assert_eq!(self.answers.len(), plan.keys, "every key has an answer");
        assert_eq!(self.inconsistent(), Vec::<&str>::new(), "one answer for each key");
        assert_eq!(self.completed, plan.keys, "one completion for each key");
    }
}
