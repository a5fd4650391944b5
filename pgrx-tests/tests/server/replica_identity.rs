//! A table of ours whose rows are told apart by something else than the primary key, for logical
//! replication: what is replaced and deleted is found all the same. (PostgreSQL's own look-up of rows to
//! replicate compares whole rows then, from 16 on.)

use pg_idempotency_tests::lease::{alone, complete_by, lease};
use pg_idempotency_tests::operation::{configure, execute};
use pg_idempotency_tests::prelude::*;
use serde_json::json;
use uuid::Uuid;

const IDENTITIES: [&str; 4] = ["DEFAULT", "FULL", "NOTHING", "USING INDEX other"];
const RC: Isolation = Isolation::ReadCommitted;

/// A database whose records and leases have this replica identity.
fn database(identity: &str) -> Database<'static> {
    let db = Database::fresh();
    db.run(&format!(
        "CREATE UNIQUE INDEX other ON idempotency.records (key_space, scope, key);
         ALTER TABLE idempotency.records REPLICA IDENTITY {identity};
         ALTER TABLE idempotency.leases REPLICA IDENTITY {}",
        identity.replace("USING INDEX other", "FULL")
    ));
    db
}

/// Catches a look-up that compares all columns: the insert would find the old record in its way.
#[test]
fn an_expired_record_is_replaced() {
    for identity in IDENTITIES {
        let db = database(identity);
        configure(&db, json!({"retention": "1 microsecond"}));
        let mut session = db.session("session");
        execute(&mut session, claim("k"), complete(201));
        execute(&mut session, claim("k"), complete(202));
        let statuses: Vec<i32> = db
            .session_as(Role::Superuser, "superuser")
            .rows("SELECT status FROM idempotency.records")
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(statuses, [202], "{identity}");
    }
}

/// Catches the same where nothing follows that would show it: a lease that is given back and stays.
#[test]
fn a_lease_is_completed_and_given_back() {
    for identity in IDENTITIES {
        let db = database(identity);
        let mut session = db.session("session");
        let (given_back, completed) = (Uuid::from_u128(1), Uuid::from_u128(2));
        alone(&mut session, RC, lease("back").with("token", given_back)).expect("claimed");
        session.run(&format!("SELECT idempotency_release('{given_back}')"));
        alone(&mut session, RC, lease("done").with("token", completed)).expect("claimed");
        alone(&mut session, RC, complete_by(completed, 201)).expect("completed");
        let mut superuser = db.session_as(Role::Superuser, "superuser");
        let kept: Vec<String> = superuser
            .rows("SELECT key || status::text FROM idempotency.records")
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(kept, ["done201"], "{identity}");
        let ended = "SELECT count(*) FROM idempotency.leases WHERE ended";
        assert_eq!(superuser.value::<i64>(ended), 2, "{identity}");
    }
}
