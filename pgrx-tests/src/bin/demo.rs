//! The story of one key, told with real calls on a server of its own; then a storm.
//!
//! Every line that starts with an arrow is what the server answered. Every promise is checked, and
//! the program fails if one of them is broken.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use pg_idempotency_tests::storm::{self, Seen, Storm};
use std::fmt::Display;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const STORM: Storm = Storm { connections: 16, requests: 2_000, keys: 500, seed: 4711 };

/// Tells what happens and counts the promises.
#[derive(Default)]
struct Story {
    chapters: usize,
    kept: usize,
    broken: Vec<String>,
}

impl Story {
    fn chapter(&mut self, title: &str) {
        self.chapters += 1;
        println!("\n{}. {title}", self.chapters);
    }

    fn promise(&mut self, what: &str, holds: bool) {
        println!("   {} {what}", if holds { "ok:" } else { "BROKEN:" });
        if holds {
            self.kept += 1;
        } else {
            self.broken.push(what.to_owned());
        }
    }

    /// Promises a refusal with this SQLSTATE and shows it whole.
    fn refusal(&mut self, what: &str, refusal: &Refusal, code: &str) {
        said("", refusal);
        for (label, text) in [("DETAIL", refusal.db().detail()), ("HINT", refusal.db().hint())] {
            println!("        {label}: {}", text.unwrap_or("none"));
        }
        self.promise(what, refusal.code() == Some(code));
    }

    fn end(self) -> ExitCode {
        println!("\n{} promises kept, {} broken", self.kept, self.broken.len());
        for broken in &self.broken {
            println!("  broken: {broken}");
        }
        if self.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn said(who: &str, what: &impl Display) {
    println!("   -> {who}{}{what}", if who.is_empty() { "" } else { ": " });
}

fn do_order(session: &mut Session, key: &str) -> Outcome {
    let outcome = shop::create_order(session, Isolation::ReadCommitted, key);
    outcome.unwrap_or_else(|refusal| panic!("an order for {key}: {refusal:?}"))
}

fn main() -> ExitCode {
    println!("Starting a PostgreSQL server of our own ...");
    let cluster = Cluster::start("demo", &[]);
    let db = cluster.database();
    let mut story = Story::default();
    for tell in [create, retry, another_body, two_at_once, owner_dies, forgotten, late, savepoint] {
        tell(&mut story, &db);
    }
    storm_and_count(&mut story, &db);
    story.end()
}

fn create(story: &mut Story, db: &Database<'_>) {
    story.chapter("A request with a new key: claim, work, complete, in one transaction");
    let mut shop = db.session("shop");
    shop.run("BEGIN");
    let claimed = shop.call(claim("key-1").with("fingerprint", [1; 32]));
    said("claim", &claimed);
    let sent = shop::work(&mut shop, "key-1").expect("the work succeeds");
    said("complete", &sent);
    shop.run("COMMIT");
    story.promise("the key was claimed", claimed.outcome == "claimed");
    story.promise("there is one order", db.orders("key-1") == 1);
}

fn retry(story: &mut Story, db: &Database<'_>) {
    story.chapter("The client did not get the answer and sends the request again");
    let again = db.session("shop").call(claim("key-1").with("fingerprint", [1; 32]));
    said("claim", &again);
    story.promise("it is a replay", again.outcome == "replayed");
    let recorded: Vec<u8> = db.value("SELECT body FROM idempotency.records WHERE key = 'key-1'");
    story.promise("of the same bytes", again.body == Some(recorded));
    story.promise("marked as one", again.header("Idempotent-Replayed") == Some(&"true".into()));
    story.promise("there is still one order", db.orders("key-1") == 1);
}

fn another_body(story: &mut Story, db: &Database<'_>) {
    story.chapter("The same key with another body (another fingerprint)");
    let other = db.session("shop").call(claim("key-1").with("fingerprint", [2; 32]));
    said("claim", &other);
    story.promise(
        "it is a mismatch, status 422",
        other.outcome == "mismatch" && other.status == Some(422),
    );
}

fn two_at_once(story: &mut Story, db: &Database<'_>) {
    story.chapter("Two requests with one new key at the same time");
    let (mut first, mut second) = (db.session("first"), db.session("second"));
    first.run("BEGIN");
    said("first claim", &first.call(claim("key-2")));
    second.start(claim("key-2"));
    db.wait_until_blocked(&second, &first);
    said("second claim", &"waits for the first, says pg_blocking_pids()");
    let sent = shop::work(&mut first, "key-2").expect("the work succeeds");
    let since = Instant::now();
    first.run("COMMIT");
    let replayed = second.finish_call();
    let after = second.finished_after(since);
    said("first completes and commits", &sent);
    said("second", &replayed);
    println!("      {:.1} ms after COMMIT was sent", millis(after));
    story.promise("the second replays the first", replayed.outcome == "replayed");
    story.promise("with the same answer", replayed.answer() == sent.answer());
    story.promise("there is one order", db.orders("key-2") == 1);
}

fn owner_dies(story: &mut Story, db: &Database<'_>) {
    story.chapter("The owner of a key dies in the middle of its work");
    let (mut owner, mut waiter) = (db.session("owner"), db.session("waiter"));
    owner.run("BEGIN");
    said("owner claims", &owner.call(claim("key-3")));
    shop::work(&mut owner, "key-3").expect("the work succeeds");
    waiter.run("BEGIN");
    waiter.start(claim("key-3"));
    db.wait_until_blocked(&waiter, &owner);
    let since = Instant::now();
    db.terminate(&owner);
    let claimed = waiter.finish_call();
    let after = waiter.finished_after(since);
    said("waiter", &claimed);
    println!("      {:.1} ms after pg_terminate_backend() was called", millis(after));
    story.promise("the waiter takes over", claimed.outcome == "claimed");
    story.promise("at once: there is no lease to wait out", after < Duration::from_millis(500));
    story.promise("the owner's work is gone", db.orders("key-3") == 0);
    said("waiter completes", &shop::work(&mut waiter, "key-3").expect("the work succeeds"));
    waiter.run("COMMIT");
    story.promise("there is one order", db.orders("key-3") == 1);
}

fn forgotten(story: &mut Story, db: &Database<'_>) {
    story.chapter("A transaction that works and forgets to complete");
    let mut shop = db.session("shop");
    shop.run("BEGIN");
    shop.call(claim("key-4"));
    shop.run("INSERT INTO orders (key) VALUES ('key-4')");
    let refusal = shop.run_refused("COMMIT");
    story.refusal("the commit is refused", &refusal, "IK003");
    story.promise("there is no order", db.orders("key-4") == 0);
    let sent = do_order(&mut shop, "key-4");
    said("a fresh start", &sent);
    story.promise("and the key is free for it", sent.outcome == "completed");
}

fn late(story: &mut Story, db: &Database<'_>) {
    story.chapter("A claim that comes after a write");
    let mut shop = db.session("shop");
    shop.run("BEGIN; INSERT INTO orders (key) VALUES ('key-5')");
    let refusal = shop.refused(claim("key-5"));
    story.refusal(
        "the claim is refused: keys before rows, so they never deadlock",
        &refusal,
        "IK001",
    );
    shop.run("ROLLBACK");
}

fn savepoint(story: &mut Story, db: &Database<'_>) {
    story.chapter("Sold out: the work is rolled back to a savepoint, the answer is kept");
    let mut shop = db.session("shop");
    shop.run("BEGIN");
    shop.call(claim("key-6"));
    shop.run("SAVEPOINT work; INSERT INTO orders (key) VALUES ('key-6'); ROLLBACK TO work");
    let sent = shop.call(complete(409).with("body", "{\"error\":\"sold out\"}"));
    shop.run("COMMIT");
    said("complete", &sent);
    let replayed = db.session("shop").call(claim("key-6"));
    said("claim", &replayed);
    story.promise("the refusal is replayed", replayed.answer() == sent.answer());
    story.promise("there is no order", db.orders("key-6") == 0);
    shop.run("BEGIN; SAVEPOINT s");
    shop.call(claim("key-7"));
    shop.run("ROLLBACK TO s");
    println!("   A claim inside a savepoint goes with it:");
    let refusal = shop.refused(complete(201));
    story.refusal("what is not held cannot be completed", &refusal, "IK002");
    shop.run("ROLLBACK");
}

fn storm_and_count(story: &mut Story, db: &Database<'_>) {
    story.chapter("The storm");
    let Storm { connections, requests, keys, .. } = STORM;
    println!(
        "   {connections} connections send {requests} requests over {keys} keys; some roll back, some"
    );
    println!("   hang up after the work, some hang up after the commit and never see the answer.");
    db.run("TRUNCATE orders; DELETE FROM idempotency.records");
    let since = Instant::now();
    let seen = storm::run(&STORM, |name| db.session(name));
    count(story, db, &seen, since.elapsed());
}

fn count(story: &mut Story, db: &Database<'_>, seen: &Seen, took: Duration) {
    let orders: i64 = db.value("SELECT count(*) FROM orders");
    let ordered_keys: i64 = db.value("SELECT count(DISTINCT key) FROM orders");
    println!(
        "   -> {} answers in {:.1} s: {} replays",
        seen.answered(),
        took.as_secs_f64(),
        seen.replayed
    );
    println!(
        "   -> {} rolled back, {} hung up before the commit, {} after it",
        seen.aborts, seen.disconnects, seen.lost_answers
    );
    println!("   -> {orders} orders for {ordered_keys} keys, {} records", db.records());
    let keys = i64::try_from(STORM.keys).expect("a small number");
    story.promise("orders = keys", orders == keys && ordered_keys == keys);
    story.promise("records = keys", db.records() == keys);
    story.promise("every request has an answer", seen.answered() == STORM.requests);
    story.promise(
        "every reply to a key is identical",
        seen.answers.len() == STORM.keys && seen.inconsistent().is_empty(),
    );
    story.promise(
        "something went wrong on the way",
        seen.aborts.min(seen.disconnects).min(seen.lost_answers) > 0,
    );
    story.promise("nothing is held any more", db.keys_held() == 0);
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
