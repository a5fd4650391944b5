//! JSON Pointers (RFC 6901), as far as leaving members out needs them.

use std::fmt;

/// What is wrong with a JSON Pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerFault {
    /// The empty pointer names the whole document; nothing would be left to compare.
    WholeDocument,
    /// A pointer that is not empty starts with `/` (RFC 6901 section 3).
    NoSlash,
    /// `~` stands only before `0` (for `~`) or `1` (for `/`) (RFC 6901 section 3).
    Escape,
}

impl fmt::Display for PointerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WholeDocument => "the empty pointer names the whole document",
            Self::NoSlash => "a pointer starts with \"/\"",
            Self::Escape => "\"~\" is followed by \"0\" or \"1\"",
        })
    }
}

/// Checks the syntax of `pointer` (RFC 6901 section 3). The empty one is refused, see
/// [`PointerFault::WholeDocument`].
pub(super) fn check(pointer: &str) -> Result<(), PointerFault> {
    match pointer.as_bytes().first() {
        None => Err(PointerFault::WholeDocument),
        Some(b'/') if escapes_are_right(pointer) => Ok(()),
        Some(b'/') => Err(PointerFault::Escape),
        Some(_) => Err(PointerFault::NoSlash),
    }
}

fn escapes_are_right(pointer: &str) -> bool {
    pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}

/// Splits `/first/rest` into `first`, still escaped, and `/rest` (empty at the end).
pub(super) fn split(pointer: &str) -> (&str, &str) {
    let token = pointer.strip_prefix('/').unwrap_or(pointer);
    token.split_at(token.find('/').unwrap_or(token.len()))
}

/// Whether the escaped token, decoded (RFC 6901 section 4), is `name`.
pub(super) fn token_is(token: &str, name: impl Iterator<Item = u8>) -> bool {
    decoded(token.as_bytes()).eq(name)
}

fn decoded(token: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut bytes = token.iter().copied();
    std::iter::from_fn(move || match bytes.next()? {
        b'~' => bytes.next().map(|digit| if digit == b'1' { b'/' } else { b'~' }),
        byte => Some(byte),
    })
}

/// The array index that the token writes; none for `-` and leading zeros (RFC 6901 section 4).
pub(super) fn index(token: &str) -> Option<u32> {
    let plain =
        token.bytes().all(|b| b.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
    if plain { token.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax() {
        for right in ["/", "/a", "/a/b/", "/~0", "/~1/~01", "//", "/é", "/\n"] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        assert_eq!(check(""), Err(PointerFault::WholeDocument));
        for wrong in ["a", "a/b", "#/a", "~0"] {
            assert_eq!(check(wrong), Err(PointerFault::NoSlash), "{wrong}");
        }
        for wrong in ["/~", "/a~", "/~2", "/~/a", "/~~0"] {
            assert_eq!(check(wrong), Err(PointerFault::Escape), "{wrong}");
        }
    }

    #[test]
    fn tokens() {
        assert_eq!(split("/a/b"), ("a", "/b"));
        assert_eq!(split("/a"), ("a", ""));
        assert_eq!(split("/"), ("", ""));
        assert_eq!(split("//x"), ("", "/x"));
    }

    #[test]
    fn escapes_are_decoded_once() {
        for (token, name) in
            [("~01", "~1"), ("~10", "/0"), ("m~0n", "m~n"), ("a~1b", "a/b"), ("", "")]
        {
            assert!(token_is(token, name.bytes()), "{token}");
        }
        assert!(!token_is("~01", "/".bytes()));
    }

    #[test]
    fn indexes() {
        assert_eq!(index("0"), Some(0));
        assert_eq!(index("4294967295"), Some(u32::MAX));
        for none in ["", "-", "01", "00", "+1", "-1", "4294967296", "1 ", "x"] {
            assert_eq!(index(none), None, "{none}");
        }
    }
}
