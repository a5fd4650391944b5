//! What one transaction has done. A savepoint is a copy of all that a rollback to it brings back.

use super::KEYS;
use std::collections::{BTreeMap, BTreeSet};

/// Tokens in the order in which claims were won.
pub type Token = usize;

/// What is recorded under a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub operation: usize,
    pub fingerprint: usize,
    pub token: Token,
    pub attempt: i32,
    /// Its retention has passed, or its lease has run out.
    pub expired: bool,
    /// None while it is on lease.
    pub answer: Option<Recorded>,
}

/// An answer as a replay repeats it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub status: i32,
    pub body: String,
    pub withheld: bool,
}

/// What a token is about.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    pub key: usize,
    /// The request was erased: nothing but the token is known any more.
    pub is_blank: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    Held,
    Completed,
    Released,
    Freed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub key: usize,
    pub operation: usize,
    pub fingerprint: usize,
    pub token: Token,
    pub attempt: i32,
    pub leased: bool,
    pub progress: Progress,
}

/// What a rollback to a savepoint undoes.
#[derive(Clone, Debug, Default)]
pub struct Undoable {
    /// The keys that are held, and what became of their claims.
    pub claims: Vec<Claim>,
    /// Records written and deleted.
    pub records: BTreeMap<usize, Option<Record>>,
    /// Leases begun, by token.
    pub leases: BTreeMap<Token, Lease>,
    /// Effects under each key.
    pub effects: [i64; KEYS],
}

impl Undoable {
    /// Whether it has what is committed under a key in hand.
    pub fn replaces(&self, key: &usize) -> bool {
        self.records.contains_key(key)
    }
}

/// An open transaction.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    pub now: Undoable,
    savepoints: Vec<Undoable>,
    /// It has written: it has a transaction id, and keeps it whatever is rolled back.
    pub wrote: bool,
    /// It acted for a lease that was lost; no rollback to a savepoint makes that undone.
    pub lost: bool,
    /// Claims that a rollback to a savepoint took away.
    pub dropped: BTreeSet<(usize, Token)>,
    /// A statement has failed: nothing but a rollback helps.
    pub failed: bool,
}

impl Transaction {
    pub fn savepoint(&mut self) {
        self.savepoints.push(self.now.clone());
    }

    pub fn has_savepoint(&self) -> bool {
        !self.savepoints.is_empty()
    }

    pub fn release_savepoint(&mut self) {
        self.savepoints.pop();
    }

    /// Brings back what was at the innermost savepoint, which stays; at the beginning if there is
    /// none.
    pub fn undo(&mut self) {
        let before = self.savepoints.last().cloned().unwrap_or_default();
        for claim in &self.now.claims {
            if before.claims.iter().all(|kept| kept.token != claim.token) {
                self.dropped.insert((claim.key, claim.token));
            }
        }
        self.now = before;
    }

    pub fn own(&self, key: usize) -> Option<&Claim> {
        self.now.claims.iter().find(|claim| claim.key == key)
    }

    pub fn by_token(&mut self, token: Token) -> Option<&mut Claim> {
        self.now.claims.iter_mut().find(|claim| claim.token == token)
    }

    /// A claim comes before every write, and keys come in ascending order.
    pub fn may_claim(&self, key: usize) -> bool {
        !self.wrote && self.now.claims.iter().all(|claim| claim.key <= key)
    }

    pub fn hold(&mut self, claim: Claim) {
        if !self.wrote {
            self.dropped.retain(|&(key, _)| key != claim.key);
        }
        self.now.claims.push(claim);
    }

    /// A claim is neither completed nor given up, nor on lease.
    pub fn holds_any(&self) -> bool {
        self.now.claims.iter().any(|claim| claim.progress == Progress::Held && !claim.leased)
    }

    /// Every claim that was ever held is completed, given back as a lease, or still on lease.
    pub fn is_settled(&self) -> bool {
        let is_settled = |claim: &Claim| match claim.progress {
            Progress::Held => claim.leased,
            Progress::Completed | Progress::Freed => true,
            Progress::Released => false,
        };
        self.now.claims.iter().all(is_settled) && self.dropped.is_empty() && !self.lost
    }
}
