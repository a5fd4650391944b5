//! Why a body has no canonical form.

use std::collections::TryReserveError;
use std::fmt;

/// An allocation failed. It is reported, never left to abort the process, which would be the
/// whole database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

/// Adds to a list whose length the sender of a body controls.
#[inline]
pub(super) fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), OutOfMemory> {
    if list.len() == list.capacity() {
        grow(list, 1)?;
    }
    list.push(item);
    Ok(())
}

/// Makes room for `count` items more. A large list grows by a quarter, not to twice its size: what
/// a body may cost is counted in sizes of the body.
#[cold]
#[inline(never)]
pub(super) fn grow<T>(list: &mut Vec<T>, count: usize) -> Result<(), OutOfMemory> {
    const LARGE: usize = 64 * 1024;
    let more = if list.len() < LARGE { list.len().max(16) } else { list.len() / 4 };
    Ok(list.try_reserve_exact(more.max(count))?)
}

/// The rule that a body breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The body ends in the middle of a value, or is empty (RFC 8259 section 2).
    UnexpectedEnd,
    /// No value starts with this byte (RFC 8259 section 3).
    ExpectedValue,
    /// A member starts with a name in quotation marks (RFC 8259 section 4).
    ExpectedName,
    /// `:` follows a name (RFC 8259 section 4).
    ExpectedColon,
    /// `,` or the closing bracket follows a value (RFC 8259 sections 4 and 5).
    ExpectedCommaOrClose,
    /// A number lacks a digit here (RFC 8259 section 6).
    ExpectedDigit,
    /// Something follows the value (RFC 8259 section 2).
    TrailingData,
    /// A string is not UTF-8 (RFC 3629 section 4).
    InvalidUtf8,
    /// A control character stands unescaped in a string (RFC 8259 section 7).
    ControlCharacter,
    /// An escape that JSON does not know (RFC 8259 section 7).
    InvalidEscape,
    /// Half of a surrogate pair (RFC 8785 section 3.2.2.2).
    LoneSurrogate,
    /// A second member with the same decoded name in one object (RFC 7493 section 2.3).
    DuplicateMember,
    /// An integer that an IEEE 754 double cannot hold exactly; rounding it would make different
    /// requests equal (stricter than RFC 8785 appendix B).
    InexactInteger,
    /// A number beyond the range of an IEEE 754 double (RFC 7493 section 2.2).
    NumberOutOfRange,
    /// Nested deeper than [`super::MAX_DEPTH`].
    TooDeep,
    /// Longer than [`super::MAX_BYTES`].
    TooLong,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnexpectedEnd => "unexpected end",
            Self::ExpectedValue => "expected a value",
            Self::ExpectedName => "expected a member name",
            Self::ExpectedColon => "expected a colon",
            Self::ExpectedCommaOrClose => "expected a comma or a closing bracket",
            Self::ExpectedDigit => "expected a digit",
            Self::TrailingData => "unexpected data after the value",
            Self::InvalidUtf8 => "invalid UTF-8",
            Self::ControlCharacter => "unescaped control character in a string",
            Self::InvalidEscape => "invalid escape in a string",
            Self::LoneSurrogate => "lone surrogate in a string",
            Self::DuplicateMember => "duplicate member name",
            Self::InexactInteger => "integer that a double cannot hold exactly",
            Self::NumberOutOfRange => "number out of the range of a double",
            Self::TooDeep => "nesting too deep",
            Self::TooLong => "body too long",
        })
    }
}

/// Why a body has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanonicalError {
    /// The body breaks a rule.
    Invalid {
        /// Which rule.
        violation: Violation,
        /// Where: the offset in bytes, from 0, of the first byte that cannot be right, or of the
        /// token that is not; of the second name, where two are equal (and of one of the pairs).
        at: usize,
    },
    /// An allocation failed.
    OutOfMemory,
}

impl CanonicalError {
    pub(super) fn invalid(violation: Violation, at: usize) -> Self {
        Self::Invalid { violation, at }
    }
}

impl From<OutOfMemory> for CanonicalError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { violation, at } => write!(f, "{violation} at byte {at}"),
            Self::OutOfMemory => f.write_str("out of memory"),
        }
    }
}

impl std::error::Error for CanonicalError {}
