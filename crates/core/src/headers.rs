//! The headers of an answer: read, merged, and stripped of what must not be replayed.
//!
//! Names are compared without case (RFC 9110 section 5.1) and keep the spelling of their first
//! appearance.

use std::fmt;

use serde_json::{Map, Value};

/// Fields that belong to one connection, one client or one moment (RFC 9110 sections 7.6.1, 8.6,
/// 6.6.1, 11; RFC 6265). `Proxy-*` is matched by prefix besides.
const NEVER_STORED: [&str; 12] = [
    "authorization",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "set-cookie",
    "set-cookie2",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// What is wrong with the headers of a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not a JSON object.
    NotAnObject,
    /// Not a field name (RFC 9110 section 5.6.2, token).
    Name(String),
    /// Not a string, a number, or an array of these.
    Value(String),
    /// A value with a character that a field value cannot carry.
    Character(String, char),
    /// `Content-Type` is given twice and differs.
    ContentType(String, String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotAnObject => write!(f, "Headers are a JSON object of names and values."),
            Fault::Name(name) => write!(f, "\"{}\" is not a header name.", name.escape_debug()),
            Fault::Value(name) => write!(
                f,
                "The value of \"{name}\" is not a string, a number, or an array of these."
            ),
            Fault::Character(name, c) => write!(
                f,
                "The value of \"{name}\" has the character U+{:04X}, which no header carries.",
                u32::from(*c)
            ),
            Fault::ContentType(one, other) => {
                write!(f, "The content type is given as \"{one}\" and as \"{other}\".")
            }
        }
    }
}

/// Header fields in the order of their first appearance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<String>)>);

impl Headers {
    /// Reads a JSON object whose values are strings, numbers, or arrays of these.
    ///
    /// # Errors
    /// A [`Fault`] that names the member at fault.
    pub fn from_json(json: &Value) -> Result<Self, Fault> {
        let members = json.as_object().ok_or(Fault::NotAnObject)?;
        let mut headers = Self::default();
        for (name, value) in members {
            if !is_token(name) {
                return Err(Fault::Name(name.clone()));
            }
            let values = field_values(value).ok_or_else(|| Fault::Value(name.clone()))?;
            values.iter().try_for_each(|value| check_field_value(name, value))?;
            headers.append(name, values);
        }
        headers.one_content_type()?;
        Ok(headers)
    }

    /// A JSON object: a name's only value as a string, several as an array.
    pub fn to_json(&self) -> Value {
        let member = |(name, values): &(String, Vec<String>)| {
            let value = match values.as_slice() {
                [only] => Value::from(only.as_str()),
                several => Value::from(several),
            };
            (name.clone(), value)
        };
        Value::Object(self.0.iter().map(member).collect::<Map<_, _>>())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a field to one value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.0.push((name.into(), vec![value.into()]));
    }

    /// Adds the content type of the answer.
    ///
    /// # Errors
    /// [`Fault::ContentType`] where the headers already have another one; [`Fault::Character`] where
    /// it could not be a field value.
    pub fn set_content_type(&mut self, content_type: &str) -> Result<(), Fault> {
        check_field_value("Content-Type", content_type)?;
        self.append("Content-Type", vec![content_type.into()]);
        self.one_content_type()
    }

    /// The content type, where there is one.
    pub fn content_type(&self) -> Option<&str> {
        let (_, values) =
            self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"))?;
        values.first().map(String::as_str)
    }

    /// Without the fields that must never be replayed, those named by `Connection` included, and
    /// without the one that only a replay carries.
    pub fn storable(mut self, replay_header: &str) -> Self {
        let per_connection = self.named_by_connection();
        self.0.retain(|(name, _)| {
            let name = name.to_ascii_lowercase();
            let denied = NEVER_STORED.contains(&name.as_str())
                || name.starts_with("proxy-")
                || name.eq_ignore_ascii_case(replay_header);
            !denied && !per_connection.contains(&name)
        });
        self
    }

    /// Without the fields that describe one representation of a resource (RFC 9110 section 8): who
    /// renders the resource anew describes it anew.
    pub fn without_representation(mut self) -> Self {
        self.0.retain(|(name, _)| {
            let name = name.to_ascii_lowercase();
            !name.starts_with("content-") && name != "etag" && name != "last-modified"
        });
        self
    }

    fn named_by_connection(&self) -> Vec<String> {
        let connection = self.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
        let options =
            connection.flat_map(|(_, values)| values.iter().flat_map(|value| value.split(',')));
        options.map(|option| option.trim().to_ascii_lowercase()).collect()
    }

    fn append(&mut self, name: &str, values: Vec<String>) {
        match self.0.iter_mut().find(|(other, _)| other.eq_ignore_ascii_case(name)) {
            Some((_, present)) => present.extend(values),
            None if values.is_empty() => {}
            None => self.0.push((name.into(), values)),
        }
    }

    /// Leaves one content type where the same one was given several times.
    fn one_content_type(&mut self) -> Result<(), Fault> {
        let field = self.0.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let Some((_, values)) = field else { return Ok(()) };
        values.dedup();
        match values.as_slice() {
            [one, other, ..] => Err(Fault::ContentType(one.clone(), other.clone())),
            [_] | [] => Ok(()),
        }
    }
}

fn field_values(json: &Value) -> Option<Vec<String>> {
    match json {
        Value::Array(elements) => elements.iter().map(field_value).collect(),
        single => field_value(single).map(|value| vec![value]),
    }
}

fn field_value(json: &Value) -> Option<String> {
    match json {
        Value::String(text) => Some(text.clone()),
        // A double that stands for an integer beyond 2^53 may have lost digits of it.
        Value::Number(number) if number.is_f64() && number.as_f64()?.abs() >= 9e15 => None,
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// RFC 9110 section 5.5. A line break would let a value pose as another header; a field's bytes stand for
/// the characters up to U+00FF, and servers send of others what they like: of U+010A a line break.
fn check_field_value(name: &str, text: &str) -> Result<(), Fault> {
    let is_wrong = |c: &char| (c.is_control() && *c != '\t') || *c > '\u{ff}';
    match text.chars().find(is_wrong) {
        Some(c) => Err(Fault::Character(name.into(), c)),
        None => Ok(()),
    }
}

/// Whether a field of this name can be the mark of replays: one that means nothing else, and that is
/// not dropped.
pub(crate) fn can_mark(name: &str) -> bool {
    let mut headers = Headers::default();
    headers.set(name, "true");
    is_token(name) && !headers.storable("").without_representation().is_empty()
}

/// RFC 9110 section 5.6.2.
pub(crate) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn storable(json: Value) -> Value {
        Headers::from_json(&json).unwrap().storable("Replayed").to_json()
    }

    #[test]
    fn strings_numbers_and_arrays() {
        let headers = json!({"Location": "/orders/1", "Retry-After": 5, "Link": ["<a>", "<b>"], "X": ["one"], "Y": 1.5});
        let expected = json!({"Location": "/orders/1", "Retry-After": "5", "Link": ["<a>", "<b>"], "X": "one", "Y": "1.5"});
        assert_eq!(Headers::from_json(&headers).unwrap().to_json(), expected);
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        for value in
            [json!(true), json!(null), json!({"a": 1}), json!([["a"]]), json!(1e30), json!([null])]
        {
            let fault = Headers::from_json(&json!({"X": value})).unwrap_err();
            assert_eq!(fault, Fault::Value("X".into()), "{value}");
        }
        for name in ["", "a b", "a:b", "a\nb", "\u{e9}"] {
            let fault = Headers::from_json(&json!({name: "v"})).unwrap_err();
            assert_eq!(fault, Fault::Name(name.into()));
        }
        for json in [json!([]), json!("a"), json!(1), json!(null)] {
            assert_eq!(Headers::from_json(&json), Err(Fault::NotAnObject));
        }
    }

    /// Catches U+010D and U+010A, of which a server that cuts characters to bytes makes a line break.
    #[test]
    fn characters_that_no_header_carries_are_refused_by_name() {
        for (value, c) in [
            (json!("a\r\nSet-Cookie: b"), '\r'),
            (json!(["a", "b\u{7f}"]), '\u{7f}'),
            (json!("\u{85}"), '\u{85}'),
            (json!("a\u{10d}\u{10a}Set-Cookie: b=c"), '\u{10d}'),
            (json!("\u{1f600}"), '\u{1f600}'),
        ] {
            let fault = Headers::from_json(&json!({"X": value})).unwrap_err();
            assert_eq!(fault, Fault::Character("X".into(), c), "{value}");
        }
        let latin = json!({"X": "\u{e9}\u{ff}\t\u{a0}"});
        assert_eq!(Headers::from_json(&latin).unwrap().to_json(), latin);
    }

    #[test]
    fn an_empty_array_is_no_header() {
        assert_eq!(storable(json!({"X": []})), json!({}));
    }

    #[test]
    fn names_that_differ_in_case_are_one_header() {
        assert_eq!(
            storable(json!({"LINK": "<a>", "Link": "<b>"})),
            json!({"LINK": ["<a>", "<b>"]})
        );
    }

    #[test]
    fn content_type_has_one_value() {
        let mut headers = Headers::from_json(&json!({"content-type": "text/plain"})).unwrap();
        assert_eq!(headers.set_content_type("text/plain"), Ok(()));
        assert_eq!(headers.to_json(), json!({"content-type": "text/plain"}));
        assert_eq!(headers.content_type(), Some("text/plain"));
        let conflict = Fault::ContentType("text/plain".into(), "text/html".into());
        assert_eq!(headers.set_content_type("text/html"), Err(conflict.clone()));
        let twice = json!({"Content-Type": ["text/plain", "text/html"]});
        assert_eq!(Headers::from_json(&twice), Err(conflict));
        assert_eq!(
            Headers::default().set_content_type("a\nb"),
            Err(Fault::Character("Content-Type".into(), '\n'))
        );
    }

    #[test]
    fn what_must_not_be_replayed_is_dropped() {
        let headers = json!({
            "SET-Cookie": "a=b", "authorization": "x", "WWW-Authenticate": "x", "Proxy-Authenticate": "x",
            "Proxy-Anything": "x", "Content-Length": 5, "Date": "x", "Connection": "close, X-Hop", "Keep-Alive": "x",
            "TE": "x", "Trailer": "x", "Transfer-Encoding": "x", "Upgrade": "x", "x-hop": "x", "REPLAYED": "false", "ETag": "\"1\""
        });
        assert_eq!(storable(headers), json!({"ETag": "\"1\""}));
    }

    #[test]
    fn a_resource_rendered_anew_is_described_anew() {
        let headers = json!({"Content-Type": "a", "content-language": "b", "ETag": "c", "Last-Modified": "d", "Location": "e"});
        let kept = Headers::from_json(&headers).unwrap().without_representation();
        assert_eq!(kept.to_json(), json!({"Location": "e"}));
    }

    #[test]
    fn set_replaces() {
        let mut headers = Headers::default();
        assert!(headers.is_empty());
        headers.set("X", "1");
        headers.set("x", "2");
        assert_eq!(headers.to_json(), json!({"x": "2"}));
        assert!(!headers.is_empty());
    }

    #[test]
    fn messages_name_the_fault() {
        let fault = Headers::from_json(&json!({"a\nb": "v"})).unwrap_err();
        assert_eq!(fault.to_string(), "\"a\\nb\" is not a header name.");
        assert!(Fault::Value("X".into()).to_string().contains("\"X\""));
        assert!(
            Fault::Character("X".into(), '\n')
                .to_string()
                .contains("\"X\" has the character U+000A")
        );
        assert!(
            Fault::ContentType("a".into(), "b".into()).to_string().contains("\"a\" and as \"b\"")
        );
        assert!(Fault::NotAnObject.to_string().contains("object"));
    }
}
