//! Bytes of WAL per create, and bytes per record.
//!
//! The server does nothing else meanwhile. Before each run the tables are as at first and a
//! checkpoint is taken. With full page writes off, the difference of the insert positions is what
//! the creates themselves wrote; with them on, it also has the image of every page that was touched
//! for the first time since the checkpoint, which depends on the size of the tables.

use crate::lab::Lab;
use crate::pgbench::{self, Setting};
use crate::rounds::{Effort, Ratio};
use crate::stats::Spread;

/// Creates in a second's worth of effort. Counts of bytes hardly differ between rounds.
const TRANSACTIONS: f64 = 20_000.0;
const ROUNDS: usize = 2;

/// A quantity that is measured in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    Wal,
    WalWithFullPages,
    Stored,
}

/// Contenders and where each keeps its keys; the others are measured by the first.
#[derive(Clone, Copy, Debug)]
pub struct Weighing {
    pub name: &'static str,
    pub bytes: Bytes,
    pub contenders: &'static [(&'static str, &'static str)],
}

/// The bytes per create of each contender, relative to the first's.
pub fn weigh(lab: &Lab<'_>, weighing: &Weighing, setting: Setting, effort: Effort) -> Vec<Ratio> {
    set_full_page_writes(lab, weighing.bytes == Bytes::WalWithFullPages);
    let transactions = (effort.slice * TRANSACTIONS) as u32;
    let once = |(script, table): &(&'static str, &str)| {
        let sql = match weighing.bytes {
            Bytes::Stored => format!("pg_total_relation_size('{table}')"),
            _ => "pg_current_wal_insert_lsn() - '0/0'".to_owned(),
        };
        growth(lab, &sql, || pgbench::throughput(&lab.place(), script, setting, transactions))
    };
    let rounds: Vec<Vec<f64>> =
        (0..ROUNDS).map(|_| weighing.contenders.iter().map(once).collect()).collect();
    set_full_page_writes(lab, true);
    let ratio = |i: usize| Spread::of(rounds.iter().map(|bytes| bytes[i] / bytes[0]).collect());
    let others = weighing.contenders.iter().enumerate().skip(1);
    others.map(|(i, (script, _))| Ratio { script, spread: ratio(i) }).collect()
}

/// How much a number of bytes grows meanwhile.
fn growth(lab: &Lab<'_>, sql: &str, meanwhile: impl FnOnce() -> f64) -> f64 {
    lab.reset();
    lab.database().run("CHECKPOINT");
    let read = || lab.database().value::<i64>(&format!("SELECT ({sql})::bigint"));
    let before = read();
    meanwhile();
    (read() - before) as f64
}

fn set_full_page_writes(lab: &Lab<'_>, on: bool) {
    let on_or_off = if on { "on" } else { "off" };
    lab.database().run(&format!("ALTER SYSTEM SET full_page_writes = {on_or_off}"));
    lab.database().run("SELECT pg_reload_conf()");
    lab.database().wait_until(&format!(
        "(SELECT setting = '{on_or_off}' FROM pg_settings WHERE name = 'full_page_writes')"
    ));
}
