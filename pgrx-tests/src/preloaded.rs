//! Servers that preload the library, and what their views show.

use crate::cluster::Cluster;
use crate::database::Database;
use crate::operation::configure_operation;
use serde_json::{Value, json};

/// The setting that has the postmaster load the library.
pub const PRELOAD: &str = "shared_preload_libraries = 'pg_idempotency'";

/// A cluster of one's own whose postmaster loads the library, with further settings.
pub fn cluster(name: &str, settings: &[&str]) -> Cluster {
    let settings: Vec<_> = [PRELOAD].iter().chain(settings).copied().collect();
    Cluster::start(name, &settings)
}

/// The row of an operation in `idempotency.stats`; JSON's null where there is none.
#[track_caller]
pub fn stats(db: &Database<'_>, operation: &str) -> Value {
    stats_where(db, &format!("operation = '{operation}'"))
}

/// The row of a kind that is no operation: `none` or `others`.
#[track_caller]
pub fn stats_of_kind(db: &Database<'_>, kind: &str) -> Value {
    stats_where(db, &format!("kind = '{kind}'"))
}

#[track_caller]
fn stats_where(db: &Database<'_>, condition: &str) -> Value {
    db.value(&format!(
        "SELECT coalesce((SELECT to_jsonb(s) FROM idempotency.stats AS s WHERE {condition}), 'null')"
    ))
}

/// The columns of `idempotency.stats` that are numbers and no counters: estimates and times.
const NOT_COUNTED: [&str; 4] = ["records", "bytes", "waited_ms", "longest_wait_ms"];

/// The counters in a row that are not zero, as `name=count`, by name: all numbers that the view has,
/// so that no counter is left out.
pub fn nonzero(row: &Value) -> Vec<String> {
    let columns = row.as_object().into_iter().flatten();
    let counters = columns.filter(|(name, _)| !NOT_COUNTED.contains(&name.as_str()));
    let counts = counters.filter_map(|(name, value)| Some((name, value.as_u64()?)));
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name}={count}")).collect()
}

/// Changes a setting of the server and has it read; sessions and workers see it soon after.
#[track_caller]
pub fn alter_system(db: &Database<'_>, setting: &str, value: &str) {
    db.run(&format!("ALTER SYSTEM SET {setting} = '{value}'"));
    db.run("SELECT pg_reload_conf()");
}

/// Has a number of answered requests recorded whose time is over.
#[track_caller]
pub fn fill_with_expired(db: &Database<'_>, records: i32) {
    configure_operation(db, "POST /expires", json!({"retention": "1 microsecond"}));
    db.run(&format!(
        "DO $$ BEGIN
             FOR n IN 1..{records} LOOP
                 PERFORM idempotency_claim('alice', 'POST /expires', gen_random_uuid()::text);
                 PERFORM idempotency_complete(204);
                 COMMIT;
             END LOOP;
         END $$"
    ));
}

/// A condition, to be waited for: how many expired records there are.
pub fn expired_are(count: i32) -> String {
    format!(
        "(SELECT count(*) = {count} FROM idempotency.records WHERE operation = 'POST /expires')"
    )
}

/// A condition: automatic purge of this database has found nothing more to do since `instant`, an
/// SQL expression.
pub fn has_finished_since(instant: &str) -> String {
    format!("(SELECT last_finished_at > {instant} FROM idempotency.automatic_purge)")
}
