//! The whole of it: what is committed, and what each session is about.

use super::transaction::{Claim, Lease, Record, Token, Transaction, Undoable};
use super::{Answer, Command, KEYS, OPERATIONS, SESSIONS};
use std::collections::BTreeMap;

/// A command and who gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub session: usize,
    pub command: Command,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub open: Option<Transaction>,
    pub prepared: Option<Undoable>,
    /// The token of the last claim that it won on each key.
    pub tokens: [Option<Token>; KEYS],
}

/// What is committed, and the sessions.
#[derive(Debug, Default)]
pub struct Machine {
    pub(super) records: BTreeMap<usize, Record>,
    pub(super) leases: BTreeMap<Token, Lease>,
    pub(super) effects: [i64; KEYS],
    pub(super) sessions: [Session; SESSIONS],
    /// Whether a lease of an operation that has run out stays blocked.
    pub(super) holds: [bool; OPERATIONS],
    pub(super) tokens: usize,
    pub(super) bodies: usize,
}

/// What a statement is answered, or the SQLSTATE that it fails with.
pub(super) type Result<T> = std::result::Result<T, &'static str>;

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
            Command::Settle { .. }
            | Command::Configure { .. }
            | Command::Purge
            | Command::Forget { .. } => self.operate(&step.command),
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

    /// Whether no session has one open. Only then settings are changed: an open transaction may still go
    /// by the old ones.
    pub fn is_at_rest(&self) -> bool {
        (0..SESSIONS).all(|session| !self.is_open(session))
    }

    /// Whether there is a committed record of a key that nobody holds.
    pub fn may_expire(&self, key: usize) -> bool {
        (0..SESSIONS).all(|session| self.is_free(key, session))
            && (0..SESSIONS).all(|session| self.own(session, key).is_none())
            && self.records.contains_key(&key)
    }

    /// The operation of what is committed under a key; the first where there is nothing.
    pub fn operation(&self, key: usize) -> usize {
        self.records.get(&key).map_or(0, |record| record.operation)
    }

    /// Whether a lease on a key has run out and stays blocked.
    pub fn is_on_hold(&self, key: usize) -> bool {
        let holds = |record: &Record| record.answer.is_none() && record.expired;
        let record = self.records.get(&key).filter(|record| holds(record));
        record.is_some_and(|record| self.holds[record.operation])
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
        if transaction.holds_any() || transaction.wrote && !transaction.is_settled() {
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
        let tokens = self.sessions[session].tokens;
        let answer = self.execute(session, command).unwrap_or_else(Answer::Error);
        if alone {
            return match answer {
                Answer::Error(_) => {
                    self.sessions[session].open = None;
                    answer
                }
                _ => match self.commit(session) {
                    Answer::Done => answer,
                    refused => {
                        // Its caller gets no outcome, and so no token.
                        self.sessions[session].tokens = tokens;
                        refused
                    }
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

    pub(super) fn open(&mut self, session: usize) -> &mut Transaction {
        self.sessions[session].open.get_or_insert_default()
    }

    // ---- looking ----------------------------------------------------------------------------

    pub(super) fn own(&self, session: usize, key: usize) -> Option<&Claim> {
        self.sessions[session].open.as_ref().and_then(|open| open.own(key))
    }

    /// Nobody but `session` holds the key; its own prepared transaction is somebody else.
    pub(super) fn is_free(&self, key: usize, session: usize) -> bool {
        let holds = |done: &Undoable| done.claims.iter().any(|claim| claim.key == key);
        self.sessions.iter().enumerate().all(|(other, it)| {
            let in_open = it.open.as_ref().is_some_and(|open| holds(&open.now));
            !it.prepared.as_ref().is_some_and(holds) && (other == session || !in_open)
        })
    }

    /// The record that a session sees: its own, or what is committed now.
    pub(super) fn visible(&self, session: usize, key: usize) -> Option<Record> {
        let own = self.sessions[session].open.as_ref().and_then(|open| open.now.records.get(&key));
        own.cloned().unwrap_or_else(|| self.records.get(&key).cloned())
    }

    pub(super) fn lease(&self, session: usize, token: Token) -> Option<Lease> {
        let own = self.sessions[session].open.as_ref();
        let own = own.and_then(|open| open.now.leases.get(&token));
        own.or_else(|| self.leases.get(&token)).copied()
    }
}
