//! Eight bytes at a time, in one 64-bit word ("SIMD within a register").

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// The high bit of every byte.
pub(super) const HIGH: u64 = ONES << 7;

/// The first eight bytes, the very first one lowest, if there are as many.
#[inline(always)]
pub(super) fn word(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

/// Marks, by its high bit, every byte that is a quotation mark, a backslash or a control character.
/// Bytes above the lowest marked one may be marked wrongly, by the borrow of a subtraction.
#[inline(always)]
pub(super) fn specials(word: u64) -> u64 {
    // With the second bit turned over, the quotation mark stands next to the control characters.
    let below_0x21 = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    (below_0x21 | backslash) & !word & HIGH
}

/// How many of the first bytes are spaces.
#[inline(always)]
pub(super) fn leading_spaces(word: u64) -> usize {
    (word ^ (ONES * b' ' as u64)).trailing_zeros() as usize / 8
}

/// How many of the first bytes are digits.
#[inline(always)]
pub(super) fn leading_digits(word: u64) -> usize {
    // A digit becomes its value; 118 more reach the high bit from ten on.
    let values = word ^ (ONES * b'0' as u64);
    let others = (((values & !HIGH) + ONES * (0x80 - 10)) | values) & HIGH;
    others.trailing_zeros() as usize / 8
}

/// The value of eight digits: neighbours are put together, first digits, then pairs, then fours.
#[inline]
pub(super) fn eight_digits(word: u64) -> u64 {
    let digits = word & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte value at every place, among fillers on both sides of each limit.
    fn words() -> impl Iterator<Item = [u8; 8]> {
        let fillers =
            [b'a', b' ', b'!', b'#', b'[', b']', b'/', b':', b'0', b'9', 0x7f, 0x80, 0xff];
        (0..=255).flat_map(move |byte| {
            fillers.into_iter().flat_map(move |filler| {
                (0..8).map(move |place| {
                    let mut word = [filler; 8];
                    word[place] = byte;
                    word
                })
            })
        })
    }

    #[test]
    fn the_first_special_byte_is_right() {
        for bytes in words() {
            let first = bytes.iter().position(|b| matches!(b, b'"' | b'\\' | 0..0x20)).unwrap_or(8);
            let marks = specials(u64::from_le_bytes(bytes));
            assert_eq!(marks.trailing_zeros() as usize / 8, first, "{bytes:x?}");
        }
    }

    #[test]
    fn spaces_are_counted() {
        for bytes in words() {
            let count = bytes.iter().take_while(|byte| **byte == b' ').count();
            assert_eq!(leading_spaces(u64::from_le_bytes(bytes)), count, "{bytes:x?}");
        }
    }

    #[test]
    fn digits_are_counted() {
        for bytes in words() {
            let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            assert_eq!(leading_digits(u64::from_le_bytes(bytes)), count, "{bytes:x?}");
        }
    }

    #[test]
    fn eight_digits_have_their_value() {
        for value in [0, 1, 9, 12_345_678, 99_999_999, 10_000_000, 9_090_909] {
            let text = format!("{value:08}");
            assert_eq!(eight_digits(word(text.as_bytes()).unwrap()), value);
        }
        assert_eq!(word(b"1234567"), None);
        assert_eq!(word(b"123456789"), Some(u64::from_le_bytes(*b"12345678")));
    }
}
