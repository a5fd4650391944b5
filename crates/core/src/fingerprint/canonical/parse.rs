//! One pass over the body: it checks the grammar (RFC 8259), brings every token into canonical
//! form and notes where members have to change their order. No recursion; what is open is a list.

mod tokens;

use std::borrow::Cow;
use std::mem;
use std::ops::ControlFlow::{self, Break, Continue};

use super::error::{CanonicalError, OutOfMemory, Violation};
use super::exclude::{Exclude, Live};
use super::listing::{Listing, Mark};
use super::order::{self, Fault};
use super::outline::Outline;
use super::sparing::Sparing;
use super::text::Text;
use super::{Arranged, Canonical, MAX_BYTES, MAX_DEPTH, Way, locate, string};
use crate::fingerprint::pace::Pace;
use crate::fingerprint::pointer;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The body itself, around its one value.
    Document,
    Array,
    Object,
}

/// What is left to read, or why reading ends.
type Rest<'i> = Result<&'i [u8], CanonicalError>;

/// What is left to read, and how it goes on there.
type Step<'i> = Result<ControlFlow<&'i [u8], &'i [u8]>, CanonicalError>;

/// An open container.
struct Frame {
    kind: Kind,
    /// The offset of the opening bracket.
    open: u32,
    /// How many elements of an array have started, where a pointer could name one.
    elements: u32,
    mark: Mark,
    /// The pointers that lead into it.
    exclude: Live,
}

impl Frame {
    fn new(kind: Kind, open: usize, exclude: Live) -> Self {
        Self { kind, open: open as u32, elements: 0, mark: Mark::default(), exclude }
    }

    /// Its members are listed: those of objects, and elements where a pointer could name one.
    fn is_listed(&self) -> bool {
        self.kind == Kind::Object || !self.exclude.is_empty()
    }
}

/// Reads the body; the members that `exclude`, checked pointers, name are left out. Where memory does
/// not suffice, or more than twice the body would be taken, it is read again in the sparing way.
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
    match Parser::<Outline>::new(Text::new(input), input, exclude, pace)?.document() {
        Ok((text, outline, deferred)) => {
            Ok(Canonical(Way::Arranged(Arranged { text, outline, deferred })))
        }
        Err(CanonicalError::OutOfMemory) => parse_sparing(input, exclude, pace),
        Err(fault) => Err(fault),
    }
}

/// [`parse`] in the sparing way. `input` is not too long.
///
/// # Errors
/// The first rule that the body breaks, or that memory ran out.
#[cold]
#[inline(never)]
pub(in crate::fingerprint) fn parse_sparing<'i>(
    input: &'i [u8],
    exclude: &[&str],
    pace: &mut Pace<'_>,
) -> Result<Canonical<'i>, CanonicalError> {
    let parser = Parser::<Sparing>::new(Text::untouched(input), input, exclude, pace)?;
    let (_, sparing, _) = parser.document()?;
    Ok(Canonical(Way::Sparing(input, sparing)))
}

struct Parser<'i, 'x, 'p, 'f, L> {
    input: &'i [u8],
    text: Text<'i>,
    /// The innermost open container, and those around it.
    top: Frame,
    outer: Vec<Frame>,
    listing: L,
    exclude: Exclude<'x>,
    deferred: bool,
    /// With less than this left, the pace is told of what was read.
    pause_at: usize,
    pace: &'p mut Pace<'f>,
}

/// What came of a body: its text, its containers, and whether numbers in the text are marked.
type Read<'i, L> = (Cow<'i, [u8]>, L, bool);

/// Every method takes what is left of the input, and returns what is then left.
impl<'i, 'x, 'p, 'f, L: Listing> Parser<'i, 'x, 'p, 'f, L> {
    fn new(
        text: Text<'i>,
        input: &'i [u8],
        exclude: &[&'x str],
        pace: &'p mut Pace<'f>,
    ) -> Result<Self, OutOfMemory> {
        Ok(Self {
            input,
            text,
            top: Frame::new(Kind::Document, 0, Live::default()),
            outer: Vec::new(),
            listing: L::default(),
            exclude: Exclude::new(exclude)?,
            deferred: false,
            pause_at: input.len().saturating_sub(Pace::STEP),
            pace,
        })
    }

    fn document(mut self) -> Result<Read<'i, L>, CanonicalError> {
        let mut step = self.value(self.input)?;
        let after = loop {
            step = match (step, self.top.kind) {
                (Break(after), Kind::Document) => break after,
                (Break(after), Kind::Object) => self.after_member(after)?,
                (Break(after), Kind::Array) => self.after_element(after)?,
                (Continue(first), Kind::Object) => self.members(first)?,
                (Continue(first), _) => self.elements(first)?,
            };
        };
        let end = self.offset(after);
        let rest = self.skip_space(after);
        if !rest.is_empty() {
            return self.fault(Violation::TrailingData, rest);
        }
        self.listing.finish(self.pace);
        Ok((self.text.finish(end)?, self.listing, self.deferred))
    }

    /// Tokens are short; what they add up to is told now and then.
    #[cold]
    #[inline(never)]
    fn pause(&mut self, rest: &[u8]) {
        self.pace.spend(Pace::STEP);
        self.pause_at = rest.len().saturating_sub(Pace::STEP);
    }

    fn offset(&self, rest: &[u8]) -> usize {
        self.input.len() - rest.len()
    }

    /// That the first byte left breaks a rule, or that none is left.
    #[cold]
    fn fault<T>(&self, violation: Violation, rest: &[u8]) -> Result<T, CanonicalError> {
        let violation = if rest.is_empty() { Violation::UnexpectedEnd } else { violation };
        Err(CanonicalError::invalid(violation, self.offset(rest)))
    }

    /// Reads members of the innermost object, of which the next one starts here, and breaks after the
    /// object; or continues in the first container among their values.
    fn members(&mut self, mut rest: &'i [u8]) -> Step<'i> {
        loop {
            let value = self.name(rest)?;
            let after = match self.value(value)? {
                Break(after) => after,
                opened => return Ok(opened),
            };
            rest = match self.after_member(after)? {
                Continue(next) => next,
                closed => return Ok(closed),
            };
        }
    }

    /// Reads elements of the innermost array in the same way.
    fn elements(&mut self, mut rest: &'i [u8]) -> Step<'i> {
        loop {
            let value = self.element(rest)?;
            let after = match self.value(value)? {
                Break(after) => after,
                opened => return Ok(opened),
            };
            rest = match self.after_element(after)? {
                Continue(next) => next,
                closed => return Ok(closed),
            };
        }
    }

    /// Continues with the next member, or closes the object and breaks after it.
    #[inline(always)]
    fn after_member(&mut self, rest: &'i [u8]) -> Step<'i> {
        match self.expect(rest, b',')? {
            [b',', next @ ..] => Ok(Continue(next)),
            bracket @ [b'}', after @ ..] => {
                self.close_object(bracket)?;
                Ok(Break(after))
            }
            rest => self.fault(Violation::ExpectedCommaOrClose, rest),
        }
    }

    /// Continues with the next element, or closes the array and breaks after it.
    #[inline(always)]
    fn after_element(&mut self, rest: &'i [u8]) -> Step<'i> {
        let rest = self.expect(rest, b',')?;
        if self.top.is_listed() {
            self.listing.end_element(self.top.mark, self.text.position(rest));
        }
        match rest {
            [b',', next @ ..] => Ok(Continue(next)),
            [b']', after @ ..] => {
                self.close_array(rest)?;
                Ok(Break(after))
            }
            _ => self.fault(Violation::ExpectedCommaOrClose, rest),
        }
    }

    /// Reads a scalar or an empty container, and breaks after it; or opens a container and
    /// continues with its first member.
    #[inline(always)]
    fn value(&mut self, mut rest: &'i [u8]) -> Step<'i> {
        if rest.len() < self.pause_at {
            self.pause(rest);
        }
        loop {
            return Ok(Break(match rest {
                [b'"', rest @ ..] => self.string(rest)?,
                [b'-' | b'0'..=b'9', ..] => self.number(rest)?,
                [b'{', ..] => return self.open(rest, Kind::Object, b'}'),
                [b'[', ..] => return self.open(rest, Kind::Array, b']'),
                [b't', b'r', b'u', b'e', rest @ ..] => rest,
                [b'f', b'a', b'l', b's', b'e', rest @ ..] => rest,
                [b'n', b'u', b'l', b'l', rest @ ..] => rest,
                [b' ' | b'\t' | b'\n' | b'\r', ..] => {
                    rest = self.drop_space(rest)?;
                    continue;
                }
                _ => return self.fault(Violation::ExpectedValue, rest),
            }));
        }
    }

    #[inline(always)]
    fn open(&mut self, bracket: &'i [u8], kind: Kind, closing: u8) -> Step<'i> {
        if self.outer.len() >= MAX_DEPTH {
            return self.fault(Violation::TooDeep, bracket);
        }
        let rest = self.token(&bracket[1..])?;
        if rest.first() == Some(&closing) {
            return Ok(Break(&rest[1..]));
        }
        let exclude = self.exclude.inner(self.top.exclude);
        let mut frame = Frame::new(kind, self.offset(bracket), exclude);
        if frame.is_listed() {
            frame.mark = self.listing.open(rest, &self.text)?;
        }
        if self.outer.len() == self.outer.capacity() {
            self.grow_outer()?;
        }
        self.outer.push(mem::replace(&mut self.top, frame));
        Ok(Continue(rest))
    }

    #[cold]
    #[inline(never)]
    fn grow_outer(&mut self) -> Result<(), OutOfMemory> {
        let open = self.outer.len();
        Ok(self.outer.try_reserve_exact(open.max(16).min(MAX_DEPTH - open))?)
    }

    fn close_object(&mut self, bracket: &[u8]) -> Result<(), CanonicalError> {
        match self.listing.close_object(self.top.mark, bracket, &mut self.text, self.pace) {
            Ok(()) => {
                self.leave();
                Ok(())
            }
            Err(Fault::OutOfMemory) => Err(CanonicalError::OutOfMemory),
            Err(Fault::Duplicate(number)) => {
                let at = locate::member(self.input, self.top.open as usize, number, self.pace);
                Err(CanonicalError::invalid(Violation::DuplicateMember, at))
            }
        }
    }

    #[inline(always)]
    fn close_array(&mut self, bracket: &[u8]) -> Result<(), OutOfMemory> {
        if self.top.is_listed() {
            self.listing.close_array(self.top.mark, bracket, &self.text, self.pace)?;
        }
        self.leave();
        Ok(())
    }

    /// Goes back to the container around the innermost one.
    #[inline(always)]
    fn leave(&mut self) {
        if let Some(outer) = self.outer.pop() {
            self.top = outer;
        }
    }

    /// Reads the name of the next member, and goes to its value.
    #[inline(always)]
    fn name(&mut self, rest: &'i [u8]) -> Rest<'i> {
        let rest = self.expect(rest, b'"')?;
        let start = self.text.position(rest);
        let [b'"', rest @ ..] = rest else { return self.fault(Violation::ExpectedName, rest) };
        let (key, rest) = match string::short(rest) {
            Some((length, characters)) => (order::short_key(characters), &rest[length + 1..]),
            None => self.long_name(rest, start)?,
        };
        self.listing.start_member(key, start, &self.text)?;
        if !self.top.exclude.is_empty() {
            self.exclude_name(start)?;
        }
        match self.expect(rest, b':')? {
            [b':', rest @ ..] => Ok(rest),
            rest => self.fault(Violation::ExpectedColon, rest),
        }
    }

    /// Reads a name which starts at `start` of the text, and returns its key too.
    fn long_name(&mut self, rest: &'i [u8], start: u32) -> Result<(u64, &'i [u8]), CanonicalError> {
        let first = self.offset(rest);
        let name = string::scan(self.input, first, &mut self.text, self.pace)?;
        let rest = &self.input[name.end + 1..];
        if !L::HAS_KEYS {
            return Ok((0, rest));
        }
        if name.plain {
            return Ok((order::plain_key(self.input, first, name.end - first), rest));
        }
        // The name is looked at again in the text, so it has to be there in one piece.
        self.text.settle(start, name.end + 1)?;
        Ok((order::key(&self.text.tail(start)[1..]).0, rest))
    }

    fn exclude_name(&mut self, start: u32) -> Result<(), OutOfMemory> {
        let name = &self.text.tail(start)[1..];
        let is_this = |token: &str| pointer::token_is(token, string::decode_raw(name));
        if self.exclude.step(self.top.exclude, is_this, self.pace)? {
            self.listing.leave_out();
        }
        Ok(())
    }

    /// Goes to the next element.
    #[inline(always)]
    fn element(&mut self, rest: &'i [u8]) -> Rest<'i> {
        if self.top.exclude.is_empty() { Ok(rest) } else { self.exclude_element(rest) }
    }

    fn exclude_element(&mut self, rest: &'i [u8]) -> Rest<'i> {
        // White space before the element is not part of it.
        let rest = self.token(rest)?;
        let number = self.top.elements;
        self.top.elements += 1;
        let is_this = |token: &str| pointer::index(token) == Some(number);
        if self.exclude.step(self.top.exclude, is_this, self.pace)? {
            self.listing.leave_out_element(self.text.position(rest), &self.text)?;
        }
        Ok(rest)
    }
}
