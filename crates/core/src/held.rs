//! What one transaction holds, and what becomes of it when a savepoint is released or rolled back.
//!
//! The rule about commits is decided here: a transaction that holds a claim may not commit, and one
//! that ever held a claim may commit writes only if every claim it held was completed.
//!
//! Every fact carries the nest level of the (sub)transaction that it belongs to: 1 is the
//! transaction itself, each savepoint adds one (PostgreSQL's `GetCurrentTransactionNestLevel`).
//! Releasing a savepoint hands its facts to the level above, rolling it back undoes them.

use std::collections::TryReserveError;
use std::rc::Rc;

use uuid::Uuid;

use crate::Micros;
use crate::identity::Identity;
use crate::policy::Policy;

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Claimed; the work may be under way.
    Held,
    /// Its record was inserted at this nest level.
    Completed(i32),
    /// It was given up at this nest level; its lock stays until the transaction ends.
    Released(i32),
    /// A lease was given back at this nest level: its record was deleted.
    Freed(i32),
}

impl State {
    /// The nest level at which the claim was settled.
    fn settled_at(self) -> Option<i32> {
        match self {
            State::Held => None,
            State::Completed(level) | State::Released(level) | State::Freed(level) => Some(level),
        }
    }

    /// The same, settled at another nest level.
    fn moved_to(self, level: i32) -> Self {
        match self {
            State::Held => State::Held,
            State::Completed(_) => State::Completed(level),
            State::Released(_) => State::Released(level),
            State::Freed(_) => State::Freed(level),
        }
    }
}

/// A claim whose lock the transaction holds.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Which key.
    pub identity: Identity,
    /// The operation that claimed it; differs from the key space where that is shared.
    pub operation: String,
    /// The settings as they were when it was claimed.
    pub policy: Rc<Policy>,
    /// Names the claim to complete and release.
    pub token: Uuid,
    /// The fingerprint to record.
    pub fingerprint: Option<Vec<u8>>,
    /// When the key was won.
    pub created_at: Micros,
    /// 1 for the first execution.
    pub attempt: i32,
    /// Whether a record has to give way to this one's: one that has expired, or that of a lease.
    pub replaces: bool,
    /// Whether the claim is on lease: it outlives the transaction, which may commit without
    /// completing it.
    pub is_leased: bool,
    /// The token of the lease that ends with this claim: its own, or the one it took over.
    pub lease: Option<Uuid>,
    /// The nest level that took the lock.
    pub level: i32,
    /// How far it has come.
    pub state: State,
}

/// Why complete or release finds no claim to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    /// The transaction holds no claim.
    Nothing,
    /// It holds several, and the call does not say which.
    Ambiguous(usize),
    /// No claim of this transaction has the token.
    UnknownToken,
    /// The claim is completed already.
    AlreadyCompleted,
    /// The claim was released.
    AlreadyReleased,
    /// A rollback to a savepoint before it took the claim away.
    RolledBack,
}

/// Why a commit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// Claimed and never completed.
    Forgotten,
    /// Released, or completed with a status that is not kept.
    Released,
    /// Dropped by a rollback to a savepoint.
    RolledBack,
    /// Its lease was lost to somebody else.
    LeaseLost,
}

/// The claims of one transaction.
#[derive(Debug, Default)]
pub struct Ledger {
    claims: Vec<Claim>,
    /// Keys whose claims were rolled back, with the token of the last one.
    dropped: Vec<(Identity, Uuid)>,
    lost: Option<Identity>,
    bypassed: bool,
}

impl Ledger {
    /// A ledger of a transaction that claimed nothing.
    pub const fn new() -> Self {
        Self { claims: Vec::new(), dropped: Vec::new(), lost: None, bypassed: false }
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.dropped.is_empty() && self.lost.is_none() && !self.bypassed
    }

    /// The claim that this transaction has on a key.
    pub fn own(&self, identity: &Identity) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.identity == *identity)
    }

    /// Whether the token belongs to a claim of this transaction, other than one on this key that a
    /// savepoint took away: that may be made again.
    pub fn knows(&self, token: Uuid, identity: &Identity) -> bool {
        let dropped = self.dropped.iter().filter(|(other, _)| other != identity);
        let held = self.claims.iter().map(|claim| claim.token);
        held.chain(dropped.map(|(_, token)| *token)).any(|known| known == token)
    }

    /// Whether the token is that of a claim whose key the transaction holds.
    pub fn holds(&self, token: Uuid) -> bool {
        self.claims.iter().any(|claim| claim.token == token)
    }

    /// Notes that the transaction acted for a lease that somebody else has taken over. Whatever it
    /// wrote must not commit, even if the error about it was caught.
    pub fn lose(&mut self, identity: Identity) {
        self.lost = Some(identity);
    }

    /// The greatest key whose lock the transaction holds.
    pub fn greatest(&self) -> Option<&Identity> {
        self.claims.iter().map(|claim| &claim.identity).max()
    }

    /// Makes room for one claim more, and for what becomes of claims when savepoints are rolled back:
    /// that happens where no error can be raised.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.claims.try_reserve(1)?;
        self.dropped.try_reserve(self.claims.len() + 1)
    }

    /// Notes a claim that was won; who calls has made room for it.
    ///
    /// A claim on the same key that a savepoint took away is forgotten where nothing was written
    /// since the transaction began: then all its writes are made under the new claim.
    pub fn hold(&mut self, claim: Claim, has_transaction_id: bool) {
        if !has_transaction_id {
            self.dropped.retain(|(identity, _)| *identity != claim.identity);
        }
        self.claims.push(claim);
    }

    /// Notes a call whose operation runs as if there were no keys.
    pub fn bypass(&mut self) {
        self.bypassed = true;
    }

    /// Whether a completion has nothing to record: no claim left, none lost, and one bypassed.
    pub fn passes_through(&self) -> bool {
        self.bypassed
            && self.dropped.is_empty()
            && self.claims.iter().all(|c| matches!(c.state, State::Completed(_)))
    }

    /// The claim that complete and release act on.
    ///
    /// # Errors
    /// [`NotHeld`] where there is none, or where the token is needed to tell which.
    pub fn find(&self, token: Option<Uuid>) -> Result<&Claim, NotHeld> {
        match token {
            Some(token) => self.by_token(token),
            None => self.only_one(),
        }
    }

    /// Marks the claim as completed or released at its nest level.
    pub fn settle(&mut self, token: Uuid, state: State) {
        if let Some(claim) = self.claims.iter_mut().find(|claim| claim.token == token) {
            claim.state = state;
        }
    }

    /// A subtransaction at `level` commits: what it did now belongs to the level above.
    pub fn subtransaction_committed(&mut self, level: i32) {
        let up = |l: i32| l.min(level - 1);
        for claim in &mut self.claims {
            claim.level = up(claim.level);
            if let Some(settled_at) = claim.state.settled_at() {
                claim.state = claim.state.moved_to(up(settled_at));
            }
        }
    }

    /// A subtransaction at `level` is rolled back: what it did is undone, its locks are gone.
    pub fn subtransaction_aborted(&mut self, level: i32) {
        for claim in self.claims.extract_if(.., |claim| claim.level >= level) {
            // One for each key: who claims and rolls back without end takes no memory without end.
            match self.dropped.iter_mut().rev().find(|(identity, _)| *identity == claim.identity) {
                Some(known) => known.1 = claim.token,
                None => self.dropped.push((claim.identity, claim.token)),
            }
        }
        for claim in &mut self.claims {
            if claim.state.settled_at().is_some_and(|settled_at| settled_at >= level) {
                claim.state = State::Held;
            }
        }
    }

    /// A claim that stands in the way of the commit.
    ///
    /// One that is still held always does: what was done under it may lie elsewhere (postgres_fdw,
    /// dblink), and a claim that ends with its statement protects nothing. One that was given up or
    /// lost stands in the way of writes only.
    pub fn unsettled(&self, wrote: bool) -> Option<(&Identity, Unsettled)> {
        let held = self.claims.iter().find(|claim| claim.state == State::Held && !claim.is_leased);
        match held {
            Some(claim) => Some((&claim.identity, Unsettled::Forgotten)),
            None if wrote => self.given_up(),
            None => None,
        }
    }

    /// A claim that was held, and neither completed nor left on lease.
    fn given_up(&self) -> Option<(&Identity, Unsettled)> {
        let released = self.claims.iter().find(|claim| matches!(claim.state, State::Released(_)));
        let released = released.map(|claim| (&claim.identity, Unsettled::Released));
        let lost = || self.lost.as_ref().map(|identity| (identity, Unsettled::LeaseLost));
        let dropped = || self.dropped.first().map(|(key, _)| (key, Unsettled::RolledBack));
        released.or_else(lost).or_else(dropped)
    }

    fn by_token(&self, token: Uuid) -> Result<&Claim, NotHeld> {
        let Some(claim) = self.claims.iter().find(|claim| claim.token == token) else {
            let rolled_back = self.dropped.iter().any(|(_, dropped)| *dropped == token);
            return Err(if rolled_back { NotHeld::RolledBack } else { NotHeld::UnknownToken });
        };
        match claim.state {
            State::Held => Ok(claim),
            State::Completed(_) => Err(NotHeld::AlreadyCompleted),
            State::Released(_) | State::Freed(_) => Err(NotHeld::AlreadyReleased),
        }
    }

    fn only_one(&self) -> Result<&Claim, NotHeld> {
        let mut held = self.claims.iter().filter(|claim| claim.state == State::Held);
        match (held.next(), held.count()) {
            (Some(claim), 0) => Ok(claim),
            (Some(_), others) => Err(NotHeld::Ambiguous(others + 1)),
            (None, _) => Err(self.why_none()),
        }
    }

    fn why_none(&self) -> NotHeld {
        if !self.dropped.is_empty() {
            return NotHeld::RolledBack;
        }
        match self.claims.last().map(|claim| claim.state) {
            Some(State::Completed(_)) => NotHeld::AlreadyCompleted,
            Some(State::Released(_) | State::Freed(_)) => NotHeld::AlreadyReleased,
            Some(State::Held) | None => NotHeld::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;
