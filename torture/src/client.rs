//! One connection and its requests: each is sent again until it has an answer, whatever befalls it.

use crate::ledger::{Answer, Ledger};
use crate::plan::{self, Fate, Kind, Plan};
use crate::site::Site;
use pg_idempotency_tests::call::{Argument, Call, Statement};
use pg_idempotency_tests::dice::Dice;
use pg_idempotency_tests::isolation::Isolation;
use pg_idempotency_tests::outcome::Outcome;
use pg_idempotency_tests::refusal::Refusal;
use pg_idempotency_tests::session::Session;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How often a request is sent at most.
const TRIES: usize = 12;

/// The server ends every statement of a client after this time (see the site). None takes so long,
/// unless it waits for what will never come.
const HANGS: Duration = Duration::from_secs(10);

/// What may befall an innocent request: ends of connections and servers, cancels and time-outs, and
/// the conflicts of its own work. (08P01 is the pooler's word for a server that is gone.)
const EXPECTED: [&str; 11] = [
    "08006", "08P01", "40001", "40P01", "53300", "55000", "55P03", "57014", "57P01", "57P02",
    "57P03",
];

pub const ORDERS: &str = "POST /orders";
pub const SHORT: &str = "POST /short";
pub const ERASED: &str = "POST /erased";

/// Work and completion in one statement: the effect, and the answer.
const WORK_AND_COMPLETE: &str = "
    WITH done AS (SELECT * FROM idempotency_complete(201, $2, withhold => $3, token => $4)),
         effect AS (INSERT INTO effects (key, body) SELECT $1, $2 FROM done)
    SELECT * FROM done";

const WORK_AND_COMPLETE_SHORT_LIVED: &str = "
    WITH done AS (SELECT * FROM idempotency_complete(201, $2, withhold => $3, token => $4)),
         effect AS (INSERT INTO short_lived SELECT $1, $2, created_at, expires_at FROM done)
    SELECT * FROM done";

/// Whether a request has its answer, or has to be sent again.
pub type Tried = Result<bool, Refusal>;

pub struct Client<'s> {
    pub site: &'s Site,
    pub dice: Dice,
    pub session: Session,
    pub ledger: Ledger,
    at: usize,
    serial: usize,
    prepared: Vec<Prepared>,
}

/// A transaction that was prepared, and what was decided about it.
struct Prepared {
    gid: String,
    commits: bool,
    /// Whether the server has said that it is prepared.
    is_certain: bool,
    /// Its request's answer.
    key: String,
    answer: Answer,
    /// After how many further requests it is resolved.
    left: usize,
    generation: usize,
}

impl<'s> Client<'s> {
    pub fn new(site: &'s Site, plan: &Plan, at: usize) -> Client<'s> {
        Client {
            site,
            dice: plan.dice(at),
            session: connect(site, at),
            ledger: Ledger::default(),
            at,
            serial: 0,
            prepared: Vec::new(),
        }
    }

    /// The requests of one epoch.
    pub fn epoch(&mut self, epoch: usize) {
        for _ in 0..plan::REQUESTS {
            self.request(epoch);
            self.resolve_what_is_due();
        }
    }

    /// Ends what is still prepared, and the connection.
    pub fn finish(mut self) -> Ledger {
        self.prepared.iter_mut().for_each(|prepared| prepared.left = 0);
        self.resolve_what_is_due();
        self.ledger
    }

    fn request(&mut self, epoch: usize) {
        let kind = plan::kind(&mut self.dice);
        let keys = match kind {
            Kind::ReplayFirst | Kind::Plain => vec![plan::key(epoch, &mut self.dice)],
            Kind::Many => (0..3).map(|_| plan::key(epoch, &mut self.dice)).collect(),
            Kind::Leased => vec![plan::leased_key(epoch, &mut self.dice)],
            Kind::ShortLived | Kind::Erased => vec![plan::short_lived_key(&mut self.dice)],
        };
        for _ in 0..TRIES {
            self.ledger.count("requests");
            let since = Instant::now();
            let tried = match kind {
                Kind::ReplayFirst => self.replay_first(&keys[0]),
                Kind::Plain => self.plain(&keys[0]),
                Kind::Many => self.many(&keys),
                Kind::Leased => self.leased(&keys[0]),
                Kind::ShortLived => self.short_lived(&keys[0]),
                Kind::Erased => self.erased(&keys[0]),
            };
            match tried {
                Ok(true) => return self.ledger.count("answered"),
                Ok(false) => {}
                Err(refusal) => {
                    let timed_out = refusal.code() == Some("57014");
                    if timed_out && since.elapsed() >= HANGS {
                        let key = &keys[0];
                        self.ledger.violation(format!("{key}: a statement did not end: {refusal}"));
                    }
                    self.recover(&refusal);
                }
            }
        }
        self.ledger.count("given up");
    }

    /// After an error: back to a connection without a transaction.
    fn recover(&mut self, refusal: &Refusal) {
        match refusal.code() {
            None => self.ledger.count("error: connection lost"),
            Some(code) if EXPECTED.contains(&code) => self.ledger.count(&format!("error: {code}")),
            Some(_) => self.ledger.violation(format!("unexpected: {refusal:?}")),
        }
        if self.session.attempt_script("ROLLBACK").is_err() {
            self.reconnect();
        }
    }

    pub fn reconnect(&mut self) {
        self.session.hang_up();
        self.session = connect(self.site, self.at);
    }

    // ---- kinds of requests ------------------------------------------------------------------

    fn replay_first(&mut self, key: &str) -> Tried {
        let rows =
            self.session.attempt(addressed("idempotency_replay", ORDERS).with("key", key))?;
        let outcome = Outcome::only(&rows);
        match outcome.outcome.as_str() {
            "replayed" | "withheld" => {
                self.acknowledge(key, &outcome);
                Ok(true)
            }
            "unknown" => self.plain(key),
            _ => Ok(self.surprise(key, &outcome)),
        }
    }

    fn plain(&mut self, key: &str) -> Tried {
        let (isolation, timeout) = (plan::isolation(&mut self.dice), self.dice.below(20));
        let timeout = match timeout {
            0 => "; SET LOCAL lock_timeout = '10ms'",
            1 => "; SET LOCAL statement_timeout = '40ms'",
            _ => "",
        };
        self.begin(isolation, timeout)?;
        let outcome = self.claim(key, ORDERS)?;
        if !timeout.is_empty() {
            // A commit is not to be timed out: see Site::fail_over.
            self.session.attempt("SET LOCAL statement_timeout = 0")?;
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
    fn many(&mut self, keys: &[String]) -> Tried {
        let mut keys = keys.to_vec();
        keys.sort();
        keys.dedup();
        let turn = self.dice.below(3).min(keys.len() - 1);
        keys.rotate_left(turn);
        let wait_ms = plan::wait_ms(&mut self.dice);
        let isolation = plan::isolation(&mut self.dice);
        self.begin(isolation, "")?;
        let call = addressed("idempotency_claim_many", ORDERS).with("keys", keys.clone());
        let since = Instant::now();
        let rows = self.session.attempt(call.with("wait_ms", wait_ms))?;
        self.ledger.waited(&keys[0], wait_ms, since.elapsed());
        let mut answers = Vec::new();
        for row in &rows {
            let ordinal: i32 = row.get("ordinal");
            let key = &keys[usize::try_from(ordinal).expect("from 1 on") - 1];
            let outcome = Outcome::from(row);
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
        if self.commit()? {
            answers.iter().for_each(|(key, outcome)| self.acknowledge(key, outcome));
        }
        self.ledger.count("claim_many");
        Ok(true)
    }

    fn short_lived(&mut self, key: &str) -> Tried {
        let isolation = plan::isolation(&mut self.dice);
        self.begin(isolation, "")?;
        let outcome = self.claim(key, SHORT)?;
        match outcome.outcome.as_str() {
            "claimed" => {
                let body = self.body(key);
                let sql = WORK_AND_COMPLETE_SHORT_LIVED;
                self.session.attempt(work(sql, key, &body, None, token_of(&outcome)))?;
                if self.dice.below(8) == 0 {
                    self.session.attempt("ROLLBACK")?;
                    return Ok(false);
                }
                if self.commit()? {
                    self.ledger.acknowledge_short_lived(key, body.into_bytes());
                }
                self.ledger.count("expired or new record executed");
                Ok(true)
            }
            "replayed" => {
                self.session.attempt("COMMIT")?;
                self.ledger.acknowledge_short_lived(key, outcome.body.expect("it is kept"));
                Ok(true)
            }
            _ => self.not_claimed(key, &outcome),
        }
    }

    /// A key that may be erased at any moment, so that it may be executed any number of times.
    fn erased(&mut self, key: &str) -> Tried {
        self.begin(Isolation::ReadCommitted, "")?;
        let outcome = self.claim(key, ERASED)?;
        if outcome.outcome == "claimed" {
            let sql = WORK_AND_COMPLETE_SHORT_LIVED.replace("short_lived", "erased");
            self.session.attempt(work(&sql, key, "{}", None, token_of(&outcome)))?;
        } else if outcome.outcome != "replayed" {
            self.session.attempt("COMMIT")?;
            return Ok(self.surprise(key, &outcome));
        }
        self.commit()?;
        Ok(true)
    }

    // ---- parts of requests ------------------------------------------------------------------

    pub fn begin(&mut self, isolation: Isolation, further: &str) -> Result<(), Refusal> {
        self.session.attempt_script(&format!("BEGIN ISOLATION LEVEL {}{further}", isolation.sql()))
    }

    fn claim(&mut self, key: &str, operation: &str) -> Result<Outcome, Refusal> {
        let wait_ms = plan::wait_ms(&mut self.dice);
        let call = addressed("idempotency_claim", operation).with("key", key);
        let since = Instant::now();
        let rows = self.session.attempt(call.with("wait_ms", wait_ms))?;
        self.ledger.waited(key, wait_ms, since.elapsed());
        Ok(Outcome::only(&rows))
    }

    fn not_claimed(&mut self, key: &str, outcome: &Outcome) -> Tried {
        self.session.attempt("COMMIT")?;
        match outcome.outcome.as_str() {
            "replayed" | "withheld" => {
                self.acknowledge(key, outcome);
                Ok(true)
            }
            _ => Ok(self.surprise(key, outcome)),
        }
    }

    /// `in_progress` is none; every other word is. False: try again.
    pub fn surprise(&mut self, key: &str, outcome: &Outcome) -> bool {
        if outcome.outcome == "in_progress" {
            self.ledger.count("in_progress");
        } else {
            self.ledger.violation(format!("{key}: {outcome:?}"));
        }
        false
    }

    /// A replay is an answer at once: its record is committed.
    pub fn acknowledge(&mut self, key: &str, outcome: &Outcome) {
        let what = if outcome.outcome == "completed" { "effects acknowledged" } else { "replays" };
        self.ledger.count(what);
        self.ledger.acknowledge(key, answer_of(outcome));
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
        if sent.outcome != "completed" || sent.body.as_deref() != Some(body.as_bytes()) {
            self.ledger.violation(format!("{key}: completed as {sent:?}"));
        }
        Ok(Outcome { body: sent.body.filter(|_| withhold.is_none()), ..sent })
    }

    /// Commits. False: it is committed, but the standby may not have it, and so nobody may be told.
    pub fn commit(&mut self) -> Result<bool, Refusal> {
        self.session.take_notices();
        self.session.attempt("COMMIT")?;
        let warned = |text: &str| text.contains("synchronous replication");
        Ok(!self.session.take_notices().iter().any(|notice| warned(notice.message())))
    }

    // ---- the fate of an execution -----------------------------------------------------------

    fn execute(&mut self, key: &str, token: Uuid, fate: Fate) -> Tried {
        self.ledger
            .count(&format!("fate: {}", format!("{fate:?}").split(' ').next().unwrap_or_default()));
        match fate {
            Fate::Releases => {
                self.session.attempt(Call::new("idempotency_release").with("token", token))?;
                self.session.attempt("COMMIT")?;
                return Ok(false);
            }
            Fate::Forgets => return self.forget(key),
            Fate::Recipe => return self.recipe(key, token),
            Fate::Deadlocks => self.lock_rows()?,
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
        let call = Call::new("idempotency_complete").with("status", 409).with("body", body);
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
        self.session.attempt("SELECT pg_sleep(0.02)")?;
        self.session.attempt(lock(second))?;
        Ok(())
    }

    // ---- two phases -------------------------------------------------------------------------

    fn prepare(&mut self, key: &str, sent: &Outcome, commits: bool) -> Tried {
        self.serial += 1;
        let gid = format!("{}-{}", self.at, self.serial);
        let prepared = self.session.attempt(format!("PREPARE TRANSACTION '{gid}'"));
        self.prepared.push(Prepared {
            gid,
            commits,
            is_certain: prepared.is_ok(),
            key: key.to_owned(),
            answer: answer_of(sent),
            left: 2 + self.dice.below(12),
            generation: self.site.generation.load(SeqCst),
        });
        prepared?;
        // It has no answer yet; the decision brings it.
        Ok(true)
    }

    fn resolve_what_is_due(&mut self) {
        for prepared in std::mem::take(&mut self.prepared) {
            if prepared.left == 0 {
                self.resolve(&prepared);
            } else {
                self.prepared.push(Prepared { left: prepared.left - 1, ..prepared });
            }
        }
    }

    /// Says what was decided, until the server has heard it.
    fn resolve(&mut self, prepared: &Prepared) {
        let word = if prepared.commits { "COMMIT" } else { "ROLLBACK" };
        let sql = format!("{word} PREPARED '{}'", prepared.gid);
        let mut may_have_been_heard = false;
        loop {
            self.session.take_notices();
            match self.session.attempt(sql.as_str()) {
                Ok(_) => return self.resolved(prepared),
                Err(refusal) if refusal.code() == Some("42704") => {
                    if !prepared.is_certain {
                        // Its end may still be on the way.
                        self.ledger.uncertain.push(prepared.gid.clone());
                    } else if !may_have_been_heard {
                        self.ledger.violation(format!("{} is not prepared any more", prepared.gid));
                    }
                    return;
                }
                Err(refusal) => {
                    may_have_been_heard = true;
                    self.recover(&refusal);
                }
            }
        }
    }

    fn resolved(&mut self, prepared: &Prepared) {
        let word = if prepared.commits { "committed" } else { "rolled back" };
        self.ledger.count(&format!("prepared, then {word}"));
        if self.site.generation.load(SeqCst) != prepared.generation {
            self.ledger.count("prepared across a restart or failover");
        }
        let in_doubt = !self.session.take_notices().is_empty();
        if prepared.commits && !in_doubt {
            self.ledger.acknowledge(&prepared.key, prepared.answer.clone());
        }
    }
}

/// Those of one pooler have one name, or it would set it anew for each transaction.
fn connect(site: &Site, at: usize) -> Session {
    let pooled = Plan::is_pooled(at);
    site.connect(pooled, if pooled { "pooled" } else { "direct" })
}

pub fn addressed(function: &'static str, operation: &str) -> Call {
    Call::new(function).with("scope", "alice").with("operation", operation)
}

pub fn token_of(outcome: &Outcome) -> Uuid {
    outcome.token.expect("a claim has a token")
}

/// The answer as every later caller gets it.
fn answer_of(outcome: &Outcome) -> Answer {
    match &outcome.body {
        Some(body) if outcome.outcome != "withheld" => {
            Answer { status: outcome.status.expect("it has one"), body: Some(body.clone()) }
        }
        _ => Answer { status: 0, body: None },
    }
}

fn work(sql: &str, key: &str, body: &str, withhold: Option<&str>, token: Uuid) -> Statement {
    let params = vec![key.param(), body.param(), withhold.param(), token.param()];
    Statement { sql: sql.to_owned(), params }
}
