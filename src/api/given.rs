//! The answer that a completion is given: read from the arguments and checked.

use std::ffi::CStr;

use idempotency_core::body::is_json;
use idempotency_core::completion::{self, BodyText, FINAL_STATUSES};
use idempotency_core::headers::Headers;
use idempotency_core::policy::BodyFormat;
use pgrx::pg_sys;
use serde_json::Value;

use crate::convert::args::{Bytes, Jsonb, Text};
use crate::convert::datum;
use crate::convert::outcome::{Column, Outcome};
use crate::error::Error;

/// The most that a name among the arguments may hold, in bytes.
const MAX_NAME: usize = 1024;

/// The largest body, in bytes: PostgreSQL's rows end at 1 GiB, and an outcome has more in it.
const MAX_BODY: usize = 1_000_000_000;

/// An answer.
pub struct Answer<'a> {
    /// HTTP status.
    pub status: i32,
    /// Header fields, the content type among them.
    pub headers: Headers,
    /// The headers as they were given, read and as a `jsonb`.
    given_headers: Option<(Value, pg_sys::Datum)>,
    /// The body as a `bytea`.
    pub body: Option<pg_sys::Datum>,
    /// Pointer: type.
    pub resource_type: Option<&'a str>,
    /// Pointer: id.
    pub resource_id: Option<&'a str>,
    /// Why nothing is to be kept.
    pub withhold: Option<&'a str>,
}

/// The body in one of its forms.
pub struct Body<'a> {
    /// As `text`.
    pub text: Option<&'a Text<'a>>,
    /// As `jsonb`.
    pub json: Option<&'a Jsonb>,
    /// As `bytea`.
    pub bytes: Option<&'a Bytes>,
}

/// The arguments that make an answer.
pub struct Arguments<'a> {
    /// HTTP status.
    pub status: Option<i32>,
    /// The body.
    pub body: Body<'a>,
    /// The content type.
    pub content_type: Option<&'a Text<'a>>,
    /// Header fields.
    pub headers: Option<&'a Jsonb>,
    /// Pointer: type.
    pub resource_type: Option<&'a Text<'a>>,
    /// Pointer: id.
    pub resource_id: Option<&'a Text<'a>>,
    /// Why nothing is to be kept.
    pub withhold: Option<&'a Text<'a>>,
}

impl<'a> Arguments<'a> {
    /// The answer, checked.
    ///
    /// # Errors
    /// 22004, 22021, 22023.
    pub fn read(&self) -> Result<Answer<'a>, Error> {
        let given = self.headers.map(|jsonb| jsonb.to_json("headers")).transpose()?;
        let content_type = name("content_type", self.content_type)?;
        let body = self.body.read()?;
        Ok(Answer {
            status: read_status(self.status)?,
            headers: read_headers(given.as_ref(), content_type, &body)?,
            given_headers: given.zip(self.headers.map(Jsonb::datum)),
            body: body.bytea().map(not_too_large).transpose()?,
            resource_type: name("resource_type", self.resource_type)?,
            resource_id: name("resource_id", self.resource_id)?,
            withhold: name("withhold", self.withhold)?,
        })
    }
}

impl<'a> Answer<'a> {
    /// Whether it points to a resource.
    pub fn pointer(&self) -> Option<(&'a str, &'a str)> {
        self.resource_type.zip(self.resource_id)
    }

    /// The length of the body in bytes.
    pub fn body_length(&self) -> usize {
        self.body.map_or(0, |body| bytes(&body).len())
    }

    /// The answer as the core decides about it, for an operation with this format of bodies.
    pub fn facts(&self, format: BodyFormat) -> completion::Answer<'_> {
        let bytes = self.body.as_ref().map(bytes);
        completion::Answer {
            status: self.status,
            body_len: bytes.map_or(0, <[u8]>::len),
            body: match bytes.filter(|_| format != BodyFormat::Any) {
                None => BodyText::None,
                Some(bytes) => str::from_utf8(bytes).map_or(BodyText::Binary, BodyText::Text),
            },
            has_pointer: self.pointer().is_some(),
            withhold: self.withhold,
        }
    }

    /// Headers as `jsonb`, the given one where nothing had to be changed; `None` where there are none.
    pub fn jsonb(&self, headers: &Headers) -> Option<pg_sys::Datum> {
        if headers.is_empty() {
            return None;
        }
        let json = headers.to_json();
        let unchanged = self.given_headers.as_ref().filter(|(given, _)| *given == json);
        Some(unchanged.map_or_else(|| datum::jsonb(&json), |(_, datum)| *datum))
    }

    /// The answer as an outcome.
    pub fn outcome(&self, word: &CStr) -> Outcome {
        self.outcome_with(word, self.jsonb(&self.headers))
    }

    /// The answer as an outcome, with these headers.
    pub fn outcome_with(&self, word: &CStr, headers: Option<pg_sys::Datum>) -> Outcome {
        Outcome::new(&word.to_string_lossy())
            .with(Column::Status, Some(self.status.into()))
            .with(Column::Headers, headers)
            .with(Column::Body, self.body)
            .with(Column::ResourceType, self.resource_type.map(datum::text))
            .with(Column::ResourceId, self.resource_id.map(datum::text))
    }
}

/// The body, read.
enum Read<'a> {
    None,
    /// As `text`, and the same in UTF-8.
    Text(&'a Text<'a>, &'a str),
    /// As the text of a `jsonb`, in UTF-8.
    Json(&'a str),
    Bytes(&'a Bytes),
}

impl<'a> Body<'a> {
    /// The body in the one form that it is given in.
    fn read(&self) -> Result<Read<'a>, Error> {
        match (self.text, self.json, self.bytes) {
            (None, None, None) => Ok(Read::None),
            (Some(text), None, None) => Ok(Read::Text(text, text.to_utf8("body")?)),
            (None, Some(json), None) => Ok(Read::Json(json.text("body_json")?)),
            (None, None, Some(bytes)) => Ok(Read::Bytes(bytes)),
            _ => Err(Error::argument(
                "only one body can be given",
                "More than one of body, body_json and body_bytes has a value.".into(),
                "Pass text as body, jsonb as body_json, or bytes as body_bytes.",
            )),
        }
    }
}

impl Read<'_> {
    /// As `bytea`.
    fn bytea(&self) -> Option<pg_sys::Datum> {
        match self {
            Self::None => None,
            Self::Text(text, utf8) => Some(text.to_bytea(utf8)),
            Self::Json(utf8) => Some(datum::bytea(utf8.as_bytes())),
            Self::Bytes(bytes) => Some(bytes.datum()),
        }
    }

    fn is_json(&self) -> bool {
        match self {
            Self::Text(_, utf8) => is_json(utf8),
            Self::Json(_) => true,
            Self::None | Self::Bytes(_) => false,
        }
    }
}

fn not_too_large(body: pg_sys::Datum) -> Result<pg_sys::Datum, Error> {
    let length = bytes(&body).len();
    if length <= MAX_BODY {
        return Ok(body);
    }
    Err(Error::argument(
        "body is too large",
        format!("It is {length} bytes long; {MAX_BODY} are allowed."),
        "Stream such an answer, and complete with withhold.",
    ))
}

fn read_status(status: Option<i32>) -> Result<i32, Error> {
    let status = status.ok_or_else(|| Error::null("status"))?;
    if FINAL_STATUSES.contains(&status) {
        return Ok(status);
    }
    Err(Error::argument(
        "status must be a final HTTP status",
        format!("It is {status}; final ones are 200 to 599."),
        "Pass the status that the client gets.",
    ))
}

/// The headers, the content type among them.
fn read_headers(
    given: Option<&Value>,
    content_type: Option<&str>,
    body: &Read<'_>,
) -> Result<Headers, Error> {
    let refused = |fault| Error::headers(&fault);
    let headers = given.map(Headers::from_json).transpose().map_err(refused)?;
    let mut headers = headers.unwrap_or_default();
    let default =
        || (headers.content_type().is_none() && body.is_json()).then_some("application/json");
    if let Some(content_type) = content_type.or_else(default) {
        headers.set_content_type(content_type).map_err(refused)?;
    }
    Ok(headers)
}

/// A name or an id, which may come to stand in a header, a log or a page.
fn name<'a>(argument: &'static str, value: Option<&'a Text<'a>>) -> Result<Option<&'a str>, Error> {
    let value = Text::read(argument, value)?;
    let length = value.map_or(0, str::len);
    if length > MAX_NAME {
        return Err(Error::argument(
            format!("{argument} is too long"),
            format!("It is {length} bytes long; {MAX_NAME} are allowed."),
            "Pass a name or an id.",
        ));
    }
    no_control_character(argument, value.unwrap_or_default())?;
    Ok(value)
}

/// # Errors
/// 22023 where there is a control character.
pub fn no_control_character(argument: &'static str, text: &str) -> Result<(), Error> {
    let Some(control) = text.chars().find(|c| c.is_control()) else { return Ok(()) };
    Err(Error::argument(
        format!("{argument} must not have control characters"),
        format!("It has the character U+{:04X}.", control as u32),
        "Pass a name or an id without line breaks and the like.",
    ))
}

fn bytes(bytea: &pg_sys::Datum) -> &[u8] {
    // SAFETY: a bytea that lives as long as the call.
    unsafe { datum::bytes(bytea, *bytea) }
}
