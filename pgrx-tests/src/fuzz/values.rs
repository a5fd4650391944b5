//! Hostile values of every type, as SQL expressions: short to read, large when evaluated.

use crate::dice::Dice;

/// What values are made of besides chance.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Names of settings of operations.
    pub settings: Vec<String>,
    /// The most bytes of one value.
    pub largest: usize,
}

/// Lengths at which something changes: a limit, a header of a varlena, TOAST, a page.
const LENGTHS: [usize; 14] =
    [0, 1, 31, 32, 126, 127, 254, 255, 256, 1023, 1025, 2000, 8200, 65_537];

/// A few keys, scopes and operations, so that calls meet.
const NAMES: [&str; 12] = [
    "'k1'",
    "'k2'",
    "'k3'",
    "'a'",
    "'alice'",
    "'alice'",
    "'bob'",
    "'POST /orders'",
    "'POST /orders'",
    "'uuids'",
    "'resources'",
    "'leased'",
];

const TEXTS: [&str; 44] = [
    "''",
    "' '",
    "E'\\t'",
    "E'a\\nb'",
    "E'a\\rb'",
    "E'\\x01'",
    "E'\\x7f'",
    "'\"quoted\"'",
    "'\"open'",
    "'\"a\\\"b\"'",
    "'''; DROP TABLE idempotency.records; --'",
    "'%s%n$1'",
    "'(1,2)'",
    "'{a,b}'",
    "'8e03978e-40d5-43dd-bc93-6894a57f9324'",
    "'8E03978E-40D5-43DD-BC93-6894A57F9324'",
    "'01890a5d-ac96-774b-bcce-b302099a8057'",
    "'ffffffff-ffff-7fff-bfff-ffffffffffff'",
    "gen_random_uuid()::text",
    "'null'",
    "'0'",
    "'-0'",
    "'1e400'",
    "'9007199254740993'",
    "'[1,2,3'",
    "'{\"a\":1,\"a\":2}'",
    "'\"\\ud800\"'",
    "'\"\\ud83d\\ude00\"'",
    "'{\"a\":null,\"b\":[1.0,1e2,{}]}'",
    "'application/json'",
    "'thing'",
    "'numbered'",
    "'raising'",
    "'reentering'",
    "'1'",
    "'opaque'",
    "'uuidv7'",
    "'one_time_secret'",
    "chr(233)",
    "repeat(chr(233), 200)",
    "chr(20320) || chr(22909)",
    "chr(128512)",
    "convert_from('\\xe9', 'LATIN1')",
    "convert_from('\\xff', getdatabaseencoding())",
];

const JSON: [&str; 24] = [
    "'{}'",
    "'[]'",
    "'null'",
    "'1'",
    "'\"x\"'",
    "'true'",
    "'{\"X\": 1e400}'",
    "'{\"X\": -0.0}'",
    "'{\"Content-Type\": \"text/plain\"}'",
    "'{\"Link\": [\"<a>\", \"<b>\"]}'",
    "'{\"Set-Cookie\": \"a=b\"}'",
    "'{\"X\": [1, \"2\", [3]]}'",
    "'{\"X\": {\"y\": null}}'",
    "'{\"\": \"\"}'",
    "'{\"X\\u0001\": \"a\"}'",
    "to_jsonb('NaN'::numeric)",
    "to_jsonb('infinity'::timestamptz)",
    "jsonb_build_object('X', repeat('9', 130000)::numeric)",
    "jsonb_build_object('X', ('0.' || repeat('0', 16000) || '1')::numeric)",
    "(SELECT jsonb_object_agg('X' || n, ('1e' || 130000 - n)::numeric) FROM generate_series(1, 200) n)",
    "(repeat('[', 5000) || repeat(']', 5000))::jsonb",
    "(repeat('{\"a\":', 3000) || '1' || repeat('}', 3000))::jsonb",
    "(SELECT jsonb_object_agg('X' || n, repeat('y', 40)) FROM generate_series(1, 2000) n)",
    "to_jsonb(array_fill('x'::text, ARRAY[20000]))",
];

/// A setting of the server's that is no text in most encodings: PostgreSQL checks no setting that a session
/// starts with. Only given to functions of ours: errors of PostgreSQL's own could send it on to us.
const UNCHECKED: &str = "current_setting('fuzz.unchecked')";

/// The line that sets it, for postgresql.conf.
pub const UNCHECKED_SETTING: &str = "fuzz.unchecked = '\\360'";

const SETTING_VALUES: [&str; 44] = [
    "null",
    "true",
    "0",
    "1",
    "-1",
    "255",
    "256",
    "2147483647",
    "-2147483648",
    "1e400",
    "1.5",
    "\"\"",
    "[]",
    "{}",
    "\"optional\"",
    "\"required\"",
    "\"ignored\"",
    "\"forbidden\"",
    "\"resource\"",
    "\"response\"",
    "\"json\"",
    "\"strict_json\"",
    "\"refuse\"",
    "\"hold\"",
    "\"uuidv7\"",
    "\"unit_of_work\"",
    "\"create\"",
    "\"bypass\"",
    "\"error\"",
    "\"fuzz.agrees\"",
    "\"fuzz.disagrees\"",
    "\"fuzz.raises\"",
    "\"fuzz.reenters\"",
    "\"fuzz.catches\"",
    "\"fuzz.\\\"quoted\"",
    "\"{[200,600)}\"",
    "\"{(,)}\"",
    "\"{}\"",
    "\"30 days\"",
    "\"-1 month\"",
    "\"infinity\"",
    "\"178000000 years\"",
    "\"1 mon -29 days\"",
    "\"1 microsecond\"",
];

const RELATIONS: [&str; 15] = [
    "fuzz.things",
    "fuzz.numbered",
    "fuzz.numbered_0",
    "fuzz.raising",
    "fuzz.reentering",
    "fuzz.kept",
    "fuzz.guarded",
    "fuzz.worked",
    "idempotency.records",
    "pg_catalog.pg_class",
    "pg_catalog.pg_class_oid_index",
    "pg_catalog.pg_stat_activity",
    "public.orders_id_seq",
    "information_schema.tables",
    "fuzz.many",
];

const INTERVALS: [&str; 10] = [
    "'0'",
    "'1 day'",
    "'-1 day'",
    "'1 mon'",
    "'-178000000 years'",
    "'178000000 years'",
    "'1 microsecond'",
    "'1 mon -30 days'",
    "'P1Y2M'",
    "'9223372036854775 ms'",
];

const INSTANTS: [&str; 7] = [
    "'infinity'",
    "'-infinity'",
    "'epoch'",
    "'4713-01-01 BC'",
    "'294276-12-31'",
    "clock_timestamp()",
    "clock_timestamp() - interval '1 day'",
];

/// Six tokens, so that who goes on by a token finds the lease of who claimed with it.
fn token(dice: &mut Dice) -> String {
    format!("'00000000-0000-7000-8000-00000000000{}'", dice.below(6))
}

/// An expression of a type; NULL now and then.
pub fn any(dice: &mut Dice, pool: &Pool, sql_type: &str) -> String {
    if dice.once_in(9) {
        return format!("NULL::{sql_type}");
    }
    let value = of_type(dice, pool, sql_type);
    match (sql_type, dice.below(12)) {
        ("text", 0) => format!("({value})::fuzz.short_text"),
        ("bytea", 0) => format!("({value})::fuzz.some_bytes"),
        ("integer", 0) => format!("({value})::fuzz.small"),
        ("jsonb", 0) => format!("({value})::fuzz.flat"),
        ("text", 1) => format!("({value})::varchar(5)"),
        ("text", 2) => format!("({value})::text || {UNCHECKED}"),
        ("name", 2) => format!("({UNCHECKED})::name"),
        ("jsonb", 2) => {
            let json = *dice.pick(&["{\"%\": 1}", "{\"X\": \"%\"}", "[[\"%\"]]"]);
            format!("('{}')::jsonb", json.replace('%', &format!("a' || {UNCHECKED} || 'b")))
        }
        _ => format!("({value})::{sql_type}"),
    }
}

fn of_type(dice: &mut Dice, pool: &Pool, sql_type: &str) -> String {
    match sql_type {
        "text" | "name" | "character varying" => text(dice, pool),
        "bytea" => bytes(dice, pool),
        "smallint" => pick(dice, &["0", "1", "-1", "32767", "-32768"]),
        "integer" => integer(dice),
        "bigint" => integer(dice).replace("2147483647", "9223372036854775807"),
        "boolean" => pick(dice, &["true", "false"]),
        "uuid" => {
            if dice.once_in(5) {
                "gen_random_uuid()".into()
            } else {
                token(dice)
            }
        }
        "jsonb" | "json" => json(dice, pool),
        "interval" => pick(dice, &INTERVALS),
        "timestamp with time zone" => pick(dice, &INSTANTS),
        "regclass" => {
            if dice.once_in(6) {
                integer(dice)
            } else {
                format!("'{}'", dice.pick(&RELATIONS))
            }
        }
        "numeric" | "double precision" => pick(dice, &["0", "-1", "'NaN'", "1e300", "'infinity'"]),
        array if array.ends_with("[]") => list(dice, pool, &array[..array.len() - 2]),
        _ => text(dice, pool),
    }
}

fn pick(dice: &mut Dice, from: &[&str]) -> String {
    (*dice.pick(from)).to_owned()
}

/// Mostly short and near a limit, seldom large.
fn length(dice: &mut Dice, pool: &Pool) -> usize {
    if dice.once_in(25) { dice.below(pool.largest) } else { *dice.pick(&LENGTHS) }
}

fn text(dice: &mut Dice, pool: &Pool) -> String {
    match dice.below(20) {
        0..10 => pick(dice, &NAMES),
        10..16 => pick(dice, &TEXTS),
        16 => format!("repeat('x', {})", length(dice, pool)),
        17 => format!("repeat('[', {0}) || repeat(']', {0})", length(dice, pool) / 2),
        18 => format!("'[' || repeat('123456789,', {}) || '0]'", length(dice, pool) / 10),
        _ => format!("repeat('{{\"a\":', {0}) || '1' || repeat('}}', {0})", length(dice, pool) / 7),
    }
}

fn bytes(dice: &mut Dice, pool: &Pool) -> String {
    match dice.below(10) {
        0..3 => "sha256('x')".into(),
        3 => "sha256('y')".into(),
        4 => pick(
            dice,
            &[
                "'\\x'",
                "'\\x00'",
                "'\\xff'",
                "'\\xc080'",
                "'\\xeda080'",
                "'\\xf4908080'",
                "'\\x5b22ff225d'",
            ],
        ),
        5 => format!("decode(repeat('{:02x}', {}), 'hex')", dice.below(256), length(dice, pool)),
        _ => format!("convert_to({}, 'UTF8')", text(dice, pool)),
    }
}

fn integer(dice: &mut Dice) -> String {
    match dice.below(4) {
        0 => pick(dice, &["200", "201", "204", "404", "409", "500", "503", "600", "100"]),
        1 => pick(dice, &["0", "1", "2", "-1", "-2", "10", "100", "255", "256", "1000", "1001"]),
        2 => pick(dice, &["2147483647", "(-2147483647 - 1)", "60000"]),
        _ => dice.below(50).to_string(),
    }
}

fn json(dice: &mut Dice, pool: &Pool) -> String {
    match dice.below(5) {
        0..2 => pick(dice, &JSON),
        2 => format!("to_jsonb({})", text(dice, pool)),
        _ => format!("'{}'", settings(dice, pool)),
    }
}

/// A JSON object of settings.
pub fn settings(dice: &mut Dice, pool: &Pool) -> String {
    let setting = |dice: &mut Dice| {
        format!("\"{}\": {}", dice.pick(&pool.settings), dice.pick(&SETTING_VALUES))
    };
    let count = dice.below(4);
    let settings: Vec<String> = (0..count).map(|_| setting(dice)).collect();
    format!("{{{}}}", settings.join(", "))
}

fn list(dice: &mut Dice, pool: &Pool, element: &str) -> String {
    let small = Pool { largest: 100_000, ..pool.clone() };
    let of = |dice: &mut Dice| any(dice, &small, element);
    match dice.below(10) {
        0 => "'{}'".into(),
        1 => "'{NULL}'".into(),
        2 => format!("ARRAY[[{}, {}], [{}, {}]]", of(dice), of(dice), of(dice), of(dice)),
        3 => format!(
            "array_fill({}, ARRAY[{}])",
            of(dice),
            dice.pick(&[1, 2, 999, 1000, 1001, 2000])
        ),
        4 => format!("array_fill({}, ARRAY[3], ARRAY[-7])", of(dice)),
        5 => format!("array_fill(NULL::{element}, ARRAY[2, 2, 2, 2, 2, 2])"),
        6 => format!(
            "(SELECT array_agg(('k' || n)::text::{element}) FROM generate_series(1, {}) n)",
            1 + dice.below(1100)
        ),
        count => {
            let elements: Vec<String> = (6..count).map(|_| of(dice)).collect();
            format!("ARRAY[{}]", elements.join(", "))
        }
    }
}
