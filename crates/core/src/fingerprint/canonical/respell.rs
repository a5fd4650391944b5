//! Writes the canonical form straight from the body, token by token, with the members of some objects
//! in another order: see `sparing`. The body has been read before, so nothing in it is wrong.

use super::emit::{Sink, put_number};
use super::error::{OutOfMemory, push};
use super::sparing::{Container, List, Sparing};
use super::{locate, number, string};
use crate::fingerprint::pace::Pace;

/// Writes the canonical form of `body` into `sink`.
///
/// # Errors
/// Memory ran out.
pub(super) fn respell(
    body: &[u8],
    sparing: &Sparing,
    sink: &mut impl Sink,
    pace: &mut Pace<'_>,
) -> Result<(), OutOfMemory> {
    let mut writer =
        Writer { body, sparing, at: 0, depth: 0, container: 0, open: Vec::new(), sink, pace };
    loop {
        writer.token()?;
        if writer.depth == 0 && writer.open.is_empty() {
            return Ok(());
        }
    }
}

/// A listed container that is being written.
struct Open<'l> {
    container: Container,
    /// What is left of its list: with the member that is being written, or with the next element
    /// that is left out.
    list: List<'l>,
    /// The depth of the container itself.
    depth: u32,
}

struct Writer<'w, 'p, S> {
    body: &'w [u8],
    sparing: &'w Sparing,
    at: usize,
    /// How many containers are open in the member at hand, or in the body.
    depth: u32,
    /// The listed container that was last looked for: the next one is near.
    container: usize,
    open: Vec<Open<'w>>,
    sink: &'w mut S,
    pace: &'w mut Pace<'p>,
}

impl<S: Sink> Writer<'_, '_, S> {
    /// Writes the next token.
    fn token(&mut self) -> Result<(), OutOfMemory> {
        self.skip_space();
        match self.body[self.at] {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b'{' | b'[' => self.open(),
            b',' | b'}' | b']' if self.depth == 0 => self.end_member(),
            bracket @ (b'}' | b']') => {
                self.depth -= 1;
                self.put(bracket)
            }
            byte @ (b':' | b',') => self.put(byte),
            b'f' => self.copy(5),
            _ => self.copy(4),
        }
    }

    /// Writes a token of so many bytes that is canonical as it is.
    fn copy(&mut self, length: usize) -> Result<(), OutOfMemory> {
        self.pace.spend(length);
        let start = self.at;
        self.at += length;
        self.sink.put(&self.body[start..self.at])
    }

    /// Writes one byte, which stands here.
    fn put(&mut self, byte: u8) -> Result<(), OutOfMemory> {
        self.pace.spend(1);
        self.at += 1;
        self.sink.put(&[byte])
    }

    fn skip_space(&mut self) {
        self.at += locate::space(&self.body[self.at..], self.pace);
    }

    fn string(&mut self) -> Result<(), OutOfMemory> {
        match string::short(&self.body[self.at + 1..]) {
            Some((length, _)) => self.copy(length + 2),
            None => {
                self.at = string::respell(self.body, self.at, self.sink, self.pace)?;
                Ok(())
            }
        }
    }

    fn number(&mut self) -> Result<(), OutOfMemory> {
        let literal = &self.body[self.at..];
        match number::short(literal) {
            Some(length) => self.copy(length),
            None => {
                self.at += put_number(literal, self.sink, self.pace)?;
                Ok(())
            }
        }
    }

    /// Writes an opening bracket. If the container is listed, goes on with the first of its members
    /// that is written.
    fn open(&mut self) -> Result<(), OutOfMemory> {
        let bracket = self.body[self.at];
        self.put(bracket)?;
        self.skip_space();
        let Some(container) = self.listed() else {
            self.depth += 1;
            return Ok(());
        };
        let list = self.sparing.list_of(container);
        push(&mut self.open, Open { container, list, depth: self.depth })?;
        self.depth = 0;
        match (bracket, list.first()) {
            (b'[', _) => self.element(false),
            (_, Some(start)) => {
                self.at = start;
                Ok(())
            }
            _ => self.close(),
        }
    }

    /// The listed container whose first member is here.
    fn listed(&mut self) -> Option<Container> {
        let containers = &self.sparing.containers;
        let is_before = |container: &Container| (container.start as usize) < self.at;
        // In ever longer steps, for it is near most often.
        let (mut low, mut high, mut step) = (self.container, self.container, 1);
        while low > 0 && !is_before(&containers[low - 1]) {
            low = low.saturating_sub(step);
            step *= 2;
        }
        while containers.get(high).is_some_and(is_before) {
            high = containers.len().min(high + step);
            step *= 2;
        }
        self.container = low + containers[low..high].partition_point(is_before);
        containers.get(self.container).filter(|found| found.start as usize == self.at).copied()
    }

    /// Ends the member of a listed container, and goes on with the next one, or behind it.
    fn end_member(&mut self) -> Result<(), OutOfMemory> {
        let Some(open) = self.open.last_mut() else { return self.put(b',') };
        if self.body[open.container.end as usize] == b']' {
            return self.element(true);
        }
        open.list = open.list.after_first();
        match open.list.first() {
            None => self.close(),
            Some(start) => {
                self.put(b',')?;
                self.at = start;
                Ok(())
            }
        }
    }

    /// Goes on with the next element of a listed array that is not left out. `written`: an element
    /// was written, and here is what follows it.
    fn element(&mut self, written: bool) -> Result<(), OutOfMemory> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        let end = open.container.end as usize;
        let mut start = self.at + usize::from(written);
        while start < end {
            start += locate::space(&self.body[start..], self.pace);
            if open.list.first() != Some(start) {
                break;
            }
            open.list = open.list.after_first();
            start = locate::value_end(self.body, start, self.pace) + 1;
        }
        if start >= end {
            return self.close();
        }
        if written {
            self.put(b',')?;
        }
        self.at = start;
        Ok(())
    }

    /// Writes the closing bracket of a listed container, and goes on behind it.
    fn close(&mut self) -> Result<(), OutOfMemory> {
        if let Some(open) = self.open.pop() {
            self.depth = open.depth;
            self.at = open.container.end as usize;
            return self.put(self.body[self.at]);
        }
        Ok(())
    }
}
