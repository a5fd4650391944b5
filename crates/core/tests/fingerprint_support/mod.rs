//! Documents for the tests of the fingerprint: any JSON value, and many ways to write it.
#![allow(dead_code, reason = "each test file uses a part")]

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Number, Value};

/// A stream of numbers that is the same in every run (xorshift64, Marsaglia 2003).
pub struct Numbers(u64);

impl Numbers {
    /// Starts the stream anywhere.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number, below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Text with all that is awkward in JSON: what is escaped, every length in UTF-8, and characters
/// whose order differs between UTF-8 and UTF-16.
pub fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => prop::char::range(' ', '~'),
        1 => prop::char::range('\0', '\u{1f}'),
        1 => prop::sample::select(vec!['"', '\\', '/', '\u{7f}', 'é', '€', '\u{d7ff}', '\u{e000}',
            '\u{fb33}', '\u{ffff}', '\u{10000}', '😀', '\u{10ffff}', '\u{2028}']),
        1 => any::<char>(),
    ];
    vec(character, 0..12).prop_map(|characters| characters.into_iter().collect())
}

/// Names of few kinds, so that many begin alike.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![text(), "(order|order_item_|order_item_number)?[a-c0-2é]{0,3}"]
}

fn number() -> impl Strategy<Value = Value> {
    let double = |double: f64| Number::from_f64(double).map_or(Value::Null, Value::Number);
    prop_oneof![
        any::<i32>().prop_map(Value::from),
        (-(1i64 << 53)..=1 << 53).prop_map(Value::from),
        (-100_000i64..100_000).prop_map(move |cents| double(cents as f64 / 100.0)),
        (-180.0..180.0).prop_map(double),
        any::<f64>().prop_map(double),
    ]
}

/// Any JSON value.
pub fn value() -> impl Strategy<Value = Value> {
    prop_oneof![12 => tree(), 1 => object_at_the_edge()]
}

/// Names that differ only behind their first eight bytes, or where these end within a character.
fn name_at_the_edge() -> impl Strategy<Value = String> {
    let character =
        prop::sample::select(vec!['a', '\0', '"', '/', 'é', '\u{e000}', '\u{ffff}', '\u{10000}']);
    ("(1234|12345|123456|1234567|12345678|x{62})?", vec(character, 0..4))
        .prop_map(|(beginning, characters)| beginning + &String::from_iter(characters))
}

/// Objects around the limits within which members change places in the text: 32 of them, in 1 KiB;
/// of members that are copied whole, and longer ones; one in the other; with numbers that are longer
/// in the text than in the body, and shorter.
pub fn object_at_the_edge() -> impl Strategy<Value = Value> {
    let number = prop::sample::select(vec![1e20, 1e21, 1.0, 0.1, 1e-6, 1e-7, 0.30000000000000004]);
    let leaf = prop_oneof![
        3 => any::<u8>().prop_map(Value::from),
        1 => number.prop_map(Value::from),
        1 => name_at_the_edge().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 60, 16, |inner| {
        let count = prop_oneof![2 => 1..8usize, 1 => 31..35usize];
        let members = count.prop_flat_map(move |count| {
            btree_map(prop_oneof![name_at_the_edge(), "[a-z]{2}"], inner.clone(), count)
        });
        (members, prop_oneof![Just(None), (-30..30i32).prop_map(Some), (-2..=2).prop_map(Some)])
            .prop_map(|(members, edge)| filled_up(members.into_iter().collect(), edge))
    })
}

/// The object, with one member more if that makes its members so many bytes longer than 1 KiB.
fn filled_up(mut members: Map<String, Value>, edge: Option<i32>) -> Value {
    let length = |members: &Map<_, _>| serde_json_canonicalizer::to_vec(members).unwrap().len();
    if let Some(more) = edge {
        members.insert("mmm".into(), "".into());
        let missing = (2 + 1024 + more) as usize;
        members["mmm"] = "x".repeat(missing.saturating_sub(length(&members))).into();
    }
    members.into()
}

/// A value up to six levels deep.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        3 => number(),
        2 => text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 80, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(name(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Writes a value in one of its many spellings: members in any order, white space anywhere, any
/// character escaped or not, numbers with zeros and exponents.
pub fn spell(value: &Value, seed: u64) -> String {
    let mut writer = Writer { numbers: Numbers::new(seed), text: String::new() };
    writer.space();
    writer.value(value);
    writer.space();
    writer.text
}

struct Writer {
    numbers: Numbers,
    text: String,
}

impl Writer {
    fn space(&mut self) {
        for _ in 0..self.numbers.below(8).saturating_sub(5) {
            let space = [' ', '\t', '\n', '\r'][self.numbers.below(4) as usize];
            self.text.push(space);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => self.text.push_str(&value.to_string()),
            Value::Number(number) => self.number(number),
            Value::String(string) => self.string(string),
            Value::Array(elements) => {
                self.list("[]", elements, |writer, element| writer.value(element))
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                for i in (1..members.len()).rev() {
                    members.swap(i, self.numbers.below(i as u64 + 1) as usize);
                }
                self.list("{}", &members, |writer, (name, value)| writer.member(name, value));
            }
        }
    }

    fn list<T>(&mut self, brackets: &str, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.text.push_str(&brackets[..1]);
        for (i, item) in items.iter().enumerate() {
            self.text.push_str(if i > 0 { "," } else { "" });
            self.space();
            write(self, item);
            self.space();
        }
        self.text.push_str(&brackets[1..]);
    }

    fn member(&mut self, name: &str, value: &Value) {
        self.string(name);
        self.space();
        self.text.push(':');
        self.space();
        self.value(value);
    }

    fn number(&mut self, number: &Number) {
        let spelling = match number.as_i64() {
            Some(integer) => match self.numbers.below(4) {
                0 => format!("{integer}.{}", "0".repeat(1 + self.numbers.below(3) as usize)),
                1 if integer != 0 => format!("{integer}00e-2"),
                2 => format!("{integer}E+0"),
                _ => integer.to_string(),
            },
            None => self.double(number.as_f64().unwrap()),
        };
        self.text.push_str(&spelling);
    }

    fn double(&mut self, double: f64) -> String {
        let plain = format!("{double}");
        match self.numbers.below(3) {
            0 => format!("{double:e}"),
            // Not as a plain integer, which need not be exact.
            _ if !plain.contains('.') => format!("{plain}.0"),
            1 => format!("{plain}{}", "0".repeat(self.numbers.below(3) as usize)),
            _ => plain,
        }
    }

    fn string(&mut self, string: &str) {
        self.text.push('"');
        for character in string.chars() {
            self.character(character);
        }
        self.text.push('"');
    }

    fn character(&mut self, character: char) {
        let must = matches!(character, '"' | '\\' | '\0'..='\u{1f}');
        match character {
            '"' | '\\' | '/' if self.numbers.below(2) == 0 => self.text.extend(['\\', character]),
            _ if must || self.numbers.below(6) == 0 => self.hexadecimal(character),
            _ => self.text.push(character),
        }
    }

    fn hexadecimal(&mut self, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let escape = match self.numbers.below(2) {
                0 => format!("\\u{unit:04x}"),
                _ => format!("\\u{unit:04X}"),
            };
            self.text.push_str(&escape);
        }
    }
}
