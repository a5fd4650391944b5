//! Purging by pg_cron, as the page on operations shows it. Its shortest interval is a minute.

use pg_idempotency_tests::preloaded::{expired_are, fill_with_expired};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::wait;
use std::time::Duration;

/// A job of every minute begins with the minute; this is longer than one.
const A_MINUTE: Duration = Duration::from_secs(75);

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
    let settings = ["shared_preload_libraries = 'pg_cron'", "cron.use_background_workers = on"];
    purges_by_cron(&Cluster::start("cron-workers", &settings));
}

#[test]
fn pg_cron_purges_by_its_connections() {
    let cluster = Cluster::start("cron-connections", &["shared_preload_libraries = 'pg_cron'"]);
    cluster.configure(&[&format!("cron.host = '{}'", cluster.sockets().display())]);
    cluster.end("INT");
    cluster.start();
    purges_by_cron(&cluster);
}
