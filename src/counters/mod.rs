//! Counts what calls come to, by operation: answers by outcome, waits, and refusals by SQLSTATE.
//!
//! What is counted is what a caller was told, whether or not its transaction commits later. Counting
//! needs shared memory (`crate::shared`); without it, all of this does nothing.

pub mod names;
pub mod table;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use self::table::Counts;
use crate::shared::{self, Shared};
use crate::store::settings;

/// Stands for the operation of calls that name none, or whose operation is not known. No text of
/// PostgreSQL's has a zero byte.
pub const NO_OPERATION: &str = "\0";

/// The most names that a session remembers, so that a caller who puts ids into operations cannot
/// fill memory.
const MAX_REMEMBERED: usize = 1000;

/// What a session remembers of the table.
#[derive(Default)]
struct Memory {
    generation: u64,
    /// The operation that was counted last; most calls are for the same one as the call before.
    last: Option<(String, &'static Counts)>,
    counts: HashMap<String, Remembered>,
}

#[derive(Clone, Copy)]
enum Remembered {
    Own(&'static Counts),
    /// There was no room for it, as it was listed then.
    Others {
        was_listed: bool,
    },
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// The shared memory, where calls are counted.
pub fn counting() -> Option<&'static Shared> {
    if shared::table().is_null() { None } else { shared::get() }
}

/// Counts an answer by its outcome.
pub fn answered(operation: &str, outcome: &str) {
    let Some(counts) = of(operation) else { return };
    if let Some(counter) = names::outcome(outcome) {
        counts.outcomes[counter].fetch_add(1, Relaxed);
    }
}

/// Counts a refusal.
pub fn refused(operation: &str, sqlstate: &str) {
    if let Some(counts) = of(operation) {
        counts.errors[names::sqlstate(sqlstate)].fetch_add(1, Relaxed);
    }
}

/// Counts a wait from now until it goes out of scope, however it ends.
pub struct Waiting {
    counts: Option<&'static Counts>,
    since: Instant,
}

impl Waiting {
    /// A wait that begins.
    pub fn begin(operation: &str) -> Self {
        Self { counts: of(operation), since: Instant::now() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(counts) = self.counts else { return };
        let micros = self.since.elapsed().as_micros() as u64;
        counts.waits.fetch_add(1, Relaxed);
        counts.waited.fetch_add(micros, Relaxed);
        counts.longest_wait.fetch_max(micros, Relaxed);
    }
}

/// The counts of an operation; `None` where nothing is counted.
fn of(operation: &str) -> Option<&'static Counts> {
    let shared = counting()?;
    let known = MEMORY.with_borrow_mut(|memory| memory.recall(shared, operation));
    Some(match known {
        Some(Remembered::Own(counts)) => counts,
        Some(Remembered::Others { was_listed }) if was_listed == is_listed(operation) => {
            &shared.header.others
        }
        _ => look(shared, operation),
    })
}

/// Looks in the table, and remembers what is there.
fn look(shared: &'static Shared, operation: &str) -> &'static Counts {
    let was_listed = is_listed(operation);
    let found = table::find(shared, operation, was_listed);
    let remembered = found.map_or(Remembered::Others { was_listed }, Remembered::Own);
    MEMORY.with_borrow_mut(|memory| memory.keep(operation, remembered));
    found.unwrap_or(&shared.header.others)
}

/// Whether an operation may take a place that is kept from names which callers invent.
fn is_listed(operation: &str) -> bool {
    operation == NO_OPERATION || settings::is_listed(operation)
}

impl Memory {
    fn recall(&mut self, shared: &Shared, operation: &str) -> Option<Remembered> {
        let generation = shared.header.generation();
        if self.generation != generation {
            *self = Self { generation, ..Self::default() };
        }
        if let Some((last, counts)) = &self.last
            && last == operation
        {
            return Some(Remembered::Own(counts));
        }
        let known = self.counts.get(operation).copied();
        if let Some(Remembered::Own(counts)) = known {
            self.last = Some((operation.into(), counts));
        }
        known
    }

    fn keep(&mut self, operation: &str, remembered: Remembered) {
        if self.counts.len() == MAX_REMEMBERED {
            self.counts.clear();
        }
        self.counts.insert(operation.into(), remembered);
    }
}
