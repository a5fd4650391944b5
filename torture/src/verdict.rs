//! What must hold when all is over.

use crate::ledger::{ALLOWANCE, Answer, Ledger};
use crate::site::Site;
use pg_idempotency_tests::session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

/// Queries that must find nothing, and what it would mean if they did.
const MUST_BE_EMPTY: [(&str, &str); 9] = [
    ("a key with two effects", "SELECT key FROM effects GROUP BY key HAVING count(*) > 1"),
    (
        "an effect without its record",
        "SELECT e.key FROM effects AS e LEFT JOIN idempotency.records AS r ON r.key = e.key AND r.status = 201
         WHERE r.key IS NULL",
    ),
    (
        "a record without its effect",
        "SELECT r.key FROM idempotency.records AS r LEFT JOIN effects AS e USING (key)
         WHERE r.operation = 'POST /orders' AND r.status = 201 AND e.key IS NULL",
    ),
    (
        "a record with the answer of another execution",
        "SELECT r.key FROM idempotency.records AS r JOIN effects AS e USING (key)
         WHERE r.body IS NOT NULL AND convert_from(r.body, 'UTF8') <> e.body",
    ),
    (
        "an effect that was undone, or committed without completion",
        "SELECT key FROM effects WHERE body IN ('undone', 'forgotten')",
    ),
    (
        "a key executed anew before its record had expired",
        "SELECT key FROM (SELECT key, won_at, lag(expires_at) OVER (PARTITION BY key ORDER BY won_at) AS before
                          FROM short_lived) AS s WHERE won_at < before",
    ),
    (
        "a phase by a worker that had lost its lease",
        "SELECT key FROM (SELECT key, attempt, max(attempt) OVER (PARTITION BY key ORDER BY id) AS latest
                          FROM phases) AS p WHERE attempt < latest",
    ),
    (
        "a phase done twice by one attempt",
        "SELECT key FROM phases GROUP BY key, attempt, phase HAVING count(*) > 1",
    ),
    (
        "a lock that is left",
        "SELECT l.classid || '/' || l.objid FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.objsubid = 18763",
    ),
];

/// The levels and SQLSTATEs that the faults explain; see `client::EXPECTED`. IK002 and IK005 are
/// leases that were lost, IK003 claims that were forgotten, 42704 what was prepared and resolved.
const EXPECTED_IN_THE_LOG: [&str; 16] = [
    "08006", "08P01", "40001", "40P01", "42704", "53300", "55000", "55P03", "57014", "57P01",
    "57P02", "57P03", "IK002", "IK003", "IK005", "08003",
];

pub struct Verdict {
    pub ledger: Ledger,
    took: Duration,
}

impl Verdict {
    pub fn is_good(&self) -> bool {
        self.ledger.violations.is_empty()
    }

    pub fn count(&self, what: &str) -> u64 {
        self.ledger.counts.get(what).copied().unwrap_or_default()
    }
}

/// Looks at what is left, once all clients have gone.
pub fn judge(site: &Site, mut ledger: Ledger, faults: Ledger, took: Duration) -> Verdict {
    let faults_dealt = faults.counts.clone();
    ledger = Ledger::merged(vec![ledger, faults]);
    let mut session = site.superuser().expect("the server is there");
    wait_until_alone(&mut session);
    end_the_uncertain(&mut session, &mut ledger);
    for (what, sql) in MUST_BE_EMPTY {
        let rows = session.rows(sql);
        let keys: BTreeSet<String> = rows.iter().take(5).map(|row| row.get(0)).collect();
        if !rows.is_empty() {
            ledger.violation(format!("{what}: {}, for example {keys:?}", rows.len()));
        }
    }
    compare_answers(&mut session, &mut ledger);
    compare_short_lived(&mut session, &mut ledger);
    claim_all(&mut session, &mut ledger);
    read_the_log(&site.logs(), &faults_dealt, &mut ledger);
    for (what, sql) in [
        ("effects", "effects"),
        ("records", "idempotency.records"),
        ("leases", "idempotency.leases"),
    ] {
        let count: i64 = session.value(format!("SELECT count(*) FROM {sql}"));
        ledger.counts.insert(format!("at the end: {what}"), count.unsigned_abs());
    }
    Verdict { ledger, took }
}

fn wait_until_alone(session: &mut Session) {
    let since = Instant::now();
    let others =
        "SELECT count(*) FROM pg_stat_activity WHERE usename = 'backend' AND state <> 'idle'";
    while session.value::<i64>(others) > 0 {
        assert!(since.elapsed() < Duration::from_secs(60), "somebody still works");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A PREPARE whose answer got lost may have succeeded; every other one was resolved.
fn end_the_uncertain(session: &mut Session, ledger: &mut Ledger) {
    for row in session.rows("SELECT gid FROM pg_prepared_xacts") {
        let gid: String = row.get(0);
        if !ledger.uncertain.contains(&gid) {
            ledger.violation(format!("{gid} is still prepared"));
        }
        session.run(&format!("ROLLBACK PREPARED '{gid}'"));
        ledger.count("prepared, answer lost, ended at last");
    }
}

fn compare_answers(session: &mut Session, ledger: &mut Ledger) {
    let sql = "SELECT key, status, body, withheld FROM idempotency.records
               WHERE operation = 'POST /orders' AND completed_at IS NOT NULL";
    let mut recorded = BTreeMap::new();
    for row in session.rows(sql) {
        let withheld: Option<String> = row.get("withheld");
        let status = if withheld.is_some() { 0 } else { row.get("status") };
        recorded.insert(row.get::<_, String>("key"), Answer { status, body: row.get("body") });
    }
    let acknowledged = std::mem::take(&mut ledger.acknowledged);
    ledger.counts.insert("keys with an acknowledged answer".into(), acknowledged.len() as u64);
    for (key, answer) in &acknowledged {
        if recorded.get(key) != Some(answer) {
            ledger.violation(format!(
                "{key}: acknowledged {answer:?}, recorded {:?}",
                recorded.get(key)
            ));
        }
    }
    ledger.acknowledged = acknowledged;
}

fn compare_short_lived(session: &mut Session, ledger: &mut Ledger) {
    let rows = session.rows("SELECT key, body FROM short_lived");
    let given: BTreeSet<(String, String)> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    ledger.counts.insert("executions of short-lived keys".into(), given.len() as u64);
    let mut unknown = Vec::new();
    for (key, bodies) in &ledger.short_lived {
        for body in bodies {
            let body = String::from_utf8_lossy(body).into_owned();
            if !given.contains(&(key.clone(), body.clone())) {
                unknown.push(format!("{key}: acknowledged {body}, which was never committed"));
            }
        }
    }
    unknown.into_iter().for_each(|what| ledger.violation(what));
}

/// No key is stuck: each that was ever asked for can be claimed, or has its answer, at once. Leases
/// are short, so they have run out by now or do so in a moment.
fn claim_all(session: &mut Session, ledger: &mut Ledger) {
    let lease_is_live =
        "SELECT FROM idempotency.leases WHERE NOT ended AND deadline > clock_timestamp()";
    let since = Instant::now();
    while !session.rows(lease_is_live).is_empty() {
        assert!(since.elapsed() < Duration::from_secs(10), "a lease of a second is still live");
        std::thread::sleep(Duration::from_millis(20));
    }
    let epochs = ledger
        .acknowledged
        .keys()
        .filter_map(|key| key.strip_prefix('k')?.parse::<i64>().ok())
        .max();
    let sql = format!(
        "SELECT k.key, c.outcome FROM (
             SELECT 'k' || lpad(n::text, 8, '0') AS key FROM generate_series(0, {}) AS n
             UNION SELECT key FROM idempotency.records WHERE operation = 'POST /orders'
             UNION SELECT DISTINCT key FROM phases ORDER BY key) AS k,
             LATERAL idempotency_claim('alice', 'POST /orders', k.key, wait_ms => 0) AS c",
        epochs.unwrap_or_default()
    );
    // Each call is answered for itself; nothing is written, so nothing is kept.
    session.run("BEGIN");
    let mut stuck = Vec::new();
    for row in session.rows(sql) {
        let (key, outcome): (String, String) = (row.get(0), row.get(1));
        if !["claimed", "replayed", "withheld"].contains(&outcome.as_str()) {
            stuck.push(format!("{key} is stuck: {outcome}"));
        }
    }
    session.run("ROLLBACK");
    stuck.into_iter().for_each(|what| ledger.violation(what));
}

/// Nothing but what was dealt out.
fn read_the_log(log: &str, dealt: &BTreeMap<String, u64>, ledger: &mut Ledger) {
    let mut killed = 0;
    let mut unexpected: BTreeMap<String, u64> = BTreeMap::new();
    for line in log.lines() {
        if line.contains("was terminated by signal 9") {
            killed += 1;
        } else if line.contains("was terminated by signal") || line.contains("TRAP: ") {
            *unexpected.entry(line.to_owned()).or_default() += 1;
        } else if let Some(state) = sqlstate_of_error(line)
            && !EXPECTED_IN_THE_LOG.contains(&state)
        {
            let what = line.split_once('<').map_or(line, |(_, what)| what);
            *unexpected.entry(what.to_owned()).or_default() += 1;
        }
    }
    let dealt = dealt.get("backends killed").copied().unwrap_or_default();
    if killed > dealt {
        ledger.violation(format!("{killed} processes were killed, {dealt} of them by us"));
    }
    for (line, times) in unexpected {
        ledger.violation(format!("in the log, {times} times: {line}"));
    }
}

/// `… <40P01> ERROR:  deadlock detected`
fn sqlstate_of_error(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('<')?;
    let (state, rest) = rest.split_once("> ")?;
    let is_error = ["ERROR:", "FATAL:", "PANIC:"].iter().any(|level| rest.starts_with(level));
    is_error.then_some(state)
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.ledger.counts {
            writeln!(out, "{count:>10}  {what}")?;
        }
        let overrun = self.ledger.longest_overrun;
        writeln!(
            out,
            "{:>10}  ms is the longest that a claim took beyond its wait_ms ({} allowed)",
            overrun.as_millis(),
            ALLOWANCE.as_millis()
        )?;
        let seconds = self.took.as_secs_f64();
        let requests = self.count("requests");
        writeln!(
            out,
            "{requests:>10}  requests in {seconds:.0} s, {:.0} a second",
            requests as f64 / seconds
        )?;
        for violation in &self.ledger.violations {
            writeln!(out, "VIOLATION: {violation}")?;
        }
        let word = if self.is_good() { "all that was promised holds" } else { "BROKEN" };
        write!(out, "torture: {word}")
    }
}
