//! Replays of pointers: whether the resource still exists is asked the way a foreign key asks, and
//! where nobody can tell, the pointer is replayed with a warning.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::resource::*;
use pg_idempotency_tests::standby::Standby;
use serde_json::{Value, json};

/// Deletes an order as the superuser.
fn delete(db: &Database<'_>, id: &str) {
    db.run(&format!("DELETE FROM public.orders WHERE id = {id}"));
}

/// Claims and looks up: both say this word, twice, and nobody warns.
#[track_caller]
fn assert_both(session: &mut Session, word: &str) {
    for _ in 0..2 {
        session.call(claim("k")).expect(word);
        session.call(replay("k")).expect(word);
    }
    let notices = session.take_notices();
    assert!(notices.is_empty(), "{notices:?}");
}

// ---- the tombstone -------------------------------------------------------------------------

fn a_deleted_resource_has_a_tombstone(db: &Database<'_>, isolation: Isolation) {
    register_orders(db);
    let mut session = db.session("session");
    let id = create_order(&mut session, "k");
    delete(db, &id);
    session.begin(isolation);
    let tombstone = session.call(claim("k")).expect("deleted");
    assert_eq!((tombstone.status, pointer(&tombstone)), (Some(200), (Some("order"), Some(&*id))));
    let body: Value = serde_json::from_str(tombstone.text()).expect("JSON");
    let expected = json!({"replayed": true, "resource_deleted": true, "resource_type": "order", "resource_id": id});
    assert_eq!(body, expected);
    let headers = json!({"Content-Type": "application/json", "Idempotent-Replayed": "true"});
    assert_eq!(tombstone.headers, Some(headers));
    assert_eq!(session.call(replay("k")), tombstone);
    // Final: the key is not free, and nothing stands in the way of what else the caller does.
    session.refused_inside_savepoint(complete(201), "IK002");
    assert!(!session.has_transaction_id() && db.key_locks_of(&session) == 0);
    session.run("COMMIT");
    assert_eq!(session.call(claim("k")), tombstone);
    assert_eq!(db.orders("k"), 0);
}

/// The snapshot of the transaction is older than the resource: to its own queries it is not there.
fn an_old_snapshot_does_not_make_a_tombstone(db: &Database<'_>, isolation: Isolation) {
    register_orders(db);
    let (mut old, mut session) = (db.session("old"), db.session("session"));
    old.begin(isolation);
    old.rows("SELECT FROM orders");
    let id = create_order(&mut session, "k");
    assert_both(&mut old, "replayed");
    if isolation != Isolation::ReadCommitted {
        let sees: i64 = old.value(format!("SELECT count(*) FROM orders WHERE id = {id}"));
        assert_eq!(sees, 0, "the snapshot is as old as it should be");
    }
}

/// And the other way round: what the snapshot still shows is gone all the same.
fn an_old_snapshot_does_not_hide_a_tombstone(db: &Database<'_>, isolation: Isolation) {
    register_orders(db);
    let mut session = db.session("session");
    let id = create_order(&mut session, "k");
    session.begin(isolation);
    session.rows("SELECT FROM orders");
    delete(db, &id);
    assert_both(&mut session, "deleted");
}

/// A waiter under an old snapshot learns of a resource that its winner has just created.
fn a_waiter_does_not_make_a_tombstone_of_its_winners_resource(
    db: &Database<'_>,
    isolation: Isolation,
) {
    register_orders(db);
    let (mut winner, mut waiter) = (db.session("winner"), db.session("waiter"));
    winner.begin(isolation);
    winner.call(claim("k")).expect("claimed");
    waiter.begin(isolation);
    waiter.start(claim("k"));
    db.wait_until_blocked(&waiter, &winner);
    let id = insert_order(&mut winner, "k");
    winner.call(pointing_to(&id)).expect("completed");
    winner.run("COMMIT");
    assert_eq!(pointer(&waiter.finish_call().expect("replayed")).1, Some(&*id));
}

at_every_isolation!(
    a_deleted_resource_has_a_tombstone,
    an_old_snapshot_does_not_make_a_tombstone,
    an_old_snapshot_does_not_hide_a_tombstone,
    a_waiter_does_not_make_a_tombstone_of_its_winners_resource,
);

#[test]
fn a_deletion_counts_when_it_is_committed() {
    let db = with_orders();
    let (mut session, mut other) = (db.session("session"), db.session("other"));
    let id = create_order(&mut session, "k");
    other.run(&format!("BEGIN; DELETE FROM orders WHERE id = {id}"));
    assert_both(&mut session, "replayed");
    other.run("ROLLBACK");
    assert_both(&mut session, "replayed");
    other.run(&format!("DELETE FROM orders WHERE id = {id}"));
    assert_both(&mut session, "deleted");
}

#[test]
fn a_tombstone_is_marked_by_the_operations_replay_header() {
    let db = with_orders();
    configure(&db, json!({"replay_header": "X-Again"}));
    let mut session = db.session("session");
    let id = create_order(&mut session, "k");
    assert_eq!(session.call(claim("k")).header("X-Again"), Some(&json!("true")));
    delete(&db, &id);
    let tombstone = session.call(claim("k")).expect("deleted");
    assert_eq!(
        (tombstone.header("X-Again"), tombstone.header("Idempotent-Replayed")),
        (Some(&json!("true")), None)
    );
}

// ---- rows that the caller may not see ------------------------------------------------------

/// The row is there, and the caller must not see it: its own read then says 403 or 404.
#[test]
fn row_security_does_not_make_a_tombstone() {
    let db = with_orders();
    let mut session = db.session("session");
    let id = create_order(&mut session, "k");
    db.run(
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY; CREATE POLICY none ON orders USING (false);
         CREATE ROLE keeper; ALTER TABLE orders OWNER TO keeper; ALTER TABLE orders FORCE ROW LEVEL SECURITY;
         SELECT idempotency_register_resource('order', 'public.orders', 'id')",
    );
    for row_security in ["on", "off"] {
        session.run(&format!("SET row_security = {row_security}"));
        assert_both(&mut session, "replayed");
    }
    session.run("RESET row_security");
    assert_eq!(session.value::<i64>("SELECT count(*) FROM orders"), 0, "the policy works");
    delete(&db, &id);
    assert_both(&mut session, "deleted");
}

#[test]
fn a_caller_without_rights_on_the_relation_gets_its_replay() {
    let db = with_orders();
    let mut session = db.session("session");
    let id = create_order(&mut session, "k");
    db.run("REVOKE ALL ON orders FROM backend");
    assert_both(&mut session, "replayed");
    session.refused("SELECT FROM orders").expect("42501");
    delete(&db, &id);
    assert_both(&mut session, "deleted");
}

// ---- views ---------------------------------------------------------------------------------

#[test]
fn a_view_serves_for_soft_deletes() {
    let db = with_orders();
    db.run(
        "CREATE VIEW live_orders AS SELECT id FROM orders WHERE note IS DISTINCT FROM 'deleted';
         SELECT idempotency_register_resource('order', 'live_orders', 'id')",
    );
    let mut session = db.session("session");
    create_order(&mut session, "k");
    assert_both(&mut session, "replayed");
    session.run("UPDATE orders SET note = 'deleted'");
    assert_both(&mut session, "deleted");
    session.run("UPDATE orders SET note = 'back'");
    assert_both(&mut session, "replayed");
}

/// The view's functions run with the rights of its owner: names in them must not be the caller's.
#[test]
fn a_hostile_search_path_does_not_fool_a_view() {
    let db = with_orders();
    db.run(
        "CREATE FUNCTION is_live(note text) RETURNS boolean LANGUAGE plpgsql AS
             $$ BEGIN RETURN length(note) < 5; END $$;
         CREATE VIEW live_orders AS SELECT id FROM orders WHERE is_live(coalesce(note, ''));
         SELECT idempotency_register_resource('order', 'live_orders', 'id');
         CREATE SCHEMA trap AUTHORIZATION backend",
    );
    let mut session = db.session("session");
    session.run(
        "CREATE FUNCTION trap.length(text) RETURNS integer LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'sprung by %', current_user USING ERRCODE = 'TRAP0'; END $$;
         CREATE FUNCTION trap.less(integer, integer) RETURNS boolean LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'sprung by %', current_user USING ERRCODE = 'TRAP1'; END $$;
         CREATE OPERATOR trap.< (LEFTARG = integer, RIGHTARG = integer, FUNCTION = trap.less);
         CREATE TEMP TABLE orders (id bigint, note text); CREATE TEMP TABLE live_orders (id bigint);
         SET search_path = trap, pg_temp, pg_catalog, public",
    );
    session.refused("SELECT is_live('x')").expect("TRAP0");
    session.refused("SELECT 1 < 2").expect("TRAP1");
    let claim = || {
        Call::new("public.idempotency_claim")
            .with("scope", "alice")
            .with("operation", ORDERS)
            .with("key", "k")
    };
    session.run("BEGIN");
    session.call(claim()).expect("claimed");
    let id = insert_order(&mut session, "k");
    session.call(pointing_to(&id)).expect("completed");
    session.run("COMMIT");
    session.call(claim()).expect("replayed");
    session.run("UPDATE public.orders SET note = 'deleted'");
    session.call(claim()).expect("deleted");
    assert_eq!(session.value::<String>("SHOW search_path"), "trap, pg_temp, pg_catalog, public");
    session.refused("SELECT is_live('x')").expect("TRAP0");
    let user = "SELECT concat_ws(' ', session_user, current_user)";
    assert_eq!(session.value::<String>(user), "backend backend");
}

/// A view that fails is the owner's to mend; the record waits.
#[test]
fn an_error_of_a_view_is_passed_on_and_nothing_runs_again() {
    let db = with_orders();
    let mut session = db.session("session");
    create_order(&mut session, "k");
    db.run(
        "CREATE VIEW broken AS SELECT id / 0 AS id FROM orders;
         SELECT idempotency_register_resource('order', 'broken', 'id')",
    );
    session.run("BEGIN");
    session.refused_inside_savepoint(claim("k"), "22012");
    session.refused_inside_savepoint(replay("k"), "22012");
    let user = "SELECT concat_ws(' ', session_user, current_user, current_setting('search_path'))";
    assert_eq!(session.value::<String>(user), "backend backend \"$user\", public");
    session.run("COMMIT");
    db.run("CREATE OR REPLACE VIEW broken AS SELECT id FROM orders");
    assert_both(&mut session, "replayed");
}

// ---- where nobody can tell -----------------------------------------------------------------

/// Replayed, with one warning that says what is wrong and what to do.
#[track_caller]
fn assert_replayed_with_warning(session: &mut Session, reason: &str) {
    session.take_notices();
    for call in [claim("k"), replay("k")] {
        session.call(call).expect("replayed");
        let notices = session.take_notices();
        let [warning] = &notices[..] else { panic!("one warning is expected: {notices:?}") };
        assert_eq!((warning.severity(), warning.code().code()), ("WARNING", "01000"));
        let message = "cannot tell whether the resource of type \"order\" still exists";
        assert_eq!(warning.message(), message);
        assert!(
            warning.detail().is_some_and(|detail| detail.contains(reason)),
            "{reason} in {warning:?}"
        );
        assert!(
            warning.hint().is_some_and(|hint| hint.contains("idempotency_register_resource")),
            "{warning:?}"
        );
    }
}

#[test]
fn a_relation_that_is_gone_or_changed_does_not_make_a_tombstone() {
    let db = with_orders();
    let mut session = db.session("session");
    create_order(&mut session, "k");
    for (change, reason, back) in [
        (
            "ALTER TABLE orders RENAME TO moved",
            "no relation public.orders",
            "ALTER TABLE moved RENAME TO orders",
        ),
        (
            "CREATE SCHEMA away; ALTER TABLE orders SET SCHEMA away",
            "no relation public.orders",
            "ALTER TABLE away.orders SET SCHEMA public",
        ),
        (
            "ALTER TABLE orders RENAME id TO number",
            "no column id",
            "ALTER TABLE orders RENAME number TO id",
        ),
        (
            "ALTER TABLE orders RENAME id TO number; ALTER TABLE orders ADD id uuid",
            "not an id of the column's type",
            "ALTER TABLE orders DROP id; ALTER TABLE orders RENAME number TO id",
        ),
        (
            "ALTER TABLE orders RENAME id TO number; ALTER TABLE orders ADD id point",
            "cannot be compared",
            "ALTER TABLE orders DROP id; ALTER TABLE orders RENAME number TO id",
        ),
        (
            "UPDATE idempotency.resource_types SET relation_schema = 'nowhere'",
            "no relation nowhere.orders",
            "UPDATE idempotency.resource_types SET relation_schema = 'public'",
        ),
    ] {
        db.run(change);
        assert_replayed_with_warning(&mut session, reason);
        db.run(back);
        assert_both(&mut session, "replayed");
    }
    db.run("ALTER TABLE orders DROP COLUMN id");
    assert_replayed_with_warning(&mut session, "no column id");
    db.run("DROP TABLE orders");
    assert_replayed_with_warning(&mut session, "no relation public.orders");
    assert_eq!(db.records(), 1);
}

/// The name counts, not the relation that once had it.
#[test]
fn a_relation_that_is_dropped_and_created_again_is_the_same_type() {
    let db = with_orders();
    let mut session = db.session("session");
    let id = create_order(&mut session, "k");
    assert_both(&mut session, "replayed");
    db.run("DROP TABLE orders; CREATE TABLE orders (id bigint PRIMARY KEY)");
    assert_both(&mut session, "deleted");
    db.run(&format!("INSERT INTO orders VALUES ({id})"));
    assert_both(&mut session, "replayed");
}

/// What nobody could follow is not recorded either.
#[test]
fn a_completion_is_refused_where_nobody_can_tell() {
    let db = with_orders();
    db.run("UPDATE idempotency.resource_types SET relation_name = 'gone'");
    let mut session = db.session("session");
    let refusal = execute_refused(&db, &mut session, claim("k"), pointing_to("1"));
    let says =
        ["answer refused", "There is no relation public.gone.", "after the resource was created"];
    assert_says(refusal, "IK006", says);
}

/// A relation that was dropped, and another role's that has its name now, tell nothing.
#[test]
fn a_name_that_another_role_took_proves_nothing() {
    let db = with_orders();
    let mut session = db.session("session");
    create_order(&mut session, "k");
    let thief = format!("thief_of_{}", db.name());
    db.run(&format!(
        "CREATE ROLE {thief}; GRANT CREATE ON SCHEMA public TO {thief}; DROP TABLE orders;
         SET ROLE {thief}; CREATE TABLE public.orders (id bigint); RESET ROLE"
    ));
    assert_replayed_with_warning(
        &mut session,
        &format!("belongs to {thief}, and belonged to postgres"),
    );
    db.run("SELECT idempotency_register_resource('order', 'public.orders', 'id')");
    assert_both(&mut session, "deleted");
}

/// After ALTER TABLE … OWNER, and a restore without owners, requests go on: their rows are there.
#[test]
fn under_another_owner_completions_are_checked_as_before() {
    let db = with_orders();
    let mut session = db.session("session");
    let heir = format!("heir_of_{}", db.name());
    db.run(&format!("CREATE ROLE {heir}; ALTER TABLE orders OWNER TO {heir}"));
    let refusal = execute_refused(&db, &mut session, claim("other"), pointing_to("0"));
    assert_says(
        refusal,
        "IK006",
        ["answer refused", "There is no order with id \"0\".", "after the resource"],
    );
    let id = create_order(&mut session, "k");
    assert_both(&mut session, "replayed");
    db.run(&format!("DELETE FROM orders WHERE id = {id}"));
    assert_replayed_with_warning(&mut session, &format!("belongs to {heir}"));
}

// ---- where nothing can be written ----------------------------------------------------------

#[test]
fn a_read_only_transaction_tells_too() {
    let db = with_orders();
    let mut session = db.session("session");
    let id = create_order(&mut session, "k");
    session.run("BEGIN READ ONLY");
    session.call(replay("k")).expect("replayed");
    delete(&db, &id);
    session.call(replay("k")).expect("deleted");
    session.run("COMMIT");
}

/// And a change of the settings reaches sessions there, with its WAL.
#[test]
fn a_hot_standby_tells_too() {
    let cluster = Cluster::start("tombstones-primary", &[]);
    let db = cluster.database();
    register_orders(&db);
    let standby = Standby::of(&cluster, "tombstones-standby");
    let (mut session, mut reader) = (db.session("session"), standby.session(db.name(), "reader"));
    reader.call(replay("k")).expect("unknown");
    let id = create_order(&mut session, "k");
    standby.catch_up_with(&cluster);
    reader.call(replay("k")).expect("replayed");
    delete(&db, &id);
    standby.catch_up_with(&cluster);
    reader.call(replay("k")).expect("deleted");
    db.run("UPDATE idempotency.resource_types SET relation_name = 'gone'");
    configure(&db, json!({"replay_header": "X-Again"}));
    standby.catch_up_with(&cluster);
    let replayed = reader.call(replay("k")).expect("replayed");
    assert_eq!(replayed.header("X-Again"), Some(&json!("true")));
    assert_eq!(reader.take_notices().len(), 1, "nobody can tell");
}
