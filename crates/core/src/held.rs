//! What one transaction holds, and what becomes of it when a savepoint is released or rolled back.
//!
//! The rule about commits is decided here: a transaction that ever held a claim may commit writes
//! only if every claim it held was completed.
//!
//! Every fact carries the nest level of the (sub)transaction that it belongs to: 1 is the
//! transaction itself, each savepoint adds one (PostgreSQL's `GetCurrentTransactionNestLevel`).
//! Releasing a savepoint hands its facts to the level above, rolling it back undoes them.

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
    /// Whether an expired record has to give way to this one's.
    pub replaces: bool,
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

/// Why a commit of writes is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// Claimed and never completed.
    Forgotten,
    /// Released, or completed with a status that is not kept.
    Released,
    /// Dropped by a rollback to a savepoint.
    RolledBack,
}

/// The claims of one transaction.
#[derive(Debug, Default)]
pub struct Ledger {
    claims: Vec<Claim>,
    dropped: Vec<(Identity, Uuid)>,
    bypassed: bool,
}

impl Ledger {
    /// A ledger of a transaction that claimed nothing.
    pub const fn new() -> Self {
        Self { claims: Vec::new(), dropped: Vec::new(), bypassed: false }
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.dropped.is_empty() && !self.bypassed
    }

    /// The claim that this transaction has on a key.
    pub fn own(&self, identity: &Identity) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.identity == *identity)
    }

    /// The greatest key whose lock the transaction holds.
    pub fn greatest(&self) -> Option<&Identity> {
        self.claims.iter().map(|claim| &claim.identity).max()
    }

    /// Notes a claim that was won.
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
            claim.state = match claim.state {
                State::Held => State::Held,
                State::Completed(l) => State::Completed(up(l)),
                State::Released(l) => State::Released(up(l)),
            };
        }
    }

    /// A subtransaction at `level` is rolled back: what it did is undone, its locks are gone.
    pub fn subtransaction_aborted(&mut self, level: i32) {
        let (lost, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.claims).into_iter().partition(|claim| claim.level >= level);
        self.dropped.extend(lost.into_iter().map(|claim| (claim.identity, claim.token)));
        self.claims = kept;
        for claim in &mut self.claims {
            match claim.state {
                State::Completed(l) | State::Released(l) if l >= level => claim.state = State::Held,
                State::Held | State::Completed(_) | State::Released(_) => {}
            }
        }
    }

    /// A claim that stands in the way of committing writes.
    pub fn unsettled(&self) -> Option<(&Identity, Unsettled)> {
        let open = self.claims.iter().find_map(|claim| match claim.state {
            State::Held => Some((&claim.identity, Unsettled::Forgotten)),
            State::Released(_) => Some((&claim.identity, Unsettled::Released)),
            State::Completed(_) => None,
        });
        open.or_else(|| self.dropped.first().map(|(identity, _)| (identity, Unsettled::RolledBack)))
    }

    fn by_token(&self, token: Uuid) -> Result<&Claim, NotHeld> {
        let Some(claim) = self.claims.iter().find(|claim| claim.token == token) else {
            let rolled_back = self.dropped.iter().any(|(_, dropped)| *dropped == token);
            return Err(if rolled_back { NotHeld::RolledBack } else { NotHeld::UnknownToken });
        };
        match claim.state {
            State::Held => Ok(claim),
            State::Completed(_) => Err(NotHeld::AlreadyCompleted),
            State::Released(_) => Err(NotHeld::AlreadyReleased),
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
            Some(State::Released(_)) => NotHeld::AlreadyReleased,
            Some(State::Held) | None => NotHeld::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str) -> Identity {
        Identity { scope: "s".into(), key_space: "o".into(), key: key.into() }
    }

    fn token(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn claim(name: &str, n: u128, level: i32) -> Claim {
        Claim {
            identity: key(name),
            operation: "o".into(),
            policy: Rc::default(),
            token: token(n),
            fingerprint: None,
            created_at: 0,
            attempt: 1,
            replaces: false,
            level,
            state: State::Held,
        }
    }

    fn holding(name: &str, n: u128, level: i32) -> Ledger {
        let mut ledger = Ledger::new();
        ledger.hold(claim(name, n, level), false);
        ledger
    }

    fn unsettled(ledger: &Ledger) -> Option<Unsettled> {
        ledger.unsettled().map(|(_, why)| why)
    }

    #[test]
    fn a_claim_is_unsettled_until_completed() {
        let mut ledger = holding("a", 1, 1);
        assert_eq!(unsettled(&ledger), Some(Unsettled::Forgotten));
        ledger.settle(token(1), State::Released(1));
        assert_eq!(unsettled(&ledger), Some(Unsettled::Released));
        ledger.settle(token(1), State::Completed(1));
        assert_eq!(unsettled(&ledger), None);
        assert!(!ledger.is_empty() && Ledger::new().is_empty());
    }

    #[test]
    fn every_claim_counts() {
        let mut ledger = holding("a", 1, 1);
        ledger.hold(claim("b", 2, 1), false);
        ledger.settle(token(1), State::Completed(1));
        assert_eq!(ledger.unsettled(), Some((&key("b"), Unsettled::Forgotten)));
    }

    #[test]
    fn rolling_back_to_before_the_claim_drops_it() {
        let mut ledger = holding("a", 1, 2);
        ledger.subtransaction_aborted(2);
        assert!(ledger.own(&key("a")).is_none() && ledger.greatest().is_none());
        assert_eq!(unsettled(&ledger), Some(Unsettled::RolledBack));
        assert_eq!(ledger.find(None).err(), Some(NotHeld::RolledBack));
        assert_eq!(ledger.find(Some(token(1))).err(), Some(NotHeld::RolledBack));
        assert!(!ledger.is_empty());
    }

    #[test]
    fn rolling_back_to_after_the_claim_keeps_it() {
        let mut ledger = holding("a", 1, 1);
        ledger.subtransaction_aborted(2);
        assert!(ledger.find(None).is_ok());
    }

    #[test]
    fn rolling_back_a_completion_makes_the_claim_unsettled_again() {
        for settled in [State::Completed(2), State::Released(2)] {
            let mut ledger = holding("a", 1, 1);
            ledger.settle(token(1), settled);
            ledger.subtransaction_aborted(3);
            assert_eq!(ledger.own(&key("a")).unwrap().state, settled);
            ledger.subtransaction_aborted(2);
            assert_eq!(ledger.own(&key("a")).unwrap().state, State::Held);
        }
    }

    #[test]
    fn releasing_a_savepoint_hands_its_facts_up() {
        for (settled, handed_up) in
            [(State::Completed(3), State::Completed(2)), (State::Released(3), State::Released(2))]
        {
            let mut ledger = holding("a", 1, 3);
            ledger.settle(token(1), settled);
            ledger.subtransaction_committed(3);
            assert_eq!(ledger.own(&key("a")).unwrap().state, handed_up);
            ledger.subtransaction_aborted(3);
            assert!(ledger.own(&key("a")).is_some());
            ledger.subtransaction_aborted(2);
            assert!(ledger.own(&key("a")).is_none());
        }
    }

    #[test]
    fn releasing_a_savepoint_leaves_the_outer_levels_alone() {
        let mut ledger = holding("a", 1, 1);
        ledger.subtransaction_committed(4);
        ledger.subtransaction_aborted(2);
        assert!(ledger.own(&key("a")).is_some());
    }

    #[test]
    fn claiming_again_forgets_the_dropped_claim_only_before_any_write() {
        let mut ledger = holding("a", 1, 2);
        ledger.subtransaction_aborted(2);
        ledger.hold(claim("a", 2, 1), false);
        ledger.settle(token(2), State::Completed(1));
        assert_eq!(unsettled(&ledger), None);

        let mut ledger = holding("a", 1, 2);
        ledger.subtransaction_aborted(2);
        ledger.hold(claim("a", 2, 1), true);
        ledger.settle(token(2), State::Completed(1));
        assert_eq!(unsettled(&ledger), Some(Unsettled::RolledBack));
    }

    #[test]
    fn claiming_another_key_does_not_forget_a_dropped_claim() {
        let mut ledger = holding("a", 1, 2);
        ledger.subtransaction_aborted(2);
        ledger.hold(claim("b", 2, 1), false);
        ledger.settle(token(2), State::Completed(1));
        assert_eq!(ledger.unsettled(), Some((&key("a"), Unsettled::RolledBack)));
    }

    #[test]
    fn complete_finds_the_only_claim_or_the_one_named() {
        let mut ledger = Ledger::new();
        assert_eq!(ledger.find(None).err(), Some(NotHeld::Nothing));
        ledger.hold(claim("a", 1, 1), false);
        assert_eq!(ledger.find(None).unwrap().token, token(1));
        ledger.hold(claim("b", 2, 1), false);
        assert_eq!(ledger.find(None).err(), Some(NotHeld::Ambiguous(2)));
        assert_eq!(ledger.find(Some(token(2))).unwrap().identity, key("b"));
        assert_eq!(ledger.find(Some(token(3))).err(), Some(NotHeld::UnknownToken));
        ledger.settle(token(1), State::Completed(1));
        assert_eq!(ledger.find(Some(token(1))).err(), Some(NotHeld::AlreadyCompleted));
        assert_eq!(ledger.find(None).unwrap().token, token(2));
        ledger.settle(token(2), State::Released(1));
        assert_eq!(ledger.find(Some(token(2))).err(), Some(NotHeld::AlreadyReleased));
        assert_eq!(ledger.find(None).err(), Some(NotHeld::AlreadyReleased));
        ledger.settle(token(2), State::Completed(1));
        assert_eq!(ledger.find(None).err(), Some(NotHeld::AlreadyCompleted));
    }

    #[test]
    fn the_greatest_key_counts_settled_claims_too() {
        let mut ledger = holding("b", 1, 1);
        ledger.hold(claim("a", 2, 1), false);
        ledger.settle(token(1), State::Completed(1));
        assert_eq!(ledger.greatest(), Some(&key("b")));
    }

    #[test]
    fn a_bypassed_call_passes_completions_through_unless_a_claim_is_open_or_lost() {
        let mut ledger = Ledger::new();
        assert!(!ledger.passes_through());
        ledger.bypass();
        assert!(ledger.passes_through() && !ledger.is_empty());
        assert_eq!(unsettled(&ledger), None);
        ledger.hold(claim("a", 1, 2), false);
        assert!(!ledger.passes_through());
        ledger.settle(token(1), State::Completed(2));
        assert!(ledger.passes_through());
        ledger.subtransaction_aborted(2);
        assert!(!ledger.passes_through());
    }
}
