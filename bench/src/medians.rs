//! Times of several ways to do one thing, taken in turn, so that a busy moment of the machine
//! meets them all.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// One way: bytes in, digest out.
pub type Way = fn(&[u8]) -> [u8; 32];

const ROUNDS: usize = 41;

/// How long one way works in one round.
const SLICE: Duration = Duration::from_millis(8);

/// The median time of each of the ways for `body`, in seconds.
pub fn medians(ways: &[Way], body: &[u8]) -> Vec<f64> {
    let counts: Vec<u32> = ways.iter().map(|way| repetitions(*way, body)).collect();
    let mut times = vec![Vec::with_capacity(ROUNDS); ways.len()];
    for _ in 0..ROUNDS {
        for (i, way) in ways.iter().enumerate() {
            times[i].push(time(*way, body, counts[i]));
        }
    }
    times.into_iter().map(median).collect()
}

/// How often a way fits into one slice.
fn repetitions(way: Way, body: &[u8]) -> u32 {
    let once = time(way, body, 1).min(time(way, body, 1));
    (SLICE.as_secs_f64() / once).ceil() as u32
}

fn time(way: Way, body: &[u8], count: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        black_box(way(black_box(body)));
    }
    start.elapsed().as_secs_f64() / f64::from(count)
}

/// The median of some times.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
