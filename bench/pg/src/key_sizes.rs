//! Bytes per record under two primary keys: the three names, and their digest. Prints the table of
//! docs/design/layout.md.

use crate::lab::Lab;

/// Records in each table before the creates whose WAL is counted.
const RECORDS: u64 = 500_000;
const CREATES: u64 = 1000;

/// What keys there are: their version as UUIDs, and how many scopes they have.
const SHAPES: [(u32, u32); 4] = [(4, 1), (7, 1), (4, 100_000), (7, 100_000)];

struct Bytes {
    index: f64,
    heap: f64,
    wal: f64,
}

/// Fills the tables with each shape of keys, and prints what a record takes.
pub fn compare(lab: &Lab<'_>) {
    lab.database().run(include_str!("../sql/key_sizes.sql"));
    println!(
        "| | index, names | index, digest | heap, names | heap, digest | WAL, names | WAL, digest |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (version, scopes) in SHAPES {
        let [names, digest] =
            ["sizes.names", "sizes.digest"].map(|table| weigh(lab, table, version, scopes));
        println!(
            "| UUIDv{version} keys, {scopes} scopes | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
            names.index, digest.index, names.heap, digest.heap, names.wal, digest.wal
        );
    }
}

fn weigh(lab: &Lab<'_>, table: &str, version: u32, scopes: u32) -> Bytes {
    let db = lab.database();
    let fill = |low, high| {
        db.run(&format!("CALL sizes.fill('{table}', {version}, {scopes}, {low}, {high})"));
    };
    db.run(&format!("TRUNCATE {table}"));
    fill(1, RECORDS);
    db.run(&format!("VACUUM ANALYZE {table}"));
    db.run("CHECKPOINT");
    let position =
        || db.value::<i64>("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint") as f64;
    let before = position();
    fill(RECORDS + 1, RECORDS + CREATES);
    let wal = (position() - before) / CREATES as f64;
    let per_record = |size: &str| {
        let bytes = db.value::<i64>(&format!("SELECT {size}('{table}')"));
        bytes as f64 / (RECORDS + CREATES) as f64
    };
    let (index, heap) = (per_record("pg_indexes_size"), per_record("pg_relation_size"));
    Bytes { index, heap, wal }
}
