//! The errors that the faults explain, and the moments in which they do. Every other one is a violation.

use pg_idempotency_tests::isolation::Isolation;

/// What a request is about to do that may fail by the fault of nobody but itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    pub isolation: Isolation,
    /// It has set a lock_timeout of its own.
    pub lock_timeout: bool,
    /// It has set a statement_timeout of its own.
    pub statement_timeout: bool,
    /// It locks rows in an order of its own.
    pub locks_rows: bool,
    /// It has claimed, and works.
    pub works: bool,
    /// It ends a transaction that was prepared.
    pub resolves: bool,
}

/// An error that may come at any time: SQLSTATE, a part of its message, and why.
type Known = (&'static str, &'static str, &'static str);

const AT_ANY_TIME: [Known; 5] = [
    ("08P01", "", "the pooler's word for a server that is gone"),
    ("57014", "user request", "pg_cancel_backend"),
    ("57P01", "terminating connection", "pg_terminate_backend"),
    ("57P02", "terminating connection", "the end of all backends when one was killed"),
    ("57P03", "the database system is", "a server that starts or recovers"),
];

/// What a server may log as an error; what is bound to a moment is bound to its message here.
const IN_THE_LOG: [Known; 13] = [
    ("08006", "", "a standby whose primary was killed, and a client that hung up"),
    ("08P01", "WAL stream", "a standby whose primary was killed"),
    ("40001", "could not serialize access", "the work's own conflicts"),
    ("40P01", "deadlock detected", "rows that the work locks in opposite orders"),
    ("42704", "prepared transaction", "resolved once more: the first answer got lost"),
    ("55000", "is busy", "resolved once more, while the first try is at it"),
    ("55P03", "due to lock timeout", "a request's own lock_timeout, in its work"),
    ("57014", "canceling statement", "pg_cancel_backend and a request's own statement_timeout"),
    ("57P01", "terminating", "pg_terminate_backend, and a standby's stream at its promotion"),
    ("57P02", "terminating connection", "the end of all backends when one was killed"),
    ("57P03", "the database system is", "a server that starts or recovers"),
    (
        "IK003",
        "with an unsettled claim",
        "commits of forgotten claims; they are counted, see the verdict",
    ),
    (
        "IK005",
        "lease lost",
        "leases that others took over; whether they might is seen by the worker",
    ),
];

fn is_in(known: &[Known], code: &str, message: &str) -> bool {
    known.iter().any(|(state, part, _why)| *state == code && message.contains(part))
}

/// Whether a request may meet this error at this moment.
pub fn by_client(code: &str, message: &str, moment: Moment) -> bool {
    match code {
        // The work's own conflicts. READ COMMITTED has none.
        "40001" => moment.isolation != Isolation::ReadCommitted,
        // No rule about keys can prevent a deadlock of rows; and nothing but rows may deadlock.
        "40P01" => moment.locks_rows,
        // A claim answers in_progress instead. What is left is what the work waits for: a row, or the
        // extension of a table.
        "55P03" => moment.lock_timeout && moment.works && message.contains("due to lock timeout"),
        "57014" if message.contains("statement timeout") => moment.statement_timeout,
        // An earlier try, whose connection was lost, is still at it.
        "55000" => moment.resolves && message.contains("is busy"),
        _ => is_in(&AT_ANY_TIME, code, message),
    }
}

/// Whether a server may log it.
pub fn in_log(code: &str, message: &str) -> bool {
    is_in(&IN_THE_LOG, code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_conflict_has_its_moment() {
        let never = Moment::default();
        let of_rows = Moment { lock_timeout: true, works: true, locks_rows: true, ..never };
        let claiming = Moment { lock_timeout: true, ..never };
        let of_snapshots = Moment { isolation: Isolation::Serializable, ..never };
        let timed = Moment { statement_timeout: true, ..never };
        let resolving = Moment { resolves: true, ..never };
        let busy = "prepared transaction with identifier \"3-1\" is busy";
        let timeout = "canceling statement due to statement timeout";
        for (code, message, moment) in [
            ("40P01", "deadlock detected", of_rows),
            ("55P03", "canceling statement due to lock timeout", of_rows),
            ("40001", "could not serialize access", of_snapshots),
            ("57014", timeout, timed),
            ("55000", busy, resolving),
        ] {
            assert!(by_client(code, message, moment), "{code}");
            assert!(!by_client(code, message, never), "{code} at any time");
            assert!(in_log(code, message), "{code} in the log");
        }
        assert!(!by_client("55P03", "canceling statement due to lock timeout", claiming));
    }

    #[test]
    fn what_is_ours_is_not_expected() {
        let ours = [
            ("55000", "the tables of pg_idempotency are not as expected"),
            ("55P03", "could not obtain the lock of a key in time"),
            ("IK001", "claim out of order"),
            ("IK002", "claim not held"),
            ("23505", "duplicate key value violates unique constraint \"records_pkey\""),
            ("XX000", "anything"),
        ];
        for (code, message) in ours {
            let moment =
                Moment { lock_timeout: true, works: true, resolves: true, ..Moment::default() };
            assert!(!by_client(code, message, moment) && !in_log(code, message), "{code}");
        }
        assert!(!by_client("IK005", "lease lost", Moment::default()));
    }
}
