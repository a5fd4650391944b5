//! Contenders in turn, many short rounds, ratios within each round.

use crate::lab::Lab;
use crate::pgbench::{self, Setting};
use crate::stats::Spread;
use crate::suite;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    pub rounds: usize,
    /// How long one contender takes in one round, in seconds.
    pub slice: f64,
}

/// Contenders under the same circumstances; the first is what the others are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    pub name: &'static str,
    pub setting: Setting,
    pub scripts: &'static [&'static str],
}

/// The time per transaction of one contender relative to the first.
pub struct Ratio {
    pub script: &'static str,
    pub spread: Spread,
}

/// Plays a match.
pub fn play(lab: &Lab<'_>, game: &Match, effort: Effort) -> Vec<Ratio> {
    lab.reset();
    let _holder = (game.name == suite::HELD).then(|| lab.hold_a_key());
    let transactions = calibrate(lab, game, effort.slice);
    let rounds: Vec<Vec<f64>> = (0..effort.rounds)
        .map(|round| match game.setting.clients {
            1 => mixed_round(lab, game, transactions),
            _ => round_in_turn(lab, game, transactions, round),
        })
        .collect();
    let ratio = |contender: usize| rounds.iter().map(|times| times[contender] / times[0]).collect();
    let others = game.scripts.iter().enumerate().skip(1);
    others.map(|(i, script)| Ratio { script, spread: Spread::of(ratio(i)) }).collect()
}

/// One client, who changes from contender to contender with every transaction: a busy moment of the
/// machine meets them all.
fn mixed_round(lab: &Lab<'_>, game: &Match, transactions: u32) -> Vec<f64> {
    let transactions = transactions * game.scripts.len() as u32;
    pgbench::latencies(&lab.place(), game.scripts, game.setting, transactions)
}

/// Many clients have the machine for themselves. Every second round goes the other way, so that
/// nobody always follows the same one.
fn round_in_turn(lab: &Lab<'_>, game: &Match, transactions: u32, round: usize) -> Vec<f64> {
    let count = game.scripts.len();
    let mut times = vec![0.0; count];
    for turn in 0..count {
        let forward = (turn + round / 2) % count;
        let contender = if round.is_multiple_of(2) { forward } else { count - 1 - forward };
        let script = game.scripts[contender];
        times[contender] = pgbench::throughput(&lab.place(), script, game.setting, transactions);
    }
    times
}

/// How many transactions of one client fill a slice; all contenders do equally many, so their
/// tables grow alike.
fn calibrate(lab: &Lab<'_>, game: &Match, slice: f64) -> u32 {
    let time = pgbench::throughput(&lab.place(), game.scripts[0], game.setting, 400);
    (slice / time / f64::from(game.setting.clients)).clamp(50.0, 50_000.0) as u32
}
