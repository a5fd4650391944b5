//! The queries for Prometheus, run by the exporter that they are written for.

use pg_idempotency_tests::operation::execute;
use pg_idempotency_tests::preloaded::{
    self, alter_system, expired_are, fill_with_expired, has_finished_since,
};
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::process::Process;
use pg_idempotency_tests::{paths, wait};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// postgres_exporter as a member of pg_monitor, on a port of its own.
struct Exporter {
    _process: Process,
    port: u16,
}

impl Exporter {
    fn of(db: &Database<'_>) -> Exporter {
        db.run("CREATE ROLE exporter LOGIN; GRANT pg_monitor TO exporter");
        let port = paths::free_port();
        let mut command = Command::new("prometheus-postgres-exporter");
        command.args(["--disable-default-metrics", "--disable-settings-metrics"]);
        command.args(["--no-collector.database", "--no-collector.bgwriter"]);
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let queries = paths::repository().join("contrib/prometheus/queries.yaml");
        command.arg("--extend.query-path").arg(queries);
        let sockets = db.server().sockets().display();
        let source = format!("host={sockets} user=exporter dbname={} sslmode=disable", db.name());
        command.env("DATA_SOURCE_NAME", source).stdout(Stdio::null()).stderr(Stdio::null());
        Exporter { _process: Process::spawn(&mut command), port }
    }

    /// The metrics of ours: name with labels, and value.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let page = wait::until("the exporter answers", || self.page());
        let ours = page.lines().filter(|line| line.starts_with("pg_idempotency_"));
        let parsed = ours.map(|line| line.rsplit_once(' ').expect("a name and a value"));
        parsed.map(|(name, value)| (tidy(name), value.parse().expect("a number"))).collect()
    }

    fn page(&self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        // It answers before it has found the server.
        page.contains("pg_up 1").then_some(page)
    }
}

/// Without the label that says which server it is.
fn tidy(name: &str) -> String {
    let Some((name, labels)) = name.split_once('{') else { return name.to_owned() };
    let labels =
        labels.trim_end_matches('}').split(',').filter(|label| !label.starts_with("server="));
    let labels = labels.collect::<Vec<_>>().join(",");
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{labels}}}") }
}

/// What the page on operations promises, with the values that the views have.
#[test]
fn the_exporter_shows_what_the_views_have() {
    let cluster =
        preloaded::cluster("prometheus-exporter", &["pg_idempotency.purge_interval = 1s"]);
    let db = cluster.database();
    let mut session = db.session("client");
    execute(&mut session, claim("k"), complete(204));
    execute(&mut session, claim("l"), complete(204));
    session.call(claim("k")).expect("replayed");
    session.refused(complete(204)).expect("IK002");
    fill_with_expired(&db, 7);
    alter_system(&db, "pg_idempotency.purge_databases", db.name());
    db.wait_until(&expired_are(0));
    db.wait_until(&has_finished_since("'-infinity'"));
    session.run("BEGIN");
    session.call(claim("held")).expect("claimed");
    let mut waiter = db.session("waiter");
    waiter.start(claim("held").with("wait_ms", 50));
    waiter.finish_call().expect("in_progress");
    db.run("ANALYZE idempotency.records");

    let exporter = Exporter::of(&db);
    let metrics = exporter.metrics();
    let value =
        |name: &str| *metrics.get(name).unwrap_or_else(|| panic!("{name} is not in {metrics:#?}"));
    let orders = "kind=\"operation\",operation=\"POST /orders\"";
    let answers =
        |outcome| value(&format!("pg_idempotency_answers_total{{{orders},outcome=\"{outcome}\"}}"));
    assert_eq!(
        ["claimed", "completed", "replayed", "in_progress", "mismatch"].map(answers),
        [3.0, 2.0, 1.0, 1.0, 0.0]
    );
    assert_eq!(
        value("pg_idempotency_errors_total{kind=\"none\",operation=\"\",sqlstate=\"IK002\"}"),
        1.0
    );
    assert_eq!(value(&format!("pg_idempotency_waits_total{{{orders}}}")), 1.0);
    let waited = value(&format!("pg_idempotency_waits_seconds_total{{{orders}}}"));
    assert!((0.05..60.0).contains(&waited), "{waited}");
    assert_eq!(value("pg_idempotency_operation_records{operation=\"POST /orders\"}"), 2.0);
    assert!(value("pg_idempotency_operation_bytes{operation=\"POST /orders\"}") > 0.0);
    for figure in ["bytes", "index_bytes", "live_rows", "dead_rows"] {
        value(&format!("pg_idempotency_table_{figure}{{table=\"records\"}}"));
    }
    assert_eq!(value("pg_idempotency_keys_held"), 1.0);
    assert_eq!(value("pg_idempotency_keys_waited_for"), 0.0);
    assert_eq!(value("pg_idempotency_counting_is_on"), 1.0);
    assert_eq!(value("pg_idempotency_counting_max_operations"), 1000.0);
    assert!(value("pg_idempotency_counting_operations") >= 2.0);
    assert_eq!(value("pg_idempotency_purge_is_on"), 1.0);
    assert_eq!(value("pg_idempotency_purge_rows_total"), 7.0);
    assert_eq!(value("pg_idempotency_purge_is_failing"), 0.0);
    assert!(value("pg_idempotency_purge_last_finished_seconds") >= 0.0);
}

/// Where nothing is preloaded the metrics say so, and nothing fails.
#[test]
fn without_preloading_the_exporter_says_so() {
    let db = Database::fresh();
    let metrics = Exporter::of(&db).metrics();
    assert_eq!(metrics["pg_idempotency_counting_is_on"], 0.0);
    assert_eq!(metrics["pg_idempotency_purge_is_on"], 0.0);
    assert!(!metrics.keys().any(|name| name.contains("answers")), "{metrics:#?}");
}

/// The table on the page names every metric that there is.
#[test]
fn every_metric_is_on_the_page() {
    let read =
        |path: &str| std::fs::read_to_string(paths::repository().join(path)).expect("a file");
    let (queries, page) = (read("contrib/prometheus/queries.yaml"), read("docs/operations.md"));
    let (mut prefix, mut column, mut count) = ("", "", 0);
    for line in queries.lines() {
        if line.starts_with("pg_") {
            prefix = line.trim_end_matches(':');
        } else if let Some(name) = line.strip_prefix("    - ") {
            column = name.trim_end_matches(':');
        } else if line.trim() == "usage: GAUGE" || line.trim() == "usage: COUNTER" {
            count += 1;
            let (whole, short) = (format!("`{prefix}_{column}`"), format!("`…_{column}`"));
            let row = page.lines().find(|row| row.starts_with(&format!("| `{prefix}_")));
            let row = row.unwrap_or_else(|| panic!("{prefix} has a row"));
            assert!(row.contains(&whole) || row.contains(&short), "{whole} in {row}");
        }
    }
    assert!(count > 15, "{count} metrics");
}
