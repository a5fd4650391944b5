//! The order of an object's members: by the UTF-16 code units of their decoded names (RFC 8785
//! section 3.2.3). Two equal names are found on the way.
//!
//! Names are compared eight bytes at a time, as keys. Where keys are equal, the next eight bytes
//! of those names become their keys, so every byte of a name is looked at once.

use std::cmp::Ordering;

use super::error::{OutOfMemory, push};
use super::string;
use super::text::Text;
use crate::fingerprint::pace::Pace;

/// A member of an open object. Small, because an object can consist of nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// See [`key`].
    pub(super) key: u64,
    /// The position in the text of the name's opening quotation mark.
    pub(super) start: u32,
    /// The position after its value, 0 as long as that is not noted; `start` if the member is left out.
    pub(super) end: u32,
}

impl Member {
    /// Whether the canonical form has it, also as long as its end is not noted.
    pub(super) fn is_kept(&self) -> bool {
        self.end != self.start
    }
}

/// Two members with the same name.
pub(super) enum Fault {
    /// The position in the text of the second one of them.
    Duplicate(u32),
    OutOfMemory,
}

impl From<OutOfMemory> for Fault {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// The key of a name's first eight bytes, given the canonical spelling from there on, and the
/// length of what it took. Keys compare like names: a byte counts as its [`rank`], the end of the
/// name as zero, so that a key ends with a zero exactly where the name has ended.
pub(super) fn key(canonical: &[u8]) -> (u64, usize) {
    let (mut key, mut read) = (0, 0);
    let mut bytes = string::decode(canonical);
    for _ in 0..8 {
        let (byte, length) = bytes.next().map_or((0, 0), |(byte, length)| (rank(byte), length));
        key = key << 8 | u64::from(byte);
        read += length;
    }
    (key, read)
}

/// [`key`] of a name in any spelling.
pub(super) fn raw_key(spelled: &[u8]) -> u64 {
    if let Some((_, characters)) = string::short(spelled) {
        return short_key(characters);
    }
    let mut bytes = string::decode_raw(spelled);
    (0..8).fold(0, |key, _| key << 8 | u64::from(bytes.next().map_or(0, rank)))
}

/// The order of two names in any spelling.
pub(super) fn compare(one: &[u8], other: &[u8], pace: &mut Pace<'_>) -> Ordering {
    let ranks = |spelled| string::decode_raw(spelled).map(rank);
    ranks(one).inspect(|_| pace.spend(1)).cmp(ranks(other))
}

/// UTF-8 orders like UTF-16 except that U+E000 to U+FFFF, which start with 0xEE and 0xEF, come
/// after the characters beyond U+FFFF, which start with 0xF0 to 0xF4.
fn rank(byte: u8) -> u8 {
    match byte {
        0xee | 0xef => byte + 8,
        _ => byte + 1,
    }
}

/// [`key`] for a name of less than eight ASCII characters without escapes, as [`string::short`]
/// has it.
#[inline(always)]
pub(super) fn short_key(characters: u64) -> u64 {
    const ONES: u64 = u64::from_be_bytes([1; 8]);
    let present = (characters + ONES * 0x7f) >> 7 & ONES;
    (characters + present).swap_bytes()
}

/// [`key`] for a name of ASCII characters without escapes at `start` of the input.
#[inline]
pub(super) fn plain_key(input: &[u8], start: usize, length: usize) -> u64 {
    match input[start..].first_chunk::<8>() {
        Some(chunk) if length >= 8 => short_key(u64::from_le_bytes(*chunk)),
        _ => key(&input[start..start + length]).0,
    }
}

/// An object with at most so many members is sorted by [`find_places`].
pub(super) const FEW: usize = 32;

/// Finds the place of each of at most [`FEW`] members in the order of their keys, among zeros. False
/// if two keys are equal.
///
/// Each is compared with each: most objects are small, and here is no branch to be guessed. The place
/// of a member is the number of smaller keys, so members with equal keys share one.
#[inline(always)]
pub(super) fn find_places(members: &[Member], places: &mut [u8; FEW]) -> bool {
    for (i, member) in members.iter().enumerate() {
        let mut place = 0;
        for (other, others_place) in members[..i].iter().zip(&mut *places) {
            place += u8::from(other.key < member.key);
            *others_place += u8::from(other.key > member.key);
        }
        places[i] = place;
    }
    let taken = places[..members.len()].iter().fold(0, |taken: u64, place| taken | 1 << place);
    taken == (1 << members.len()) - 1
}

/// Members whose names agree in the first bytes of their spelling.
struct Tie {
    from: usize,
    to: usize,
    agreed: usize,
}

/// Sorts the members, whose keys are those of their names' first eight bytes.
///
/// # Errors
/// Two names are equal, or memory ran out.
pub(super) fn sort(
    members: &mut [Member],
    text: &Text<'_>,
    pace: &mut Pace<'_>,
) -> Result<(), Fault> {
    let mut ties = Vec::new();
    sort_by_key(members, pace);
    find_ties(members, (0, 0), &mut ties, pace)?;
    while let Some(tie) = ties.pop() {
        let members = &mut members[tie.from..tie.to];
        let agreed = advance(members, tie.agreed, text, pace);
        sort_by_key(members, pace);
        find_ties(members, (tie.from, agreed), &mut ties, pace)?;
    }
    Ok(())
}

fn sort_by_key(members: &mut [Member], pace: &mut Pace<'_>) {
    members.sort_unstable_by(|a, b| {
        pace.spend(size_of::<Member>());
        a.key.cmp(&b.key)
    });
}

/// Notes the runs of equal keys, which start at `origin` and agree in so many bytes before that.
fn find_ties(
    members: &[Member],
    origin: (usize, usize),
    ties: &mut Vec<Tie>,
    pace: &mut Pace<'_>,
) -> Result<(), Fault> {
    let (mut from, agreed) = origin;
    for run in members.chunk_by(|a, b| a.key == b.key) {
        pace.spend(size_of_val(run));
        let to = from + run.len();
        if run.len() > 1 {
            if run[0].key & 0xff == 0 {
                return Err(Fault::Duplicate(second(run, pace)));
            }
            push(ties, Tie { from, to, agreed })?;
        }
        from = to;
    }
    Ok(())
}

/// Where the second of the equal members starts.
fn second(run: &[Member], pace: &mut Pace<'_>) -> u32 {
    let (mut first, mut second) = (u32::MAX, u32::MAX);
    for member in run {
        pace.spend(size_of::<Member>());
        second = second.min(first.max(member.start));
        first = first.min(member.start);
    }
    second
}

/// Makes the next eight bytes of each name its key. Names that decode to the same bytes are
/// spelled alike in the text, so they all go on at the same distance, which is returned.
fn advance(members: &mut [Member], agreed: usize, text: &Text<'_>, pace: &mut Pace<'_>) -> usize {
    let name = |member: &Member| &text.tail(member.start)[1..];
    let agreed = agreed + key(&name(&members[0])[agreed..]).1;
    for member in members {
        pace.spend(64);
        member.key = key(&name(member)[agreed..]).0;
    }
    agreed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorts names given in canonical spelling; the answer is their order, or the second twin.
    fn sorted(names: &[&str]) -> Result<Vec<usize>, usize> {
        let input: String = names.iter().map(|name| format!("\"{name}\"")).collect();
        let text = Text::new(input.as_bytes());
        let mut start = 0;
        let mut members = Vec::new();
        for name in names {
            members.push(Member { key: key(&text.tail(start)[1..]).0, start, end: 0 });
            start += name.len() as u32 + 2;
        }
        let starts: Vec<u32> = members.iter().map(|member| member.start).collect();
        let index = |start| starts.iter().position(|&other| other == start).unwrap();
        let mut ignore = || ();
        match sort(&mut members, &text, &mut Pace::new(&mut ignore)) {
            Ok(()) => Ok(members.iter().map(|member| index(member.start)).collect()),
            Err(Fault::Duplicate(start)) => Err(index(start)),
            Err(Fault::OutOfMemory) => panic!("out of memory"),
        }
    }

    /// The order by definition: UTF-16 code units of the decoded name.
    fn by_definition(names: &[&str]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..names.len()).collect();
        let units = |name: &str| -> Vec<u16> {
            serde_json::from_str::<String>(&format!("\"{name}\"")).unwrap().encode_utf16().collect()
        };
        order.sort_by_key(|&i| units(names[i]));
        order
    }

    #[test]
    fn names_sort_by_utf16_code_units() {
        let names = [
            "b",
            "a",
            "",
            "aa",
            "a\\u0000",
            "\\n",
            "\\u0001",
            "!",
            "\\\"",
            "#",
            "\\\\",
            "[",
            "]",
            "é",
            "\u{7ff}",
            "\u{800}",
            "\u{d7ff}",
            "\u{e000}",
            "\u{ffff}",
            "\u{fb33}",
            "😀",
            "\u{10000}",
            "\u{10ffff}",
            "b\u{10000}",
            "b\u{ffff}",
            "12345678",
            "123456789",
            "1234567",
            "12345678\\u0000",
            "1234567\\u0000",
            "longer than one key, a",
            "longer than one key, b",
            "longer than one key, ",
            "longer than one key\\n",
            "longer than\\t\\t\\t\\t\\tx",
            "longer than\\t\\t\\t\\t\\ty",
            "1234567😀",
            "1234567\u{e000}",
            "123456é",
            "123456é1",
            "123456é2",
        ];
        assert_eq!(sorted(&names), Ok(by_definition(&names)));
    }

    #[test]
    fn equal_names_are_found() {
        assert_eq!(sorted(&["a", "b", "a"]), Err(2));
        assert_eq!(sorted(&["", "x", "", ""]), Err(2));
        assert_eq!(sorted(&["12345678", "0", "12345678"]), Err(2));
        assert_eq!(
            sorted(&["a long name\\n", "a long name\\r", "a long name", "a long name\\r"]),
            Err(3)
        );
        assert_eq!(sorted(&["12345678\\u0000", "12345678"]), Ok(vec![1, 0]));
    }

    #[test]
    fn the_short_ways_to_a_key_are_the_same() {
        let input = b"abcdefghijklmnop\"\x7f~ !";
        for (start, length) in (0..16).flat_map(|start| (0..=16 - start).map(move |n| (start, n))) {
            let name = &input[start..start + length];
            assert_eq!(plain_key(input, start, length), key(name).0);
            assert_eq!(raw_key(&[name, b"\""].concat()), key(name).0);
            if length < 8 {
                let mut characters = [0; 8];
                characters[..length].copy_from_slice(name);
                assert_eq!(short_key(u64::from_le_bytes(characters)), key(name).0);
            }
        }
        assert_eq!(plain_key(b"1234567\x7f", 0, 8), key(b"1234567\x7f").0);
    }

    #[test]
    fn many_names_with_one_beginning() {
        let names: Vec<String> =
            (0..500).map(|i| format!("customer/{:03}/address/{i}", i * 7 % 10)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(sorted(&names), Ok(by_definition(&names)));
    }
}
