//! What the contract says of a sequence of calls: a small machine of plain values.
//!
//! It is written from docs/reference.md, and shares no rule with the extension: neither the claim
//! table nor the ledger of the core. It knows what is committed under each key, what each session's
//! transaction has done, as a list of facts that a savepoint cuts, and who holds which key. Where
//! the extension looks, locks and looks again, this one simply knows.
//!
//! Only words and SQLSTATEs are predicted, and what a replay repeats: status and body.

mod answers;
pub mod database;
mod machine;
mod operator;
mod statements;
mod transaction;

pub use machine::{Machine, Step};

/// How many sessions, keys and fingerprints a sequence is about.
pub const SESSIONS: usize = 3;
/// See [`SESSIONS`].
pub const KEYS: usize = 3;
/// How many operations share the keys.
pub const OPERATIONS: usize = 2;

/// One command of a session, or of the superuser.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Opens a transaction; the isolation level changes no answer of ours.
    Begin { isolation: usize },
    /// Commits the open transaction.
    Commit,
    /// Rolls it back.
    Rollback,
    /// Prepares it, as the session's prepared transaction.
    Prepare,
    /// Ends the session's prepared transaction.
    Finish { commit: bool },
    /// Opens a savepoint.
    Savepoint,
    /// Rolls back to the innermost savepoint, and releases it.
    RollbackTo,
    /// Releases it.
    ReleaseSavepoint,
    /// An effect under a key.
    Work { key: usize },
    /// `idempotency_claim` without waiting; a lease where one is wanted.
    Claim { key: usize, operation: usize, fingerprint: usize, lease: bool },
    /// `idempotency_replay`.
    Replay { key: usize, operation: usize, fingerprint: usize },
    /// `idempotency_complete` with this status; by the token of the last claim on a key, or by
    /// none.
    Complete { by: Option<usize>, status: i32, withhold: bool },
    /// `idempotency_release`.
    Release { by: Option<usize> },
    /// `idempotency_resume` by the session's last token of a key.
    Resume { key: usize },
    /// `idempotency_checkpoint` by it.
    Checkpoint { key: usize },
    /// `idempotency_extend` by it.
    Extend { key: usize },
    /// Time passes: the committed record of a key expires, or its lease runs out.
    Expire { key: usize },
    /// `idempotency_settle` of a key by the superuser, with this status or none.
    Settle { key: usize, status: Option<i32> },
    /// `idempotency_configure`, while no transaction is open: whether a lease that has run out stays
    /// blocked.
    Configure { operation: usize, holds: bool },
    /// `idempotency_purge`.
    Purge,
    /// `idempotency_forget` of a key.
    Forget { key: usize, operation: usize, force: bool },
}

/// What a command is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A statement without a result.
    Done,
    /// An outcome: the word, the status, and the body where one is recorded.
    Outcome { word: &'static str, status: Option<i32>, body: Option<String>, attempt: Option<i32> },
    /// So many rows.
    Count(usize),
    /// An error with this SQLSTATE.
    Error(&'static str),
}
