//! Long decimals: 16 or 17 significant digits, as programs print doubles.
//!
//! Every coordinate and every measured value is one, and the general way, to parse the literal and
//! to format the value, costs most of what such a body costs. Here both answers come from one
//! division and some integers. Whether the literal is how ECMAScript writes its value is read off
//! the definition (ECMA-262 section 6.1.6.1.20): of the decimals that round to the value it is one,
//! none has fewer digits, and none with as many digits is closer.

use super::swar::{eight_digits, leading_digits, word};

/// Powers of ten; all of them are exact in a double too.
const TENS: [u64; 18] = {
    let mut tens = [1; 18];
    let mut i = 1;
    while i < tens.len() {
        tens[i] = tens[i - 1] * 10;
        i += 1;
    }
    tens
};

/// Such a decimal.
pub(super) struct Decimal {
    /// How many bytes it has.
    pub(super) length: usize,
    /// The double nearest to it.
    pub(super) value: f64,
    /// Whether it is how ECMAScript writes that double.
    pub(super) is_shortest: bool,
}

/// The number at the start of `rest`, if it is such a decimal. Not every one: it has 8 to 17 digits
/// after the point, no exponent, and something behind it; and some rare or very small values are
/// left to the general way.
#[inline(always)]
pub(super) fn scan(rest: &[u8]) -> Option<Decimal> {
    let sign = usize::from(rest.first() == Some(&b'-'));
    let unsigned = &rest[sign..];
    let head = word(unsigned)?;
    let point = leading_digits(head);
    let leading_zero = head as u8 == b'0' && point > 1;
    if !(1..8).contains(&point) || (head >> (8 * point)) as u8 != b'.' || leading_zero {
        return None;
    }
    let (fraction, places) = fraction(&unsigned[point + 1..])?;
    if point + places > 18 {
        return None;
    }
    let digits = value(head, point) * TENS[places] + fraction;
    let (value, is_shortest) = nearest(digits, TENS[places])?;
    let value = if sign > 0 { -value } else { value };
    Some(Decimal { length: sign + point + 1 + places, value, is_shortest })
}

/// The digits after the point as an integer, and how many they are.
#[inline(always)]
fn fraction(rest: &[u8]) -> Option<(u64, usize)> {
    let (first, second) = (word(rest)?, word(rest.get(8..)?)?);
    if leading_digits(first) < 8 {
        return None;
    }
    let more = leading_digits(second);
    let digits = eight_digits(first) * TENS[more] + value(second, more);
    match rest.get(8 + more)? {
        b'e' | b'E' => None,
        digit @ b'0'..=b'9' => one_more(digits, *digit, rest.get(17)?),
        _ => Some((digits, 8 + more)),
    }
}

/// A number below one may have a 17th digit.
#[cold]
fn one_more(digits: u64, digit: u8, next: &u8) -> Option<(u64, usize)> {
    let ends = !matches!(next, b'0'..=b'9' | b'e' | b'E');
    ends.then_some((digits * 10 + u64::from(digit - b'0'), 17))
}

/// The value of the first `count` bytes, which are digits.
#[inline(always)]
fn value(word: u64, count: usize) -> u64 {
    // The other bytes are pushed out, zeros come in before the digits.
    eight_digits(word.checked_shl(64 - 8 * count as u32).unwrap_or_default())
}

/// The double nearest to `digits / scale`, and whether that decimal is its shortest form; if there
/// are 16 or 17 digits.
///
/// All distances are in units of a half of the last place of the double, times `scale`, so that
/// they are integers. They are less than 2^63, so it does no harm that the numbers whose
/// difference they are have more bits than 64 and lose them.
#[inline(always)]
fn nearest(digits: u64, scale: u64) -> Option<(f64, bool)> {
    const UNIT: u64 = 1 << 52;
    if !(TENS[15]..TENS[17]).contains(&digits) {
        return None;
    }
    let bits = (digits as i64 as f64 / scale as i64 as f64).to_bits();
    let mantissa = bits & (UNIT - 1) | UNIT;
    let shift = 1076 - (bits >> 52);
    // Near a power of two the doubles below are closer than those above.
    if !(UNIT + 2..=2 * UNIT - 2).contains(&mantissa) || shift > 59 {
        return None;
    }
    let off = (digits << shift).wrapping_sub((2 * mantissa).wrapping_mul(scale)) as i64;
    let (last, scale) = ((digits % 10) as i64, scale as i64);
    // The quotient may be one place off: the digits were rounded, and then the division.
    let places = if off.abs() < scale { 0 } else { off.signum() };
    let distance = off - 2 * scale * places;
    let is_shortest = 2 * distance.abs() < 1 << shift
        && (last << shift) - distance > scale
        && ((10 - last) << shift) + distance > scale;
    let value = f64::from_bits(bits.wrapping_add_signed(places));
    (distance.abs() < scale).then_some((value, is_shortest))
}

#[cfg(test)]
mod tests {
    use super::super::es6;
    use super::*;

    fn claimed(literal: &str) -> bool {
        let body = format!("{literal},         ");
        let found = scan(body.as_bytes());
        if let Some(decimal) = &found {
            assert_eq!(decimal.length, literal.len(), "{literal}");
            assert_eq!(decimal.value, literal.parse::<f64>().unwrap(), "{literal}");
        }
        found.is_some_and(|decimal| decimal.is_shortest)
    }

    fn is(literal: &str) -> bool {
        es6::format(literal.parse().unwrap(), &mut es6::Buffer::default()) == literal.as_bytes()
    }

    /// A stream of numbers (xorshift64, Marsaglia 2003).
    fn numbers() -> impl Iterator<Item = u64> {
        std::iter::successors(Some(0x9e37_79b9_7f4a_7c15u64), |&x| {
            let x = x ^ x << 13;
            let x = x ^ x >> 7;
            Some(x ^ x << 17)
        })
    }

    #[test]
    fn digits_have_their_value() {
        for count in 0..=8 {
            let expected = "12345678"[..count].parse().unwrap_or(0);
            assert_eq!(value(u64::from_le_bytes(*b"12345678"), count), expected);
        }
    }

    #[test]
    fn only_whole_decimals() {
        for literal in ["12.345678901234567", "-12.345678901234567", "1.2345678901234567"] {
            assert!(claimed(literal));
            assert!(scan(literal.as_bytes()).is_none(), "nothing behind it");
            for tail in ["0", "e1", "E1"] {
                assert!(scan(format!("{literal}{tail}        ").as_bytes()).is_none());
            }
        }
        for literal in
            ["012.345678901234567", "--2.345678901234567", "12345678901234567", "-", "1."]
        {
            assert!(!claimed(literal), "{literal}");
        }
    }

    #[test]
    fn what_is_claimed_is_true() {
        let mut claims = 0;
        for (i, x) in numbers().take(300_000).enumerate() {
            let digits = x % (10 * TENS[15 + i % 3]);
            let places = 1 + (x >> 33) as usize % 18;
            let text = format!("{digits:018}");
            let (integer, fraction) = text.split_at(18 - places);
            let integer = integer.trim_start_matches('0');
            let literal = format!("{}.{fraction}", if integer.is_empty() { "0" } else { integer });
            assert!(!claimed(&literal) || is(&literal), "{literal}");
            claims += u32::from(claimed(&literal));
        }
        assert!(claims > 10_000, "{claims}");
    }

    #[test]
    fn what_programs_print_is_known() {
        let (mut long, mut known) = (0, 0);
        for x in numbers().take(100_000) {
            let value =
                (x >> 11) as f64 / (1u64 << 53) as f64 * [1.0, 90.0, 360.0, 1e5][x as usize % 4];
            let literal = format!("{value}");
            if literal.len() > 17 && value > 0.1 {
                long += 1;
                known += u32::from(claimed(&literal));
            }
        }
        assert!(known * 100 > long * 99, "{known} of {long}");
    }

    #[test]
    fn neighbours_of_what_programs_print_are_not() {
        for x in numbers().take(50_000) {
            let value = f64::from_bits(0x4010_0000_0000_0000 + (x >> 8));
            if !(4.0..1e15).contains(&value) {
                continue;
            }
            let literal = format!("{value}");
            for last in b'0'..=b'9' {
                let mut other = literal.clone();
                other.pop();
                other.push(char::from(last));
                if other.contains('.') && !other.ends_with('.') {
                    assert!(!claimed(&other) || is(&other), "{other}");
                }
            }
        }
    }

    #[test]
    fn powers_of_two_and_their_neighbours() {
        for exponent in -10..50 {
            for step in -3..=3i64 {
                let power = 2f64.powi(exponent);
                let literal = format!("{}", f64::from_bits((power.to_bits() as i64 + step) as u64));
                if literal.contains('.') {
                    assert!(!claimed(&literal) || is(&literal), "{literal}");
                }
            }
        }
    }
}
