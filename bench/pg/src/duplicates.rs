//! Many requests with one key at the same time: one does the work, the others get its answer.

use crate::lab::Lab;
use crate::rounds::{Effort, Ratio};
use crate::stats::Spread;
use pg_idempotency_tests::session::Role;
use postgres::{Client, Statement};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

const REQUESTS: usize = 64;

/// The requests that wait for the winner: for an advisory lock, for a key's, or for its transaction.
const WAITING: &str = "(SELECT count(*) FROM pg_locks
    WHERE NOT granted AND locktype IN ('advisory', 'transactionid')) >= ";

const CONTENDERS: [Contender; 3] = [
    Contender {
        script: "duplicates-advisory",
        claim: "SELECT outcome FROM bench.advisory_claim('tenant', 'POST /orders', $1, NULL, true)",
        complete: "SELECT bench.advisory_complete('tenant', 'POST /orders', $1, NULL,
                       '00000000-0000-0000-0000-000000000000', 201, NULL, NULL)",
    },
    Contender {
        script: "duplicates-ours",
        claim: "SELECT outcome FROM idempotency_claim('tenant', 'POST /orders', $1)",
        complete: "SELECT outcome FROM idempotency_complete(201, resource_type => 'order', resource_id => $1)",
    },
    Contender {
        script: "duplicates-plpgsql",
        claim: "SELECT outcome FROM bench.upsert_claim('tenant', 'POST /orders', $1, NULL,
                    '00000000-0000-0000-0000-000000000000')",
        complete: "SELECT bench.upsert_complete('tenant', 'POST /orders', $1, 201, NULL, NULL)",
    },
];

struct Contender {
    script: &'static str,
    claim: &'static str,
    complete: &'static str,
}

/// How long after the winner's commit the last request was answered, relative to the first
/// contender's.
///
/// # Panics
/// Where the work was done twice, or not at all.
pub fn race(lab: &Lab<'_>, effort: Effort) -> Vec<Ratio> {
    lab.reset();
    let rounds: Vec<Vec<f64>> = (0..effort.rounds)
        .map(|round| CONTENDERS.iter().map(|who| slowest(lab, who, round)).collect())
        .collect();
    let ratio = |i: usize| Spread::of(rounds.iter().map(|times| times[i] / times[0]).collect());
    let others = CONTENDERS.iter().enumerate().skip(1);
    others.map(|(i, who)| Ratio { script: who.script, spread: ratio(i) }).collect()
}

fn slowest(lab: &Lab<'_>, who: &Contender, round: usize) -> f64 {
    let key = format!("{}-{round}", who.script);
    let start = Barrier::new(REQUESTS);
    let ends: Vec<(bool, Instant)> = thread::scope(|scope| {
        let request = || scope.spawn(|| Request::open(lab, who).run(lab, &key, &start));
        let threads: Vec<_> = (0..REQUESTS).map(|_| request()).collect();
        threads.into_iter().map(|thread| thread.join().expect("no request fails")).collect()
    });
    let winners: Vec<Instant> = ends.iter().filter(|(won, _)| *won).map(|(_, at)| *at).collect();
    assert_eq!(winners.len(), 1, "{key}: one request does the work");
    let effects: i64 =
        lab.database().value(&format!("SELECT count(*) FROM bench.orders WHERE note = '{key}'"));
    assert_eq!(effects, 1, "{key}: the work is done once");
    let last = ends.iter().map(|(_, at)| *at).max().expect("there are requests");
    (last - winners[0]).as_secs_f64()
}

struct Request {
    client: Client,
    claim: Statement,
    work: Statement,
    complete: Statement,
}

impl Request {
    fn open(lab: &Lab<'_>, who: &Contender) -> Request {
        let mut client = lab.database().server().connect(Role::Backend, lab.name());
        let mut prepare = |sql: &str| client.prepare(sql).expect("the statement is right");
        let claim = prepare(who.claim);
        let work = prepare("INSERT INTO bench.orders (customer, total, note) VALUES (1, 1, $1)");
        let complete = prepare(who.complete);
        Request { client, claim, work, complete }
    }

    /// Whether this request did the work, and when it was answered.
    fn run(mut self, lab: &Lab<'_>, key: &str, start: &Barrier) -> (bool, Instant) {
        start.wait();
        let mut transaction = self.client.transaction().expect("a transaction");
        let row = transaction.query_one(&self.claim, &[&key]).expect("an outcome");
        let won = row.get::<_, &str>(0) == "claimed";
        if won {
            lab.database().wait_until(&format!("{WAITING}{}", REQUESTS - 1));
            transaction.execute(&self.work, &[&key]).expect("the work");
            transaction.execute(&self.complete, &[&key]).expect("the answer");
        }
        transaction.commit().expect("the commit");
        (won, Instant::now())
    }
}
