//! Backends that get no more memory from the system: an error, never an abort. One abort would end every
//! session of the cluster.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::process;
use std::process::Command;

/// Calls with large arguments, and with many small ones.
const CALLS: [&str; 17] = [
    "idempotency_fingerprint('POST', '/', body => '[' || repeat('123,', 1000000) || '0]')",
    "idempotency_fingerprint('POST', '/', body => '[' || repeat('\"\\u0041b\",', 300000) || '0]', exclude => '{/1,/2}')",
    "idempotency_fingerprint('POST', '/', body => '{' || (SELECT string_agg('\"' || n || '\":1.5e3', ',') FROM generate_series(1, 100000) n) || '}')",
    "idempotency_fingerprint('POST', '/', exclude => (SELECT array_agg('/' || n) FROM generate_series(1, 1000) n), body => '{\"a\":1}')",
    "idempotency_canonicalize('[' || repeat('{\"a\":[],\"b\":\"\\u00e9\"},', 200000) || '0]')",
    "idempotency_canonicalize('\"' || repeat('x', 4000000) || '\"')",
    "idempotency_canonicalize(repeat('[', 9000) || repeat(']', 9000))",
    "idempotency_parse_key(repeat('x', 4000000))",
    "idempotency_claim('alice', 'POST /orders', repeat('x', 4000000))",
    "idempotency_claim_many('alice', 'POST /orders', (SELECT array_agg(repeat('k', 240) || n) FROM generate_series(1, 1000) n))",
    "idempotency_complete(200, body => repeat('x', 4000000))",
    "idempotency_complete(200, body_json => to_jsonb(array_fill(123456, ARRAY[300000])))",
    "idempotency_complete(200, body_bytes => convert_to('{\"a\":[' || repeat('null,', 600000) || '{}]}', 'UTF8'))",
    "idempotency_complete(200, headers => (SELECT jsonb_object_agg('X-' || n, repeat('y', 20)) FROM generate_series(1, 1500) n))",
    "idempotency_complete(200, content_type => repeat('x', 4000000))",
    "idempotency_configure('a', jsonb_build_object('replay_header', repeat('x', 60000)))",
    "idempotency_configure('a', (SELECT jsonb_object_agg('setting ' || n, n) FROM generate_series(1, 1500) n))",
];

/// The same calls in other surroundings: a statement of PL/pgSQL's that is itself large and so is what
/// an error would tell of it; the same, caught and tried again; and out of a completion check, which is a
/// call within a call.
const SURROUNDINGS: [&str; 4] = [
    "SELECT {call}",
    "DO $do$ BEGIN EXECUTE $sql$ SELECT {call} $sql$ || repeat(' ', 3000000); END $do$",
    "DO $do$ BEGIN FOR i IN 1..12 LOOP BEGIN PERFORM {call}; EXCEPTION WHEN out_of_memory THEN END; END LOOP; END $do$",
    "SET short.call = $call$ SELECT {call} $call$; SELECT idempotency_complete(200)",
];

/// What is left to a backend beyond what it has, in KiB. With `SHORT_MEMORY_STEP=20`, a step in KiB, all
/// from nothing to 30 MiB are tried, in all surroundings: an hour or so; `SHORT_MEMORY_CALL=many` has
/// only calls with that word.
fn headrooms() -> (Vec<usize>, usize) {
    match std::env::var("SHORT_MEMORY_STEP") {
        Ok(step) => ((0..30 * 1024).step_by(step.parse().expect("KiB")).collect(), 1),
        Err(_) => {
            let few = [
                0, 200, 400, 800, 1200, 2048, 3000, 4096, 5000, 6144, 8192, 10_240, 12_288, 16_384,
                20_480, 28_672,
            ];
            (few.to_vec(), SURROUNDINGS.len())
        }
    }
}

/// Lets a process grow by so much and no more.
fn limit(pid: i32, headroom: usize) {
    let bytes = (process::memory_of(pid, "VmSize").expect("it runs") + headroom) * 1024;
    limit_to(pid, &bytes.to_string());
}

fn limit_to(pid: i32, bytes: &str) {
    let mut prlimit = Command::new("prlimit");
    process::output_of(prlimit.args([format!("--pid={pid}"), format!("--as={bytes}:")]));
}

/// A session that has loaded the library, and PL/pgSQL, and holds a claim.
fn session(db: &Database<'_>, key: String) -> Session {
    let mut session = db.session_as(Role::Superuser, "short of memory");
    session.run("SET client_min_messages = error; DO $$ BEGIN END $$; BEGIN");
    session.call(claim(key)).expect("claimed");
    session.run("SAVEPOINT s");
    session
}

#[test]
fn a_backend_without_memory_raises_an_error() {
    let cluster =
        Cluster::start("short-memory", &["shared_buffers = 16MB", "log_min_messages = log"]);
    let db = cluster.database();
    db.run(
        "CREATE FUNCTION check_by_call(scope text, operation text, status integer) RETURNS boolean LANGUAGE plpgsql
             SET search_path = public AS $$ BEGIN EXECUTE coalesce(current_setting('short.call', true), 'SELECT 1'); RETURN true; END $$",
    );
    db.run("SELECT idempotency_configure('POST /orders',
                '{\"body_format\": \"strict_json\", \"wait_ms\": 0, \"completion_check\": \"public.check_by_call\"}')");
    let (headrooms, every) = headrooms();
    let (mut refused, mut done) = (0, 0);
    let only = std::env::var("SHORT_MEMORY_CALL").unwrap_or_default();
    for (n, call) in CALLS.iter().enumerate().filter(|(_, call)| call.contains(&only)) {
        for (m, headroom) in headrooms.iter().enumerate() {
            for (k, surroundings) in SURROUNDINGS.iter().enumerate() {
                if (n + m + k) % every != 0 {
                    continue;
                }
                let mut session = session(&db, format!("{n} {headroom} {k}"));
                limit(session.pid(), *headroom);
                match session.attempt_script(&surroundings.replace("{call}", call)) {
                    Ok(()) => done += 1,
                    Err(refusal) if refusal.code() == Some("53200") => refused += 1,
                    Err(refusal) => assert!(
                        matches!(
                            refusal.code(),
                            Some("22023" | "IK006" | "22032" | "IK004" | "IK001" | "IK002")
                        ),
                        "{headroom} KiB more, {}: {refusal:?}",
                        surroundings.replace("{call}", call)
                    ),
                }
            }
        }
    }
    println!("{refused} out of memory, {done} done");
    assert!(refused > 60, "memory was short: {refused}");
    assert!(done > 30, "and sufficed: {done}");
}

/// More locks than a claim takes.
const GIVEN_BACK: usize = 20;

/// A session that has loaded the library and made no claim. PostgreSQL's memory that lasts as long as a
/// session has a block that so many locks, and then so many channels, fill: the next block is asked of the
/// system.
fn session_without_claim(db: &Database<'_>, locks: usize, channels: usize) -> Session {
    let mut session = db.session_as(Role::Superuser, "without a claim");
    session.run("SET client_min_messages = error; LOAD 'pg_idempotency'");
    // The list of channels gets room for 512, so that more of them take no room but their names'.
    (0..300).for_each(|n| listen(&mut session, n));
    session.run("SELECT pg_advisory_lock(i) FROM generate_series(1, 1500) i");
    // All that is allocated once by the first of its kind, but for a claim.
    for lock in 1..=3 {
        session.call(replay("k")).expect("unknown");
        session.run(&format!("SELECT pg_advisory_unlock({lock})"));
        lasting_memory(&mut session);
    }
    session.run("SELECT pg_advisory_lock(i) FROM generate_series(1, 3) i");
    (0..locks).for_each(|n| take_lock(&mut session, n));
    (0..channels).for_each(|n| listen(&mut session, 300 + n));
    // A claim's own locks find room.
    session.run(&format!("SELECT pg_advisory_unlock(i) FROM generate_series(1, {GIVEN_BACK}) i"));
    session
}

fn take_lock(session: &mut Session, n: usize) {
    session.run(&format!("SELECT pg_advisory_lock({})", 10_000 + n));
}

/// Takes as much room as the registration of a callback.
fn listen(session: &mut Session, n: usize) {
    session.run(&format!("LISTEN \"c{n:019}\""));
}

fn lasting_memory(session: &mut Session) -> i64 {
    session
        .value("SELECT total_bytes FROM pg_backend_memory_contexts WHERE name = 'TopMemoryContext'")
}

/// How often `take` finds room in the block that is there.
fn times_that_fit(session: &mut Session, take: fn(&mut Session, usize)) -> usize {
    let before = lasting_memory(session);
    let has_grown = |n: &usize| {
        take(session, *n);
        lasting_memory(session) > before
    };
    (0..20_000).find(has_grown).expect("the block is full some time")
}

/// Neither a COMMIT with an open claim nor one behind a savepoint that took the claim goes unnoticed.
fn is_guarded(db: &Database<'_>, session: &mut Session, key: &str) {
    session.run("BEGIN");
    session.call(claim(key)).expect("claimed");
    session.run(&format!("INSERT INTO orders (key) VALUES ('{key}')"));
    session.run_refused("COMMIT").expect_ours("IK003");
    session.run("BEGIN; SAVEPOINT s");
    session.call(claim(key)).expect("claimed");
    session.run(&format!("ROLLBACK TO s; INSERT INTO orders (key) VALUES ('{key}')"));
    assert_eq!(db.keys_held(), 0);
    session.run_refused("COMMIT").expect_ours("IK003");
    assert_eq!(db.orders(key), 0);
}

/// What a session registers with PostgreSQL it does at its first claim, and that may fail. Catches what
/// counts as registered before it is.
#[test]
fn a_session_whose_first_claim_failed_is_guarded() {
    let db = Database::fresh();
    let locks = times_that_fit(&mut session_without_claim(&db, 0, 0), take_lock);
    // Not those that the measured session had given back, nor the last: sessions are not equal to the byte.
    let locks = locks - GIVEN_BACK - 5;
    let channels = times_that_fit(&mut session_without_claim(&db, locks, 0), |session, n| {
        listen(session, 300 + n);
    });
    println!("{locks} locks and {channels} channels fit");
    assert!(channels < 200, "the list of channels took no room");
    let mut refused = 0;
    for left in 0..=channels.min(3) {
        let mut session = session_without_claim(&db, locks, channels - left);
        limit(session.pid(), 0);
        let key = format!("k{left}");
        match session.attempt(claim(key.as_str())) {
            Ok(_) => {}
            Err(refusal) if refusal.code() == Some("53200") => refused += 1,
            Err(refusal) => {
                refusal.expect("IK003");
            }
        }
        limit_to(session.pid(), "unlimited");
        is_guarded(&db, &mut session, &key);
    }
    println!("{refused} first claims failed");
    assert!(refused >= 2, "each of two registrations failed once: {refused}");
}

/// The same, where not even the library is loaded.
#[test]
fn a_session_whose_first_call_failed_is_guarded() {
    let db = Database::fresh();
    let (mut refused, mut done) = (0, 0);
    for headroom in [
        0, 100, 400, 1000, 2000, 3000, 4000, 4500, 5000, 6000, 8000, 12_000, 16_000, 24_000, 32_000,
    ] {
        let mut session = db.session_as(Role::Superuser, "without the library");
        limit(session.pid(), headroom);
        let key = format!("k{headroom}");
        match session.attempt(claim(key.as_str())) {
            Ok(_) => done += 1,
            Err(refusal) if refusal.code() == Some("IK003") => done += 1,
            Err(refusal) => {
                assert!(
                    matches!(refusal.code(), Some("53200" | "58P01")),
                    "{headroom}: {refusal:?}"
                );
                refused += 1;
            }
        }
        limit_to(session.pid(), "unlimited");
        is_guarded(&db, &mut session, &key);
    }
    println!("{refused} first calls failed, {done} did not");
    assert!(refused > 2 && done > 2, "{refused} {done}");
}
