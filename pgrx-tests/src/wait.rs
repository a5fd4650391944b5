//! Waiting for something that can be observed.

use std::time::{Duration, Instant};

/// No wait of a healthy test comes near this; reaching it is a failure.
pub const DEADLINE: Duration = Duration::from_secs(20);

const PAUSE: Duration = Duration::from_millis(3);

/// Looks until `look` sees something. The pause between two looks is not what makes a test right:
/// only what was seen is.
///
/// # Panics
/// When `look` has seen nothing by [`DEADLINE`]; the message names `what`.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(DEADLINE, what, look)
}

/// The same for what takes its time by nature.
///
/// # Panics
/// When `look` has seen nothing by the deadline.
pub fn until_within<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < deadline, "waited {deadline:?} in vain: {what}");
        std::thread::sleep(PAUSE);
    }
}
