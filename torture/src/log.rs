//! What the servers have logged: nothing but what was dealt out.

use crate::expected;
use crate::ledger::Ledger;
use std::collections::BTreeMap;

pub fn read(log: &str, ledger: &mut Ledger) {
    let mut killed = 0;
    let mut forgotten = 0;
    let mut unexpected: BTreeMap<String, u64> = BTreeMap::new();
    for line in log.lines() {
        if line.contains("was terminated by signal 9") {
            killed += 1;
        } else if line.contains("was terminated by signal") || line.contains("TRAP: ") {
            *unexpected.entry(line.to_owned()).or_default() += 1;
        } else if let Some((state, message)) = error(line) {
            forgotten += u64::from(state == "IK003");
            if line.contains("PANIC: ") || !expected::in_log(state, message) {
                *unexpected.entry(format!("{state} {message}")).or_default() += 1;
            }
        }
    }
    at_most(ledger, "processes killed", killed, "fault: KillBackend");
    at_most(ledger, "commits with unsettled claims", forgotten, "fate: Forgets");
    for (line, times) in unexpected {
        ledger.violation(format!("in the log, {times} times: {line}"));
    }
}

/// The log tells of something no more often than we have done it.
fn at_most(ledger: &mut Ledger, what: &str, logged: u64, done: &str) {
    let done = ledger.counts.get(done).copied().unwrap_or_default();
    ledger.counts.insert(format!("in the logs: {what}"), logged);
    if logged > done {
        ledger.violation(format!("{what}: {logged} in the logs, {done} of them by us"));
    }
}

/// `… <40P01> ERROR:  deadlock detected`: SQLSTATE and message.
fn error(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once('<')?;
    let (state, rest) = rest.split_once("> ")?;
    let (level, message) = rest.split_once(':')?;
    let is_error = ["ERROR", "FATAL", "PANIC"].contains(&level);
    is_error.then_some((state, message.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::ledger::Ledger;

    fn violations(log: &str, forgotten: usize) -> Vec<String> {
        let mut ledger = Ledger::default();
        (0..forgotten).for_each(|_| ledger.count("fate: Forgets"));
        read(log, &mut ledger);
        ledger.violations
    }

    #[test]
    fn what_was_not_dealt_out_shows() {
        let line = |what: &str| format!("2026-01-01 10:00:00.000 UTC [1] {what}\n");
        let harmless =
            line("<40P01> ERROR:  deadlock detected") + &line("<00000> LOG:  ERROR: is a word");
        assert_eq!(violations(&harmless, 0), Vec::<String>::new());
        let refused = line("<IK003> ERROR:  cannot commit with an unsettled claim");
        assert_eq!(violations(&refused, 1), Vec::<String>::new());
        for bad in [
            refused.repeat(2),
            line("<23505> ERROR:  duplicate key value"),
            line("<57P01> PANIC:  terminating"),
            line("<00000> LOG:  server process (PID 2) was terminated by signal 9: Killed"),
            line(
                "<00000> LOG:  server process (PID 2) was terminated by signal 11: Segmentation fault",
            ),
        ] {
            assert_eq!(violations(&bad, 1).len(), 1, "{bad}");
        }
    }
}
