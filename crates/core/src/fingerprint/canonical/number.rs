//! Numbers: the grammar (RFC 8259 section 6), the rule about integers, and the value.

use std::fmt::{self, Write};

use super::error::{CanonicalError, OutOfMemory, Violation};
use crate::fingerprint::pace::Pace;

/// The canonical form of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    /// The first so many bytes of the literal itself.
    Prefix(usize),
    /// What [`super::es6::format`] makes of this value.
    Value(f64),
}

/// A literal that follows the grammar, in its parts.
#[derive(Default)]
struct Literal<'i> {
    whole: &'i [u8],
    negative: bool,
    integer: &'i [u8],
    /// The digits after the point.
    fraction: Option<&'i [u8]>,
    /// The sign and the digits after the `e`.
    exponent: Option<&'i [u8]>,
}

/// Reads the number that starts at `start` and returns the offset after it and its form.
///
/// # Errors
/// A digit is missing, the value is out of range or an integer not exact, or memory ran out.
pub(super) fn scan(
    input: &[u8],
    start: usize,
    pace: &mut Pace<'_>,
) -> Result<(usize, Form), CanonicalError> {
    let literal = cut(input, start, pace)?;
    let form = match (literal.fraction, literal.exponent) {
        (None, None) => {
            integer(&literal).map_err(|violation| CanonicalError::invalid(violation, start))?
        }
        (Some(fraction), None) => match decimal(&literal, fraction) {
            Some(form) => form,
            None => real(&literal, start, pace)?,
        },
        _ => real(&literal, start, pace)?,
    };
    Ok((start + literal.whole.len(), form))
}

fn cut<'i>(
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
    let mut end = first;
    while let Some(b'0'..=b'9') = input.get(end) {
        end += 1;
        if (end - first) % Pace::STEP == 0 {
            pace.spend(Pace::STEP);
        }
    }
    match input.get(end) {
        _ if end > first => Ok(end),
        Some(_) => Err(CanonicalError::invalid(Violation::ExpectedDigit, end)),
        None => Err(CanonicalError::invalid(Violation::UnexpectedEnd, end)),
    }
}

/// Integers up to 2^53 are their own canonical form. A longer one has to be exact.
fn integer(literal: &Literal<'_>) -> Result<Form, Violation> {
    match literal.integer.len() {
        1 if literal.whole == b"-0" => Ok(Form::Value(0.0)),
        ..=15 => Ok(Form::Prefix(literal.whole.len())),
        16 if literal.integer <= b"9007199254740992" => Ok(Form::Prefix(literal.whole.len())),
        // The largest double has 309 digits.
        310.. => Err(Violation::NumberOutOfRange),
        _ => long_integer(literal),
    }
}

fn long_integer(literal: &Literal<'_>) -> Result<Form, Violation> {
    let value = parse(literal.whole);
    if value.is_infinite() {
        return Err(Violation::NumberOutOfRange);
    }
    // Rust writes a double without fraction digits exactly, however large it is.
    let mut rest = Expected(literal.whole);
    match write!(rest, "{value:.0}") {
        Ok(()) if rest.0.is_empty() => Ok(Form::Value(value)),
        _ => Err(Violation::InexactInteger),
    }
}

/// Compares what is written to it with the bytes it holds.
struct Expected<'a>(&'a [u8]);

impl Write for Expected<'_> {
    fn write_str(&mut self, written: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(written.as_bytes()).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// The form of a decimal that needs no conversion: up to 15 significant digits survive the way
/// to a double and back, so without the trailing zeros they are the shortest form. Not for zero,
/// nor below 10^-6, which is written with an exponent.
fn decimal(literal: &Literal<'_>, fraction: &[u8]) -> Option<Form> {
    if literal.integer.len() + fraction.len() > 15 {
        return None;
    }
    let zeros = fraction.iter().rev().take_while(|&&digit| digit == b'0').count();
    let small = literal.integer == b"0" && fraction.iter().take(6).all(|&digit| digit == b'0');
    let dropped = if zeros == fraction.len() { zeros + 1 } else { zeros };
    if small { None } else { Some(Form::Prefix(literal.whole.len() - dropped)) }
}

/// Any number with a fraction or an exponent, correctly rounded.
fn real(literal: &Literal<'_>, start: usize, pace: &mut Pace<'_>) -> Result<Form, CanonicalError> {
    let value = if literal.whole.len() <= LONG {
        parse(literal.whole)
    } else {
        parse(shorten(literal, pace)?.as_bytes())
    };
    if value.is_infinite() {
        return Err(CanonicalError::invalid(Violation::NumberOutOfRange, start));
    }
    Ok(Form::Value(value))
}

/// `f64::from_str` rounds correctly (since Rust 1.55) and takes every JSON number.
fn parse(literal: &[u8]) -> f64 {
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
    use crate::fingerprint::canonical::es6;

    fn scanned(input: &str) -> Result<(usize, Form), CanonicalError> {
        let mut ignore = || ();
        scan(input.as_bytes(), 0, &mut Pace::new(&mut ignore))
    }

    fn canonical(input: &str) -> String {
        match scanned(input).unwrap() {
            (_, Form::Prefix(length)) => input[..length].to_owned(),
            (_, Form::Value(value)) => {
                String::from_utf8(es6::format(value, &mut [0; 32]).to_vec()).unwrap()
            }
        }
    }

    fn fault(input: &str) -> (Violation, usize) {
        match scanned(input) {
            Err(CanonicalError::Invalid { violation, at }) => (violation, at),
            other => panic!("{input}: {other:?}"),
        }
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
            assert_eq!(fault(input), expected, "{input}");
        }
        // Nothing may follow a leading zero but a point or an exponent; the caller sees the rest.
        assert_eq!(scanned("01").unwrap().0, 1);
        assert_eq!(scanned("-00").unwrap().0, 2);
    }

    #[test]
    fn integers_are_exact_or_refused() {
        for exact in [
            "0",
            "-7",
            "999999999999999",
            "9007199254740992",
            "-9007199254740992",
            "1234567890123456",
        ] {
            assert_eq!(canonical(exact), exact);
        }
        for (exact, expected) in [
            ("-0", "0"),
            ("9007199254740994", "9007199254740994"),
            ("18446744073709551616", "18446744073709552000"),
            ("1000000000000000000000", "1e+21"),
            ("-1180591620717411303424", "-1.1805916207174113e+21"),
        ] {
            assert_eq!(canonical(exact), expected);
        }
        for inexact in [
            "9007199254740993",
            "-9007199254740993",
            "18446744073709551615",
            "100000000000000000000000",
        ] {
            assert_eq!(fault(inexact), (Violation::InexactInteger, 0), "{inexact}");
        }
    }

    /// The rule against 128-bit arithmetic: exact is what has at most 53 bits between its ends.
    #[test]
    fn integers_around_every_power_of_two() {
        for (shift, offset) in
            (0..=126).flat_map(|shift| (-3..=3).map(move |offset| (shift, offset)))
        {
            let value = (1i128 << shift) + offset;
            let size = value.unsigned_abs();
            let exact = size == 0 || 128 - size.leading_zeros() - size.trailing_zeros() <= 53;
            assert_eq!(scanned(&value.to_string()).is_ok(), exact, "{value}");
        }
    }

    #[test]
    fn range() {
        let largest = format!("{:.0}", f64::MAX);
        assert!(scanned(&largest).is_ok());
        for beyond in [
            "1e309",
            "-1e309",
            "1.7976931348623159e308",
            "1e99999999999999999999",
            &"9".repeat(309),
            &"1".repeat(310),
        ] {
            assert_eq!(fault(beyond), (Violation::NumberOutOfRange, 0), "{beyond}");
        }
        for zero in [
            "1e-400",
            "-1e-99999999999999999999",
            "0e99999999999999999999",
            "-0.0",
            "0.000",
            "2.4e-324",
        ] {
            assert_eq!(canonical(zero), "0", "{zero}");
        }
    }

    #[test]
    fn decimals() {
        for (from, to) in [
            ("12.50", "12.5"),
            ("100.000", "100"),
            ("-3.0", "-3"),
            ("0.10", "0.1"),
            ("0.000001", "0.000001"),
            ("0.0000010", "0.000001"),
            ("0.0000001", "1e-7"),
            ("-0.00000012", "-1.2e-7"),
            ("12345678901234.5", "12345678901234.5"),
            ("123456789012345.67", "123456789012345.67"),
            ("1.25E1", "12.5"),
            ("20e-1", "2"),
        ] {
            assert_eq!(canonical(from), to, "{from}");
        }
    }

    #[test]
    fn long_literals_round_like_short_ones() {
        let half = "1.00000000000000011102230246251565404236316680908203125";
        let zeros = "0".repeat(5000);
        assert_eq!(canonical(&format!("{half}{zeros}")), "1");
        assert_eq!(canonical(&format!("{half}{zeros}1")), "1.0000000000000002");
        assert_eq!(canonical(&format!("0.{zeros}25e5001")), "2.5");
        assert_eq!(canonical(&format!("25{zeros}e-5001")), "2.5");
        assert_eq!(canonical(&format!("-25{zeros}.0e-5001")), "-2.5");
        assert_eq!(canonical(&format!("0.{zeros}")), "0");
        assert_eq!(canonical(&format!("1e{zeros}5")), "100000");
        assert_eq!(canonical(&format!("1e-{zeros}5")), "0.00001");
        assert_eq!(fault(&format!("1{zeros}.0")), (Violation::NumberOutOfRange, 0));
    }
}
