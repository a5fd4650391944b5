//! One run of pgbench.

use crate::lab::RECORDS;
use pg_idempotency_tests::{paths, process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a request carries: a body of 200 bytes, a digest, a token, and what the answer says.
const BODY: &str = r#"{"sku":"SKU-73370","qty":8,"unit_price":226.19,"title":"Tea green","currency":"CHF","placed_at":"2026-10-12T08:15:30.123Z","paid":false,"coupon":null,"id":"0190b3a2-7c1e-7011-8000-000000000001"}"#;
const HEADERS: &str = r#"{"content-type":"application/json"}"#;
const FINGERPRINT: &str = r"\x5f1d7a84db00d2fce00b31a7fc73224f0c5d3b1e6f7a8d9c0b1a2f3e4d5c6b7a";
const OTHER_FINGERPRINT: &str =
    r"\x00000000db00d2fce00b31a7fc73224f0c5d3b1e6f7a8d9c0b1a2f3e4d5c6b7a";
const TOKEN: &str = "0190b3a2-7c1e-7011-8000-000000000001";

/// How the statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Prepared once, bound and executed each time.
    Prepared,
    /// Parsed each time, with parameters.
    Extended,
    /// As text.
    Simple,
}

/// A database, and where pgbench logs.
#[derive(Clone, Debug)]
pub struct Place {
    pub sockets: PathBuf,
    pub database: String,
    pub logs: PathBuf,
}

/// The circumstances of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    pub clients: u32,
    pub protocol: Protocol,
    pub synchronous_commit: bool,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Prepared => "prepared",
            Protocol::Extended => "extended",
            Protocol::Simple => "simple",
        }
    }

    /// pgbench puts variables into simple statements as they are.
    fn quoted(self, value: &str) -> String {
        match self {
            Protocol::Simple => format!("'{}'", value.replace('\'', "''")),
            Protocol::Prepared | Protocol::Extended => value.to_owned(),
        }
    }
}

/// The time per transaction of a script, in seconds: all clients together, each runs so many.
pub fn throughput(place: &Place, script: &str, setting: Setting, transactions: u32) -> f64 {
    let mut pgbench = command(place, &[script], setting);
    pgbench.arg(&place.database).arg(format!("--transactions={transactions}"));
    let report = process::output_of(&mut pgbench);
    1.0 / rate(&report).unwrap_or_else(|| panic!("{script}: no rate in\n{report}"))
}

/// The time per transaction of each script, in seconds, where one client runs one of them at random
/// each time, so many altogether. The mean of the middle half of the latencies: what the machine
/// does besides hits few transactions hard, and this leaves them out.
pub fn latencies(place: &Place, scripts: &[&str], setting: Setting, transactions: u32) -> Vec<f64> {
    log(place, scripts, setting, transactions, &[]).into_iter().map(middle_mean).collect()
}

/// The latencies of each script, in seconds, where each client runs one of them at random each time,
/// so many altogether. Variables can be given besides those that every script has.
pub fn log(
    place: &Place,
    scripts: &[&str],
    setting: Setting,
    transactions: u32,
    variables: &[(&str, String)],
) -> Vec<Vec<f64>> {
    let prefix = place.logs.join("latencies");
    let mut pgbench = command(place, scripts, setting);
    for (name, value) in variables {
        pgbench.arg(format!("--define={name}={value}"));
    }
    pgbench.arg(&place.database);
    pgbench.arg(format!("--transactions={transactions}"));
    pgbench.arg("--log").arg(format!("--log-prefix={}", prefix.display()));
    process::output_of(&mut pgbench);
    let mut latencies = vec![Vec::new(); scripts.len()];
    for line in take_log(&place.logs).lines() {
        let (script, latency) = logged(line).unwrap_or_else(|| panic!("log: {line}"));
        latencies[script].push(latency);
    }
    latencies
}

fn command(place: &Place, scripts: &[&str], setting: Setting) -> Command {
    let Setting { clients, protocol, synchronous_commit } = setting;
    let mut command = Command::new(paths::pg_bin().join("pgbench"));
    command
        .args(["--no-vacuum", "--username=backend"])
        .arg(format!("--host={}", place.sockets.display()))
        .arg(format!("--protocol={}", protocol.name()))
        .arg(format!("--client={clients}"))
        .arg(format!("--jobs={}", clients.min(2)));
    for script in scripts {
        command.arg(format!("--file={}", script_path(script).display()));
    }
    for (name, value) in variables() {
        command.arg(format!("--define={name}={}", protocol.quoted(&value)));
    }
    let on_or_off = if synchronous_commit { "on" } else { "off" };
    command.env("PGOPTIONS", format!("-c synchronous_commit={on_or_off}"));
    command
}

fn variables() -> Vec<(&'static str, String)> {
    vec![
        ("scope", "tenant-0001".to_owned()),
        ("operation", "POST /orders".to_owned()),
        ("fingerprint", FINGERPRINT.to_owned()),
        ("other_fingerprint", OTHER_FINGERPRINT.to_owned()),
        ("token", TOKEN.to_owned()),
        ("headers", HEADERS.to_owned()),
        ("body", hex(BODY.as_bytes())),
        ("note", "two boxes, leave them at the door".to_owned()),
        ("records", RECORDS.to_string()),
    ]
}

/// As `bytea` takes it in text.
fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    format!(r"\x{}", digits.collect::<String>())
}

fn script_path(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("scripts/{script}.sql"))
}

fn rate(report: &str) -> Option<f64> {
    let line = report.lines().find(|line| line.starts_with("tps = "))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

/// What the last run has logged; the log is removed.
fn take_log(folder: &Path) -> String {
    let entries = fs::read_dir(folder).expect("the folder of logs");
    let logs = entries.map(|entry| entry.expect("the folder of logs").path());
    logs.map(|log| {
        let lines = fs::read_to_string(&log).expect("a log of latencies");
        fs::remove_file(&log).expect("a log of latencies");
        lines
    })
    .collect()
}

/// Script and seconds, from `client transaction microseconds script second microsecond`.
fn logged(line: &str) -> Option<(usize, f64)> {
    let mut fields = line.split(' ').skip(2);
    let microseconds: f64 = fields.next()?.parse().ok()?;
    Some((fields.next()?.parse().ok()?, microseconds / 1e6))
}

/// # Panics
/// Where there are too few to have a middle.
fn middle_mean(mut latencies: Vec<f64>) -> f64 {
    latencies.sort_by(f64::total_cmp);
    let quarter = latencies.len() / 4;
    let middle = &latencies[quarter..latencies.len() - quarter];
    middle.iter().sum::<f64>() / middle.len() as f64
}
