//! What is compared with what. The first script of a match is what the others are measured by.

use crate::pgbench::{Protocol, Setting};
use crate::rounds::Match;
use crate::sizes::{Bytes, Weighing};

/// One client, prepared statements, synchronous_commit off.
pub const ALONE: Setting =
    Setting { clients: 1, protocol: Protocol::Prepared, synchronous_commit: false };
const EIGHT: Setting = Setting { clients: 8, ..ALONE };
const CROWD: Setting = Setting { clients: 64, ..ALONE };
const DURABLE: Setting = Setting { synchronous_commit: true, ..ALONE };

const CREATES: &[&str] = &[
    "create-floor",
    "create-ours",
    "create-inline-ours",
    "create-bare",
    "create-upsert",
    "create-plpgsql",
    "create-advisory",
];
const FLOOR_AND_OURS: &[&str] = &["create-floor", "create-ours", "create-inline-ours"];
const REPLAYS: &[&str] =
    &["replay-select", "replay-ours", "replay-inline-ours", "replay-plpgsql", "replay-advisory"];

/// The match during which somebody holds the key `held`.
pub const HELD: &str = "a held key, no wait";

/// Everything that is measured, by name.
pub fn names() -> impl Iterator<Item = &'static str> {
    let matches = MATCHES.iter().map(|game| game.name);
    matches.chain([RACE]).chain(WEIGHINGS.iter().map(|weighing| weighing.name))
}

/// The scripts that need nothing besides what every lab has, each once.
pub fn scripts() -> Vec<&'static str> {
    let mut scripts = Vec::new();
    for script in MATCHES.iter().filter(|game| game.name != HELD).flat_map(|game| game.scripts) {
        if !scripts.contains(script) {
            scripts.push(*script);
        }
    }
    scripts
}

/// The race of duplicates.
pub const RACE: &str = "64 duplicates, last answer after the winner's commit";

/// All matches, the two that matter most first.
pub const MATCHES: &[Match] = &[
    Match { name: "keyed create", setting: ALONE, scripts: CREATES },
    Match { name: "replay", setting: ALONE, scripts: REPLAYS },
    Match {
        name: "keyed create, next to the floor alone",
        setting: ALONE,
        scripts: FLOOR_AND_OURS,
    },
    Match {
        name: "replay, next to the select alone",
        setting: ALONE,
        scripts: &["replay-select", "replay-ours", "replay-inline-ours"],
    },
    Match {
        name: "replay in BEGIN and COMMIT",
        setting: ALONE,
        scripts: &["replay-begin-select", "replay-begin-ours", "replay-begin-inline-ours"],
    },
    Match {
        name: "replay, all columns",
        setting: ALONE,
        scripts: &["replay-all-select", "replay-all-ours", "replay-all-inline-ours"],
    },
    Match {
        name: "mismatch",
        setting: ALONE,
        scripts: &[
            "replay-select",
            "mismatch-ours",
            "mismatch-inline-ours",
            "mismatch-plpgsql",
            "mismatch-advisory",
        ],
    },
    Match {
        name: HELD,
        setting: ALONE,
        scripts: &["replay-select", "held-ours", "held-inline-ours", "held-advisory"],
    },
    Match {
        name: "keyed create, round trips shared",
        setting: ALONE,
        scripts: &["pipeline-floor", "pipeline-ours", "pipeline-inline-ours"],
    },
    Match { name: "keyed create, 8 clients", setting: EIGHT, scripts: CREATES },
    Match { name: "keyed create, 64 clients", setting: CROWD, scripts: FLOOR_AND_OURS },
    Match { name: "replay, 8 clients", setting: EIGHT, scripts: REPLAYS },
    Match { name: "keyed create, synchronous_commit on", setting: DURABLE, scripts: CREATES },
    Match {
        name: "keyed create, synchronous_commit on, 8 clients",
        setting: Setting { clients: 8, ..DURABLE },
        scripts: FLOOR_AND_OURS,
    },
    Match {
        name: "keyed create, extended protocol",
        setting: Setting { protocol: Protocol::Extended, ..ALONE },
        scripts: FLOOR_AND_OURS,
    },
    Match {
        name: "keyed create, simple protocol",
        setting: Setting { protocol: Protocol::Simple, ..ALONE },
        scripts: FLOOR_AND_OURS,
    },
];

const WRITERS: &[(&str, &str)] = &[
    ("create-floor", "bench.floor"),
    ("create-ours", "idempotency.records"),
    ("create-upsert", "bench.upsert"),
    ("create-plpgsql", "bench.plpgsql"),
    ("create-advisory", "bench.advisory"),
];

/// What is counted in bytes.
pub const WEIGHINGS: &[Weighing] = &[
    Weighing { name: "bytes of WAL per create", bytes: Bytes::Wal, contenders: WRITERS },
    Weighing {
        name: "bytes of WAL per create, with full pages",
        bytes: Bytes::WalWithFullPages,
        contenders: WRITERS,
    },
    Weighing { name: "bytes per record", bytes: Bytes::Stored, contenders: WRITERS },
];
