//! Strings and numbers as they are met: most are canonical already and stay as they came.

use super::super::decimal::{self, Decimal};
use super::super::error::OutOfMemory;
use super::super::listing::Listing;
use super::super::number::{self, Form};
use super::super::{DEFERRED, es6, string};
use super::{Parser, Rest};

impl<'i, L: Listing> Parser<'i, '_, '_, '_, L> {
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
