//! One connection: each of its requests is sent again until it has an answer, whatever befalls it.

use crate::expected::{self, Moment};
use crate::history::{GivenUp, Held, Holder, Name, Told};
use crate::ledger::{Answer, Ledger};
use crate::plan::{self, Kind, Plan};
use crate::site::Site;
use crate::two_phases::Prepared;
use pg_idempotency_tests::call::Call;
use pg_idempotency_tests::dice::Dice;
use pg_idempotency_tests::isolation::Isolation;
use pg_idempotency_tests::outcome::Outcome;
use pg_idempotency_tests::refusal::Refusal;
use pg_idempotency_tests::session::Session;
use postgres::Row;
use serde_json::Value;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How often a request is sent at most.
const TRIES: u32 = 12;

/// How much longer with each try a client stays away that was told `in_progress`. Not to wait for
/// something: it is what Retry-After is there for. With a wait_ms of 0, and beyond max_waiters, the answer
/// comes at once, and all tries would be over before the holder had committed.
const COME_AGAIN: Duration = Duration::from_millis(5);

/// The server ends every statement of a client after this time (see the site). None takes so long,
/// unless it waits for what will never come.
const HANGS: Duration = Duration::from_secs(10);

/// The header that tells a replay from the first answer.
const REPLAYED: &str = "Idempotent-Replayed";

pub const ORDERS: &str = "POST /orders";
pub const SHORT: &str = "POST /short";
pub const ERASED: &str = "POST /erased";

/// Whether a request has its answer, or has to be sent again.
pub type Tried = Result<bool, Refusal>;

pub struct Client<'s> {
    pub site: &'s Site,
    pub dice: Dice,
    pub session: Session,
    pub ledger: Ledger,
    pub at: usize,
    pub serial: usize,
    pub prepared: Vec<Prepared>,
    /// What the open transaction holds, or may hold.
    pub holding: Vec<Held>,
    /// What may fail now.
    pub moment: Moment,
    /// How long what it holds may be held beyond it: a lease, or where the connection was lost.
    lease: Duration,
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
            holding: Vec::new(),
            moment: Moment::default(),
            lease: Duration::ZERO,
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
        self.resolve_all();
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
        let told_before = self.ledger.history.told.len();
        let mut errors = 0;
        for tries in 1..=TRIES {
            let told_so_far = self.ledger.history.told.len();
            self.ledger.count("requests");
            self.site.progress.fetch_add(1, SeqCst);
            self.moment = Moment::default();
            let since = Instant::now();
            let tried = self.attempt(kind, &keys);
            if let Err(refusal) = &tried {
                errors += 1;
                let timed_out = refusal.code() == Some("57014");
                if timed_out && since.elapsed() >= HANGS {
                    let key = &keys[0];
                    self.ledger.violation(format!("{key}: a statement did not end: {refusal}"));
                }
                self.recover(refusal);
            }
            self.let_go();
            if matches!(tried, Ok(true)) {
                return self.ledger.count("answered");
            }
            if self.ledger.history.told.len() > told_so_far {
                thread::sleep(COME_AGAIN * tries);
            }
        }
        let told = self.ledger.history.told[told_before..].to_vec();
        self.ledger.history.given_up.push(GivenUp { told, errors });
    }

    fn attempt(&mut self, kind: Kind, keys: &[String]) -> Tried {
        match kind {
            Kind::ReplayFirst => self.replay_first(&keys[0]),
            Kind::Plain => self.plain(&keys[0]),
            Kind::Many => self.many(keys),
            Kind::Leased => self.leased(&keys[0]),
            Kind::ShortLived => self.short_lived(&keys[0]),
            Kind::Erased => self.erased(&keys[0]),
        }
    }

    /// After an error: back to a connection without a transaction.
    pub fn recover(&mut self, refusal: &Refusal) {
        if matches!(refusal.code(), None | Some("08P01")) {
            self.may_go_on();
        }
        match refusal.code() {
            None => self.ledger.count("error: connection lost"),
            Some(code) if expected::by_client(code, refusal.db().message(), self.moment) => {
                self.ledger.count(&format!("error: {code}"));
            }
            Some(_) => {
                let moment = self.moment;
                self.ledger.violation(format!("unexpected at {moment:?}: {refusal:?}"));
            }
        }
        if self.session.attempt_script("ROLLBACK").is_err() {
            self.reconnect();
        }
    }

    /// The connection was lost while a statement ran. Its backend goes on with it, a commit that waits for
    /// the standby for example, and notices only then.
    fn may_go_on(&mut self) {
        self.lease = self.lease.max(HANGS);
    }

    pub fn reconnect(&mut self) {
        self.session.hang_up();
        self.let_go();
        self.session = connect(self.site, self.at);
    }

    // ---- claims and ends --------------------------------------------------------------------

    pub fn begin(&mut self, isolation: Isolation, further: &str) -> Result<(), Refusal> {
        self.moment.isolation = isolation;
        self.session.attempt_script(&format!("BEGIN ISOLATION LEVEL {}{further}", isolation.sql()))
    }

    pub fn claim(&mut self, key: &str, operation: &'static str) -> Result<Outcome, Refusal> {
        let call = addressed("idempotency_claim", operation).with("key", key);
        let mut answers = self.claim_by(call, &[(operation, key.to_owned())])?;
        Ok(answers.remove(0).1)
    }

    pub fn claim_on_lease(&mut self, key: &str, lease_ms: i32) -> Result<Outcome, Refusal> {
        self.lease_lasts(lease_ms);
        let call = addressed("idempotency_claim", ORDERS).with("key", key);
        let name = (ORDERS, key.to_owned());
        let mut answers = self.claim_by(call.with("lease_ms", lease_ms), &[name])?;
        Ok(answers.remove(0).1)
    }

    /// The lease lasts as long as this from now on, if it did not last longer anyway.
    pub fn lease_lasts(&mut self, millis: i32) {
        let millis = u64::try_from(millis).expect("not negative");
        self.lease = self.lease.max(Duration::from_millis(millis));
    }

    /// It has been completed, or given back.
    pub fn end_lease(&mut self) {
        self.lease = Duration::ZERO;
    }

    /// Claims these; each answer with the place of its name.
    pub fn claim_by(
        &mut self,
        call: Call,
        names: &[Name],
    ) -> Result<Vec<(usize, Outcome)>, Refusal> {
        let wait_ms = plan::wait_ms(&mut self.dice);
        self.ledger.asked.extend(names.iter().cloned());
        // As long as there is no answer, it may hold all of them.
        let by = if self.lease.is_zero() { Holder::Request } else { Holder::Lease };
        self.holding = names.iter().map(|name| Held::begin(name, by)).collect();
        let since = Instant::now();
        let rows = self.session.attempt(call.with("wait_ms", wait_ms))?;
        let between = (since, Instant::now());
        self.ledger.waited(&names[0].1, wait_ms, between.1 - since);
        let outcomes: Vec<(usize, Outcome)> = rows.iter().map(placed).collect();
        for (at, outcome) in &outcomes {
            self.heard(names, *at, outcome, wait_ms, between);
        }
        Ok(outcomes)
    }

    /// Who was not given a claim holds nothing; who was told that somebody else does, keeps that.
    fn heard(
        &mut self,
        names: &[Name],
        at: usize,
        outcome: &Outcome,
        wait_ms: i32,
        (since, now): (Instant, Instant),
    ) {
        let name = &names[at];
        if outcome.outcome == "claimed" {
            let held = self.holding.iter_mut().filter(|held| held.name == *name);
            return held.for_each(|held| held.won = Some(now));
        }
        self.holding.retain(|held| held.name != *name);
        if outcome.outcome != "in_progress" {
            return;
        }
        let waits = Duration::from_millis(u64::try_from(wait_ms).expect("not endless"));
        if self.moment.lock_timeout && now - since < waits {
            self.ledger.count("claims that a lock_timeout or max_waiters ended");
        }
        // Of several keys, each is found held at some time of the call.
        let between = (if names.len() == 1 { now } else { since }, now);
        self.ledger.history.told.push(Told { name: name.clone(), between });
    }

    /// Commits. False: it is committed, but the standby may not have it, and so nobody may be told.
    pub fn commit(&mut self) -> Result<bool, Refusal> {
        self.session.take_notices();
        self.session.attempt("COMMIT")?;
        Ok(!self.is_in_doubt())
    }

    /// Whether the server has warned that the standby may not have what was committed last.
    pub fn is_in_doubt(&mut self) -> bool {
        let notices = self.session.take_notices();
        notices.iter().any(|notice| notice.message().contains("synchronous replication"))
    }

    /// The transaction is over, and holds nothing any more.
    pub fn let_go(&mut self) {
        let lease = std::mem::take(&mut self.lease);
        let ended = std::mem::take(&mut self.holding).into_iter().map(|held| held.end(lease));
        self.ledger.history.held.extend(ended);
    }

    // ---- answers ----------------------------------------------------------------------------

    pub fn not_claimed(&mut self, key: &str, outcome: &Outcome) -> Tried {
        self.session.attempt("COMMIT")?;
        match outcome.outcome.as_str() {
            "replayed" | "withheld" => {
                self.acknowledge(key, outcome);
                Ok(true)
            }
            _ => Ok(self.surprise(key, outcome)),
        }
    }

    /// `in_progress` is none (whether it was true is seen at the end); every other word is. False: try
    /// again.
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
        let is_replay = outcome.outcome != "completed";
        self.ledger.count(if is_replay { "replays" } else { "effects acknowledged" });
        if outcome.header(REPLAYED).is_some() != is_replay {
            self.ledger.violation(format!("{key}: told as {REPLAYED}, or not told: {outcome:?}"));
        }
        self.ledger.acknowledge(key, answer_of(outcome));
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

/// A row of one of the functions that claim: its outcome, and which of the keys it is about.
fn placed(row: &Row) -> (usize, Outcome) {
    let ordinal = row.try_get::<_, i32>("ordinal").unwrap_or(1);
    (usize::try_from(ordinal).expect("from 1 on") - 1, Outcome::from(row))
}

/// The answer as every later caller gets it.
pub fn answer_of(outcome: &Outcome) -> Answer {
    match &outcome.body {
        Some(body) if outcome.outcome != "withheld" => Answer {
            status: outcome.status.expect("it has one"),
            headers: without_replayed(outcome.headers.clone()),
            body: Some(body.clone()),
        },
        _ => Answer { status: 0, headers: None, body: None },
    }
}

fn without_replayed(headers: Option<Value>) -> Option<Value> {
    let mut headers = headers?;
    headers.as_object_mut().expect("headers are an object").remove(REPLAYED);
    Some(headers)
}
