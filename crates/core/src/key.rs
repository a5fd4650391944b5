//! From the header's value to the key.
//!
//! A client sends the key raw (`Idempotency-Key: abc`) or as the Structured Field string that
//! draft-ietf-httpapi-idempotency-key-header asks for (`Idempotency-Key: "abc"`, RFC 8941
//! section 3.3.3). Both name the same key, unless the operation says otherwise.
//!
//! Such a header has one value. Several lines of it reach us joined by commas (RFC 9110 section 5.3), so
//! a bare value with a comma names no key: which of them is meant is anybody's guess.

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
    /// A bare value with a comma, or something behind a comma that follows a quoted string.
    Several,
    /// Not a quoted string of RFC 8941, or parameters behind it that are none.
    BadlyQuoted,
    /// Characters that a header cannot carry.
    Characters,
    /// Not of this format.
    Format(Format),
    /// Fewer characters than this; a blank value is this.
    TooShort(usize),
    /// More characters than this.
    TooLong(usize),
    /// More than [`MAX_BYTES`] bytes.
    TooManyBytes,
    /// A UUIDv7 whose own time lies too far ahead of the database's clock.
    InTheFuture,
}

impl Fault {
    /// The machine-readable code that goes into the problem answer.
    pub fn code(self) -> &'static str {
        match self {
            Fault::Missing => "missing",
            Fault::Several
            | Fault::BadlyQuoted
            | Fault::Characters
            | Fault::Format(_)
            | Fault::InTheFuture => "invalid_format",
            Fault::TooShort(_) => "too_short",
            Fault::TooLong(_) | Fault::TooManyBytes => "too_long",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Missing => write!(f, "This operation requires an idempotency key."),
            Fault::Several => {
                write!(
                    f,
                    "The idempotency key has a comma: send one key, or quote a key that has commas."
                )
            }
            Fault::BadlyQuoted => {
                write!(
                    f,
                    "The idempotency key is not a string in quotation marks, as RFC 8941 defines it."
                )
            }
            Fault::Characters => {
                write!(f, "The idempotency key has characters that a header cannot carry.")
            }
            Fault::Format(format) => {
                write!(f, "The idempotency key is not {}.", format.described())
            }
            Fault::TooShort(least) => {
                write!(f, "The idempotency key is too short: at least {}.", characters(*least))
            }
            Fault::TooLong(most) => {
                write!(f, "The idempotency key is too long: at most {}.", characters(*most))
            }
            Fault::TooManyBytes => {
                write!(f, "The idempotency key is too long: at most {MAX_BYTES} bytes.")
            }
            Fault::InTheFuture => {
                write!(f, "The time in the idempotency key lies in the future.")
            }
        }
    }
}

fn characters(count: usize) -> String {
    format!("{count} character{}", if count == 1 { "" } else { "s" })
}

impl Format {
    fn described(self) -> &'static str {
        match self {
            Format::Opaque => "a key",
            Format::Uuid => "a UUID",
            Format::UuidV4 => "a UUID of version 4",
            Format::UuidV7 => "a UUID of version 7",
        }
    }
}

/// The longest value that can name a key, in bytes: all of it escaped, in quotation marks, and as much
/// again of parameters.
const MAX_VALUE: usize = 4 * MAX_BYTES;

/// The key that a header value names.
///
/// # Errors
/// A [`Fault`] other than [`Fault::Missing`] where the value breaks the rules.
pub fn parse<'a>(header: &'a str, rules: &Rules) -> Result<Cow<'a, str>, Fault> {
    let value = trim(header);
    if value.len() > MAX_VALUE {
        let is_opaque = rules.format == Format::Opaque;
        return Err(if is_opaque { Fault::TooManyBytes } else { Fault::Format(rules.format) });
    }
    let key = match (rules.quoting, value.starts_with('"')) {
        (Quoting::Raw, _) => raw(value)?,
        (Quoting::Either, false) => bare(value)?,
        (Quoting::Quoted, _) | (Quoting::Either, true) => quoted(value)?,
    };
    match rules.format {
        Format::Opaque => opaque(key, rules),
        format => uuid(&key, format),
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
        return Err(Fault::Characters);
    }
    Ok(Cow::Borrowed(value))
}

/// A raw value without a comma: one with a comma is several.
fn bare(value: &str) -> Result<Cow<'_, str>, Fault> {
    if value.contains(',') { Err(Fault::Several) } else { raw(value) }
}

/// A string of RFC 8941 section 3.3.3: printable ASCII between quotation marks, `\"` and `\\` the
/// only escapes.
fn quoted(value: &str) -> Result<Cow<'_, str>, Fault> {
    let inner = value.strip_prefix('"').ok_or(Fault::BadlyQuoted)?;
    let mut key = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    loop {
        match chars.next() {
            Some('"') => return check_rest(value, chars.as_str()).map(|()| Cow::Owned(key)),
            Some('\\') => match chars.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err(Fault::BadlyQuoted),
            },
            Some(plain @ ' '..='~') => key.push(plain),
            _ => return Err(Fault::BadlyQuoted),
        }
    }
}

/// What may stand behind a string: nothing, or parameters (RFC 8941 section 3.1.2), which mean nothing
/// here.
fn check_rest(value: &str, rest: &str) -> Result<(), Fault> {
    let is_item = || {
        let item = sfv::Parser::new(value).with_version(sfv::Version::Rfc8941);
        item.parse_item_with_visitor(sfv::visitor::Ignored).is_ok()
    };
    match rest {
        "" => Ok(()),
        _ if trim(rest).starts_with(',') => Err(Fault::Several),
        _ if is_item() => Ok(()),
        _ => Err(Fault::BadlyQuoted),
    }
}

fn opaque<'a>(key: Cow<'a, str>, rules: &Rules) -> Result<Cow<'a, str>, Fault> {
    let length = key.chars().count();
    // A quoted string may hold blanks only: that is blank too.
    if trim(&key).is_empty() || length < rules.min_length {
        return Err(Fault::TooShort(rules.min_length.max(1)));
    }
    if length > rules.max_length {
        return Err(Fault::TooLong(rules.max_length));
    }
    if key.len() > MAX_BYTES { Err(Fault::TooManyBytes) } else { Ok(key) }
}

/// The one form that every UUID has on the wire; the crate would also take braces and URNs.
fn uuid(key: &str, format: Format) -> Result<Cow<'static, str>, Fault> {
    let wrong = Fault::Format(format);
    let id = Uuid::try_parse(key).ok().filter(|_| key.len() == 36).ok_or(wrong)?;
    let version = match format {
        Format::Opaque | Format::Uuid => return Ok(Cow::Owned(id.hyphenated().to_string())),
        Format::UuidV4 => 4,
        Format::UuidV7 => 7,
    };
    let is_right = id.get_version_num() == version && id.get_variant() == uuid::Variant::RFC4122;
    if is_right { Ok(Cow::Owned(id.hyphenated().to_string())) } else { Err(wrong) }
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
        for header in [r#""a"b""#, r#""a"""#] {
            assert_eq!(opaque(header), Err(Fault::BadlyQuoted), "{header}");
        }
        assert_eq!(opaque(r#""a\"b""#).as_deref(), Ok(r#"a"b"#));
    }

    #[test]
    fn the_longest_key_is_all_escapes_and_parameters_may_follow() {
        let longest = format!("\"{}\"", r#"\""#.repeat(MAX_BYTES));
        assert_eq!(opaque(&longest), Ok("\"".repeat(MAX_BYTES)));
        let most = format!("{longest};{}", "a".repeat(MAX_VALUE - longest.len() - 1));
        assert_eq!(opaque(&most), Ok("\"".repeat(MAX_BYTES)));
        assert_eq!(opaque(&format!("{most}a")), Err(Fault::TooManyBytes));
    }

    #[test]
    fn faults_are_sentences() {
        let formats = [Format::Uuid, Format::UuidV4, Format::UuidV7].map(Fault::Format);
        let lengths =
            [Fault::TooShort(1), Fault::TooShort(8), Fault::TooLong(64), Fault::TooManyBytes];
        let others = [
            Fault::Missing,
            Fault::Several,
            Fault::BadlyQuoted,
            Fault::Characters,
            Fault::InTheFuture,
        ];
        let all = formats.iter().chain(&lengths).chain(&others);
        let sentences: std::collections::HashSet<String> = all.map(Fault::to_string).collect();
        assert_eq!(sentences.len(), 12, "{sentences:?}");
        for sentence in sentences {
            assert!(sentence.starts_with("Th") && sentence.ends_with('.'), "{sentence}");
        }
    }

    #[test]
    fn faults_name_the_limit() {
        for (fault, limit) in [
            (Fault::TooShort(8), "at least 8 characters."),
            (Fault::TooShort(1), "at least 1 character."),
            (Fault::TooLong(64), "at most 64 characters."),
            (Fault::TooManyBytes, "at most 255 bytes."),
            (Fault::Format(Format::UuidV7), "a UUID of version 7."),
        ] {
            assert!(fault.to_string().ends_with(limit), "{fault}");
        }
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
        for header in [r#""a\b""#, r#""a"#, r#""a"b"#, "\"\u{e9}\"", "\"a\tb\"", "\"\\", "\""] {
            assert_eq!(opaque(header), Err(Fault::BadlyQuoted), "{header:?}");
        }
    }

    /// RFC 8941 section 3.1.2: names in lower case, each with a bare item or none, blanks only behind the
    /// semicolon.
    #[test]
    fn parameters_behind_a_quoted_string_mean_nothing() {
        for rest in [
            ";p=1",
            ";p",
            "; p=1;q",
            ";*a-b.c_d=-1.5",
            ";p=?1",
            ";p=\"a,b\"",
            ";p=tok/en:x",
            ";p=:YWJj:",
            ";p=1;p=2",
        ] {
            assert_eq!(opaque(&format!("\"k\"{rest}")).as_deref(), Ok("k"), "{rest}");
        }
        for rest in [
            ";",
            ";P=1",
            ";p=",
            ";p= 1",
            ";p =1",
            " ;p=1",
            ";p=1 x",
            ";1=1",
            ";p=\"a",
            ";p=?2",
            ";p=(1)",
            ";p=1.",
            ";p=@1",
            ";p=1234567890123456",
            ";p=\u{e9}",
        ] {
            assert_eq!(opaque(&format!("\"k\"{rest}")), Err(Fault::BadlyQuoted), "{rest}");
        }
    }

    /// Catches two lines of the header that are taken for one key, or for the first of them.
    #[test]
    fn a_header_has_one_key() {
        let any = |quoting| rules(Format::Opaque, quoting);
        for header in ["k1, k2", "k1,k2", ",", "k1,", "a, \"b\"", "fixed, attempt-1"] {
            assert_eq!(parse(header, &any(Quoting::Either)), Err(Fault::Several), "{header}");
            assert_eq!(parse(header, &any(Quoting::Quoted)), Err(Fault::BadlyQuoted), "{header}");
            assert_eq!(parse(header, &any(Quoting::Raw)).as_deref(), Ok(header));
        }
        for header in ["\"a\", \"b\"", "\"a\",b", "\"a\" , \"a\""] {
            assert_eq!(parse(header, &any(Quoting::Either)), Err(Fault::Several), "{header}");
            assert_eq!(parse(header, &any(Quoting::Quoted)), Err(Fault::Several), "{header}");
        }
        assert_eq!(opaque("\"a\";p=1, \"b\""), Err(Fault::BadlyQuoted));
        assert_eq!(opaque("\"k1, k2\"").as_deref(), Ok("k1, k2"));
        let v4 = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        let twice = format!("{v4}, {v4}");
        assert_eq!(parse(&twice, &rules(Format::Uuid, Quoting::Either)), Err(Fault::Several));
        let raw = rules(Format::Uuid, Quoting::Raw);
        assert_eq!(parse(&twice, &raw), Err(Fault::Format(Format::Uuid)));
    }

    #[test]
    fn quoting_can_be_demanded_or_switched_off() {
        let raw = rules(Format::Opaque, Quoting::Raw);
        assert_eq!(parse("\"abc\"", &raw).as_deref(), Ok("\"abc\""));
        let quoted = rules(Format::Opaque, Quoting::Quoted);
        assert_eq!(parse("\"abc\"", &quoted).as_deref(), Ok("abc"));
        assert_eq!(parse("abc", &quoted), Err(Fault::BadlyQuoted));
        assert_eq!(parse("", &quoted), Err(Fault::BadlyQuoted));
    }

    #[test]
    fn blank_is_too_short() {
        for header in ["", "   ", "\t", "\"\"", "\"  \""] {
            assert_eq!(opaque(header), Err(Fault::TooShort(1)), "{header:?}");
        }
    }

    #[test]
    fn control_characters_are_refused() {
        for header in ["a\nb", "a\rb", "a\u{0}b", "a\u{7f}", "\u{85}"] {
            assert_eq!(opaque(header), Err(Fault::Characters), "{header:?}");
        }
    }

    #[test]
    fn lengths_are_characters_and_the_hard_limit_is_bytes() {
        let rules = Rules { min_length: 2, max_length: 4, ..Rules::default() };
        assert_eq!(parse("\u{e9}", &rules), Err(Fault::TooShort(2)));
        assert_eq!(parse("\u{e9}\u{e9}", &rules).as_deref(), Ok("\u{e9}\u{e9}"));
        assert_eq!(parse("abcd", &rules).as_deref(), Ok("abcd"));
        assert_eq!(parse("abcde", &rules), Err(Fault::TooLong(4)));
        assert_eq!(opaque(&"a".repeat(255)), Ok("a".repeat(255)));
        assert_eq!(opaque(&"a".repeat(256)), Err(Fault::TooLong(255)));
        assert_eq!(opaque(&"\u{e9}".repeat(128)), Err(Fault::TooManyBytes));
    }

    #[test]
    fn the_longest_value_is_a_key_of_escapes() {
        let escaped = |length: usize| format!("\"{}\"", r#"\""#.repeat(length));
        assert_eq!(opaque(&escaped(255)), Ok("\"".repeat(255)));
        assert_eq!(opaque(&escaped(256)), Err(Fault::TooLong(255)));
        let uuid = rules(Format::Uuid, Quoting::Either);
        assert_eq!(parse(&escaped(600), &uuid), Err(Fault::Format(Format::Uuid)));
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
            assert_eq!(parse(bad, &any), Err(Fault::Format(Format::Uuid)), "{bad:?}");
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
        let (not_v4, not_v7) = (Fault::Format(Format::UuidV4), Fault::Format(Format::UuidV7));
        assert_eq!(parse(v7, &only_v4), Err(not_v4));
        assert_eq!(parse(v4, &only_v7), Err(not_v7));
        assert_eq!(parse(wrong_variant, &only_v7), Err(not_v7));
        assert_eq!(parse("abc", &only_v7), Err(not_v7));
    }

    #[test]
    fn the_time_of_a_uuidv7() {
        assert_eq!(uuidv7_millis("01890a5d-ac96-774b-bcce-b302099a8057"), Some(0x0189_0a5d_ac96));
        assert_eq!(uuidv7_millis("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), None);
        assert_eq!(uuidv7_millis("abc"), None);
    }
}
