//! One minute of torture; `make torture` is the long one.

use std::time::Duration;
use torture::plan::Plan;

/// What has to have happened, or nothing would be shown.
const ENOUGH: [&str; 12] = [
    "effects acknowledged",
    "replays",
    "in_progress",
    "lease taken over",
    "prepared, then committed",
    "prepared, then rolled back",
    "fault: pg_terminate_backend",
    "fault: pg_cancel_backend",
    "fault: KillBackend",
    "fault: KillPostmaster",
    "fault: FailOver",
    "fault: RestartPooler",
];

#[test]
fn a_minute_of_every_fault() {
    let plan = Plan::new(20_260_601, Duration::from_secs(60));
    println!("SEED={}", plan.seed);
    let verdict = torture::run(&plan);
    println!("{verdict}");
    assert!(verdict.is_good(), "{verdict}");
    for what in ENOUGH {
        assert!(verdict.count(what) > 0, "{what} never happened");
    }
}
