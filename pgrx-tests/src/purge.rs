//! Purging, and holding a purge in the middle.

use crate::call::Call;
use crate::database::Database;
use crate::session::{Role, Session};

/// One batch, as the owner calls it.
pub fn purge(max_rows: i32) -> Call {
    Call::new("idempotency_purge").with("max_rows", max_rows)
}

/// A session that purges. A purge that waits, which it must not, ends with an error.
pub fn purger(db: &Database<'_>) -> Session {
    let mut session = db.session_as(Role::Superuser, "purger");
    session.run("SET statement_timeout = '20s'");
    session
}

/// Has one batch done by itself; returns how many rows it has deleted.
#[track_caller]
pub fn purge_once(session: &mut Session) -> i64 {
    session.value("SELECT idempotency_purge()")
}

/// A gate that purges come to when they have a row in hand: an advisory lock that a trigger asks for.
pub struct Gate(Session);

impl Gate {
    /// A closed gate that sessions named "purger" meet BEFORE or AFTER the DELETE of each record.
    pub fn closed(db: &Database<'_>, when: &str) -> Gate {
        db.run(&format!(
            "CREATE FUNCTION meet_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF current_setting('application_name') = 'purger' THEN
                     PERFORM pg_advisory_xact_lock_shared(4711);
                 END IF;
                 RETURN OLD;
             END $$;
             CREATE TRIGGER gate {when} DELETE ON idempotency.records FOR EACH ROW EXECUTE FUNCTION meet_the_gate()"
        ));
        let mut keeper = db.session_as(Role::Superuser, "keeper of the gate");
        keeper.rows("SELECT pg_advisory_lock(4711)");
        Gate(keeper)
    }

    /// Starts a purge and waits until it stands at the gate.
    pub fn hold(&self, db: &Database<'_>, purger: &mut Session) {
        purger.start("SELECT idempotency_purge()");
        db.wait_until_blocked(purger, &self.0);
    }

    pub fn open(&mut self) {
        self.0.rows("SELECT pg_advisory_unlock(4711)");
    }
}
