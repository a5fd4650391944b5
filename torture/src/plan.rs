//! What the seed decides.

use pg_idempotency_tests::dice::Dice;
use pg_idempotency_tests::isolation::Isolation;
use std::time::Duration;

pub struct Plan {
    pub seed: u64,
    pub time: Duration,
    pub connections: usize,
}

/// Requests of one connection in one epoch; then it waits for the others, so that all are about the
/// same keys.
pub const REQUESTS: usize = 500;
/// New keys of one epoch.
pub const KEYS: usize = 250;
/// New keys of one epoch for leased claims.
pub const LEASED_KEYS: usize = 16;
/// Keys whose records expire at once, the same in every epoch.
pub const SHORT_LIVED_KEYS: usize = 12;
/// How long those records last.
pub const SHORT_LIFE: &str = "40 milliseconds";

impl Plan {
    pub fn new(seed: u64, time: Duration) -> Plan {
        Plan { seed, time, connections: 24 }
    }

    /// The dice of one thread.
    pub fn dice(&self, thread: usize) -> Dice {
        Dice::new(self.seed ^ ((thread as u64 + 1) << 40))
    }

    /// Whether a connection goes through the pooler.
    pub fn is_pooled(connection: usize) -> bool {
        connection % 4 == 3
    }
}

/// What kind of request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Replay first, without a transaction; then as `Plain`.
    ReplayFirst,
    /// Claim, work, complete in one transaction.
    Plain,
    /// Three keys in one transaction.
    Many,
    /// A leased claim in several transactions.
    Leased,
    /// A key whose record expires at once.
    ShortLived,
    /// A key whose record is erased now and then.
    Erased,
}

/// What becomes of one attempt that has won its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Commits,
    /// The client rolls back after the work.
    Aborts,
    /// The connection goes away after the work.
    HangsUp,
    /// The connection goes away after the commit was sent.
    LosesTheAnswer,
    /// The work is committed without completing: must be refused.
    Forgets,
    /// The work is rolled back to a savepoint, and an error is the answer.
    Recipe,
    /// The claim is given up.
    Releases,
    /// The answer is sent and not kept.
    Withholds,
    /// PREPARE TRANSACTION; decided later.
    Prepares {
        commits: bool,
    },
    /// The work locks rows in an order of its own.
    Deadlocks,
}

pub fn kind(dice: &mut Dice) -> Kind {
    match dice.below(100) {
        0..70 => Kind::ReplayFirst,
        70..88 => Kind::Plain,
        88..91 => Kind::Many,
        91..94 => Kind::Leased,
        94..98 => Kind::ShortLived,
        _ => Kind::Erased,
    }
}

pub fn fate(dice: &mut Dice) -> Fate {
    match dice.below(100) {
        0..6 => Fate::Aborts,
        6..10 => Fate::HangsUp,
        10..14 => Fate::LosesTheAnswer,
        14..17 => Fate::Forgets,
        17..21 => Fate::Recipe,
        21..23 => Fate::Releases,
        23..27 => Fate::Withholds,
        27..31 => Fate::Prepares { commits: true },
        31..34 => Fate::Prepares { commits: false },
        34..42 => Fate::Deadlocks,
        _ => Fate::Commits,
    }
}

pub fn isolation(dice: &mut Dice) -> Isolation {
    // Twice as often the one that is recommended.
    [
        Isolation::ReadCommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ][dice.below(4)]
}

/// How long a claim waits for its key, in milliseconds.
pub fn wait_ms(dice: &mut Dice) -> i32 {
    [0, 20, 100, 500, 2000][dice.below(5)]
}

/// A key of an epoch; some are asked for more often than others.
pub fn key(epoch: usize, dice: &mut Dice) -> String {
    let at = dice.below(KEYS).min(dice.below(KEYS));
    format!("k{:08}", epoch * KEYS + at)
}

pub fn leased_key(epoch: usize, dice: &mut Dice) -> String {
    format!("l{:08}", epoch * LEASED_KEYS + dice.below(LEASED_KEYS))
}

pub fn short_lived_key(dice: &mut Dice) -> String {
    format!("s{:02}", dice.below(SHORT_LIVED_KEYS))
}
