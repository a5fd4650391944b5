//! One pass over the body: it checks the grammar (RFC 8259), brings every token into canonical
//! form and notes where members have to change their order. No recursion; what is open is a list.

use std::mem;
use std::ops::Range;

use super::error::{CanonicalError, OutOfMemory, Violation, push};
use super::exclude::Exclude;
use super::number::{self, Form};
use super::order::{self, Fault, Member};
use super::outline::{Mark, Outline};
use super::text::Text;
use super::{Canonical, DEFERRED, MAX_BYTES, MAX_DEPTH, es6, locate, string};
use crate::fingerprint::pace::Pace;
use crate::fingerprint::pointer;

/// What a token counts besides its length.
const TOKEN: usize = 16;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The body itself, around its one value.
    Document,
    Array,
    Object,
}

/// An open container.
struct Frame {
    kind: Kind,
    /// The members are not known to be in order and kept: they are looked at in the end.
    reorder: bool,
    /// The key of the name before.
    key: u64,
    /// The offset of the opening bracket.
    open: usize,
    mark: Mark,
    /// The pointers that lead into it.
    exclude: Range<usize>,
}

/// Reads the body; the members that `exclude`, checked pointers, name are left out.
///
/// # Errors
/// The first rule that the body breaks, or that memory ran out.
pub(in crate::fingerprint) fn parse<'i>(
    input: &'i [u8],
    exclude: &[&str],
    pace: &mut Pace<'_>,
) -> Result<Canonical<'i>, CanonicalError> {
    if input.len() > MAX_BYTES {
        return Err(CanonicalError::invalid(Violation::TooLong, MAX_BYTES));
    }
    let top = Frame {
        kind: Kind::Document,
        reorder: false,
        key: 0,
        open: 0,
        mark: Mark::default(),
        exclude: 0..0,
    };
    Parser {
        input,
        at: 0,
        text: Text::new(input),
        top,
        outer: Vec::new(),
        outline: Outline::default(),
        exclude: Exclude::new(exclude)?,
        deferred: false,
        pace,
    }
    .document()
}

struct Parser<'i, 'x, 'p, 'f> {
    input: &'i [u8],
    at: usize,
    text: Text<'i>,
    /// The innermost open container, and those around it.
    top: Frame,
    outer: Vec<Frame>,
    outline: Outline,
    exclude: Exclude<'x>,
    deferred: bool,
    pace: &'p mut Pace<'f>,
}

impl<'i> Parser<'i, '_, '_, '_> {
    fn document(mut self) -> Result<Canonical<'i>, CanonicalError> {
        self.space()?;
        while self.value()? || self.after_value()? {}
        let end = self.at;
        self.space_without_replacing();
        if self.at < self.input.len() {
            return self.fault(Violation::TrailingData);
        }
        Ok(Canonical {
            text: self.text.finish(end)?,
            outline: self.outline,
            deferred: self.deferred,
        })
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    /// That the byte at hand breaks a rule, or that there is none.
    #[cold]
    fn fault<T>(&self, violation: Violation) -> Result<T, CanonicalError> {
        let violation =
            if self.at < self.input.len() { violation } else { Violation::UnexpectedEnd };
        Err(CanonicalError::invalid(violation, self.at))
    }

    /// Reads a scalar or an empty container; or opens a container and says so: another value, its
    /// first, is next.
    #[inline]
    fn value(&mut self) -> Result<bool, CanonicalError> {
        self.pace.spend(TOKEN);
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'{') => return self.open(Kind::Object, b'}'),
            Some(b'[') => return self.open(Kind::Array, b']'),
            Some(b't') => self.literal(b"true")?,
            Some(b'f') => self.literal(b"false")?,
            Some(b'n') => self.literal(b"null")?,
            _ => return self.fault(Violation::ExpectedValue),
        }
        Ok(false)
    }

    /// Closes the containers that end here and goes on to the next value; false if there is none.
    #[inline]
    fn after_value(&mut self) -> Result<bool, CanonicalError> {
        while self.top.kind != Kind::Document {
            self.space()?;
            match (self.peek(), self.top.kind) {
                (Some(b','), _) => {
                    self.at += 1;
                    self.space()?;
                    self.member()?;
                    return Ok(true);
                }
                (Some(b'}'), Kind::Object) | (Some(b']'), Kind::Array) => self.close()?,
                _ => return self.fault(Violation::ExpectedCommaOrClose),
            }
        }
        Ok(false)
    }

    fn open(&mut self, kind: Kind, closing: u8) -> Result<bool, CanonicalError> {
        let open = self.at;
        if self.outer.len() >= MAX_DEPTH {
            return self.fault(Violation::TooDeep);
        }
        self.at += 1;
        self.space()?;
        if self.peek() == Some(closing) {
            self.at += 1;
            return Ok(false);
        }
        let exclude = self.exclude.inner(&self.top.exclude);
        // Elements are noted only where a pointer could name one.
        let listed = kind == Kind::Object || !exclude.is_empty();
        let mark =
            if listed { self.outline.open(self.text.position(self.at))? } else { Mark::default() };
        let frame =
            Frame { kind, reorder: kind == Kind::Array && listed, key: 0, open, mark, exclude };
        push(&mut self.outer, mem::replace(&mut self.top, frame))?;
        self.member()?;
        Ok(true)
    }

    fn close(&mut self) -> Result<(), CanonicalError> {
        let end = self.text.position(self.at);
        match self.top.kind {
            Kind::Object if self.top.reorder => self.close_object(end)?,
            Kind::Object => self.outline.close_unchanged(self.top.mark),
            Kind::Array if self.top.reorder => {
                self.outline.close_array(self.top.mark, end, self.pace)?
            }
            _ => {}
        }
        self.at += 1;
        if let Some(outer) = self.outer.pop() {
            self.top = outer;
        }
        Ok(())
    }

    fn close_object(&mut self, end: u32) -> Result<(), CanonicalError> {
        match self.outline.close_object(self.top.mark, end, &self.text, self.pace) {
            Ok(()) => Ok(()),
            Err(Fault::OutOfMemory) => Err(CanonicalError::OutOfMemory),
            Err(Fault::Duplicate(number)) => {
                let at = locate::member(self.input, self.top.open, number, self.pace);
                Err(CanonicalError::invalid(Violation::DuplicateMember, at))
            }
        }
    }

    /// Goes to the value of the next member or element.
    #[inline]
    fn member(&mut self) -> Result<(), CanonicalError> {
        match self.top.kind {
            Kind::Object => self.name(),
            _ if self.top.exclude.is_empty() => Ok(()),
            _ => Ok(self.element()?),
        }
    }

    #[inline]
    fn name(&mut self) -> Result<(), CanonicalError> {
        if self.peek() != Some(b'"') {
            return self.fault(Violation::ExpectedName);
        }
        let start = self.text.position(self.at);
        let key = self.name_key(start)?;
        self.top.reorder |= key <= self.top.key;
        self.top.key = key;
        let end =
            if self.top.exclude.is_empty() { Member::KEPT } else { self.excluded_name(start)? };
        self.outline.note(Member { key, start, end })?;
        self.space()?;
        if self.peek() != Some(b':') {
            return self.fault(Violation::ExpectedColon);
        }
        self.at += 1;
        Ok(self.space()?)
    }

    /// Reads a name, which starts at `start` of the text, and returns its key.
    #[inline]
    fn name_key(&mut self, start: u32) -> Result<u64, CanonicalError> {
        let first = self.at + 1;
        let name = string::scan(self.input, first, &mut self.text, self.pace)?;
        self.at = name.end + 1;
        if name.plain {
            return Ok(order::plain_key(self.input, first, name.end - first));
        }
        // The name is looked at again in the text, so it has to be there in one piece.
        self.text.settle(self.at)?;
        Ok(order::key(&self.text.tail(start)[1..]).0)
    }

    fn excluded_name(&mut self, start: u32) -> Result<u32, OutOfMemory> {
        let name = &self.text.tail(start)[1..];
        let bytes = || string::decode(name).map(|(byte, _)| byte);
        let out = self.exclude.step(
            &self.top.exclude,
            |token| pointer::token_is(token, bytes()),
            self.pace,
        )?;
        self.top.reorder |= out;
        Ok(if out { Member::LEFT_OUT } else { Member::KEPT })
    }

    fn element(&mut self) -> Result<(), OutOfMemory> {
        let number = self.outline.count(self.top.mark);
        let is_this =
            |token: &str| pointer::index(token).is_some_and(|index| index as usize == number);
        let out = self.exclude.step(&self.top.exclude, is_this, self.pace)?;
        let end = if out { Member::LEFT_OUT } else { Member::KEPT };
        self.outline.note(Member { key: 0, start: self.text.position(self.at), end })
    }

    #[inline]
    fn string(&mut self) -> Result<(), CanonicalError> {
        self.at = string::scan(self.input, self.at + 1, &mut self.text, self.pace)?.end + 1;
        Ok(())
    }

    #[inline]
    fn number(&mut self) -> Result<(), CanonicalError> {
        let start = self.at;
        let (end, form) = number::scan(self.input, start, self.pace)?;
        self.at = end;
        match form {
            Form::Prefix(length) if start + length == end => Ok(()),
            Form::Prefix(length) => Ok(self.text.replace(start + length, end, b"")?),
            Form::Value(value) => Ok(self.reformat(start, value)?),
        }
    }

    /// Puts the number from `start` up to here into canonical form, unless that would make the
    /// text longer.
    fn reformat(&mut self, start: usize, value: f64) -> Result<(), OutOfMemory> {
        let mut buffer = es6::Buffer::default();
        let canonical = es6::format(value, &mut buffer);
        let literal = &self.input[start..self.at];
        if canonical == literal {
            return Ok(());
        }
        if canonical.len() <= literal.len() {
            return self.text.replace(start, self.at, canonical);
        }
        self.deferred = true;
        self.text.replace(start, start, &[DEFERRED])
    }

    fn literal(&mut self, literal: &[u8]) -> Result<(), CanonicalError> {
        if !self.input[self.at..].starts_with(literal) {
            return self.fault(Violation::ExpectedValue);
        }
        self.at += literal.len();
        Ok(())
    }

    /// Leaves out white space (RFC 8259 section 2).
    #[inline]
    fn space(&mut self) -> Result<(), OutOfMemory> {
        match self.peek() {
            Some(b' ' | b'\t' | b'\n' | b'\r') => self.drop_space(),
            _ => Ok(()),
        }
    }

    fn drop_space(&mut self) -> Result<(), OutOfMemory> {
        let start = self.at;
        self.space_without_replacing();
        self.text.replace(start, self.at, b"")
    }

    fn space_without_replacing(&mut self) {
        let start = self.at;
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
            if (self.at - start) % Pace::STEP == 0 {
                self.pace.spend(Pace::STEP);
            }
        }
    }
}
