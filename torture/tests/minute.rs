//! One minute of torture; `make torture` is the long one.

use std::time::Duration;
use torture::plan::Plan;

/// What has to have happened, and how often at least, or nothing would be shown.
const ENOUGH: [(&str, u64); 25] = [
    ("effects acknowledged", 100),
    ("replays", 1000),
    ("in_progress", 10),
    ("claim_many that executed several", 5),
    ("executed: short_lived", 50),
    ("replayed: short_lived", 5),
    ("executed: erased", 10),
    ("replayed: erased", 10),
    ("lease phases", 20),
    ("lease taken over", 1),
    ("prepared, then committed", 5),
    ("prepared, then rolled back", 5),
    ("prepared across a restart or failover", 1),
    ("claims that a lock_timeout or max_waiters ended", 1),
    ("error: 40P01", 1),
    ("error: connection lost", 1),
    ("fate: HangsUp", 10),
    ("records purged", 1),
    ("records erased", 1),
    ("fault: pg_terminate_backend", 5),
    ("fault: pg_cancel_backend", 5),
    ("fault: KillBackend", 1),
    ("fault: KillPostmaster", 1),
    ("fault: FailOver", 1),
    ("fault: RestartPooler", 1),
];

#[test]
fn a_minute_of_every_fault() {
    let plan = Plan::new(20_260_601, Duration::from_secs(60));
    println!("SEED={}", plan.seed);
    let verdict = torture::run(&plan);
    println!("{verdict}");
    assert!(verdict.is_good(), "{verdict}");
    let lacks = |&(what, least): &(&str, u64)| verdict.count(what) < least;
    let too_few: Vec<_> = ENOUGH.iter().copied().filter(lacks).collect();
    assert_eq!(too_few, [], "it happened less often than this");
}
