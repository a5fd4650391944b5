//! How long a call waits for a key's lock.

use std::time::{Duration, Instant};

use idempotency_core::policy::Policy;

use crate::counters::Waiting;
use crate::error::Error;
use crate::guc;
use crate::session::key_lock::{KeyLock, Patience};

/// How long to wait for the holder of a key.
#[derive(Clone, Copy)]
pub enum Wait {
    /// Not at all.
    Never,
    /// Until then, by a clock that nobody sets.
    Until(Instant),
    /// Without end.
    Endless,
}

impl Wait {
    /// As the call says, in milliseconds: 0 never, -1 without end; as its operation is set where it
    /// says nothing; and as the server is configured where there is no operation, or it has no such
    /// setting.
    ///
    /// # Errors
    /// 22023 below -1.
    pub fn new(wait_ms: Option<i32>, operation: Option<&Policy>) -> Result<Self, Error> {
        let operation = operation.and_then(|policy| policy.wait_ms);
        match wait_ms.or(operation).unwrap_or_else(guc::wait_ms) {
            0 => Ok(Wait::Never),
            -1 => Ok(Wait::Endless),
            wait_ms if wait_ms > 0 => {
                Ok(Wait::Until(Instant::now() + Duration::from_millis(wait_ms as u64)))
            }
            wait_ms => Err(Error::argument(
                "wait_ms must not be below -1",
                format!("It is {wait_ms}."),
                "Pass milliseconds, 0 not to wait, or -1 to wait without end.",
            )),
        }
    }

    /// Takes the lock, waiting as long as this allows; false at the end of it, and at once where as
    /// many as are allowed are waiting. A wait is counted for the operation.
    pub fn acquire(self, lock: &KeyLock, max_waiters: Option<i32>, operation: &str) -> bool {
        if lock.try_acquire() {
            return true;
        }
        // The holder's request is counted too.
        if max_waiters.is_some_and(|max_waiters| lock.requests() > max_waiters) {
            return false;
        }
        self.until(operation, |patience| lock.acquire_within(patience))
    }

    /// Has `wait` wait as long as this allows, and counts that; false where this allows nothing more.
    pub fn until(self, operation: &str, wait: impl FnOnce(Patience) -> bool) -> bool {
        let Some(patience) = self.patience() else { return false };
        let _waiting = Waiting::begin(operation);
        wait(patience)
    }

    /// How long to wait from now on; `None` where not at all.
    fn patience(self) -> Option<Patience> {
        match self {
            Wait::Never => None,
            Wait::Endless => Some(Patience::Endless),
            Wait::Until(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let millis = left.as_micros().div_ceil(1000) as i32;
                (millis > 0).then_some(Patience::Millis(millis))
            }
        }
    }
}
