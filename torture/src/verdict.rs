//! What must hold when all is over.

use crate::history::Name;
use crate::ledger::{Answer, LATE, Ledger};
use crate::site::Site;
use crate::{log, truth};
use pg_idempotency_tests::call::{Argument, Statement};
use pg_idempotency_tests::session::Session;
use pg_idempotency_tests::wait;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Queries that must find nothing, and what it would mean if they did.
const MUST_BE_EMPTY: [(&str, &str); 11] = [
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
        "executions of erased keys that were neither recorded nor erased",
        "SELECT executed || ' executed, ' || erased || ' erased, ' || recorded || ' recorded'
         FROM (SELECT count(*) AS executed FROM erased) AS e,
              (SELECT coalesce(sum(records), 0) AS erased FROM erasures) AS f,
              (SELECT count(*) AS recorded FROM idempotency.records WHERE operation = 'POST /erased') AS r
         WHERE executed <> erased + recorded",
    ),
    (
        "a record with the answer of another execution than the last",
        "SELECT r.key FROM idempotency.records AS r,
             LATERAL (SELECT body FROM (SELECT 'POST /short' AS operation, * FROM short_lived
                                        UNION ALL SELECT 'POST /erased', * FROM erased) AS e
                      WHERE e.operation = r.operation AND e.key = r.key ORDER BY won_at DESC LIMIT 1) AS last
         WHERE r.body IS NULL OR convert_from(r.body, 'UTF8') <> last.body",
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
    compare_one_of(&mut session, &mut ledger);
    claim_all(&mut session, &mut ledger);
    truth::judge(&mut ledger);
    log::read(&site.logs(), &mut ledger);
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
    let others =
        "SELECT count(*) FROM pg_stat_activity WHERE usename = 'backend' AND state <> 'idle'";
    wait::until_within(Duration::from_secs(60), "nobody works any more", || {
        (session.value::<i64>(others) == 0).then_some(())
    });
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
    let sql = "SELECT key, status, headers, body, withheld FROM idempotency.records
               WHERE operation = 'POST /orders' AND completed_at IS NOT NULL";
    let mut recorded = BTreeMap::new();
    for row in session.rows(sql) {
        let withheld: Option<String> = row.get("withheld");
        let status = if withheld.is_some() { 0 } else { row.get("status") };
        let answer = Answer { status, headers: row.get("headers"), body: row.get("body") };
        recorded.insert(row.get::<_, String>("key"), answer);
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

/// Every answer that was given was committed.
fn compare_one_of(session: &mut Session, ledger: &mut Ledger) {
    for table in ["short_lived", "erased"] {
        let rows = session.rows(format!("SELECT key, body FROM {table}"));
        let given: BTreeSet<(String, Vec<u8>)> =
            rows.iter().map(|row| (row.get(0), row.get::<_, String>(1).into_bytes())).collect();
        ledger.counts.insert(format!("at the end: executions of {table} keys"), given.len() as u64);
        let answers = ledger.one_of.iter().filter(|((of, _), _)| *of == table);
        let answers = answers.flat_map(|((_, key), bodies)| bodies.iter().map(move |b| (key, b)));
        let unknown: Vec<String> = answers
            .filter(|(key, body)| !given.contains(&((*key).clone(), (*body).clone())))
            .map(|(key, body)| format!("{key}: {}", String::from_utf8_lossy(body)))
            .collect();
        for what in unknown {
            ledger.violation(format!("{table}: acknowledged, and never committed: {what}"));
        }
    }
}

/// How many keys are claimed in one transaction.
const AT_ONCE: usize = 1000;

/// No key is stuck: each that was ever asked for, of every operation, can be claimed, or has its answer,
/// at once. Leases are short, so they have run out by now or do so in a moment.
fn claim_all(session: &mut Session, ledger: &mut Ledger) {
    let lease_is_live =
        "SELECT FROM idempotency.leases WHERE NOT ended AND deadline > clock_timestamp()";
    wait::until("all leases have run out", || session.rows(lease_is_live).is_empty().then_some(()));
    let asked: Vec<Name> = std::mem::take(&mut ledger.asked).into_iter().collect();
    ledger.counts.insert("keys that were asked for".into(), asked.len() as u64);
    for names in asked.chunks(AT_ONCE) {
        for stuck in stuck(session, names) {
            ledger.violation(format!("{stuck} is stuck"));
        }
    }
}

/// Those of these keys that cannot be claimed. Each call is answered for itself; nothing is written, so
/// nothing is kept.
fn stuck(session: &mut Session, names: &[Name]) -> Vec<String> {
    let (operations, keys): (Vec<String>, Vec<String>) =
        names.iter().map(|(operation, key)| ((*operation).to_owned(), key.clone())).unzip();
    let sql = "SELECT n.operation || ' ' || n.key || ': ' || c.outcome
               FROM unnest($1, $2) AS n (operation, key),
                    LATERAL idempotency_claim('alice', n.operation, n.key, wait_ms => 0) AS c
               WHERE c.outcome NOT IN ('claimed', 'replayed', 'withheld')";
    session.run("BEGIN");
    let params = vec![operations.param(), keys.param()];
    let rows = session.rows(Statement { sql: sql.to_owned(), params });
    session.run("ROLLBACK");
    rows.iter().map(|row| row.get(0)).collect()
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.ledger.counts {
            writeln!(out, "{count:>10}  {what}")?;
        }
        for (longest, what) in [
            (self.ledger.longest_overrun, "that a claim took beyond its wait_ms"),
            (self.ledger.longest_afterglow, "from the end of a key's holder to an in_progress"),
        ] {
            let (longest, late) = (longest.as_millis(), LATE.as_millis());
            writeln!(out, "{longest:>10}  ms is the longest {what} ({late} allowed)")?;
        }
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
