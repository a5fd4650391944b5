//! What the isolationtester prints: all of it, where a model knows it, and what can be read in it otherwise.

use super::spec::Spec;
use super::{Interleaving, all};
use std::collections::BTreeSet;

/// One row of `what_is_left()`, by which every permutation ends.
#[derive(Debug, PartialEq)]
pub struct Left {
    pub key: String,
    /// By whom it was executed.
    pub effects: Vec<String>,
    /// Whose answers are recorded: one, or one in each key space.
    pub records: Vec<String>,
    /// How many keys were held when all was over.
    pub held: u64,
}

/// What the tester has to print of `spec`, whose orders come from the model, to the last byte.
pub fn predicted(spec: &Spec) -> String {
    let orders = all(spec).finished;
    let printed = orders.iter().map(|order| {
        let (steps, printed) = (order.steps.join(" "), &order.world.printed);
        format!("\nstarting permutation: {steps}\n{printed}{}\n", table(order))
    });
    let head = format!("Parsed test spec with {} sessions\n", spec.sessions.len());
    std::iter::once(head).chain(printed).collect()
}

/// The rows that are left, as libpq lays out a result.
fn table(order: &Interleaving) -> String {
    let (effects, records) = (&order.world.effects, order.world.records());
    let keys: BTreeSet<&String> = effects.keys().chain(records.keys()).collect();
    let mut table = "key|effects|record|held\n---+-------+------+----\n".to_owned();
    for key in &keys {
        let mut by = effects.get(*key).cloned().unwrap_or_default();
        by.sort();
        let records = records.get(*key).cloned().unwrap_or_default();
        table += &format!("{key:3}|{:7}|{:6}|{:>4}\n", by.join(" "), records.join(" "), 0);
    }
    let rows = if keys.len() == 1 { "row" } else { "rows" };
    table + &format!("({} {rows})\n", keys.len())
}

/// The rows of `what_is_left()` in an output, below the steps of each permutation.
pub fn left(output: &str) -> Vec<(&str, Vec<Left>)> {
    let mut permutations: Vec<(&str, Vec<Left>)> = Vec::new();
    for line in output.lines() {
        if let Some(steps) = line.strip_prefix("starting permutation: ") {
            permutations.push((steps, Vec::new()));
        } else if let Some((_, rows)) = permutations.last_mut() {
            rows.extend(row(line));
        }
    }
    permutations
}

/// `k  |s1     |s1    |   0`; nothing for the heading and other lines.
fn row(line: &str) -> Option<Left> {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [key, effects, records, held] = columns[..] else { return None };
    let names = |column: &str| column.split_whitespace().map(str::to_owned).collect();
    let (effects, records) = (names(effects), names(records));
    Some(Left { key: key.to_owned(), effects, records, held: held.parse().ok()? })
}
