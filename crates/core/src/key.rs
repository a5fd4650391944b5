//! From the header's value to the key.
//!
//! A client sends the key raw (`Idempotency-Key: abc`) or as the Structured Field string that
//! draft-ietf-httpapi-idempotency-key-header asks for (`Idempotency-Key: "abc"`, RFC 8941
//! section 3.3.3). Both name the same key, unless the operation says otherwise.

use std::borrow::Cow;
use std::fmt;

use uuid::Uuid;

use crate::identity::MAX_BYTES;

/// What a key has to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Any characters that a header can carry.
    Opaque,
    /// The 36-character form of a UUID of any version; folded to lower case (RFC 9562 section 4).
    Uuid,
    /// A UUID of version 4.
    UuidV4,
    /// A UUID of version 7, whose first 48 bits are its time.
    UuidV7,
}

/// Whether a key comes bare or as a quoted string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// A value that starts with a quotation mark is a quoted string, any other is raw.
    Either,
    /// Always raw: quotation marks are part of the key.
    Raw,
    /// Always a quoted string.
    Quoted,
}

/// The rules for the keys of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What the key has to look like.
    pub format: Format,
    /// Whether it is quoted.
    pub quoting: Quoting,
    /// The least length of an opaque key, in characters.
    pub min_length: usize,
    /// The greatest length of an opaque key, in characters; [`MAX_BYTES`] holds besides.
    pub max_length: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self { format: Format::Opaque, quoting: Quoting::Either, min_length: 1, max_length: 255 }
    }
}

/// What is wrong with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is none, and the operation wants one.
    Missing,
    /// Not of the format, badly quoted, or with characters that a header cannot carry.
    InvalidFormat,
    /// Fewer characters than allowed; a blank value is this.
    TooShort,
    /// More characters than allowed, or more than [`MAX_BYTES`] bytes.
    TooLong,
    /// A UUIDv7 whose own time lies too far ahead of the database's clock.
    InTheFuture,
}

impl Fault {
    /// The machine-readable code that goes into the problem answer.
    pub fn code(self) -> &'static str {
        match self {
            Fault::Missing => "missing",
            Fault::InvalidFormat | Fault::InTheFuture => "invalid_format",
            Fault::TooShort => "too_short",
            Fault::TooLong => "too_long",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Missing => "This operation requires an idempotency key.",
            Fault::InvalidFormat => "The idempotency key does not have the required format.",
            Fault::TooShort => "The idempotency key is too short.",
            Fault::TooLong => "The idempotency key is too long.",
            Fault::InTheFuture => "The time in the idempotency key lies in the future.",
        })
    }
}

/// The longest value that can name a key, in bytes: all of it escaped, in quotation marks.
const MAX_VALUE: usize = 2 * MAX_BYTES + 2;

/// The key that a header value names.
///
/// # Errors
/// A [`Fault`] other than [`Fault::Missing`] where the value breaks the rules.
pub fn parse<'a>(header: &'a str, rules: &Rules) -> Result<Cow<'a, str>, Fault> {
    let value = trim(header);
    if value.len() > MAX_VALUE {
        let is_opaque = rules.format == Format::Opaque;
        return Err(if is_opaque { Fault::TooLong } else { Fault::InvalidFormat });
    }
    let key = match (rules.quoting, value.starts_with('"')) {
        (Quoting::Raw, _) | (Quoting::Either, false) => raw(value)?,
        (Quoting::Quoted, _) | (Quoting::Either, true) => quoted(value)?,
    };
    match rules.format {
        Format::Opaque => opaque(key, rules),
        Format::Uuid => uuid(&key, None),
        Format::UuidV4 => uuid(&key, Some(4)),
        Format::UuidV7 => uuid(&key, Some(7)),
    }
}

/// The UUIDv7 that a key is: 36 characters in either case, version 7, variant 10; `None` for other keys.
pub fn uuidv7(key: &str) -> Option<Uuid> {
    let id = Some(key).filter(|key| key.len() == 36).and_then(|key| Uuid::try_parse(key).ok())?;
    let is_v7 = id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122;
    is_v7.then_some(id)
}

/// The time in a UUIDv7, in milliseconds since 1970 (RFC 9562 section 5.7); `None` for other keys.
pub fn uuidv7_millis(key: &str) -> Option<u64> {
    uuidv7(key).map(|id| (id.as_u128() >> 80) as u64)
}

/// Without the white space that HTTP allows around a field value (RFC 9110 section 5.5).
fn trim(header: &str) -> &str {
    header.trim_matches([' ', '\t'])
}

/// A raw value: everything but control characters, which a header field cannot carry.
fn raw(value: &str) -> Result<Cow<'_, str>, Fault> {
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(Fault::InvalidFormat);
    }
    Ok(Cow::Borrowed(value))
}

/// A string of RFC 8941 section 3.3.3: printable ASCII between quotation marks, `\"` and `\\` the
/// only escapes. Parameters behind it mean nothing here and are refused.
fn quoted(value: &str) -> Result<Cow<'_, str>, Fault> {
    let inner = value.strip_prefix('"').ok_or(Fault::InvalidFormat)?;
    let mut key = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    loop {
        match chars.next() {
            Some('"') if chars.as_str().is_empty() => return Ok(Cow::Owned(key)),
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err(Fault::InvalidFormat),
            },
            Some(plain @ ' '..='~') if plain != '"' => key.push(plain),
            _ => return Err(Fault::InvalidFormat),
        }
    }
}

fn opaque<'a>(key: Cow<'a, str>, rules: &Rules) -> Result<Cow<'a, str>, Fault> {
    // A quoted string may hold blanks only: that is blank too.
    if trim(&key).is_empty() || key.chars().count() < rules.min_length {
        return Err(Fault::TooShort);
    }
    if key.len() > MAX_BYTES || key.chars().count() > rules.max_length {
        return Err(Fault::TooLong);
    }
    Ok(key)
}

/// The one form that every UUID has on the wire; the crate would also take braces and URNs.
fn uuid(key: &str, version: Option<usize>) -> Result<Cow<'static, str>, Fault> {
    let id = Uuid::try_parse(key).ok().filter(|_| key.len() == 36).ok_or(Fault::InvalidFormat)?;
    let right_variant = id.get_variant() == uuid::Variant::RFC4122;
    if version.is_some_and(|v| id.get_version_num() != v || !right_variant) {
        return Err(Fault::InvalidFormat);
    }
    Ok(Cow::Owned(id.hyphenated().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(format: Format, quoting: Quoting) -> Rules {
        Rules { format, quoting, ..Rules::default() }
    }

    fn opaque(header: &str) -> Result<String, Fault> {
        parse(header, &Rules::default()).map(Cow::into_owned)
    }

    #[test]
    fn raw_and_quoted_name_the_same_key() {
        for header in ["abc", "\"abc\"", "  abc\t", "\t\"abc\" "] {
            assert_eq!(opaque(header).as_deref(), Ok("abc"), "{header:?}");
        }
    }

    #[test]
    fn a_quotation_mark_inside_is_escaped_or_wrong() {
        for header in [r#""a"b""#, r#""a"""#, r#""a";p=1"#] {
            assert_eq!(opaque(header), Err(Fault::InvalidFormat), "{header}");
        }
        assert_eq!(opaque(r#""a\"b""#).as_deref(), Ok(r#"a"b"#));
    }

    #[test]
    fn the_longest_value_is_all_escapes() {
        assert_eq!(MAX_VALUE, 512);
        let longest = format!("\"{}\"", r#"\""#.repeat(MAX_BYTES));
        assert_eq!(longest.len(), MAX_VALUE);
        assert_eq!(opaque(&longest), Ok("\"".repeat(MAX_BYTES)));
    }

    #[test]
    fn faults_are_sentences() {
        use Fault::*;
        for fault in [Missing, InvalidFormat, TooShort, TooLong, InTheFuture] {
            let sentence = fault.to_string();
            assert!(sentence.starts_with("Th") && sentence.ends_with('.'), "{sentence}");
        }
        assert_ne!(TooShort.to_string(), TooLong.to_string());
    }

    #[test]
    fn case_and_normal_form_are_kept() {
        assert_eq!(opaque("K1").as_deref(), Ok("K1"));
        assert_ne!(opaque("\u{e9}"), opaque("e\u{301}"));
        assert_eq!(opaque("a b").as_deref(), Ok("a b"));
        assert_eq!(opaque("a\tb").as_deref(), Ok("a\tb"));
    }

    #[test]
    fn escapes_of_a_quoted_string() {
        assert_eq!(opaque(r#""a\"b\\c""#).as_deref(), Ok(r#"a"b\c"#));
        for header in
            [r#""a\b""#, r#""a"#, r#""a"b"#, r#""a";p=1"#, "\"\u{e9}\"", "\"a\tb\"", "\"\\", "\""]
        {
            assert_eq!(opaque(header), Err(Fault::InvalidFormat), "{header:?}");
        }
    }

    #[test]
    fn quoting_can_be_demanded_or_switched_off() {
        let raw = rules(Format::Opaque, Quoting::Raw);
        assert_eq!(parse("\"abc\"", &raw).as_deref(), Ok("\"abc\""));
        let quoted = rules(Format::Opaque, Quoting::Quoted);
        assert_eq!(parse("\"abc\"", &quoted).as_deref(), Ok("abc"));
        assert_eq!(parse("abc", &quoted), Err(Fault::InvalidFormat));
        assert_eq!(parse("", &quoted), Err(Fault::InvalidFormat));
    }

    #[test]
    fn blank_is_too_short() {
        for header in ["", "   ", "\t", "\"\"", "\"  \""] {
            assert_eq!(opaque(header), Err(Fault::TooShort), "{header:?}");
        }
    }

    #[test]
    fn control_characters_are_refused() {
        for header in ["a\nb", "a\rb", "a\u{0}b", "a\u{7f}", "\u{85}"] {
            assert_eq!(opaque(header), Err(Fault::InvalidFormat), "{header:?}");
        }
    }

    #[test]
    fn lengths_are_characters_and_the_hard_limit_is_bytes() {
        let rules = Rules { min_length: 2, max_length: 4, ..Rules::default() };
        assert_eq!(parse("\u{e9}", &rules), Err(Fault::TooShort));
        assert_eq!(parse("\u{e9}\u{e9}", &rules).as_deref(), Ok("\u{e9}\u{e9}"));
        assert_eq!(parse("abcd", &rules).as_deref(), Ok("abcd"));
        assert_eq!(parse("abcde", &rules), Err(Fault::TooLong));
        assert_eq!(opaque(&"a".repeat(255)), Ok("a".repeat(255)));
        assert_eq!(opaque(&"a".repeat(256)), Err(Fault::TooLong));
        assert_eq!(opaque(&"\u{e9}".repeat(128)), Err(Fault::TooLong));
    }

    #[test]
    fn the_longest_value_is_a_key_of_escapes() {
        let escaped = |length: usize| format!("\"{}\"", r#"\""#.repeat(length));
        assert_eq!(opaque(&escaped(255)), Ok("\"".repeat(255)));
        assert_eq!(opaque(&escaped(256)), Err(Fault::TooLong));
        let uuid = rules(Format::Uuid, Quoting::Either);
        assert_eq!(parse(&escaped(256), &uuid), Err(Fault::InvalidFormat));
    }

    #[test]
    fn uuids_take_one_form_and_fold_to_lower_case() {
        let v4 = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11";
        let v7 = "01890a5d-ac96-774b-bcce-b302099a8057";
        let any = rules(Format::Uuid, Quoting::Either);
        assert_eq!(parse(v4, &any).unwrap(), v4.to_lowercase());
        assert_eq!(parse(&format!("\"{v7}\""), &any).unwrap(), v7);
        assert_eq!(parse("00000000-0000-0000-0000-000000000000", &any).unwrap().len(), 36);
        for bad in [
            &v4[1..],
            &v4.replace('-', ""),
            &format!("{{{v4}}}"),
            &format!("urn:uuid:{v4}"),
            "",
            &v4.replace('A', "g"),
        ] {
            assert_eq!(parse(bad, &any), Err(Fault::InvalidFormat), "{bad:?}");
        }
    }

    #[test]
    fn versions_are_told_apart() {
        let v4 = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        let v7 = "01890a5d-ac96-774b-bcce-b302099a8057";
        let wrong_variant = "01890a5d-ac96-774b-0cce-b302099a8057";
        let only_v4 = rules(Format::UuidV4, Quoting::Either);
        let only_v7 = rules(Format::UuidV7, Quoting::Either);
        assert!(parse(v4, &only_v4).is_ok() && parse(v7, &only_v7).is_ok());
        assert_eq!(parse(v7, &only_v4), Err(Fault::InvalidFormat));
        assert_eq!(parse(v4, &only_v7), Err(Fault::InvalidFormat));
        assert_eq!(parse(wrong_variant, &only_v7), Err(Fault::InvalidFormat));
        assert_eq!(parse("abc", &only_v7), Err(Fault::InvalidFormat));
    }

    #[test]
    fn the_time_of_a_uuidv7() {
        assert_eq!(uuidv7_millis("01890a5d-ac96-774b-bcce-b302099a8057"), Some(0x0189_0a5d_ac96));
        assert_eq!(uuidv7_millis("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), None);
        assert_eq!(uuidv7_millis("abc"), None);
    }
}
