//! SERIALIZABLE: leases of different requests never abort each other, whatever phase they are in.

use pg_idempotency_tests::lease::{
    checkpoint, complete_by, extend, lease, resume, run_out, start, token_of,
};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use serde_json::json;
use uuid::Uuid;

const NEIGHBOURS: usize = 6;

/// The tables and indexes of ours on which somebody in this database has predicate locks.
const PREDICATE_LOCKS: &str = "SELECT coalesce(string_agg(DISTINCT c.relname, ' '), 'none')
    FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
                       JOIN pg_database AS d ON d.oid = l.database
    WHERE l.mode = 'SIReadLock' AND d.datname = current_database()
      AND c.relnamespace = 'idempotency'::regnamespace";

/// Sessions with a key each, all of them in a transaction that has begun before any other's ends.
fn neighbours(db: &Database<'_>) -> Vec<(Session, String)> {
    let open = |n: usize| {
        let key = format!("key-{n}");
        let mut session = db.session(&key);
        session.begin(Isolation::Serializable);
        (session, key)
    };
    (0..NEIGHBOURS).map(open).collect()
}

/// Commits them all, the last one first. With predicate locks each would have read what the next
/// one wrote, and all but a few would be aborted: a chain of these is harmless in its own order
/// only.
#[track_caller]
fn commit(neighbours: &mut [(Session, String)]) {
    for (session, key) in neighbours.iter_mut().rev() {
        let committed = session.attempt_script("COMMIT");
        committed.unwrap_or_else(|refusal| panic!("{key} was aborted: {refusal:?}"));
    }
}

/// Catches a look for the token under an MVCC snapshot: there is none yet, and so it locks a gap.
#[test]
fn claims_on_lease_never_abort_each_other() {
    let db = Database::fresh();
    let mut open = neighbours(&db);
    for (session, key) in &mut open {
        session.call(lease(key)).expect("claimed");
    }
    commit(&mut open);
    assert_eq!(db.records(), NEIGHBOURS as i64);
}

#[test]
fn phases_never_abort_each_other() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    let tokens: Vec<Uuid> = (0..NEIGHBOURS)
        .map(|n| start(&mut worker, Isolation::ReadCommitted, &format!("key-{n}")))
        .collect();
    let mut open = neighbours(&db);
    for ((session, key), token) in open.iter_mut().zip(&tokens) {
        session.call(resume(*token)).expect("claimed");
        session.run(&format!("INSERT INTO orders (key) VALUES ('{key}')"));
        session.call(checkpoint(*token, "half", json!(1)));
        session.call(extend(*token, 60_000));
    }
    commit(&mut open);
    let mut open = neighbours(&db);
    for ((session, _), token) in open.iter_mut().zip(&tokens) {
        session.call(complete_by(*token, 201)).expect("completed");
    }
    commit(&mut open);
    assert_eq!(db.value::<i64>("SELECT count(*) FROM orders"), NEIGHBOURS as i64);
}

#[test]
fn take_overs_never_abort_each_other() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    for again in [lease as fn(&str) -> Call, |key| claim(key)] {
        let mut open = neighbours(&db);
        for (_, key) in &open {
            let claimed = worker.call(lease(key)).expect("claimed");
            run_out(&db, token_of(&claimed));
        }
        for (session, key) in &mut open {
            session.call(again(key)).expect("claimed");
            session.call(complete(204)).expect("completed");
        }
        commit(&mut open);
        db.run("TRUNCATE idempotency.records, idempotency.leases");
    }
}

/// The advice is to ask replay before anything else in the request, of new requests too.
#[test]
fn a_replay_of_nothing_and_a_new_neighbour_never_abort_each_other() {
    let db = Database::fresh();
    let mut open = neighbours(&db);
    for (session, key) in &mut open {
        session.call(replay(key.as_str())).expect("unknown");
    }
    for (session, key) in &mut open {
        session.call(claim(key.as_str())).expect("claimed");
        let sent = shop::work(session, key);
        sent.unwrap_or_else(|refusal| panic!("{key} was aborted: {refusal:?}")).expect("completed");
    }
    commit(&mut open);
    assert_eq!(db.records(), NEIGHBOURS as i64);
}

/// Looks at what is left behind by each call, whether or not it leads to an abort.
#[test]
fn no_call_takes_predicate_locks() {
    let db = Database::fresh();
    let mut worker = db.session("worker");
    let unknown = Uuid::from_u128(7);
    let token = start(&mut worker, Isolation::ReadCommitted, "k");
    let calls: [(&str, Call); 8] = [
        ("a replay of nothing", replay("nothing")),
        ("a replay of a lease", replay("k")),
        ("a refused claim", claim("k")),
        ("a new lease", lease("l")),
        ("a resume", resume(token)),
        ("a checkpoint", checkpoint(token, "half", json!(1))),
        ("an extension", extend(token, 60_000)),
        ("a completion", complete_by(token, 201)),
    ];
    let mut locked = Vec::new();
    for (what, call) in calls {
        worker.begin(Isolation::Serializable);
        worker.call(call);
        let locks: String = db.value(PREDICATE_LOCKS);
        if locks != "none" {
            locked.push(format!("{what}: {locks}"));
        }
        worker.run("COMMIT");
    }
    assert_eq!(locked, Vec::<String>::new());
    worker.begin(Isolation::Serializable);
    worker.refused_inside_savepoint(resume(unknown), "IK002");
    assert_eq!(db.value::<String>(PREDICATE_LOCKS), "none", "after an unknown token");
}
