//! The Markdown page of `make bench-growth`.

use crate::growth::{Latency, PerRecord, Purge, Stage};
use crate::growth_order::{CREATES, Order};
use std::fmt::Write;

const HEAD: &str = "\
# Growth

Written by `make bench-growth`, which fills our table and the floor's with the same records in bulk: 100,000 people, half of
the keys UUIDs of version 4 and half of version 7, JSON bodies of about 200 bytes, two headers, a fingerprint. The creates add
about 10,000 to each at each size. Durations are in milliseconds, on the client's side. Each is taken next to those that it is
compared with, in the same run, so that the ratios can be compared though the machine had other work. A create is compared
with the floor (SELECT, business insert, INSERT of the key by hand) and with *bare*, the business insert alone; a replay with
*select*, by primary key from the floor's table, and with *no table*, a SELECT of the same parameters.
";

const ERASURE: &str = "
## Erasure, and a purge with nothing to do

Milliseconds, the median of five. A person is found by reading the table. A purge of a table of more than 64 MiB reads what is
due; the first one reads everything. The last row is after the purge below: before it, something had expired.

| records | idempotency_forget of a person | idempotency_purge that finds nothing |
|---|---|---|
";

const ORDER: &str = "
## The order of keys

Records of UUIDv4 keys lie anywhere in the primary key, those of UUIDv7 keys [as they were made](../design/layout.md#the-order).
Each version has a table of its own, of as many records as the row says, made in the last 31 days and kept for 30, so that those
of one day have expired. A create is claim and complete, without a business insert. Bytes of WAL are those behind a checkpoint,
images of pages included: per create, for so many creates, and per record that expired, of the purge and of the VACUUM behind it.
*Whole life* is their sum, with the first of the creates. *Misses* are blocks of the primary key per create that were not in
128 MB of buffers, in the last of the creates. Nothing here is a time, so other work on the machine changes nothing.

![WAL by the order of keys](growth.svg)

";

pub fn page(stages: &[Stage], purge: &Purge, orders: &[Order], note: Option<&str>) -> String {
    let note = note.unwrap_or("This run says nothing about its circumstances.");
    let mut page = format!("{HEAD}\n{note}\n");
    latencies(&mut page, "Claim and complete", ["floor", "bare"], stages, |stage| stage.create);
    latencies(&mut page, "Replay", ["select", "no table"], stages, |stage| stage.replay);
    bytes(&mut page, stages);
    page.push_str(ERASURE);
    for Stage { records, forget, idle, .. } in stages {
        let idle = idle.map_or_else(String::new, |idle| format!("{idle:.1}"));
        line(&mut page, &[grouped(*records), format!("{forget:.1}"), idle]);
    }
    let afterwards = format!("{}, after the purge", grouped(purge.left as u64));
    line(&mut page, &[afterwards, String::new(), format!("{:.1}", purge.idle)]);
    purged(&mut page, purge);
    in_order(&mut page, orders);
    page
}

fn in_order(page: &mut String, orders: &[Order]) {
    let creates = CREATES.map(|count| format!("WAL per create, {}", grouped(count.into())));
    let _ = write!(
        page,
        "{ORDER}| keys | records | {} | misses | purge | vacuum | whole life |\n|---|---|---|---|---|---|---|---|---|\n",
        creates.join(" | ")
    );
    for order in orders {
        let bytes = |bytes: f64| format!("{bytes:.0}");
        let mut fields = vec![format!("UUIDv{}", order.version), grouped(order.records)];
        fields.extend(order.create.map(bytes));
        fields.push(format!("{:.3}", order.misses));
        fields.extend([order.purge, order.vacuum, order.life()].map(bytes));
        line(page, &fields);
    }
}

fn latencies(
    page: &mut String,
    title: &str,
    others: [&str; 2],
    stages: &[Stage],
    pick: fn(&Stage) -> [Latency; 3],
) {
    let [first, second] = others;
    let _ = write!(
        page,
        "\n## {title}\n\n| records | × {first} | × {second} | median | 99 % | {first}: median | 99 % | {second}: median | 99 % |\n\
         |---|---|---|---|---|---|---|---|---|\n"
    );
    for stage in stages {
        let all = pick(stage);
        let ratio = |by: usize| format!("{:.2}", all[0].median / all[by].median);
        let mut fields = vec![grouped(stage.records), ratio(1), ratio(2)];
        for Latency { median, p99, .. } in all {
            fields.extend([format!("{median:.3}"), format!("{p99:.3}")]);
        }
        line(page, &fields);
    }
}

fn bytes(page: &mut String, stages: &[Stage]) {
    page.push_str(
        "\n## Bytes per record\n\n| records | table | index | out of line and maps | floor: table | index | out of line and maps |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for stage in stages {
        let mut fields = vec![grouped(stage.records)];
        for PerRecord { heap, index, rest } in [&stage.ours, &stage.floor] {
            fields.extend([format!("{heap:.0}"), format!("{index:.0}"), format!("{rest:.1}")]);
        }
        line(page, &fields);
    }
}

fn purged(page: &mut String, purge: &Purge) {
    let [at_first, between, afterwards] = purge.expired.map(|count| grouped(count as u64));
    let [before, during] = purge.replaced.map(|count| grouped(count as u64));
    let calls = &purge.calls;
    let _ = write!(
        page,
        "\n## A purge under load\n\nTwo clients create as fast as they can, under new keys and under expired ones. At first {at_first} records had expired. \
         Before the purge, claims replaced {before} of them, and {between} were left. Of these the purge deleted {}, in {} calls, {:.1} s altogether, {:.2} s the longest; \
         claims replaced {during} meanwhile; {afterwards} were left. How many records are gone is what the table's statistics say: it is as many as have expired and are not there any more, and what the purge did not delete was replaced. The first call reads the whole table, \
         and locks nothing before it has found something. None of the clients' transactions failed: one that does ends the run.\n\n\
         | | transactions | median | 99 % |\n|---|---|---|---|\n",
        grouped(calls.deleted as u64),
        calls.count,
        calls.took.as_secs_f64(),
        calls.longest.as_secs_f64(),
    );
    for (what, Latency { median, p99, count }) in [
        ("new keys, before", purge.before[0]),
        ("new keys, during the purge", purge.during[0]),
        ("expired keys, before", purge.before[1]),
        ("expired keys, during the purge", purge.during[1]),
    ] {
        let median = format!("{median:.3}");
        line(page, &[what.to_owned(), grouped(count as u64), median, format!("{p99:.3}")]);
    }
}

/// A row of a table.
fn line(page: &mut String, fields: &[String]) {
    page.push_str(&format!("| {} |\n", fields.join(" | ")));
}

/// `1,000,000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|part| str::from_utf8(part).unwrap_or_default())
        .collect();
    parts.join(",")
}
