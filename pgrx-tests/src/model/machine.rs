//! The whole of it: what is committed, and what each session is about.

use super::transaction::{Claim, Progress, Record, Recorded, Token, Transaction, Undoable};
use super::{Answer, Command, KEYS, SESSIONS};
use std::collections::BTreeMap;

/// A command and who gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub session: usize,
    pub command: Command,
}

#[derive(Clone, Debug, Default)]
struct Session {
    open: Option<Transaction>,
    prepared: Option<Undoable>,
    /// The token of the last claim that it won on each key.
    tokens: [Option<Token>; KEYS],
}

/// What is committed, and the sessions.
#[derive(Debug, Default)]
pub struct Machine {
    records: BTreeMap<usize, Record>,
    leases: BTreeMap<Token, usize>,
    effects: [i64; KEYS],
    sessions: [Session; SESSIONS],
    tokens: usize,
    bodies: usize,
}

type Result<T> = std::result::Result<T, &'static str>;

impl Machine {
    /// Makes a step and says what the answer has to be.
    pub fn step(&mut self, step: &Step) -> Answer {
        let session = step.session;
        match step.command {
            Command::Begin { .. } => self.begin(session),
            Command::Commit => self.commit(session),
            Command::Rollback => {
                self.sessions[session].open = None;
                Answer::Done
            }
            Command::Prepare => self.prepare(session),
            Command::Finish { commit } => self.finish(session, commit),
            Command::Savepoint | Command::RollbackTo | Command::ReleaseSavepoint => {
                self.savepoint(session, &step.command)
            }
            Command::Expire { key } => {
                if self.may_expire(key) {
                    self.records.entry(key).and_modify(|record| record.expired = true);
                }
                Answer::Done
            }
            _ => self.statement(session, &step.command),
        }
    }

    /// The body of the next completion.
    pub fn body(&self) -> String {
        format!("{{\"n\":{}}}", self.bodies)
    }

    /// Whether a session has a transaction open.
    pub fn is_open(&self, session: usize) -> bool {
        self.sessions[session].open.is_some()
    }

    /// Whether there is a committed record of a key that nobody holds.
    pub fn may_expire(&self, key: usize) -> bool {
        (0..SESSIONS).all(|session| self.is_free(key, session))
            && (0..SESSIONS).all(|session| self.own(session, key).is_none())
            && self.records.contains_key(&key)
    }

    /// Committed effects under each key.
    pub fn effects(&self) -> [i64; KEYS] {
        self.effects
    }

    /// The committed records: key, status and body; none for a lease.
    pub fn recorded(&self) -> Vec<(usize, Option<i32>, Option<String>)> {
        let row = |(&key, record): (&usize, &Record)| {
            let answer = record.answer.as_ref();
            let body = answer.filter(|answer| !answer.withheld).map(|answer| answer.body.clone());
            (key, answer.map(|answer| answer.status), body)
        };
        self.records.iter().map(row).collect()
    }

    // ---- transactions -----------------------------------------------------------------------

    fn begin(&mut self, session: usize) -> Answer {
        let open = &mut self.sessions[session].open;
        match open {
            Some(transaction) if transaction.failed => Answer::Error("25P02"),
            Some(_) => Answer::Done,
            None => {
                *open = Some(Transaction::default());
                Answer::Done
            }
        }
    }

    fn commit(&mut self, session: usize) -> Answer {
        let Some(transaction) = self.sessions[session].open.take() else { return Answer::Done };
        if transaction.failed {
            return Answer::Done;
        }
        if transaction.wrote && !transaction.is_settled() {
            return Answer::Error("IK003");
        }
        self.apply(transaction.now);
        Answer::Done
    }

    fn prepare(&mut self, session: usize) -> Answer {
        let Some(transaction) = self.sessions[session].open.take() else { return Answer::Done };
        if transaction.failed {
            return Answer::Done;
        }
        if !transaction.is_settled() {
            return Answer::Error("IK003");
        }
        if self.sessions[session].prepared.is_some() {
            return Answer::Error("42710");
        }
        self.sessions[session].prepared = Some(transaction.now);
        Answer::Done
    }

    fn finish(&mut self, session: usize, commit: bool) -> Answer {
        let Some(prepared) = self.sessions[session].prepared.take() else {
            return Answer::Error("42704");
        };
        if commit {
            self.apply(prepared);
        }
        Answer::Done
    }

    fn apply(&mut self, done: Undoable) {
        for (key, record) in done.records {
            match record {
                Some(record) => drop(self.records.insert(key, record)),
                None => drop(self.records.remove(&key)),
            }
        }
        self.leases.extend(done.leases);
        for (sum, more) in self.effects.iter_mut().zip(done.effects) {
            *sum += more;
        }
    }

    fn savepoint(&mut self, session: usize, command: &Command) -> Answer {
        let Some(open) = &mut self.sessions[session].open else { return Answer::Error("25P01") };
        match command {
            Command::RollbackTo if open.has_savepoint() => {
                open.undo();
                open.failed = false;
                Answer::Done
            }
            _ if open.failed => {
                Answer::Error(if *command == Command::RollbackTo { "3B001" } else { "25P02" })
            }
            Command::Savepoint => {
                open.savepoint();
                Answer::Done
            }
            Command::ReleaseSavepoint if open.has_savepoint() => {
                open.release_savepoint();
                Answer::Done
            }
            _ => {
                open.undo();
                open.failed = true;
                Answer::Error("3B001")
            }
        }
    }

    /// A statement in the open transaction, or in one of its own.
    fn statement(&mut self, session: usize, command: &Command) -> Answer {
        let alone = self.sessions[session].open.is_none();
        let open = self.sessions[session].open.get_or_insert_default();
        if open.failed {
            return Answer::Error("25P02");
        }
        let answer = self.execute(session, command).unwrap_or_else(Answer::Error);
        if alone {
            return match answer {
                Answer::Error(_) => {
                    self.sessions[session].open = None;
                    answer
                }
                _ => match self.commit(session) {
                    Answer::Done => answer,
                    refused => refused,
                },
            };
        }
        if matches!(answer, Answer::Error(_)) {
            let open = self.open(session);
            open.undo();
            open.failed = true;
        }
        answer
    }

    fn open(&mut self, session: usize) -> &mut Transaction {
        self.sessions[session].open.get_or_insert_default()
    }

    // ---- looking ----------------------------------------------------------------------------

    fn own(&self, session: usize, key: usize) -> Option<&Claim> {
        self.sessions[session].open.as_ref().and_then(|open| open.own(key))
    }

    /// Nobody but `session` holds the key; its own prepared transaction is somebody else.
    fn is_free(&self, key: usize, session: usize) -> bool {
        let holds = |done: &Undoable| done.claims.iter().any(|claim| claim.key == key);
        self.sessions.iter().enumerate().all(|(other, it)| {
            let in_open = it.open.as_ref().is_some_and(|open| holds(&open.now));
            !it.prepared.as_ref().is_some_and(holds) && (other == session || !in_open)
        })
    }

    /// The record that a session sees: its own, or what is committed now.
    fn visible(&self, session: usize, key: usize) -> Option<Record> {
        let own = self.sessions[session].open.as_ref().and_then(|open| open.now.records.get(&key));
        own.cloned().unwrap_or_else(|| self.records.get(&key).cloned())
    }

    fn lease_key(&self, session: usize, token: Token) -> Option<usize> {
        let own = self.sessions[session].open.as_ref();
        let own = own.and_then(|open| open.now.leases.get(&token));
        own.or_else(|| self.leases.get(&token)).copied()
    }

    // ---- statements -------------------------------------------------------------------------

    fn execute(&mut self, session: usize, command: &Command) -> Result<Answer> {
        match *command {
            Command::Work { key } => {
                let open = self.open(session);
                open.wrote = true;
                open.now.effects[key] += 1;
                Ok(Answer::Done)
            }
            Command::Claim { key, operation, fingerprint, lease } => {
                self.claim(session, key, operation, fingerprint, lease)
            }
            Command::Replay { key, operation, fingerprint } => {
                Ok(self.replay(session, key, operation, fingerprint))
            }
            Command::Complete { by, status, withhold } => {
                self.complete(session, by, status, withhold)
            }
            Command::Release { by } => self.release(session, by),
            Command::Resume { key } => self.resume(session, key),
            Command::Checkpoint { key } => self.change(session, key, false),
            Command::Extend { key } => self.change(session, key, true),
            _ => unreachable!("{command:?} is no statement"),
        }
    }

    fn claim(
        &mut self,
        session: usize,
        key: usize,
        operation: usize,
        fingerprint: usize,
        lease: bool,
    ) -> Result<Answer> {
        let is_own = match self.own(session, key).map(|claim| claim.progress) {
            None => false,
            Some(Progress::Completed) => true,
            Some(_) => return Err("IK004"),
        };
        if !is_own && !self.open(session).may_claim(key) {
            return Err("IK001");
        }
        let found = self.visible(session, key);
        if let Some(answer) = answered(found.as_ref(), operation, Some(fingerprint)) {
            return Ok(answer);
        }
        if is_own {
            return Err("IK004");
        }
        if !self.is_free(key, session) {
            return Ok(refusal("in_progress", 409));
        }
        let earlier = found.filter(|record| record.answer.is_none());
        let attempt = earlier.map_or(1, |record| record.attempt + 1);
        let token = self.tokens;
        self.tokens += 1;
        self.sessions[session].tokens[key] = Some(token);
        let progress = Progress::Held;
        let claim = Claim { key, operation, fingerprint, token, attempt, leased: lease, progress };
        let open = self.open(session);
        open.hold(claim);
        if lease {
            open.wrote = true;
            open.now.leases.insert(token, key);
            let record =
                Record { operation, fingerprint, token, attempt, expired: false, answer: None };
            open.now.records.insert(key, Some(record));
        }
        Ok(claimed(attempt))
    }

    fn replay(&self, session: usize, key: usize, operation: usize, fingerprint: usize) -> Answer {
        let found = self.visible(session, key);
        let compared = (fingerprint > 0).then_some(fingerprint);
        answered(found.as_ref(), operation, compared).unwrap_or(Answer::Outcome {
            word: "unknown",
            status: None,
            body: None,
            attempt: None,
        })
    }

    fn complete(
        &mut self,
        session: usize,
        by: Option<usize>,
        status: i32,
        withheld: bool,
    ) -> Result<Answer> {
        let body = self.body();
        self.bodies += 1;
        let claim = self.settled(session, by)?;
        let is_kept = status != 503;
        let open = self.open(session);
        let progress = if is_kept { Progress::Completed } else { Progress::Released };
        open.by_token(claim.token).expect("it is held").progress = progress;
        if is_kept {
            open.wrote = true;
            let Claim { key, operation, fingerprint, token, attempt, .. } = claim;
            let answer = Some(Recorded { status, body: body.clone(), withheld });
            let record = Record { operation, fingerprint, token, attempt, expired: false, answer };
            open.now.records.insert(key, Some(record));
        }
        let word = if is_kept { "completed" } else { "released" };
        Ok(Answer::Outcome { word, status: Some(status), body: Some(body), attempt: None })
    }

    fn release(&mut self, session: usize, by: Option<usize>) -> Result<Answer> {
        let claim = self.settled(session, by)?;
        let open = self.open(session);
        let progress = if claim.leased { Progress::Freed } else { Progress::Released };
        open.by_token(claim.token).expect("it is held").progress = progress;
        if claim.leased {
            open.wrote = true;
            open.now.records.insert(claim.key, None);
        }
        Ok(Answer::Done)
    }

    /// The claim that complete and release are about.
    fn settled(&mut self, session: usize, by: Option<usize>) -> Result<Claim> {
        let Some(key) = by else {
            let held = |claim: &&Claim| claim.progress == Progress::Held;
            let held: Vec<_> = self.open(session).now.claims.iter().filter(held).cloned().collect();
            return match &held[..] {
                [claim] => Ok(claim.clone()),
                [] => Err("IK002"),
                _ => Err("22023"),
            };
        };
        let token = self.sessions[session].tokens[key].ok_or("IK002")?;
        if self.open(session).dropped.iter().any(|&(_, dropped)| dropped == token)
            && self.open(session).by_token(token).is_none()
        {
            return Err("IK002");
        }
        self.held(session, token, false)?.map_err(|_| "IK002")
    }

    /// The claim of a token, resumed where the transaction does not hold it; or the answer that
    /// the token recorded.
    fn held(
        &mut self,
        session: usize,
        token: Token,
        in_order: bool,
    ) -> Result<std::result::Result<Claim, Record>> {
        if let Some(claim) = self.open(session).by_token(token) {
            let is_held = claim.progress == Progress::Held;
            return if is_held { Ok(Ok(claim.clone())) } else { Err("IK002") };
        }
        let key = self.lease_key(session, token).ok_or("IK002")?;
        if self.own(session, key).is_some() {
            return Err("IK005");
        }
        if in_order && !self.open(session).may_claim(key) {
            return Err("IK001");
        }
        if !self.is_free(key, session) {
            return Err("55P03");
        }
        let current = self.visible(session, key).filter(|record| record.token == token);
        let Some(record) = current else {
            self.open(session).lost = true;
            return Err("IK005");
        };
        if record.answer.is_some() {
            return Ok(Err(record));
        }
        let Record { operation, fingerprint, attempt, .. } = record;
        let (leased, progress) = (true, Progress::Held);
        let claim = Claim { key, operation, fingerprint, token, attempt, leased, progress };
        self.open(session).hold(claim.clone());
        Ok(Ok(claim))
    }

    fn resume(&mut self, session: usize, key: usize) -> Result<Answer> {
        let token = self.sessions[session].tokens[key].ok_or("IK002")?;
        match self.held(session, token, true)? {
            Ok(claim) if claim.leased => Ok(claimed(claim.attempt)),
            Ok(_) => Err("IK002"),
            Err(record) => Ok(finished(&record)),
        }
    }

    fn change(&mut self, session: usize, key: usize, extend: bool) -> Result<Answer> {
        let token = self.sessions[session].tokens[key].ok_or("IK002")?;
        let claim = self.held(session, token, false)?.map_err(|_| "IK002")?;
        if !claim.leased {
            return Err("IK002");
        }
        let mut record = self.visible(session, claim.key).expect("a lease has a record");
        record.expired &= !extend;
        let open = self.open(session);
        open.wrote = true;
        open.now.records.insert(claim.key, Some(record));
        Ok(claimed(claim.attempt))
    }
}

/// What a record answers to a request; none where it is to be executed.
fn answered(
    found: Option<&Record>,
    operation: usize,
    fingerprint: Option<usize>,
) -> Option<Answer> {
    let record = found?;
    let is_finished = record.answer.is_some();
    if is_finished && record.expired {
        return None;
    }
    let differs = fingerprint.is_some_and(|fingerprint| fingerprint != record.fingerprint);
    if record.operation != operation || differs {
        return Some(refusal("mismatch", 422));
    }
    match (is_finished, record.expired) {
        (true, _) => Some(finished(record)),
        (false, true) => None,
        (false, false) => Some(refusal("in_progress", 409)),
    }
}

fn finished(record: &Record) -> Answer {
    match &record.answer {
        Some(Recorded { withheld: false, status, body }) => Answer::Outcome {
            word: "replayed",
            status: Some(*status),
            body: Some(body.clone()),
            attempt: None,
        },
        _ => refusal("withheld", 409),
    }
}

fn refusal(word: &'static str, status: i32) -> Answer {
    Answer::Outcome { word, status: Some(status), body: None, attempt: None }
}

fn claimed(attempt: i32) -> Answer {
    Answer::Outcome { word: "claimed", status: None, body: None, attempt: Some(attempt) }
}
