//! Where in the body a member stands. The parser does not keep this; it matters only to say where
//! the second of two equal names is.

use crate::fingerprint::pace::Pace;

/// The offset of the name of member `number`, from 0, of the object whose opening bracket is at
/// `open`. The members up to there are known to be right.
pub(super) fn member(input: &[u8], open: usize, number: u32, pace: &mut Pace<'_>) -> usize {
    let (mut at, mut depth, mut left) = (open + 1, 0, number);
    while left > 0 {
        pace.spend(1);
        match input.get(at) {
            None => return at,
            Some(b'"') => at = string_end(input, at + 1, pace),
            Some(b'{' | b'[') => depth += 1,
            Some(b'}' | b']') => depth -= 1,
            Some(b',') if depth == 0 => left -= 1,
            Some(_) => {}
        }
        at += 1;
    }
    at + input[at..].iter().position(|&byte| byte == b'"').unwrap_or(0)
}

/// The offset of the quotation mark that ends the string.
fn string_end(input: &[u8], mut at: usize, pace: &mut Pace<'_>) -> usize {
    while let Some(&byte) = input.get(at) {
        pace.spend(1);
        match byte {
            b'"' => break,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_counted_on_one_level() {
        let input = br#"[{ "a" : "x,\"}" , "b":[1,{"c":2}],"" : {"d":1,"e":2},"a":0}]"#;
        let mut ignore = || ();
        let mut pace = Pace::new(&mut ignore);
        let offsets = [0, 1, 2, 3].map(|number| member(input, 1, number, &mut pace));
        assert_eq!(offsets, [3, 19, 35, 54]);
    }
}
