//! Numbers: which literals are canonical as they are, and the rule about integers.

use std::fmt::{self, Write};

use super::error::{CanonicalError, Violation};
use super::literal::{self, Literal};
use super::swar::{leading_digits, word};
use crate::fingerprint::pace::Pace;

/// The canonical form of a literal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    /// The first so many bytes of the literal itself.
    Prefix(usize),
    /// What [`super::es6::format`] makes of this value.
    Value(f64),
}

/// The length of the number at the start of `rest`, if it is a small one that is its own canonical
/// form: digits, maybe a point and more digits, within seven characters but for a sign. Quantities
/// and prices are.
#[inline(always)]
pub(super) fn short(rest: &[u8]) -> Option<usize> {
    let sign = usize::from(rest.first() == Some(&b'-'));
    let word = word(&rest[sign..])?;
    let at = |place: usize| (word >> (8 * place)) as u8;
    let integer = leading_digits(word);
    if !(1..8).contains(&integer) || (at(0) == b'0' && integer > 1) {
        return None;
    }
    let mut end = integer;
    if at(end) == b'.' {
        end += 1 + leading_digits(word >> (8 * end) >> 8);
        if end == integer + 1 || end == 8 || at(end - 1) == b'0' {
            return None;
        }
    } else if sign > 0 && at(0) == b'0' {
        return None;
    }
    if at(end) | 0x20 == b'e' { None } else { Some(sign + end) }
}

/// Reads the number that starts at `start` and returns the offset after it and its form.
///
/// # Errors
/// A digit is missing, the value is out of range or an integer not exact, or memory ran out.
#[inline(never)]
pub(super) fn scan(
    input: &[u8],
    start: usize,
    pace: &mut Pace<'_>,
) -> Result<(usize, Form), CanonicalError> {
    let literal = literal::scan(input, start, pace)?;
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
    let value = literal::parse(literal.whole);
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
    if literal.integer == b"0" && fraction.iter().take(6).all(|&digit| digit == b'0') {
        return None;
    }
    let dropped = if zeros == fraction.len() { zeros + 1 } else { zeros };
    Some(Form::Prefix(literal.whole.len() - dropped))
}

/// Any number with a fraction or an exponent.
fn real(literal: &Literal<'_>, start: usize, pace: &mut Pace<'_>) -> Result<Form, CanonicalError> {
    let value = literal.value(pace)?;
    if value.is_infinite() {
        return Err(CanonicalError::invalid(Violation::NumberOutOfRange, start));
    }
    Ok(Form::Value(value))
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

    /// The short way must say the same as the general one, or nothing.
    #[test]
    fn short_numbers() {
        let parts = [
            "", "-", "0", "00", "7", "10", "9999999", ".", ".0", ".5", ".50", ".00001", "e1", "E",
            "12345678",
        ];
        let ends = ["", ",", "]", " ", "x", ".", "e", "-", "        "];
        let mut same = 0;
        for first in parts {
            for second in parts {
                for end in ends {
                    let input = format!("{first}{second}{end}");
                    let any = scan(input.as_bytes(), 0, &mut Pace::new(&mut || ()));
                    if let Some(end) = short(input.as_bytes()) {
                        assert_eq!(any, Ok((end, Form::Prefix(end))), "{input}");
                        same += 1;
                    }
                }
            }
        }
        assert!(same > 40, "{same}");
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
}
