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

/// How much white space `rest` starts with.
#[inline]
pub(super) fn space(rest: &[u8], pace: &mut Pace<'_>) -> usize {
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    rest.iter().take_while(is_space).inspect(|_| pace.spend(1)).count()
}

/// The offset of what follows the value at `at`, a comma or a closing bracket. The value is known to
/// be right, and to stand in a container.
pub(super) fn value_end(input: &[u8], mut at: usize, pace: &mut Pace<'_>) -> usize {
    let mut depth = 0;
    while let Some(&byte) = input.get(at) {
        pace.spend(1);
        match byte {
            b'"' => at = string_end(input, at + 1, pace),
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' if depth == 0 => break,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    at
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

    #[test]
    fn values_end_before_what_follows() {
        for value in ["1", r#""a,\"]""#, "[1,[2,3]]", r#"{"a":[1],"b}":2}"#, "null "] {
            for next in [",1]", "]", "}"] {
                let input = format!("{value}{next}");
                let mut ignore = || ();
                let end = value_end(input.as_bytes(), 0, &mut Pace::new(&mut ignore));
                assert_eq!(end, value.len(), "{input}");
            }
        }
    }

    #[test]
    fn space_is_counted() {
        let mut ignore = || ();
        let mut pace = Pace::new(&mut ignore);
        let counts = [" \t\n\r1", "1 ", "", "  "].map(|rest| space(rest.as_bytes(), &mut pace));
        assert_eq!(counts, [4, 0, 0, 2]);
    }
}
