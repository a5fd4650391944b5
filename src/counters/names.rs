//! What is counted by name.

/// The outcomes, in the order of the counters.
pub const OUTCOMES: [&str; 12] = [
    "claimed",
    "bypassed",
    "completed",
    "released",
    "replayed",
    "deleted",
    "withheld",
    "in_progress",
    "mismatch",
    "invalid",
    "expired",
    "unknown",
];

/// The SQLSTATEs that we raise, in the order of the counters. The last counter is that of all
/// others; a test sees to it that there are none.
pub const SQLSTATES: [&str; 24] = [
    "IK001", "IK002", "IK003", "IK004", "IK005", "IK006", "IK007", "22004", "22021", "22023",
    "22032", "25001", "25006", "39P01", "42501", "42704", "53200", "54000", "55000", "55006",
    "55P03", "XX000", "XX001", "others",
];

/// The counter of an outcome's word.
pub fn outcome(word: &str) -> Option<usize> {
    OUTCOMES.iter().position(|known| *known == word)
}

/// The counter of an SQLSTATE.
pub fn sqlstate(code: &str) -> usize {
    SQLSTATES.iter().position(|known| *known == code).unwrap_or(SQLSTATES.len() - 1)
}
