//! What a body is, and what strict JSON makes of it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::IgnoredAny;

/// The largest body that is read as JSON, in bytes. Reading takes memory in proportion, and a
/// failed allocation would end the process.
pub const MAX_READ: usize = 16 * 1024 * 1024;

/// How deep strict JSON may nest.
pub const MAX_DEPTH: usize = 10_000;

/// The greatest integer that every JSON reader keeps exactly, 2^53 - 1 (RFC 8259 section 6).
const MAX_INTEGER: &str = "9007199254740991";

/// Why a body is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not one JSON value, or too large to be read as one.
    NotJson,
    /// An array has a null element.
    NullElement,
    /// An integer lies beyond 2^53 - 1.
    Integer(String),
    /// An object has two members of this name.
    Duplicate(String),
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotJson => {
                write!(f, "The body is not one JSON value of at most {MAX_READ} bytes.")
            }
            Fault::NullElement => write!(f, "An array in the body has a null element."),
            Fault::Integer(digits) => {
                write!(f, "The integer {digits:.40} in the body lies beyond 2^53 - 1.")
            }
            Fault::Duplicate(name) => {
                write!(f, "An object in the body has two members named \"{name:.255}\".")
            }
            Fault::TooDeep => write!(f, "The body is nested deeper than {MAX_DEPTH} levels."),
        }
    }
}

/// Whether a text is one JSON value (RFC 8259) of at most [`MAX_READ`] bytes.
pub fn is_json(text: &str) -> bool {
    text.len() <= MAX_READ && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The text without members that are null; unchanged, white space and all, where there are none.
///
/// # Errors
/// A [`Fault`] where the text is not JSON, or is JSON that readers may take differently.
pub fn strict_json(text: &str) -> Result<Cow<'_, str>, Fault> {
    if !is_json(text) {
        return Err(Fault::NotJson);
    }
    let mut writer = Writer {
        kept: String::with_capacity(text.len()),
        open: Vec::new(),
        name: None,
        dropped: false,
    };
    for token in Tokens(text) {
        writer.take(token)?;
    }
    Ok(if writer.dropped { Cow::Owned(writer.kept) } else { Cow::Borrowed(text) })
}

/// The tokens of a valid JSON text, without white space, commas and colons.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start_matches([' ', '\t', '\n', '\r', ',', ':']);
        let end = match rest.as_bytes().first()? {
            b'{' | b'}' | b'[' | b']' => 1,
            b'"' => string_end(rest),
            _ => rest.find([' ', '\t', '\n', '\r', ',', ']', '}']).unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(end);
        self.0 = rest;
        Some(token)
    }
}

/// Behind the closing quotation mark of the string that a text starts with.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    let close = text.bytes().skip(1).position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    });
    close.map_or(text.len(), |close| close + 2)
}

/// Writes tokens down again, without members that are null.
struct Writer<'a> {
    kept: String,
    open: Vec<Container<'a>>,
    /// The name of the member whose value comes next.
    name: Option<&'a str>,
    dropped: bool,
}

struct Container<'a> {
    /// The names so far; `None` in an array.
    names: Option<HashSet<Cow<'a, str>>>,
    is_empty: bool,
}

impl<'a> Writer<'a> {
    fn take(&mut self, token: &'a str) -> Result<(), Fault> {
        match token {
            "}" | "]" => {
                self.open.pop();
                self.kept.push_str(token);
                Ok(())
            }
            _ if self.is_name() => self.take_name(token),
            "null" if self.name.take().is_some() => {
                self.dropped = true;
                Ok(())
            }
            "null" if !self.open.is_empty() => Err(Fault::NullElement),
            _ => self.take_value(token),
        }
    }

    fn is_name(&self) -> bool {
        self.name.is_none() && self.open.last().is_some_and(|container| container.names.is_some())
    }

    fn take_name(&mut self, token: &'a str) -> Result<(), Fault> {
        let name = decode(token)?;
        let names = self.open.last_mut().and_then(|container| container.names.as_mut());
        if names.is_some_and(|names| !names.insert(name.clone())) {
            return Err(Fault::Duplicate(name.into_owned()));
        }
        self.name = Some(token);
        Ok(())
    }

    fn take_value(&mut self, token: &'a str) -> Result<(), Fault> {
        check_integer(token)?;
        self.separate();
        if let Some(name) = self.name.take() {
            self.kept.push_str(name);
            self.kept.push(':');
        }
        self.kept.push_str(token);
        match token {
            "{" => self.enter(Some(HashSet::new())),
            "[" => self.enter(None),
            _ => Ok(()),
        }
    }

    fn separate(&mut self) {
        if let Some(container) = self.open.last_mut() {
            if !container.is_empty {
                self.kept.push(',');
            }
            container.is_empty = false;
        }
    }

    fn enter(&mut self, names: Option<HashSet<Cow<'a, str>>>) -> Result<(), Fault> {
        if self.open.len() == MAX_DEPTH {
            return Err(Fault::TooDeep);
        }
        self.open.push(Container { names, is_empty: true });
        Ok(())
    }
}

/// A member's name as it reads: `"a"` and `"\u0061"` are one name.
fn decode(token: &str) -> Result<Cow<'_, str>, Fault> {
    if token.contains('\\') {
        return serde_json::from_str(token).map(Cow::Owned).map_err(|_| Fault::NotJson);
    }
    Ok(Cow::Borrowed(token.trim_matches('"')))
}

/// Refuses integer literals that a reader may round; fractions and exponents are meant to be.
fn check_integer(token: &str) -> Result<(), Fault> {
    let digits = token.strip_prefix('-').unwrap_or(token);
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_integer && (digits.len(), digits) > (MAX_INTEGER.len(), MAX_INTEGER) {
        return Err(Fault::Integer(token.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict(text: &str) -> Result<String, Fault> {
        strict_json(text).map(Cow::into_owned)
    }

    #[test]
    fn one_json_value() {
        for json in ["{}", " [1, 2] ", "null", "0", "\"a\"", "false"] {
            assert!(is_json(json), "{json}");
        }
        for other in ["", " ", "{}{}", "{a: 1}", "hello", "01"] {
            assert!(!is_json(other), "{other}");
        }
        assert!(is_json(&format!("\"{}\"", "a".repeat(MAX_READ - 2))));
        assert!(!is_json(&format!("\"{}\"", "a".repeat(MAX_READ - 1))));
    }

    #[test]
    fn without_null_members_nothing_changes() {
        for json in [
            "{ \"a\" : [ 1 , 2.50 ] }",
            "null",
            "[]",
            "{}",
            "\"nu,ll\"",
            "[\"null\", {\"null\": 1e400}]",
            "-0",
        ] {
            assert!(matches!(strict_json(json), Ok(Cow::Borrowed(same)) if same == json), "{json}");
        }
    }

    #[test]
    fn null_members_go() {
        for (json, expected) in [
            ("{\"a\": null}", "{}"),
            ("{\"a\": null, \"b\": 1}", "{\"b\":1}"),
            ("{\"a\": 1, \"b\": null}", "{\"a\":1}"),
            (
                "{\"a\": 1, \"b\": null, \"c\": [true, {\"d\": null, \"e\": \"x, y\"}]}",
                "{\"a\":1,\"c\":[true,{\"e\":\"x, y\"}]}",
            ),
            ("[{\"a\":null},{\"a\":1.10}]", "[{},{\"a\":1.10}]"),
            (r#"{"q\"uote\\":{"n":null},"z":"\\"}"#, r#"{"q\"uote\\":{},"z":"\\"}"#),
        ] {
            assert_eq!(strict(json).as_deref(), Ok(expected), "{json}");
        }
    }

    #[test]
    fn null_elements_are_refused() {
        assert_eq!(strict("[null]"), Err(Fault::NullElement));
        assert_eq!(strict("{\"a\": [1, null]}"), Err(Fault::NullElement));
    }

    #[test]
    fn integers_beyond_the_exact_range_are_refused() {
        for fine in ["9007199254740991", "-9007199254740991", "9007199254740992.0", "1e30", "0"] {
            assert!(strict(fine).is_ok(), "{fine}");
        }
        for wrong in
            ["9007199254740992", "-9007199254740992", "10000000000000000", "[99999999999999999]"]
        {
            assert!(matches!(strict(wrong), Err(Fault::Integer(_))), "{wrong}");
        }
    }

    #[test]
    fn duplicate_names_are_refused_as_they_read() {
        for json in ["{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}", "{\"x\":{\"a\":null,\"a\":1}}"]
        {
            assert_eq!(strict(json), Err(Fault::Duplicate("a".into())), "{json}");
        }
        assert!(strict("{\"a\":{\"a\":1},\"b\":{\"a\":1}}").is_ok());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "hello", "{\"\\ud800\":1}"] {
            assert_eq!(strict(text), Err(Fault::NotJson), "{text}");
        }
    }

    #[test]
    fn depth_is_limited() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(strict(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(strict(&nested(MAX_DEPTH + 1)), Err(Fault::TooDeep));
    }

    #[test]
    fn messages_name_the_fault() {
        assert!(Fault::NotJson.to_string().contains("not one JSON value"));
        assert!(Fault::NullElement.to_string().contains("null element"));
        assert!(Fault::Integer("99".into()).to_string().contains("99"));
        assert!(Fault::Duplicate("a".into()).to_string().contains("\"a\""));
        assert!(Fault::TooDeep.to_string().contains("10000"));
    }
}
