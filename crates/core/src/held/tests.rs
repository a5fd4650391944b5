use super::*;

fn key(key: &str) -> Identity {
    Identity::new("s".into(), "o".into(), key.into())
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
        is_leased: false,
        lease: None,
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
    ledger.unsettled(true).map(|(_, why)| why)
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
fn without_writes_only_a_claim_that_is_held_counts() {
    let mut ledger = holding("a", 1, 2);
    assert_eq!(ledger.unsettled(false), Some((&key("a"), Unsettled::Forgotten)));
    ledger.settle(token(1), State::Released(2));
    assert_eq!(ledger.unsettled(false), None);
    ledger.subtransaction_aborted(2);
    assert_eq!(ledger.unsettled(false), None);
    ledger.lose(key("b"));
    assert_eq!(ledger.unsettled(false), None);
}

#[test]
fn every_claim_counts() {
    let mut ledger = holding("a", 1, 1);
    ledger.hold(claim("b", 2, 1), false);
    ledger.settle(token(1), State::Completed(1));
    assert_eq!(ledger.unsettled(true), Some((&key("b"), Unsettled::Forgotten)));
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
    for settled in [State::Completed(2), State::Released(2), State::Freed(2)] {
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
fn a_leased_claim_may_stay_open_but_not_be_lost() {
    let mut ledger = Ledger::new();
    ledger.hold(Claim { is_leased: true, ..claim("a", 1, 2) }, false);
    assert_eq!(unsettled(&ledger), None);
    ledger.settle(token(1), State::Released(2));
    assert_eq!(unsettled(&ledger), Some(Unsettled::Released));
    ledger.settle(token(1), State::Freed(2));
    assert_eq!(unsettled(&ledger), None);
    assert_eq!(ledger.find(Some(token(1))).err(), Some(NotHeld::AlreadyReleased));
    assert_eq!(ledger.find(None).err(), Some(NotHeld::AlreadyReleased));
    ledger.subtransaction_aborted(2);
    assert_eq!(unsettled(&ledger), Some(Unsettled::RolledBack));
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
fn a_key_that_is_claimed_and_rolled_back_again_and_again_is_noted_once() {
    let mut ledger = holding("b", 1, 2);
    ledger.subtransaction_aborted(2);
    for n in 2..1000 {
        ledger.reserve().expect("memory");
        ledger.hold(claim("a", n, 2), true);
        ledger.subtransaction_aborted(2);
    }
    assert_eq!(ledger.dropped, [(key("b"), token(1)), (key("a"), token(999))]);
    assert!(ledger.dropped.capacity() < 10);
    assert_eq!(ledger.unsettled(true), Some((&key("b"), Unsettled::RolledBack)));
    assert_eq!(ledger.find(Some(token(999))).err(), Some(NotHeld::RolledBack));
}

#[test]
fn claiming_another_key_does_not_forget_a_dropped_claim() {
    let mut ledger = holding("a", 1, 2);
    ledger.subtransaction_aborted(2);
    ledger.hold(claim("b", 2, 1), false);
    ledger.settle(token(2), State::Completed(1));
    assert_eq!(ledger.unsettled(true), Some((&key("a"), Unsettled::RolledBack)));
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

#[test]
fn tokens_are_known_unless_their_claim_is_made_again() {
    let mut ledger = holding("a", 1, 2);
    assert!(ledger.knows(token(1), &key("a")) && ledger.knows(token(1), &key("b")));
    assert!(!ledger.knows(token(2), &key("a")));
    ledger.subtransaction_aborted(2);
    assert!(!ledger.knows(token(1), &key("a")) && ledger.knows(token(1), &key("b")));
}

#[test]
fn a_lost_lease_is_never_forgotten() {
    let mut ledger = Ledger::new();
    ledger.lose(key("a"));
    ledger.subtransaction_aborted(2);
    assert!(!ledger.is_empty());
    assert_eq!(ledger.unsettled(true), Some((&key("a"), Unsettled::LeaseLost)));
}

#[test]
fn a_token_is_held_while_its_claim_is() {
    let mut ledger = holding("a", 1, 2);
    assert!(ledger.holds(token(1)) && !ledger.holds(token(2)));
    ledger.settle(token(1), State::Completed(2));
    assert!(ledger.holds(token(1)));
    ledger.subtransaction_aborted(2);
    assert!(!ledger.holds(token(1)));
}

/// When a savepoint is rolled back nothing can be raised, so nothing may have to be allocated.
#[test]
fn there_is_room_to_drop_every_claim_and_the_next_one() {
    let mut ledger = Ledger::new();
    for n in 1..=100 {
        ledger.hold(claim(&format!("k{n:03}"), n, 2), false);
    }
    ledger.reserve().expect("memory");
    let room = ledger.dropped.capacity();
    assert!(room > 100 && ledger.claims.capacity() > 100, "room for {room}");
    ledger.hold(claim("k101", 101, 2), false);
    ledger.subtransaction_aborted(2);
    assert_eq!((ledger.dropped.len(), ledger.dropped.capacity()), (101, room));
}
