//! Strings: where they end, whether they are right, how they are written (RFC 8785 section
//! 3.2.2.2).

use super::emit::{Sink, put_all};
use super::error::{CanonicalError, OutOfMemory, Violation};
use super::swar::{HIGH, specials, word};
use super::text::Text;
use crate::fingerprint::pace::Pace;

/// What a name's sort key has to know about the string.
pub(super) struct Scanned {
    /// The offset of the closing quotation mark.
    pub(super) end: usize,
    /// Neither an escape nor a byte outside ASCII.
    pub(super) plain: bool,
}

/// The length and the characters of a string of less than eight ASCII characters without escapes,
/// given what follows its opening quotation mark: the first character lowest, zeros after the last.
/// Most names and many values are such.
#[inline(always)]
pub(super) fn short(rest: &[u8]) -> Option<(usize, u64)> {
    let word = word(rest)?;
    let marks = specials(word);
    if marks == 0 {
        return None;
    }
    let length = marks.trailing_zeros() as usize / 8;
    let characters = word & (((marks & marks.wrapping_neg()) >> 7) - 1);
    let is_end = (word >> (8 * length)) as u8 == b'"';
    if is_end && characters & HIGH == 0 { Some((length, characters)) } else { None }
}

/// Reads the string whose first byte after the quotation mark is at `start`, and replaces in
/// `text` the escapes that the canonical form writes differently.
///
/// # Errors
/// What is wrong with the string first, or that memory ran out.
#[inline(always)]
pub(super) fn scan(
    input: &[u8],
    start: usize,
    text: &mut Text<'_>,
    pace: &mut Pace<'_>,
) -> Result<Scanned, CanonicalError> {
    let stretch = special(input, start, pace);
    if stretch.ascii && input.get(stretch.end) == Some(&b'"') {
        return Ok(Scanned { end: stretch.end, plain: true });
    }
    scan_from(input, start, stretch, text, pace)
}

/// The general case: stretches without anything special, with escapes between them.
#[inline(never)]
fn scan_from(
    input: &[u8],
    mut start: usize,
    mut stretch: Stretch,
    text: &mut Text<'_>,
    pace: &mut Pace<'_>,
) -> Result<Scanned, CanonicalError> {
    loop {
        let Stretch { end, ascii } = stretch;
        if !ascii {
            check_utf8(input, start, end, pace)?;
        }
        start = match input.get(end) {
            Some(b'"') => return Ok(Scanned { end, plain: false }),
            Some(b'\\') => rewrite(input, end, text)?,
            Some(_) => return Err(CanonicalError::invalid(Violation::ControlCharacter, end)),
            None => return Err(CanonicalError::invalid(Violation::UnexpectedEnd, end)),
        };
        pace.spend(start - end);
        stretch = special(input, start, pace);
    }
}

/// Part of a string up to a byte that means something.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    /// The offset of that byte: a quotation mark, a backslash or a control character; or the end
    /// of the input.
    end: usize,
    /// Whether all before it is ASCII.
    ascii: bool,
}

/// The stretch that starts at `at`.
#[inline(always)]
fn special(input: &[u8], at: usize, pace: &mut Pace<'_>) -> Stretch {
    let (length, ascii) = usual(&input[at..input.len().min(at + Pace::STEP)]);
    if length < Pace::STEP {
        return Stretch { end: at + length, ascii };
    }
    far_special(input, at, pace)
}

/// [`special`] in steps.
#[cold]
#[inline(never)]
fn far_special(input: &[u8], at: usize, pace: &mut Pace<'_>) -> Stretch {
    let (mut end, mut all_ascii) = (at, true);
    loop {
        let step = &input[end..input.len().min(end + Pace::STEP)];
        let (length, ascii) = usual(step);
        pace.spend(length);
        end += length;
        all_ascii &= ascii;
        if length < Pace::STEP {
            return Stretch { end, ascii: all_ascii };
        }
    }
}

/// How many bytes there are before the first one that means something, and whether they are ASCII.
#[inline(never)]
fn usual(bytes: &[u8]) -> (usize, bool) {
    let (mut rest, mut high) = (bytes, 0);
    while let Some((eight, after)) = rest.split_first_chunk() {
        let word = u64::from_le_bytes(*eight);
        let marks = specials(word);
        if marks != 0 {
            high |= word & ((marks & marks.wrapping_neg()) - 1);
            let length = bytes.len() - rest.len() + marks.trailing_zeros() as usize / 8;
            return (length, high & HIGH == 0);
        }
        high |= word;
        rest = after;
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    let length = rest.iter().position(is_special).unwrap_or(rest.len());
    (bytes.len() - rest.len() + length, high & HIGH == 0 && rest[..length].is_ascii())
}

/// Checks in steps, each up to the last whole character.
fn check_utf8(
    input: &[u8],
    mut start: usize,
    end: usize,
    pace: &mut Pace<'_>,
) -> Result<(), CanonicalError> {
    while start < end {
        let step_end = end.min(start + Pace::STEP);
        pace.spend(step_end - start);
        start = match std::str::from_utf8(&input[start..step_end]) {
            Ok(_) => step_end,
            Err(e) if e.error_len().is_none() && step_end < end => start + e.valid_up_to(),
            Err(e) => {
                return Err(CanonicalError::invalid(
                    Violation::InvalidUtf8,
                    start + e.valid_up_to(),
                ));
            }
        };
    }
    Ok(())
}

/// Puts the escape at `at` into its canonical form and returns the offset after it.
fn rewrite(input: &[u8], at: usize, text: &mut Text<'_>) -> Result<usize, CanonicalError> {
    if let Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') = input.get(at + 1) {
        return Ok(at + 2);
    }
    let (character, end) = unescape(input, at)?;
    let mut buffer = [0; 6];
    let canonical = escape(character, &mut buffer);
    if input[at..end] != *canonical {
        text.replace(at, end, canonical)?;
    }
    Ok(end)
}

/// The character that the escape at `at` means, and the offset after it.
fn unescape(input: &[u8], at: usize) -> Result<(char, usize), CanonicalError> {
    let character = match input.get(at + 1) {
        Some(b'u') => return unescape_hex(input, at),
        Some(&byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(_) => return Err(CanonicalError::invalid(Violation::InvalidEscape, at)),
        None => return Err(CanonicalError::invalid(Violation::UnexpectedEnd, at + 1)),
    };
    Ok((character, at + 2))
}

/// `\uXXXX`, or two of them that are a surrogate pair.
fn unescape_hex(input: &[u8], at: usize) -> Result<(char, usize), CanonicalError> {
    let first = hex(input, at)?;
    if let Some(character) = char::from_u32(first) {
        return Ok((character, at + 6));
    }
    let lone = CanonicalError::invalid(Violation::LoneSurrogate, at);
    if first >= 0xdc00 || input.get(at + 6..at + 8) != Some(br"\u") {
        return Err(lone);
    }
    let second = hex(input, at + 6)?;
    if !(0xdc00..0xe000).contains(&second) {
        return Err(lone);
    }
    let scalar = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    char::from_u32(scalar).map(|character| (character, at + 12)).ok_or(lone)
}

/// The value of each hexadecimal digit, and more than 15 for every other byte.
const HEXADECIMAL: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// The four hexadecimal digits of the escape at `at`.
fn hex(input: &[u8], at: usize) -> Result<u32, CanonicalError> {
    let mut value = 0;
    for i in at + 2..at + 6 {
        let byte = *input.get(i).ok_or(CanonicalError::invalid(Violation::UnexpectedEnd, i))?;
        let digit = HEXADECIMAL[usize::from(byte)];
        if digit > 15 {
            return Err(CanonicalError::invalid(Violation::InvalidEscape, at));
        }
        value = value << 4 | u32::from(digit);
    }
    Ok(value)
}

/// The canonical spelling of a character in a string (RFC 8785 section 3.2.2.2).
fn escape(character: char, buffer: &mut [u8; 6]) -> &[u8] {
    match character {
        '"' => br#"\""#,
        '\\' => br"\\",
        '\u{8}' => br"\b",
        '\u{c}' => br"\f",
        '\n' => br"\n",
        '\r' => br"\r",
        '\t' => br"\t",
        '\0'..' ' => escape_control(character as u8, buffer),
        _ => character.encode_utf8(buffer).as_bytes(),
    }
}

fn escape_control(byte: u8, buffer: &mut [u8; 6]) -> &[u8] {
    *buffer =
        [b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), b"0123456789abcdef"[usize::from(byte & 15)]];
    buffer
}

/// The decoded bytes of a canonical string, given what follows its opening quotation mark, each
/// with the length of its spelling.
pub(super) fn decode(canonical: &[u8]) -> impl Iterator<Item = (u8, usize)> + '_ {
    let mut rest = canonical;
    std::iter::from_fn(move || {
        let (byte, length) = match *rest {
            [b'"', ..] | [] => return None,
            [b'\\', b'u', _, _, high, low, ..] => ((high - b'0') << 4 | digit(low), 6),
            [b'\\', letter, ..] => (unescape_short(letter), 2),
            [byte, ..] => (byte, 1),
        };
        rest = &rest[length..];
        Some((byte, length))
    })
}

/// The decoded bytes of a string in any spelling that [`scan`] has found to be right, given what
/// follows its opening quotation mark.
pub(super) fn decode_raw(spelled: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let (mut rest, mut buffer, mut bytes) = (spelled, [0; 4], 0..0);
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            let length = match *rest {
                [b'"', ..] | [] => return None,
                [b'\\', ..] => {
                    let (character, length) = unescape(rest, 0).ok()?;
                    bytes = 0..character.encode_utf8(&mut buffer).len();
                    length
                }
                [byte, ..] => {
                    (buffer[0], bytes) = (byte, 0..1);
                    1
                }
            };
            rest = &rest[length..];
        }
        bytes.next().map(|at| buffer[at])
    })
}

/// Writes the string whose opening quotation mark is at `start`, and which [`scan`] has found to be
/// right, in canonical form; returns the offset after it.
pub(super) fn respell(
    input: &[u8],
    start: usize,
    sink: &mut impl Sink,
    pace: &mut Pace<'_>,
) -> Result<usize, OutOfMemory> {
    let mut from = start;
    let mut at = start + 1;
    loop {
        at = special(input, at, pace).end;
        if input.get(at) != Some(&b'\\') {
            let end = input.len().min(at + 1);
            put_all(&input[from..end], sink, pace)?;
            return Ok(end);
        }
        put_all(&input[from..at], sink, pace)?;
        // Infallible: it was read before.
        let (character, end) = unescape(input, at).map_err(|_| OutOfMemory)?;
        sink.put(escape(character, &mut [0; 6]))?;
        (from, at) = (end, end);
    }
}

/// The inverse of [`escape_control`] for one digit, which is of lower case.
fn digit(byte: u8) -> u8 {
    if byte <= b'9' { byte - b'0' } else { byte - b'a' + 10 }
}

fn unescape_short(letter: u8) -> u8 {
    match letter {
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        other => other,
    }
}

#[cfg(test)]
mod tests;
