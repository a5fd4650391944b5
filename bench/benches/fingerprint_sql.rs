//! What SQL adds to the fingerprint of a body of 2 KB.
//!
//! `tools/install-extension 15 release && cargo bench -p idempotency-bench --bench fingerprint_sql`.
//! In one run, in turn: the core alone, the SQL function over a table of bodies, a function that
//! does nothing over the same table, and the table alone, which is taken off both.

use std::hint::black_box;
use std::time::Instant;

use idempotency_bench::medians::median;
use idempotency_bench::{orders, pipelines};
use pg_idempotency_tests::prelude::*;

const BODIES: u32 = 2_000;
const ROUNDS: usize = 31;

/// The table alone, a function that does nothing, and the fingerprint; each looks at every row.
const QUERIES: [&str; 3] = [
    "SELECT count(body) FROM bodies",
    "SELECT count(body) + count(idempotency_parse_key(nothing)) FROM bodies",
    "SELECT count(idempotency_fingerprint('POST', '/api/v1/orders', body_bytes => body)) FROM bodies",
];

fn fill(session: &mut Session, body: &[u8]) {
    let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    session.run(&format!(
        "CREATE TABLE bodies (body bytea, nothing text); ALTER TABLE bodies ALTER body SET STORAGE PLAIN;
         INSERT INTO bodies SELECT decode('{hex}', 'hex') FROM generate_series(1, {BODIES});
         ANALYZE bodies; SET max_parallel_workers_per_gather = 0"
    ));
}

/// Seconds for each body.
fn time(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() / f64::from(BODIES)
}

fn round(session: &mut Session, body: &[u8]) -> [f64; 4] {
    let core = time(|| {
        for _ in 0..BODIES {
            black_box(pipelines::ours(black_box(body)));
        }
    });
    let [table, empty, fingerprint] =
        QUERIES.map(|query| time(|| assert!(session.value::<i64>(query) >= i64::from(BODIES))));
    [core, table, empty, fingerprint]
}

fn main() {
    // Not when cargo only tests that the benchmark is there.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let body = orders::unsorted(2_000);
    let db = Database::fresh();
    let mut session = db.session_as(Role::Superuser, "bench");
    fill(&mut session, &body);
    round(&mut session, &body);
    let rounds: Vec<_> = (0..ROUNDS).map(|_| round(&mut session, &body)).collect();
    let of = |i: usize| median(rounds.iter().map(|times| times[i]).collect());
    let (core, empty, fingerprint) = (of(0), of(2) - of(1), of(3) - of(1));
    println!("body of {} bytes, {ROUNDS} rounds of {BODIES}", body.len());
    println!("SQL function / core           {:5.2}", fingerprint / core);
    println!("empty function / core         {:5.2}", empty / core);
    println!("(SQL - empty function) / core {:5.2}", (fingerprint - empty) / core);
}
