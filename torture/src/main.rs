//! `torture [--minutes N | --seconds N] [--seed N]`: see the library.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use torture::plan::Plan;

fn main() -> ExitCode {
    let mut time = Duration::from_secs(600);
    let mut seed = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--minutes", Some(value)) => time = Duration::from_secs(value * 60),
            ("--seconds", Some(value)) => time = Duration::from_secs(value),
            ("--seed", Some(value)) => seed = Some(value),
            _ => {
                eprintln!("usage: torture [--minutes N | --seconds N] [--seed N]");
                return ExitCode::from(2);
            }
        }
    }
    let plan = Plan::new(seed.unwrap_or_else(seed_of_the_clock), time);
    println!("torture: {} s, {} connections, SEED={}", time.as_secs(), plan.connections, plan.seed);
    let verdict = torture::run(&plan);
    println!("{verdict}");
    if verdict.is_good() {
        return ExitCode::SUCCESS;
    }
    println!("torture: FAILED; again with SEED={}", plan.seed);
    ExitCode::FAILURE
}

fn seed_of_the_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.subsec_nanos().into()
}
