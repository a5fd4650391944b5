//! Tokens as they are met, and the white space between them: most are canonical already and stay as
//! they came.

use super::super::decimal::{self, Decimal};
use super::super::error::OutOfMemory;
use super::super::listing::Listing;
use super::super::number::{self, Form};
use super::super::swar::{leading_spaces, word};
use super::super::{DEFERRED, es6, string};
use super::{Parser, Rest};

impl<'i, L: Listing> Parser<'i, '_, '_, '_, L> {
    /// Goes to the next token, which is likely to be this byte, and to stand right here.
    #[inline(always)]
    pub(super) fn expect(&mut self, rest: &'i [u8], byte: u8) -> Result<&'i [u8], OutOfMemory> {
        if rest.first() == Some(&byte) { Ok(rest) } else { self.token(rest) }
    }

    /// Goes to the next token. White space before it (RFC 8259 section 2) is left out of the text.
    #[inline(always)]
    pub(super) fn token(&mut self, rest: &'i [u8]) -> Result<&'i [u8], OutOfMemory> {
        match rest {
            [b' ' | b'\t' | b'\n' | b'\r', ..] => self.drop_space(rest),
            _ => Ok(rest),
        }
    }

    #[inline(never)]
    pub(super) fn drop_space(&mut self, space: &'i [u8]) -> Result<&'i [u8], OutOfMemory> {
        let rest = self.skip_space(space);
        self.text.replace(self.offset(space), self.offset(rest), b"")?;
        Ok(rest)
    }

    /// Most white space is a line feed and the spaces of an indent.
    pub(super) fn skip_space(&mut self, mut rest: &'i [u8]) -> &'i [u8] {
        while let [b' ' | b'\t' | b'\n' | b'\r', after @ ..] = rest {
            let spaces = word(after).map_or(0, leading_spaces);
            rest = &after[spaces..];
            if rest.len() < self.pause_at {
                self.pause(rest);
            }
        }
        rest
    }

    #[inline(always)]
    pub(super) fn string(&mut self, rest: &'i [u8]) -> Rest<'i> {
        if let Some((length, _)) = string::short(rest) {
            return Ok(&rest[length + 1..]);
        }
        let start = self.offset(rest);
        let end = string::scan(self.input, start, &mut self.text, self.pace)?.end;
        Ok(&self.input[end + 1..])
    }

    #[inline(always)]
    pub(super) fn number(&mut self, rest: &'i [u8]) -> Rest<'i> {
        match number::short(rest) {
            Some(length) => Ok(&rest[length..]),
            None => self.long_number(rest),
        }
    }

    #[inline(never)]
    fn long_number(&mut self, rest: &'i [u8]) -> Rest<'i> {
        match decimal::scan(rest) {
            Some(decimal) if decimal.is_shortest => Ok(&rest[decimal.length..]),
            found => self.other_number(rest, found),
        }
    }

    fn other_number(&mut self, rest: &'i [u8], found: Option<Decimal>) -> Rest<'i> {
        let start = self.offset(rest);
        let (end, form) = match found {
            Some(decimal) => (start + decimal.length, Form::Value(decimal.value)),
            None => number::scan(self.input, start, self.pace)?,
        };
        match form {
            Form::Prefix(length) if start + length == end => {}
            Form::Prefix(length) => self.text.replace(start + length, end, b"")?,
            Form::Value(value) => self.reformat(start, end, value)?,
        }
        Ok(&self.input[end..])
    }

    /// Puts the number from `start` to `end` into canonical form, unless that would make the text
    /// longer.
    fn reformat(&mut self, start: usize, end: usize, value: f64) -> Result<(), OutOfMemory> {
        let mut buffer = es6::Buffer::default();
        let canonical = es6::format(value, &mut buffer);
        let literal = &self.input[start..end];
        if canonical == literal {
            return Ok(());
        }
        if canonical.len() <= literal.len() {
            return self.text.replace(start, end, canonical);
        }
        self.deferred = true;
        self.text.replace(start, start, &[DEFERRED])
    }
}
