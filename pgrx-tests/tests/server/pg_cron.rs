//! Purging by pg_cron, as the page on operations shows it. Its shortest interval is a minute.

use pg_idempotency_tests::preloaded::{expired_are, fill_with_expired};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::{paths, wait};
use std::time::Duration;

/// A job of every minute begins with the minute; this is longer than one.
const A_MINUTE: Duration = Duration::from_secs(75);

/// Debian has a package for its own version of PostgreSQL only.
fn has_pg_cron() -> bool {
    let found = paths::pg_bin().join("../lib/pg_cron.so").exists();
    assert!(found || std::env::var("PG_MAJOR").is_ok_and(|major| major != "15"), "run tools/setup");
    found
}

fn purges_by_cron(cluster: &Cluster) {
    let db = Database::open(cluster, "postgres".into());
    db.run("CREATE EXTENSION pg_cron");
    db.run("CREATE EXTENSION pg_idempotency");
    fill_with_expired(&db, 20);
    db.run("SELECT cron.schedule('purge idempotency', '* * * * *', 'SELECT idempotency_purge()')");
    let gone = format!("SELECT {}", expired_are(0));
    wait::until_within(A_MINUTE, &gone, || db.value::<bool>(&gone).then_some(()));
    db.wait_until("(SELECT status = 'succeeded' FROM cron.job_run_details)");
    db.run("SELECT cron.unschedule('purge idempotency')");
}

#[test]
fn pg_cron_purges_by_its_background_workers() {
    if !has_pg_cron() {
        return;
    }
    let settings = ["shared_preload_libraries = 'pg_cron'", "cron.use_background_workers = on"];
    purges_by_cron(&Cluster::start("cron-workers", &settings));
}

#[test]
fn pg_cron_purges_by_its_connections() {
    if !has_pg_cron() {
        return;
    }
    let cluster = Cluster::start("cron-connections", &["shared_preload_libraries = 'pg_cron'"]);
    cluster.configure(&[&format!("cron.host = '{}'", cluster.sockets().display())]);
    cluster.end("INT");
    cluster.start();
    purges_by_cron(&cluster);
}
