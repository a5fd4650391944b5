//! Errors come out whole: our own, and those of the user's functions and triggers that run inside
//! our calls.

use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::psql::psql;
use pg_idempotency_tests::shop;

/// How an error of ours is provoked behind `BEGIN`: statements that must pass, and the one that
/// must not.
struct Provoked {
    code: &'static str,
    before: &'static str,
    fails: &'static str,
    message: &'static str,
    detail: &'static str,
    hint: &'static str,
}

const CLAIM_K: &str = "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k')";
const WRITE: &str = "INSERT INTO orders (key) VALUES ('k')";

const PROVOKED: [Provoked; 4] = [
    Provoked {
        code: "IK001",
        before: WRITE,
        fails: CLAIM_K,
        message: "claim out of order: this transaction has already written or locked rows",
        detail: "The transaction has a transaction id, so key \"k\" of scope \"alice\" in key space \
                 \"POST /orders\" comes too late.",
        hint: "Claim before anything else in the transaction. Usual causes are: no BEGIN, a write by \
               middleware, nextval by an ORM, a row lock by authentication.",
    },
    Provoked {
        code: "IK002",
        before: "SELECT 1",
        fails: "SELECT * FROM idempotency_complete(201)",
        message: "claim not held",
        detail: "This transaction holds no claim.",
        hint: "Claim and complete in one transaction, between one BEGIN and one COMMIT.",
    },
    Provoked {
        code: "IK003",
        before: "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k'); INSERT INTO orders (key) VALUES ('k')",
        fails: "COMMIT",
        message: "cannot commit with an unsettled claim",
        detail: "The key \"k\" of scope \"alice\" in key space \"POST /orders\" was claimed and not completed.",
        hint: "Roll the transaction back. In the next attempt BEGIN before the claim, and complete or release it \
               before COMMIT; behind a release nothing may be written. Usual causes are: no BEGIN around claim and \
               complete, a write by middleware, nextval by an ORM, a row lock by authentication.",
    },
    Provoked {
        code: "IK004",
        before: CLAIM_K,
        fails: CLAIM_K,
        message: "key already held by this transaction",
        detail: "This transaction has already claimed key \"k\" of scope \"alice\" in key space \
                 \"POST /orders\".",
        hint: "Claim each key once in a transaction.",
    },
];

#[test]
fn a_driver_gets_all_of_it() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for error in PROVOKED {
        session.run(&format!("BEGIN; {}", error.before));
        let refusal = session.run_refused(error.fails).expect_ours(error.code);
        let got = refusal.db();
        assert_eq!((got.severity(), got.message()), ("ERROR", error.message));
        assert_eq!((got.detail(), got.hint()), (Some(error.detail), Some(error.hint)));
        session.run("ROLLBACK");
    }
}

/// The extended protocol has no other errors than the simple one.
#[test]
fn a_prepared_statement_gets_all_of_it() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for error in PROVOKED {
        session.run(&format!("BEGIN; {}", error.before));
        let refusal = session.refused(error.fails).expect(error.code);
        assert_eq!(refusal.db().detail(), Some(error.detail));
        session.run("ROLLBACK");
    }
}

#[test]
fn psql_shows_all_of_it() {
    let db = Database::fresh();
    for error in PROVOKED {
        let shown = psql(&db, &format!("BEGIN; {}; {}", error.before, error.fails));
        let text = String::from_utf8_lossy(&shown.stderr);
        assert!(text.contains(&format!("ERROR:  {}: {}\n", error.code, error.message)), "{text}");
        assert!(text.contains(&format!("DETAIL:  {}\n", error.detail)), "{text}");
        assert!(text.contains(&format!("HINT:  {}\n", error.hint)), "{text}");
        assert!(!shown.status.success());
    }
}

/// Raised at the end of a PL/pgSQL block, which has no COMMIT: all but IK003.
#[test]
fn an_exception_block_gets_all_of_it() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for error in PROVOKED.iter().filter(|error| error.code != "IK003") {
        session.run(&format!("BEGIN; {}", error.before));
        session.run(&format!(
            "CREATE FUNCTION pg_temp.caught() RETURNS text[] LANGUAGE plpgsql AS $$
             DECLARE message text; detail text; hint text; context text;
             BEGIN
                 EXECUTE $q${}$q$;
             EXCEPTION WHEN SQLSTATE '{}' THEN
                 GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
                     hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
                 RETURN ARRAY[message, detail, hint, context];
             END $$",
            error.fails, error.code
        ));
        // Making the function gave the transaction its id, which changes what IK004's claim meets:
        // what it holds comes first.
        let caught: Vec<String> = session.value("SELECT pg_temp.caught()");
        assert_eq!(caught[..3], [error.message, error.detail, error.hint]);
        assert!(
            caught[3].contains("PL/pgSQL function pg_temp") && caught[3].contains("at EXECUTE")
        );
        session.run("ROLLBACK");
    }
}

/// A COMMIT inside a procedure fails in the middle of PL/pgSQL.
#[test]
fn a_procedures_commit_tells_where() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let refusal = session.run_refused(
        "DO $$ BEGIN PERFORM idempotency_claim('alice', 'POST /orders', 'k');
                     INSERT INTO orders (key) VALUES ('k'); COMMIT; END $$",
    );
    let refusal = refusal.expect_ours("IK003");
    assert!(
        refusal.db().where_().is_some_and(|context| context.contains("at COMMIT")),
        "{refusal:?}"
    );
}

// ---- errors of others ----------------------------------------------------------------------

/// A trigger on the records that raises what the setting `test.state` says, with every field.
const REFUSING_TRIGGER: &str = "
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'refused by the trigger' USING ERRCODE = current_setting('test.state'),
            DETAIL = 'Its detail.', HINT = 'Its hint.', SCHEMA = 'a_schema', TABLE = 'a_table',
            COLUMN = 'a_column', DATATYPE = 'a_type', CONSTRAINT = 'a_constraint';
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON idempotency.records FOR EACH ROW EXECUTE FUNCTION refuse()";

fn assert_whole(refusal: &Refusal) {
    let error = refusal.db();
    assert_eq!(error.message(), "refused by the trigger");
    assert_eq!((error.detail(), error.hint()), (Some("Its detail."), Some("Its hint.")));
    assert_eq!((error.schema(), error.table()), (Some("a_schema"), Some("a_table")));
    assert_eq!((error.column(), error.datatype()), (Some("a_column"), Some("a_type")));
    assert_eq!(error.constraint(), Some("a_constraint"));
    let context = error.where_().unwrap_or_default();
    assert!(context.contains("PL/pgSQL function") && context.contains("refuse()"), "{refusal:?}");
}

/// Catches errors that are caught and made anew: a closed list of SQLSTATEs turns others into
/// XX000, and CONTEXT and names are lost. 0F000 is what a marker of our own could be taken for.
#[test]
fn an_error_of_a_trigger_arrives_whole() {
    let db = Database::fresh();
    db.run(REFUSING_TRIGGER);
    let mut session = db.session("session");
    for state in ["ZZ999", "IK001", "IK999", "0F000", "23505", "40001", "57014", "XX000", "P0001"] {
        session.run(&format!("SET test.state = '{state}'; BEGIN"));
        session.call(claim("k")).expect("claimed");
        let refusal = session.refused(complete(204)).expect(state);
        assert_whole(&refusal);
        session.run("ROLLBACK");
        assert_eq!((db.records(), db.keys_held()), (0, 0));
    }
}

#[test]
fn an_error_of_a_trigger_arrives_whole_in_an_exception_block() {
    let db = Database::fresh();
    db.run(REFUSING_TRIGGER);
    let mut session = db.session("session");
    session.run("SET test.state = 'ZZ999'; BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run(
        "DO $$
         DECLARE detail text; hint text; context text; named text;
         BEGIN
             PERFORM idempotency_complete(204);
         EXCEPTION WHEN SQLSTATE 'ZZ999' THEN
             GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT,
                 context = PG_EXCEPTION_CONTEXT, named = CONSTRAINT_NAME;
             ASSERT (detail, hint, named) = ('Its detail.', 'Its hint.', 'a_constraint');
             ASSERT context LIKE '%refuse()%inline_code_block%';
         END $$",
    );
    session.run(WRITE);
    session.run_refused("COMMIT").expect_ours("IK003");
}

/// The marker by which one way of raising own codes works must not outlive its error.
#[test]
fn an_error_of_ours_that_was_caught_leaves_no_trace_on_the_next() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for state in ["0F000", "0F001", "ZZ999", "XX000", "P0001"] {
        let refusal = session.run_refused(&format!(
            "DO $$ BEGIN
                 FOR n IN 1..3 LOOP
                     BEGIN PERFORM idempotency_complete(204); EXCEPTION WHEN SQLSTATE 'IK002' THEN END;
                 END LOOP;
                 RAISE EXCEPTION 'the work fails' USING ERRCODE = '{state}';
             END $$"
        ));
        assert_eq!(refusal.expect(state).db().message(), "the work fails");
    }
}

/// An error of the commit itself, in the middle of our callbacks.
#[test]
fn an_error_of_a_deferred_trigger_arrives_whole() {
    let db = Database::fresh();
    db.run(
        &REFUSING_TRIGGER
            .replace("CREATE TRIGGER refuse BEFORE", "CREATE CONSTRAINT TRIGGER refuse AFTER")
            .replace("idempotency.records FOR", "orders DEFERRABLE INITIALLY DEFERRED FOR"),
    );
    let mut session = db.session("session");
    session.run("SET test.state = 'ZZ999'; BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run(WRITE);
    session.call(complete(201)).expect("completed");
    assert_whole(&session.run_refused("COMMIT").expect("ZZ999"));
    assert_eq!((db.orders("k"), db.records(), db.keys_held()), (0, 0, 0));
}

/// Errors of the caller's own work are none of our business.
#[test]
fn an_error_of_the_work_passes_and_the_retry_starts_clean() {
    let db = Database::fresh();
    db.run("ALTER TABLE orders ADD CONSTRAINT notes_differ UNIQUE (note); INSERT INTO orders VALUES (0, 'x', 'n')");
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    let refusal =
        session.refused("INSERT INTO orders (key, note) VALUES ('k', 'n')").expect("23505");
    assert_eq!(refusal.db().constraint(), Some("notes_differ"));
    session.refused(claim("k")).expect("25P02");
    session.run("ROLLBACK");
    shop::create_order(&mut session, Isolation::ReadCommitted, "k")
        .expect("it succeeds")
        .expect("completed");
}

/// Errors that are caught by the thousand leave nothing behind: no lock, no open subtransaction, no
/// growing stack of callbacks.
#[test]
fn a_thousand_errors_leave_nothing_behind() {
    let db = Database::fresh();
    let mut session = db.session("session");
    session.run("BEGIN");
    session.call(claim("k")).expect("claimed");
    session.run(
        "DO $$ BEGIN FOR n IN 1..1000 LOOP
             BEGIN
                 PERFORM idempotency_claim('alice', 'POST /orders', 'k');
                 RAISE 'not refused';
             EXCEPTION WHEN SQLSTATE 'IK004' THEN END;
         END LOOP; END $$",
    );
    assert_eq!(db.key_locks_of(&session), 1);
    shop::work(&mut session, "k").expect("the claim is held").expect("completed");
    session.run("COMMIT");
    assert_eq!(db.orders("k"), 1);
}

/// Nothing of the machinery shows: no backtrace, no panic, no file names.
#[test]
fn no_error_shows_the_machinery() {
    let db = Database::fresh();
    let mut session = db.session("session");
    for call in [complete(201), complete(99), claim("k").with("wait_ms", -7), release()] {
        let refusal = session.refused(call);
        let text = format!("{refusal:?}").to_lowercase();
        for leak in ["backtrace", "panick", ".rs", "xx000"] {
            assert!(!text.contains(leak), "{leak} in {text}");
        }
    }
}
