use super::*;
use crate::decide::{Compare, Decision, Request, decide};
use crate::policy::OnLeaseExpiry;
use crate::record::{Record, State};
use proptest::prelude::*;

const MINUTE: Micros = 60_000_000;
const DAY: Micros = 24 * 60 * MINUTE;

fn span(months: i32, days: i32, micros: Micros) -> Span {
    Span { months, days, micros }
}

fn days(days: i32) -> Retention {
    Retention::For(span(0, days, 0))
}

/// The UUIDv7 of an instant.
fn key(time: Micros) -> String {
    let millis = to_unix_millis(time);
    format!("{:08x}-{:04x}-7000-8000-000000000000", millis >> 16, millis & 0xffff)
}

fn refusing(retention: Retention, past: Vec<Past>) -> Policy {
    Policy { late_retry: LateRetry::Refuse, retention, past, ..Policy::default() }
}

#[test]
fn a_key_tells_its_time() {
    for time in [0, DAY, 123_456_000] {
        assert_eq!(key_time(&key(time)), Some(time));
    }
    assert_eq!(key_time("k"), None);
}

/// Catches a key that comes back to life when the retention is raised.
#[test]
fn a_key_keeps_the_shortest_retention_since_it_was_made() {
    let past = replaced(Vec::new(), days(1), days(30), 10 * DAY);
    let policy = refusing(days(30), past);
    assert_eq!(policy.refused_from(&key(10 * DAY)), Some(11 * DAY));
    let after = 10 * DAY + 1000;
    assert_eq!(policy.refused_from(&key(after)), Some(after + 30 * DAY));
    assert_eq!(refusing(Retention::Forever, Vec::new()).refused_from(&key(0)), Some(Micros::MAX));
}

/// Catches a key that is claimed again because months are not of one length.
#[test]
fn a_record_expires_no_sooner_than_its_key_is_late() {
    let month = Retention::For(span(1, 0, 0));
    let policy = refusing(month, Vec::new());
    // 2027-03-30 23:59 and 2027-03-31 00:01
    let (made, completed) = (9951 * DAY - MINUTE, 9951 * DAY + MINUTE);
    let expires_at = policy.expires_at(&key(made), completed);
    assert_eq!(expires_at, policy.refused_from(&key(made)));
    assert_eq!(expires_at, Some(9982 * DAY - MINUTE));
}

#[test]
fn what_says_nothing_more_is_forgotten() {
    let mut past = Vec::new();
    for i in 0..10 {
        past = replaced(past, days(30), days(1), i);
        past = replaced(past, days(1), days(30), i + 1);
    }
    assert_eq!(past.len(), 1);
    past = replaced(past, days(30), days(30), 20);
    assert_eq!(past.len(), 1);
    // A month may be longer or shorter than 30 days.
    let month = Retention::For(span(1, 0, 0));
    past = replaced(replaced(Vec::new(), month, days(30), 1), days(30), Retention::Forever, 2);
    assert_eq!(past.len(), 2);
}

#[test]
fn not_more_is_remembered_than_has_room() {
    let mut past = Vec::new();
    for i in 1..=300 {
        past = replaced(past, days(i), days(i + 1), Micros::from(i) * DAY);
    }
    assert_eq!(past.len(), MAX_PAST);
    assert_eq!(past[0].retention, span(0, 1, 0));
    assert_eq!(past[MAX_PAST - 1], Past { until: 300 * DAY, retention: span(0, 300, 0) });
}

/// A key that lay far ahead of the clock is none of a client's ways to have its record kept.
#[test]
fn a_key_far_ahead_keeps_nothing_where_late_retries_are_executed() {
    let executing = Policy { retention: days(1), ..Policy::default() };
    let (completed, expires) = (10 * DAY, 11 * DAY);
    let ahead = |ahead: Micros| executing.purged_from(&key(completed + ahead), completed, expires);
    assert_eq!(ahead(MAX_AHEAD), expires + MAX_AHEAD);
    assert_eq!(ahead(MAX_AHEAD + 1000), expires);
    assert_eq!(executing.purged_from("k", completed, expires), expires);
    let refusing = refusing(days(1), Vec::new());
    assert_eq!(refusing.purged_from(&key(completed + DAY), completed, expires), expires + DAY);
}

fn spans() -> impl Strategy<Value = Retention> {
    prop_oneof![
        Just(Retention::Forever),
        (0..3i32, 0..40i32, 0..3i64).prop_map(|(months, days, hours)| {
            Retention::For(span(months, days, hours * 60 * MINUTE + 1))
        }),
    ]
}

/// What happens to one key, a time after what happened before.
#[derive(Clone, Debug)]
enum Move {
    Configure(Retention, LateRetry),
    Claim,
    Purge,
}

fn moves() -> impl Strategy<Value = Vec<(Micros, Move)>> {
    let late_retry = prop_oneof![1 => Just(LateRetry::Execute), 4 => Just(LateRetry::Refuse)];
    let one = prop_oneof![
        (spans(), late_retry).prop_map(|(retention, late)| Move::Configure(retention, late)),
        Just(Move::Claim),
        Just(Move::Purge),
    ];
    let later = prop_oneof![1..10 * MINUTE, DAY / 2..DAY * 2, DAY..DAY * 45];
    proptest::collection::vec((later, one), 1..40)
}

/// One key, its record, and all retentions with the time until which each was in force.
struct World {
    policy: Policy,
    history: Vec<(Retention, Micros)>,
    key: String,
    made: Micros,
    record: Option<(Micros, Option<Micros>)>,
    completions: usize,
}

impl World {
    fn configure(&mut self, retention: Retention, late_retry: LateRetry, now: Micros) {
        let past = replaced(self.policy.past.clone(), self.policy.retention, retention, now);
        self.history.push((self.policy.retention, now));
        self.policy = Policy { retention, late_retry, past, ..Policy::default() };
    }

    fn purge(&mut self, now: Micros) {
        let may_go = |(completed, expires): &(Micros, Option<Micros>)| {
            let from = |expires| self.policy.purged_from(&self.key, *completed, expires);
            expires.is_some_and(|expires| from(expires) <= now)
        };
        if self.record.as_ref().is_some_and(may_go) {
            self.record = None;
        }
    }

    fn claim(&mut self, now: Micros) {
        let refused_from = self.policy.refused_from(&self.key);
        let request = Request {
            operation: "o",
            fingerprint: Compare::Skip,
            refused_from,
            token: None,
            on_lease_expiry: OnLeaseExpiry::Retry,
        };
        let record = self.record.map(|(_, expires_at)| Record {
            operation: "o",
            fingerprint: None,
            state: State::Finished { withheld: None, expires_at },
        });
        let refuses = self.policy.late_retry == LateRetry::Refuse;
        match decide(record.as_ref(), &request, now) {
            // `invalid`, before any decision
            Decision::Claim if refuses && self.made > now + MAX_AHEAD => {}
            Decision::Claim => {
                assert!(!refuses || self.completions == 0, "executed again");
                self.completions += 1;
                self.record = Some((now, self.policy.expires_at(&self.key, now)));
            }
            Decision::Expired => assert!(!self.is_young(now), "a young key is refused"),
            Decision::Replay => {}
            other => panic!("{other:?}"),
        }
    }

    /// Whether the key is younger than each retention that was in force since it was made.
    fn is_young(&self, now: Micros) -> bool {
        let since = self.history.iter().filter(|(_, until)| self.made <= *until);
        let all = since.map(|(retention, _)| *retention).chain([self.policy.retention]);
        all.into_iter().all(|retention| match retention {
            Retention::Forever => true,
            Retention::For(span) => now < plus(self.made, span),
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever the settings become: a key that was completed once is not claimed again while late
    /// retries are refused, and a key younger than all retentions since it was made is not refused.
    #[test]
    fn no_change_of_settings_brings_a_late_retry_back(
        moves in moves(), ahead in -20 * MINUTE..MAX_AHEAD, first in 0usize..10,
    ) {
        let mut now = 9000 * DAY;
        // The key is made while some of the moves lie behind.
        let start: Micros = now + moves.iter().take(first).map(|(later, _)| later).sum::<Micros>();
        let made = (start + ahead).div_euclid(1000) * 1000;
        let mut world = World {
            policy: refusing(days(1), Vec::new()),
            history: Vec::new(),
            key: key(made),
            made,
            record: None,
            completions: 0,
        };
        for (later, what) in moves {
            now += later;
            match what {
                Move::Configure(retention, late) => world.configure(retention, late, now),
                Move::Purge => world.purge(now),
                // A key is not sent before it is made, by a clock that is 5 minutes ahead at most.
                Move::Claim if now + MAX_AHEAD >= made => world.claim(now),
                Move::Claim => {}
            }
        }
    }
}
