//! Ordinary, ungranted and hostile roles: what they could make the extension do for them.

use pg_idempotency_tests::operation::{claim_by, configure, replay_by};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::shop;
use serde_json::json;

const RC: Isolation = Isolation::ReadCommitted;

/// SQL in every name that a caller may choose is a name.
#[test]
fn sql_in_names_is_a_name() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for name in [
        "'; DROP TABLE idempotency.records; --",
        "$$; DROP TABLE orders; $$",
        "x\"; DELETE FROM orders; --",
        "%s %I %L %1$s",
        "{\"a\":1}",
        "\\'); SELECT 1; --",
    ] {
        session.run("BEGIN");
        session.call(claim_by(name, name, name)).expect("claimed");
        let completion = complete(201).with("body", name).with("content_type", "text/plain");
        session
            .call(completion.with("resource_type", name).with("resource_id", name))
            .expect("completed");
        session.run("COMMIT");
        let replayed = session.call(replay_by(name, name, name)).expect("replayed");
        assert_eq!((replayed.text(), replayed.resource_id.as_deref()), (name, Some(name)));
    }
    assert_eq!(db.records(), 6);
}

/// The same key of another tenant is another key: neither the answer nor its existence shows.
#[test]
fn another_tenants_key_is_another_key() {
    let db = Database::fresh();
    let (mut alice, mut bob) = (db.session("alice"), db.session("bob"));
    shop::create_order(&mut alice, RC, "k").expect("it succeeds");
    bob.call(replay_by("bob", "POST /orders", "k")).expect("unknown");
    alice.run("BEGIN");
    alice.call(claim("held")).expect("claimed");
    bob.run("BEGIN");
    bob.call(claim_by("bob", "POST /orders", "held").with("wait_ms", 0)).expect("claimed");
    // Parts that would be the same when joined.
    for (scope, operation, key, outcome) in [
        ("alicePOST ", "/orders", "k", "unknown"),
        ("alice", "POST /orders k", "", "invalid"),
        ("a", "licePOST /orders", "k", "unknown"),
    ] {
        bob.call(replay_by(scope, operation, key)).expect(outcome);
    }
}

/// A role with nothing that the backend may become. Memberships are the cluster's, which other tests
/// share, so each database has a role of its own.
fn with_other_role(db: &Database<'_>) -> String {
    let other = format!("other_of_{}", db.name());
    db.run(&format!("CREATE ROLE {other}; GRANT {other} TO {}", Role::Backend.name()));
    other
}

/// What SET ROLE gives and takes counts at each call; the claim is the transaction's.
#[test]
fn set_role_counts_at_each_call() {
    let db = Database::fresh();
    let other = with_other_role(&db);
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run(&format!("SET LOCAL ROLE {other}"));
    session.refused_inside_savepoint(complete(201), "42501");
    session.refused_inside_savepoint(replay("k"), "42501");
    session.run("RESET ROLE; INSERT INTO orders (key) VALUES ('k')");
    session.call(complete(201)).expect("completed");
    session.run(&format!("COMMIT; SET ROLE {other}"));
    session.refused(claim("k")).expect("42501");
    session.run("RESET ROLE");
    session.call(claim("k")).expect("replayed");
}

/// The commit is guarded whoever commits.
#[test]
fn a_role_without_rights_does_not_get_around_the_guard() {
    let db = Database::fresh();
    let other = with_other_role(&db);
    db.run(&format!("GRANT INSERT ON orders TO {other}"));
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run(&format!("SET LOCAL ROLE {other}; INSERT INTO orders (key) VALUES ('k')"));
    session.run_refused("COMMIT").expect_ours("IK003");
    assert_eq!(db.orders("k"), 0);
}

/// A registered relation whose row security or view calls back, raises or writes. It runs as the
/// relation's owner, whose rights here are nobody's.
fn with_relation(db: &Database<'_>, body: &str) -> String {
    let owner = format!("owner_of_{}", db.name());
    db.run(&format!(
        "CREATE ROLE {owner}; SELECT idempotency_grant('{owner}');
         CREATE SCHEMA h AUTHORIZATION {owner}; GRANT USAGE ON SCHEMA h TO PUBLIC; SET ROLE {owner};
         CREATE TABLE h.log (who text); CREATE TABLE h.things (id text); INSERT INTO h.things VALUES ('1');
         CREATE FUNCTION h.call() RETURNS boolean LANGUAGE plpgsql SET search_path = public AS $$ BEGIN {body} RETURN true; END $$;
         RESET ROLE"
    ));
    owner
}

fn pointing() -> Call {
    complete(201).with("resource_type", "thing").with("resource_id", "1")
}

/// Claims, points to the thing, and returns what came of it, with the transaction still open.
fn point(db: &Database<'_>, session: &mut Session) -> Result<Outcome, Refusal> {
    configure(db, json!({"form": "resource"}));
    session.begin(RC);
    session.call(claim("k")).expect("claimed");
    session.attempt(pointing()).map(|rows| Outcome::only(&rows))
}

const VIEW: &str =
    "SET ROLE {owner}; CREATE VIEW h.seen AS SELECT id FROM h.things WHERE h.call(); RESET ROLE;
                    SELECT idempotency_register_resource('thing', 'h.seen', 'id')";

#[test]
fn a_view_that_completes_finds_the_claim_completed() {
    let db = Database::fresh();
    let owner = with_relation(
        &db,
        "BEGIN PERFORM idempotency_complete(200, body => 'forged'); EXCEPTION WHEN SQLSTATE 'IK002' THEN
             INSERT INTO h.log VALUES (SQLERRM); END;",
    );
    db.run(&VIEW.replace("{owner}", &owner));
    let mut session = db.session("session");
    point(&db, &mut session).expect("it is there").expect("completed");
    session.run("COMMIT");
    assert_eq!(db.value::<String>("SELECT who FROM h.log"), "claim not held");
    assert_eq!(session.call(claim("k")).expect("replayed").status, Some(201));
}

#[test]
fn a_view_that_releases_does_not_free_the_key() {
    let db = Database::fresh();
    let owner = with_relation(&db, "PERFORM idempotency_release();");
    db.run(&VIEW.replace("{owner}", &owner));
    let mut session = db.session("session");
    point(&db, &mut session).expect_err("refused").expect_ours("IK002");
    session.run("ROLLBACK");
    assert_eq!((db.records(), db.keys_held()), (0, 0));
}

/// What a view claims and does not complete stands in the way of the commit, like any claim.
#[test]
fn a_claim_made_by_a_view_must_be_completed_too() {
    let db = Database::fresh();
    let owner = with_relation(
        &db,
        "PERFORM idempotency_claim('alice', 'POST /orders', 'z', wait_ms => 0);",
    );
    db.run(&VIEW.replace("{owner}", &owner));
    let mut session = db.session("session");
    session.run("SET pg_idempotency.lock_order = off");
    point(&db, &mut session).expect("it is there").expect("completed");
    session.run_refused("COMMIT").expect_ours("IK003").mentions("\"z\"");
    assert_eq!((db.records(), db.keys_held()), (0, 0));
}

/// Its errors pass, and nothing is kept; a replay of what was recorded before is refused, not executed.
#[test]
fn a_view_that_raises_refuses_and_nothing_runs_twice() {
    let db = Database::fresh();
    let owner = with_relation(
        &db,
        "IF current_setting('h.raises', true) = 'on' THEN RAISE 'not now' USING ERRCODE = 'AB123'; END IF;",
    );
    db.run(&VIEW.replace("{owner}", &owner));
    let mut session = db.session("session");
    session.run("SET h.raises = on");
    point(&db, &mut session).expect_err("refused").expect("AB123");
    session.run("ROLLBACK");
    assert_eq!((db.records(), db.keys_held()), (0, 0));
    session.run("SET h.raises = off");
    point(&db, &mut session).expect("it is there").expect("completed");
    session.run("COMMIT; SET h.raises = on");
    session.refused(claim("k")).expect("AB123");
    session.refused(replay("k")).expect("AB123");
    assert_eq!(db.records(), 1);
}

/// Row security does not hide a resource from the look at it, and its functions are not called.
#[test]
fn a_policy_on_the_relation_is_not_asked() {
    let db = Database::fresh();
    let owner = with_relation(&db, "RAISE 'asked'; PERFORM idempotency_complete(200);");
    db.run(&format!(
        "SET ROLE {owner}; ALTER TABLE h.things ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
         CREATE POLICY p ON h.things USING (h.call()); RESET ROLE;
         SELECT idempotency_register_resource('thing', 'h.things', 'id')"
    ));
    let mut session = db.session("session");
    point(&db, &mut session).expect("it is there").expect("completed");
    session.run("COMMIT");
    session.call(claim("k")).expect("replayed");
}

/// Behind a view, though, another owner's policy is asked, as the view's owner: it may call back.
#[test]
fn a_policy_behind_a_view_may_call_back() {
    let db = Database::fresh();
    with_relation(
        &db,
        "IF (idempotency_claim('alice', 'POST /orders', 'k', wait_ms => 0)).outcome <> 'replayed' THEN RAISE 'twice'; END IF;
         INSERT INTO h.log VALUES (current_user);",
    );
    db.run(&format!(
        "CREATE ROLE viewer_of_{0}; ALTER TABLE h.things ENABLE ROW LEVEL SECURITY;
         CREATE POLICY p ON h.things USING (h.call());
         CREATE SCHEMA v AUTHORIZATION viewer_of_{0}; GRANT USAGE ON SCHEMA h, v TO viewer_of_{0}, PUBLIC;
         GRANT SELECT ON h.things TO viewer_of_{0}; GRANT ALL ON h.log TO viewer_of_{0};
         SELECT idempotency_grant('viewer_of_{0}'); SET ROLE viewer_of_{0};
         CREATE VIEW v.seen AS SELECT id FROM h.things; RESET ROLE;
         SELECT idempotency_register_resource('thing', 'v.seen', 'id')",
        db.name()
    ));
    let mut session = db.session("session");
    let refusal = point(&db, &mut session).expect_err("the claim is still this transaction's");
    refusal.expect_ours("IK004");
    session.run("ROLLBACK");
    assert_eq!((db.records(), db.keys_held()), (0, 0));
}

/// The extension's functions may be anywhere; moved while a session runs, they work from there on.
#[test]
fn the_extension_is_not_moved_under_sessions() {
    let db = Database::fresh();
    db.run("CREATE SCHEMA elsewhere; GRANT USAGE ON SCHEMA elsewhere TO backend");
    let mut superuser = db.session_as(Role::Superuser, "superuser");
    superuser.run_refused("ALTER EXTENSION pg_idempotency SET SCHEMA elsewhere").expect("0A000");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    // By hand it can be done.
    superuser.run("ALTER TYPE idempotency_outcome SET SCHEMA elsewhere");
    superuser.run("ALTER FUNCTION idempotency_complete SET SCHEMA elsewhere");
    session.run("SET LOCAL search_path = elsewhere, public; INSERT INTO orders (key) VALUES ('k')");
    session.call(complete(201)).expect("completed");
    session.run("COMMIT");
    session.call(claim("k")).expect("replayed");
}

/// A superuser is not kept from anything, but the rule about commits holds for one too.
#[test]
fn a_superuser_can_forge_and_erase_but_not_forget() {
    let db = Database::fresh();
    let mut superuser = db.session_as(Role::Superuser, "superuser");
    shop::create_order(&mut superuser, RC, "k").expect("it succeeds");
    superuser.run("UPDATE idempotency.records SET body = 'forged'");
    assert_eq!(superuser.call(claim("k")).expect("replayed").text(), "forged");
    superuser.run("DELETE FROM idempotency.records");
    superuser.run("BEGIN");
    superuser.call(claim("k")).expect("claimed");
    superuser.run("INSERT INTO orders (key) VALUES ('k')");
    superuser.run_refused("COMMIT").expect_ours("IK003");
}

/// A wrapper with its owner's rights lends the claim, not the tables.
#[test]
fn a_definer_wrapper_of_the_owner_gives_no_more_than_it_says() {
    let db = Database::fresh();
    db.run(
        "CREATE FUNCTION claim_for(key text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = public AS
             $$ SELECT outcome FROM idempotency_claim('shop', 'POST /orders', key) $$;
         GRANT EXECUTE ON FUNCTION claim_for(text) TO outsider",
    );
    let mut session = db.session_as(Role::Outsider, "session");
    session.run("BEGIN");
    assert_eq!(session.value::<String>("SELECT claim_for('k')"), "claimed");
    session.refused_inside_savepoint(complete(201), "42501");
    session.refused_inside_savepoint("SELECT * FROM idempotency.records", "42501");
    session.run("ROLLBACK");
    assert_eq!((db.records(), db.keys_held()), (0, 0));
}
