//! `idempotency.abandoned` and `idempotency_abandoned`: what a completer has to finish.

use pg_idempotency_tests::lease::{
    alone, checkpoint, complete_by, extend, lease, release_by, run_out, set_deadline, start,
    token_of,
};
use pg_idempotency_tests::operation::claim_by;
use pg_idempotency_tests::prelude::*;
use postgres::Row;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::SystemTime;
use uuid::Uuid;

fn keys(session: &mut Session, sql: &str) -> Vec<String> {
    session.rows(sql).iter().map(|row| row.get("key")).collect()
}

fn listed(session: &mut Session) -> Vec<String> {
    keys(session, "SELECT * FROM idempotency_abandoned()")
}

/// Starts leases and has them run out in the order of `deadlines`, seconds ago.
fn abandon(db: &Database<'_>, isolation: Isolation, deadlines: &[(&str, u32)]) {
    let mut worker = db.session("worker");
    for (key, ago) in deadlines {
        let token = start(&mut worker, isolation, key);
        set_deadline(db, token, &format!("clock_timestamp() - interval '{ago} s'"));
    }
}

fn what_has_run_out_is_listed_oldest_first(db: &Database<'_>, isolation: Isolation) {
    abandon(db, isolation, &[("b", 20), ("c", 10), ("a", 30), ("d", 0)]);
    let mut completer = db.session("completer");
    completer.begin(isolation);
    assert_eq!(listed(&mut completer), ["a", "b", "c", "d"]);
    assert_eq!(keys(&mut completer, "SELECT * FROM idempotency_abandoned(2)"), ["a", "b"]);
    assert_eq!(keys(&mut completer, "SELECT * FROM idempotency_abandoned(max_rows => 1)"), ["a"]);
    assert_eq!(keys(&mut completer, "SELECT * FROM idempotency_abandoned(0)"), [""; 0]);
    completer.run("COMMIT");
    let mut operator = db.session_as(Role::Superuser, "operator");
    let all = keys(&mut operator, "SELECT * FROM idempotency.abandoned ORDER BY expired_at DESC");
    assert_eq!(all, ["d", "c", "b", "a"]);
}

/// Catches a list of all that is open, or of all that ever was.
fn what_is_live_or_over_is_not_listed(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut completer) = (db.session("worker"), db.session("completer"));
    let [live, extended, finished, freed, taken_over] =
        ["live", "extended", "finished", "freed", "taken over"]
            .map(|key| start(&mut worker, isolation, key));
    for token in [extended, finished, freed, taken_over] {
        run_out(db, token);
    }
    assert_eq!(listed(&mut completer), ["extended", "finished", "freed", "taken over"]);
    alone(&mut worker, isolation, extend(extended, 60_000));
    alone(&mut worker, isolation, complete_by(finished, 204));
    worker.rows(release_by(freed));
    let next = start(&mut completer, isolation, "taken over");
    assert_eq!(listed(&mut completer), [""; 0]);
    for token in [live, next] {
        run_out(db, token);
    }
    assert_eq!(listed(&mut completer), ["live", "taken over"], "one row per request");
}

/// Catches a list that shows a request as abandoned to whoever looks while somebody else is just
/// finishing it: it is, until that is committed.
fn it_is_listed_until_somebody_commits(db: &Database<'_>, isolation: Isolation) {
    abandon(db, isolation, &[("k", 0)]);
    let (mut other, mut completer) = (db.session("other"), db.session("completer"));
    other.begin(isolation);
    other.call(claim("k")).expect("claimed");
    other.call(complete(204)).expect("completed");
    assert_eq!(listed(&mut completer), ["k"]);
    completer.call(lease("k").with("wait_ms", 0)).expect("in_progress");
    other.run("COMMIT");
    assert_eq!(listed(&mut completer), [""; 0]);
}

/// All that a completer needs to claim the request again and to go on with it.
fn a_row_has_all_that_a_completer_needs(db: &Database<'_>, isolation: Isolation) {
    let (mut worker, mut completer) = (db.session("worker"), db.session("completer"));
    let call = claim_by("bob", "POST /rides", "k").with("fingerprint", [3; 32]);
    let call = call.with("lease_ms", 60_000).with("data", json!({ "to": "airport" }));
    let claimed = alone(&mut worker, isolation, call).expect("claimed");
    let token = token_of(&claimed);
    alone(&mut worker, isolation, checkpoint(token, "charged", json!({ "charge": 7 })));
    let until = set_deadline(db, token, "clock_timestamp()");
    let rows = completer.rows("SELECT * FROM idempotency_abandoned()");
    assert_eq!(rows.len(), 1);
    assert_row(&rows[0], &claimed, until);
    let again = claim_by("bob", rows[0].get::<_, &str>("operation"), rows[0].get::<_, &str>("key"));
    let again = again.with("fingerprint", rows[0].get::<_, &[u8]>("fingerprint"));
    let won = alone(&mut completer, isolation, again.with("lease_ms", 60_000)).expect("claimed");
    assert_eq!((won.attempt, won.recovery_point.as_deref()), (Some(2), Some("charged")));
}

fn assert_row(row: &Row, claimed: &Outcome, until: SystemTime) {
    let text = |name: &str| row.get::<_, Option<String>>(name);
    let texts = ["scope", "operation", "key_space", "key", "recovery_point"].map(text);
    let texts: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
    assert_eq!(texts, ["bob", "POST /rides", "POST /rides", "k", "charged"]);
    assert_eq!(row.get::<_, Value>("recovery_data"), json!({ "charge": 7 }));
    assert_eq!(row.get::<_, Value>("data"), json!({ "to": "airport" }));
    assert_eq!((row.get::<_, Uuid>("token"), row.get::<_, i32>("attempt")), (token_of(claimed), 1));
    assert_eq!(row.get::<_, &[u8]>("fingerprint"), [3; 32]);
    assert_eq!(Some(row.get::<_, SystemTime>("created_at")), claimed.created_at);
    assert_eq!(row.get::<_, SystemTime>("expired_at"), until);
}

const CLAIMERS: usize = 8;

/// Lets sessions loose on one expired lease at the same moment; returns what each was answered.
fn race(db: &Database<'_>, isolation: Isolation, claim: fn() -> Call) -> Vec<Outcome> {
    let sessions: Vec<Session> =
        (0..CLAIMERS).map(|n| db.session(&format!("claimer {n}"))).collect();
    let gate = Barrier::new(CLAIMERS);
    let claimer = |mut session: Session| {
        gate.wait();
        alone(&mut session, isolation, claim())
    };
    thread::scope(|scope| {
        let claimers: Vec<_> = sessions.into_iter().map(|s| scope.spawn(|| claimer(s))).collect();
        claimers.into_iter().map(|claimer| claimer.join().expect("no claimer panics")).collect()
    })
}

/// Catches a look that is not repeated once the lock is won: the second one would take over the
/// first one's live lease.
fn one_of_many_takes_over(db: &Database<'_>, isolation: Isolation) {
    let races: [fn() -> Call; 3] =
        [|| lease("k"), || lease("k").with("wait_ms", 0), || lease("k").with("wait_ms", -1)];
    let mut token = start(&mut db.session("worker"), isolation, "k");
    for (round, claim) in (2..).zip(races.into_iter().cycle().take(12)) {
        run_out(db, token);
        let answers = race(db, isolation, claim);
        let won: Vec<&Outcome> = answers.iter().filter(|a| a.outcome == "claimed").collect();
        let refused = answers.iter().filter(|a| a.outcome == "in_progress").count();
        assert_eq!((won.len(), refused), (1, CLAIMERS - 1), "{answers:?}");
        assert_eq!(won[0].attempt, Some(round));
        token = token_of(won[0]);
    }
    assert_eq!((db.records(), db.keys_held()), (1, 0));
    let tokens = db.value::<i64>("SELECT count(*) FROM idempotency.leases");
    assert_eq!(tokens, 13, "a lease for every attempt");
}

/// Completers that share the work: each claims what it was listed, and none is done twice.
fn completers_share_the_work(db: &Database<'_>, isolation: Isolation) {
    const REQUESTS: usize = 24;
    let names: Vec<String> = (0..REQUESTS).map(|n| format!("key-{n:02}")).collect();
    let deadlines: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    abandon(db, isolation, &deadlines);
    let completer = |n: usize| complete_all(&mut db.session(&format!("completer {n}")), isolation);
    let done: Vec<String> = thread::scope(|scope| {
        let completers: Vec<_> = (0..4).map(|n| scope.spawn(move || completer(n))).collect();
        completers.into_iter().flat_map(|c| c.join().expect("no completer panics")).collect()
    });
    assert_eq!(done.len(), REQUESTS, "none is done twice: {done:?}");
    assert_eq!(done.into_iter().collect::<BTreeSet<_>>(), names.into_iter().collect());
    assert_eq!(db.value::<i64>("SELECT count(*) FROM orders"), REQUESTS as i64);
    assert_eq!(listed(&mut db.session("after")), [""; 0]);
}

/// Finishes what is listed until nothing is; returns the keys that this completer finished.
fn complete_all(session: &mut Session, isolation: Isolation) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        let keys = listed(session);
        if keys.is_empty() {
            return done;
        }
        for key in keys {
            session.begin(isolation);
            let outcome = session.call(claim(&key).with("wait_ms", 0));
            if outcome.outcome == "claimed" {
                session.run(&format!("INSERT INTO orders (key) VALUES ('{key}')"));
                session.call(complete(201)).expect("completed");
                done.push(key);
            }
            session.run("COMMIT");
        }
    }
}

at_every_isolation!(
    what_has_run_out_is_listed_oldest_first,
    what_is_live_or_over_is_not_listed,
    it_is_listed_until_somebody_commits,
    a_row_has_all_that_a_completer_needs,
    one_of_many_takes_over,
    completers_share_the_work,
);
