//! `idempotency_forget`: erasure of a scope, of an operation, of a key.

use pg_idempotency_tests::erasure::{OTHER, fill, forced, forget, forget_key, operator};
use pg_idempotency_tests::operation::{
    ORDERS, assert_says, claim_by, configure_operation, execute, expire_all, replay_by,
};
use pg_idempotency_tests::prelude::*;
use serde_json::json;

fn left(db: &Database<'_>) -> Vec<String> {
    db.value(
        "SELECT coalesce(array_agg(concat_ws(' ', scope, operation, key) ORDER BY scope, operation, key), '{}')
         FROM idempotency.records",
    )
}

#[test]
fn a_person_is_erased_and_nobody_else() {
    let db = Database::fresh();
    fill(&db);
    assert_eq!(operator(&db).value::<i64>(forget("alice")), 4);
    let bobs =
        ["bob POST /orders k1", "bob POST /orders k2", "bob POST /rides k1", "bob POST /rides k2"];
    assert_eq!(left(&db), bobs);
    assert_eq!(operator(&db).value::<i64>(forget("alice")), 0);
    assert_eq!(operator(&db).value::<i64>(forget("nobody")), 0);
    let mut session = db.session("session");
    session.call(replay("k1")).expect("unknown");
    execute(&mut session, claim("k1"), complete(201));
}

#[test]
fn an_operation_a_key_or_a_key_of_an_operation_is_erased() {
    for (call, gone) in [
        (
            forget("alice").with("operation", ORDERS),
            vec!["alice POST /orders k1", "alice POST /orders k2"],
        ),
        (forget("alice").with("key", "k1"), vec!["alice POST /orders k1", "alice POST /rides k1"]),
        (forget_key("k1"), vec!["alice POST /orders k1"]),
        (forget_key("k3"), vec![]),
        (forget("alice").with("operation", "PUT /"), vec![]),
    ] {
        let db = Database::fresh();
        fill(&db);
        let before = left(&db);
        assert_eq!(operator(&db).value::<i64>(call), gone.len() as i64);
        let expected: Vec<&String> =
            before.iter().filter(|one| !gone.contains(&one.as_str())).collect();
        assert_eq!(left(&db).iter().collect::<Vec<_>>(), expected);
    }
}

/// What has expired and what never does; with bodies that are stored out of line.
#[test]
fn records_of_every_kind_are_erased() {
    let db = Database::fresh();
    configure_operation(&db, ORDERS, json!({"retention": "1 hour"}));
    let mut session = db.session("filler");
    execute(&mut session, claim("old"), complete(204));
    expire_all(&db);
    execute(&mut session, claim("young"), complete(204));
    let large = complete(200).with(
        "body_bytes",
        (0..200_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect::<Vec<u8>>(),
    );
    execute(&mut session, claim_by("alice", OTHER, "large"), large);
    execute(
        &mut session,
        claim_by("alice", OTHER, "secret"),
        complete(200).with("withhold", "one_time_secret"),
    );
    assert_eq!(operator(&db).value::<i64>(forget("alice")), 4);
    assert_eq!(db.records(), 0);
}

/// The key is what the client sent, or what the record has.
#[test]
fn a_key_is_read_as_a_claim_reads_it() {
    let db = Database::fresh();
    configure_operation(&db, OTHER, json!({"key_format": "uuid", "key_space": "shared"}));
    let uuid = "8e03978e-40d5-43dd-bc93-6894a57f9324";
    let mut session = db.session("filler");
    for form in [format!("\"{uuid}\""), uuid.to_uppercase(), uuid.to_owned()] {
        execute(&mut session, claim_by("alice", OTHER, uuid), complete(204));
        let call = forget("alice").with("operation", OTHER).with("key", form);
        assert_eq!(operator(&db).value::<i64>(call), 1);
    }
    // Keys from before the settings: of another form, in another key space.
    configure_operation(&db, OTHER, json!({"key_format": null, "key_space": null}));
    execute(&mut session, claim_by("alice", OTHER, "odd"), complete(204));
    configure_operation(&db, OTHER, json!({"key_format": "uuid", "key_space": "shared"}));
    let call = forget("alice").with("operation", OTHER).with("key", "odd");
    assert_eq!(operator(&db).value::<i64>(call), 1);
}

/// Operations that share a key space share keys, but each request is one operation's.
#[test]
fn a_request_of_another_operation_in_the_key_space_stays() {
    let db = Database::fresh();
    for operation in [ORDERS, OTHER] {
        configure_operation(&db, operation, json!({"key_space": "shared"}));
    }
    execute(&mut db.session("filler"), claim("k"), complete(204));
    let call = forget("alice").with("operation", OTHER).with("key", "k");
    assert_eq!(operator(&db).value::<i64>(call), 0);
    assert_eq!(operator(&db).value::<i64>(forget_key("k")), 1);
}

/// Whatever an operation is set to by now.
#[test]
fn keys_of_operations_that_take_none_any_more_are_erased() {
    let db = Database::fresh();
    for mode in ["ignored", "forbidden"] {
        execute(&mut db.session("filler"), claim("k"), complete(204));
        configure_operation(&db, ORDERS, json!({"mode": mode}));
        assert_eq!(operator(&db).value::<i64>(forget_key("k")), 1);
        configure_operation(&db, ORDERS, json!({"mode": null}));
    }
}

// ---- in transactions -----------------------------------------------------------------------

/// The erasure commits with the caller's own deletions, or not at all; until then the answer stands.
fn it_commits_with_the_callers_work(db: &Database<'_>, isolation: Isolation) {
    fill(db);
    let (mut operator, mut client) = (operator(db), db.session("client"));
    operator.begin(isolation);
    assert_eq!(operator.value::<i64>(forget("alice")), 4);
    client.call(claim("k1").with("wait_ms", 0)).expect("replayed");
    operator.run("ROLLBACK");
    assert_eq!(db.records(), 8);
    operator.begin(isolation);
    operator.run("DELETE FROM orders");
    assert_eq!(operator.value::<i64>(forget("alice")), 4);
    operator.run("COMMIT");
    assert_eq!(db.records(), 4);
}

/// Catches a walk under the transaction's snapshot: what was committed since must go too.
fn what_was_finished_since_the_transaction_began_goes_too(db: &Database<'_>, isolation: Isolation) {
    let mut operator = operator(db);
    operator.begin(isolation);
    operator.rows("SELECT FROM orders");
    fill(db);
    assert_eq!(operator.value::<i64>(forget("alice")), 4);
    operator.run("COMMIT");
}

/// Predicate locks on the tables would abort everybody's claims.
fn claims_go_on_meanwhile(db: &Database<'_>, isolation: Isolation) {
    fill(db);
    let (mut operator, mut client) = (operator(db), db.session("client"));
    client.begin(isolation);
    client.call(claim_by("carol", ORDERS, "k")).expect("claimed");
    operator.begin(isolation);
    assert_eq!(operator.value::<i64>(forget("alice")), 4);
    let locks = "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database
                 WHERE mode = 'SIReadLock' AND datname = current_database() AND relation::regclass::text LIKE 'idempotency.%'";
    assert_eq!(operator.value::<i64>(locks), 0);
    client.call(complete(204)).expect("completed");
    client.run("COMMIT");
    operator.run("COMMIT");
}

/// A claim that is under way has no record yet: who names its key waits for it.
fn a_named_key_is_waited_for(db: &Database<'_>, isolation: Isolation) {
    let (mut operator, mut client) = (operator(db), db.session("client"));
    client.begin(isolation);
    client.call(claim("k")).expect("claimed");
    operator.begin(isolation);
    operator.start(forget_key("k"));
    db.wait_until_blocked(&operator, &client);
    client.call(complete(204)).expect("completed");
    client.run("COMMIT");
    assert_eq!(operator.finish().expect("it succeeds")[0].get::<_, i64>(0), 1);
    operator.run("COMMIT");
    assert_eq!(db.records(), 0);
}

fn a_named_key_that_stays_held_is_an_error(db: &Database<'_>, isolation: Isolation) {
    let (mut operator, mut client) = (operator(db), db.session("client"));
    client.begin(isolation);
    client.call(claim("k")).expect("claimed");
    for wait_ms in ["0", "20"] {
        operator.run(&format!("SET pg_idempotency.wait_ms = {wait_ms}"));
        operator.begin(isolation);
        let refusal = operator.refused_inside_savepoint(forget_key("k"), "55P03");
        assert_says(
            refusal,
            "55P03",
            ["could not obtain the lock of a key in time", "holds key \"k\"", "later"],
        );
        operator.run("COMMIT");
    }
}

/// The request of the erasure itself: its record has to commit with what it did.
fn the_transactions_own_requests_stay(db: &Database<'_>, isolation: Isolation) {
    fill(db);
    db.run("GRANT EXECUTE ON FUNCTION idempotency_forget(text, text, text, boolean) TO backend");
    let mut session = db.session("session");
    for held_before in [true, false] {
        session.begin(isolation);
        session.call(claim_by("alice", "DELETE /me", "k")).expect("claimed");
        let call = forget("alice").with("operation", "DELETE /me").with("key", "k");
        let refusal = session.refused_inside_savepoint(call, "IK004");
        assert_says(
            refusal,
            "IK004",
            ["key already held by this transaction", "has claimed key \"k\"", "of its own"],
        );
        if held_before {
            assert_eq!(session.value::<i64>(forget("alice")), 4);
            session.run("ROLLBACK");
            continue;
        }
        session.call(complete(204)).expect("completed");
        assert_eq!(session.value::<i64>(forget("alice")), 4);
        session.run("COMMIT");
    }
    session.call(replay_by("alice", "DELETE /me", "k")).expect("replayed");
    assert_eq!(db.records(), 5);
}

fn a_claim_after_it_is_out_of_order(db: &Database<'_>, isolation: Isolation) {
    fill(db);
    let mut operator = operator(db);
    operator.begin(isolation);
    assert_eq!(operator.value::<i64>(forget("bob")), 4);
    operator.refused_inside_savepoint(claim("new"), "IK001");
    operator.run("COMMIT");
    // Where nothing was erased, nothing was written.
    operator.begin(isolation);
    assert_eq!(operator.value::<i64>(forget_key("new")), 0);
    operator.call(claim("new")).expect("claimed");
    operator.call(complete(204)).expect("completed");
    operator.run("COMMIT");
}

at_every_isolation!(
    it_commits_with_the_callers_work,
    what_was_finished_since_the_transaction_began_goes_too,
    claims_go_on_meanwhile,
    a_named_key_is_waited_for,
    a_named_key_that_stays_held_is_an_error,
    the_transactions_own_requests_stay,
    a_claim_after_it_is_out_of_order,
);

// ---- arguments and rights ------------------------------------------------------------------

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let db = Database::fresh();
    let mut session = operator(&db);
    session.refused("SELECT idempotency_forget(NULL)").expect_ours("22004").mentions("scope");
    session
        .refused("SELECT idempotency_forget('a', force => NULL)")
        .expect_ours("22004")
        .mentions("force");
    for argument in [
        "repeat('x', 256)",
        "'a', repeat('x', 256)",
        "'a', 'o', repeat('x', 256)",
        "'a', key => repeat('x', 256)",
    ] {
        session.refused(format!("SELECT idempotency_forget({argument})")).expect_ours("22023");
    }
    for argument in ["''", "'', ''", "'', '', ''", "'', key => ''"] {
        assert_eq!(session.value::<i64>(format!("SELECT idempotency_forget({argument})")), 0);
    }
    assert_eq!(session.value::<i64>(forget("x'; --\"\\")), 0);
}

/// One lock for each request on lease: there is an end to them.
#[test]
fn more_than_1000_requests_on_lease_are_refused() {
    let db = Database::fresh();
    db.run(
        "DO $$ BEGIN FOR n IN 1..1001 LOOP
             PERFORM idempotency_claim('alice', 'POST /orders', 'k' || n, lease_ms => 600000); COMMIT;
         END LOOP; END $$",
    );
    let refusal = operator(&db).refused(forced(forget("alice")));
    assert_says(
        refusal,
        "54000",
        ["too many requests on lease", "More than 1000", "one key at a time"],
    );
    assert_eq!(operator(&db).value::<i64>(forced(forget_key("k1"))), 1);
    assert_eq!(operator(&db).value::<i64>(forced(forget("alice"))), 1000);
}

#[test]
fn only_the_owner_may() {
    let db = Database::fresh();
    fill(&db);
    for role in [Role::Backend, Role::Outsider] {
        db.session_as(role, "other").refused(forget("alice")).expect("42501");
    }
    db.run("GRANT EXECUTE ON FUNCTION idempotency_forget(text, text, text, boolean) TO backend");
    assert_eq!(db.session("backend").value::<i64>(forget("alice")), 4);
}

#[test]
fn nothing_is_erased_where_nothing_may_be_written() {
    let db = Database::fresh();
    fill(&db);
    let mut session = operator(&db);
    session.run("BEGIN READ ONLY");
    session.refused(forget("alice")).expect("25006");
    session.run("ROLLBACK");
    assert_eq!(db.records(), 8);
}

#[test]
fn row_triggers_fire() {
    let db = Database::fresh();
    db.run(
        "CREATE TABLE seen (key text);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO public.seen VALUES (OLD.key); RETURN OLD; END $$;
         CREATE TRIGGER note AFTER DELETE ON idempotency.records FOR EACH ROW EXECUTE FUNCTION note()",
    );
    fill(&db);
    operator(&db).value::<i64>(forget("alice"));
    operator(&db).value::<i64>(forget("bob").with("operation", ORDERS).with("key", "k1"));
    assert_eq!(db.value::<i64>("SELECT count(*) FROM seen"), 5);
}
