//! Number literals: the grammar (RFC 8259 section 6) and the value.

use std::fmt::Write;

use super::error::{CanonicalError, OutOfMemory, Violation};
use super::swar::{leading_digits, word};
use crate::fingerprint::pace::Pace;

/// A literal that follows the grammar, in its parts.
#[derive(Default)]
pub(super) struct Literal<'i> {
    pub(super) whole: &'i [u8],
    pub(super) negative: bool,
    pub(super) integer: &'i [u8],
    /// The digits after the point.
    pub(super) fraction: Option<&'i [u8]>,
    /// The sign and the digits after the `e`.
    pub(super) exponent: Option<&'i [u8]>,
}

/// Reads the literal that starts at `start`.
///
/// # Errors
/// A digit is missing.
pub(super) fn scan<'i>(
    input: &'i [u8],
    start: usize,
    pace: &mut Pace<'_>,
) -> Result<Literal<'i>, CanonicalError> {
    let negative = input.get(start) == Some(&b'-');
    let first = start + usize::from(negative);
    let mut end =
        if input.get(first) == Some(&b'0') { first + 1 } else { digits(input, first, pace)? };
    let mut literal = Literal { negative, integer: &input[first..end], ..Literal::default() };
    if input.get(end) == Some(&b'.') {
        let point = end;
        end = digits(input, point + 1, pace)?;
        literal.fraction = Some(&input[point + 1..end]);
    }
    if let Some(b'e' | b'E') = input.get(end) {
        let sign = end + 1;
        let first = sign + usize::from(matches!(input.get(sign), Some(b'+' | b'-')));
        end = digits(input, first, pace)?;
        literal.exponent = Some(&input[sign..end]);
    }
    literal.whole = &input[start..end];
    Ok(literal)
}

/// The end of the digits that start at `first`; at least one has to be there.
#[inline]
fn digits(input: &[u8], first: usize, pace: &mut Pace<'_>) -> Result<usize, CanonicalError> {
    let end = digits_end(input, first, pace);
    match input.get(end) {
        _ if end > first => Ok(end),
        Some(_) => Err(CanonicalError::invalid(Violation::ExpectedDigit, end)),
        None => Err(CanonicalError::invalid(Violation::UnexpectedEnd, end)),
    }
}

#[inline]
fn digits_end(input: &[u8], first: usize, pace: &mut Pace<'_>) -> usize {
    let mut end = first;
    while let Some(word) = input.get(end..).and_then(word) {
        match leading_digits(word) {
            8 => end += 8,
            count => return end + count,
        }
        pace.spend(8);
    }
    let rest = &input[end.min(input.len())..];
    end + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

impl Literal<'_> {
    /// The double nearest to the literal, ties to even; infinite beyond the range.
    pub(super) fn value(&self, pace: &mut Pace<'_>) -> Result<f64, OutOfMemory> {
        if self.whole.len() <= LONG {
            return Ok(parse(self.whole));
        }
        Ok(parse(shorten(self, pace)?.as_bytes()))
    }
}

/// `f64::from_str` rounds correctly (since Rust 1.55) and takes every JSON number.
pub(super) fn parse(literal: &[u8]) -> f64 {
    std::str::from_utf8(literal).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::INFINITY)
}

/// Longer literals are cut down before they are parsed, because parsing cannot be interrupted.
const LONG: usize = 1024;

/// More significant digits than decide how a decimal rounds: no number halfway between two
/// doubles has more than 767.
const SIGNIFICANT: usize = 800;

/// A literal of less than [`LONG`] bytes that rounds to the same double: beyond the significant
/// digits only matters whether there is anything but zeros.
fn shorten(literal: &Literal<'_>, pace: &mut Pace<'_>) -> Result<String, OutOfMemory> {
    let mut short = String::new();
    short.try_reserve(LONG)?;
    short.push_str(if literal.negative { "-0." } else { "0." });
    let prefix = short.len();
    let (mut leading, mut more) = (0i64, false);
    for &digit in literal.integer.iter().chain(literal.fraction.unwrap_or_default()) {
        pace.spend(1);
        match short.len() - prefix {
            0 if digit == b'0' => leading += 1,
            ..SIGNIFICANT => short.push(char::from(digit)),
            _ => more |= digit != b'0',
        }
    }
    let exponent = literal.integer.len() as i64 - leading + exponent(literal, pace);
    // Without any digit the value is zero: "0.0e…".
    let last = if more { '1' } else { '0' };
    // Infallible: a String takes everything, and 1,024 bytes are more than there is to write.
    let _ = write!(short, "{last}e{}", exponent.clamp(-100_000, 100_000));
    Ok(short)
}

/// The exponent, or one that is as good: farther from zero than any number of digits can make up.
fn exponent(literal: &Literal<'_>, pace: &mut Pace<'_>) -> i64 {
    let (mut value, mut negative) = (0i64, false);
    for &byte in literal.exponent.unwrap_or_default() {
        pace.spend(1);
        match byte {
            b'-' => negative = true,
            b'+' => {}
            digit => value = (value * 10 + i64::from(digit - b'0')).min(1 << 40),
        }
    }
    if negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(input: &str) -> Result<Literal<'_>, CanonicalError> {
        scan(input.as_bytes(), 0, &mut Pace::new(&mut || ()))
    }

    fn value(input: &str) -> f64 {
        scanned(input).unwrap().value(&mut Pace::new(&mut || ())).unwrap()
    }

    #[test]
    fn grammar() {
        use Violation::{ExpectedDigit, UnexpectedEnd};
        for (input, expected) in [
            ("-", (UnexpectedEnd, 1)),
            ("-x", (ExpectedDigit, 1)),
            ("1.", (UnexpectedEnd, 2)),
            ("1.e5", (ExpectedDigit, 2)),
            ("1e", (UnexpectedEnd, 2)),
            ("1e+", (UnexpectedEnd, 3)),
            ("1E-,", (ExpectedDigit, 3)),
        ] {
            let (violation, at) = expected;
            assert_eq!(scanned(input).err(), Some(CanonicalError::Invalid { violation, at }));
        }
        // Nothing may follow a leading zero but a point or an exponent; the caller sees the rest.
        assert_eq!(scanned("01").unwrap().whole, b"0");
        assert_eq!(scanned("-00").unwrap().whole, b"-0");
    }

    #[test]
    fn long_literals_round_like_short_ones() {
        let half = "1.00000000000000011102230246251565404236316680908203125";
        let zeros = "0".repeat(5000);
        assert_eq!(value(&format!("{half}{zeros}")), 1_f64);
        assert_eq!(value(&format!("{half}{zeros}1")), 1.0000000000000002_f64);
        assert_eq!(value(&format!("0.{zeros}25e5001")), 2.5_f64);
        assert_eq!(value(&format!("25{zeros}e-5001")), 2.5_f64);
        assert_eq!(value(&format!("-25{zeros}.0e-5001")), -2.5_f64);
        assert_eq!(value(&format!("0.{zeros}")), 0_f64);
        assert_eq!(value(&format!("1e{zeros}5")), 100000_f64);
        assert_eq!(value(&format!("1e-{zeros}5")), 0.00001_f64);
        assert_eq!(value(&format!("1{zeros}.0")), f64::INFINITY);
    }
}
