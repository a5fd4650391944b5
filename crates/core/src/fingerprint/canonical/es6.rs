//! A double in decimal, as ECMAScript's Number::toString writes it (RFC 8785 section 3.2.2.3,
//! ECMA-262 section 6.1.6.1.20).
//!
//! The shortest digits come from the zmij crate; the layout is ours.

/// Room for the longest number: sign, `0.00000`, 17 digits.
pub(super) type Buffer = [u8; 32];

/// Writes `value`, which is finite, and returns what was written.
pub(super) fn format(value: f64, buffer: &mut Buffer) -> &[u8] {
    let mut shortest = zmij::Buffer::new();
    let mut out = Out { buffer, length: 0 };
    if (1e-5..1e16).contains(&value.abs()) {
        // Here zmij's layout is the same, but for integers.
        let written = shortest.format_finite(value);
        out.put(written.strip_suffix(".0").unwrap_or(written).as_bytes());
    } else {
        out.put(if value < 0.0 { b"-" } else { b"" });
        let (digits, count, point) = dismantle(shortest.format_finite(value.abs()));
        lay_out(&digits[..count], point, &mut out);
    }
    let length = out.length;
    &buffer[..length]
}

struct Out<'b> {
    buffer: &'b mut Buffer,
    length: usize,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

const ZEROS: &[u8] = &[b'0'; 21];

/// Writes 0.`digits` times ten to the power of `point`.
fn lay_out(digits: &[u8], point: i32, out: &mut Out<'_>) {
    let (count, place) = (digits.len(), point.unsigned_abs() as usize);
    match point {
        _ if digits.is_empty() => out.put(b"0"),
        1..=21 if place >= count => {
            out.put(digits);
            out.put(&ZEROS[..place - count]);
        }
        1..=21 => {
            out.put(&digits[..place]);
            out.put(b".");
            out.put(&digits[place..]);
        }
        -5..=0 => {
            out.put(b"0.");
            out.put(&ZEROS[..place]);
            out.put(digits);
        }
        _ => lay_out_exponent(digits, point - 1, out),
    }
}

fn lay_out_exponent(digits: &[u8], exponent: i32, out: &mut Out<'_>) {
    out.put(&digits[..1]);
    if digits.len() > 1 {
        out.put(b".");
        out.put(&digits[1..]);
    }
    out.put(if exponent < 0 { b"e-" } else { b"e+" });
    let size = exponent.unsigned_abs();
    let figures = [size / 100, size / 10 % 10, size % 10].map(|figure| b'0' + figure as u8);
    let leading = figures.iter().take_while(|&&figure| figure == b'0').count();
    out.put(&figures[leading..]);
}

/// Takes `12.5`, `1e21`, `1.5e-7`, `100.0` or `0.001` apart: the digits without zeros at either
/// end, how many there are, and the power of ten `p` with which the value is 0.digits * 10^p.
fn dismantle(decimal: &str) -> ([u8; 24], usize, i32) {
    let (mantissa, exponent) = decimal.split_once('e').unwrap_or((decimal, "0"));
    let (mut digits, mut count, mut point) = ([0; 24], 0, exponent.parse().unwrap_or(0));
    let mut fraction = false;
    for byte in mantissa.bytes() {
        match byte {
            b'.' => fraction = true,
            b'0' if count == 0 => point -= i32::from(fraction),
            _ => {
                digits[count] = byte;
                count += 1;
                point += i32::from(!fraction);
            }
        }
    }
    let zeros = digits[..count].iter().rev().take_while(|&&digit| digit == b'0').count();
    (digits, count - zeros, point)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: f64) -> String {
        String::from_utf8(format(value, &mut [0; 32]).to_vec()).unwrap()
    }

    /// RFC 8785 appendix B.
    #[test]
    fn appendix_b() {
        for (bits, expected) in [
            (0x0000000000000000, "0"),
            (0x8000000000000000, "0"),
            (0x0000000000000001, "5e-324"),
            (0x8000000000000001, "-5e-324"),
            (0x7fefffffffffffff, "1.7976931348623157e+308"),
            (0xffefffffffffffff, "-1.7976931348623157e+308"),
            (0x4340000000000000, "9007199254740992"),
            (0xc340000000000000, "-9007199254740992"),
            (0x4430000000000000, "295147905179352830000"),
            (0x44b52d02c7e14af5, "9.999999999999997e+22"),
            (0x44b52d02c7e14af6, "1e+23"),
            (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
            (0x444b1ae4d6e2ef4e, "999999999999999700000"),
            (0x444b1ae4d6e2ef4f, "999999999999999900000"),
            (0x444b1ae4d6e2ef50, "1e+21"),
            (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
            (0x3eb0c6f7a0b5ed8d, "0.000001"),
            (0x41b3de4355555553, "333333333.3333332"),
            (0x41b3de4355555554, "333333333.33333325"),
            (0x41b3de4355555555, "333333333.3333333"),
            (0x41b3de4355555556, "333333333.3333334"),
            (0x41b3de4355555557, "333333333.33333343"),
            (0xbecbf647612f3696, "-0.0000033333333333333333"),
            (0x43143ff3c1cb0959, "1424953923781206.2"),
        ] {
            assert_eq!(written(f64::from_bits(bits)), expected, "{bits:x}");
        }
    }

    #[test]
    fn layouts_change_where_they_should() {
        for (value, expected) in [
            (1e20, "100000000000000000000"),
            (1.5e20, "150000000000000000000"),
            (1e21, "1e+21"),
            (123456789012345680000.0, "123456789012345680000"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (1.5e16, "15000000000000000"),
            (1e-5, "0.00001"),
            (-9.5e-6, "-0.0000095"),
            (1e-6, "0.000001"),
            (1.25e-6, "0.00000125"),
            (1e-7, "1e-7"),
            (1.5e-10, "1.5e-10"),
            (100.0, "100"),
            (0.5, "0.5"),
            (-12.5, "-12.5"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(written(value), expected);
        }
    }
}
