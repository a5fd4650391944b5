//! The body without white space and with every token in canonical form, members still in the
//! order in which they came, but for those of small objects.
//!
//! Most of that text is the body itself. So nothing is copied until the first difference, and
//! from then on whole stretches at a time.

use std::borrow::Cow;
use std::cell::Cell;

use super::error::OutOfMemory;

/// The most text that is put together anew.
pub(super) const LONGEST: usize = 1024;

/// Parts up to this length are copied as if they had it.
const SHORT: usize = 64;

/// Text under construction. A position is an offset in the text, whether or not that part of it
/// has been copied already; it stays valid to the end.
pub(super) struct Text<'i> {
    input: &'i [u8],
    /// Nothing is replaced: the text is the body as it came.
    untouched: bool,
    copied: Vec<u8>,
    /// Room for what is put together anew.
    scratch: Vec<u8>,
    /// Where the stretch of the input starts that follows `copied`.
    from: usize,
    /// The position of the end of the input, were all the rest of it copied as it is.
    end: usize,
    /// How many bytes of memory may still be taken, here and for what goes with the text.
    room: Cell<usize>,
}

impl<'i> Text<'i> {
    /// A text that may take almost twice the size of the body, and a little that small bodies need.
    pub(super) fn new(input: &'i [u8]) -> Self {
        const LITTLE: usize = 16 * 1024;
        let room = Cell::new(LITTLE + input.len() / 10 * 19);
        let (copied, scratch) = (Vec::new(), Vec::new());
        Self { input, untouched: false, copied, scratch, from: 0, end: input.len(), room }
    }

    /// The body as it came, white space and all; a position is an offset in the body.
    pub(super) fn untouched(input: &'i [u8]) -> Self {
        Self { untouched: true, ..Self::new(input) }
    }

    /// How many items more a list can be given, at most `wanted` of them.
    ///
    /// # Errors
    /// Less than `least`.
    pub(super) fn allow<T>(&self, wanted: usize, least: usize) -> Result<usize, OutOfMemory> {
        let allowed = wanted.min(self.room.get() / size_of::<T>());
        if allowed < least {
            return Err(OutOfMemory);
        }
        self.room.set(self.room.get() - allowed * size_of::<T>());
        Ok(allowed)
    }

    /// The length of the body.
    pub(super) fn body_len(&self) -> usize {
        self.input.len()
    }

    /// The position of the place in the input that `rest` follows.
    #[inline(always)]
    pub(super) fn position(&self, rest: &[u8]) -> u32 {
        // Fits: the text is at most a quarter longer than the body, see `Parser::reformat`.
        (self.end - rest.len()) as u32
    }

    /// Puts `with` in the place of the input bytes from `start` to `end`.
    pub(super) fn replace(
        &mut self,
        start: usize,
        end: usize,
        with: &[u8],
    ) -> Result<(), OutOfMemory> {
        if self.untouched {
            return Ok(());
        }
        self.copy_to(start, with.len())?;
        self.copied.extend_from_slice(with);
        self.from = end;
        self.end = self.copied.len() + self.input.len() - end;
        Ok(())
    }

    /// Makes one slice, for [`Text::tail`], of the token that starts at `position` and ends before
    /// input byte `end`: if something was replaced in it, the rest of it is copied too.
    pub(super) fn settle(&mut self, position: u32, end: usize) -> Result<(), OutOfMemory> {
        if (position as usize) < self.copied.len() {
            self.replace(end, end, b"")?;
        }
        Ok(())
    }

    /// Puts together anew the text from `start` to where `rest` follows, at most [`LONGEST`] bytes: of
    /// these parts of it, which are all of it but for the commas that go between them.
    pub(super) fn rearrange(
        &mut self,
        start: u32,
        rest: &[u8],
        parts: &[(u32, u32)],
    ) -> Result<(), OutOfMemory> {
        let here = self.input.len() - rest.len();
        self.copy_to(here, SHORT)?;
        self.from = here;
        // So that the last part can be copied like the others.
        self.copied.extend_from_slice(&[0; SHORT]);
        if self.scratch.is_empty() {
            self.make_scratch()?;
        }
        let mut filled = 0;
        for &(start, end) in parts {
            let (start, end) = (start as usize, end as usize);
            copy_part(&self.copied, start, end, &mut self.scratch[filled..]);
            filled += end - start + 1;
            self.scratch[filled - 1] = b',';
        }
        self.copied.truncate(start as usize);
        self.copied.extend_from_slice(&self.scratch[..filled.saturating_sub(1)]);
        Ok(())
    }

    #[cold]
    fn make_scratch(&mut self) -> Result<(), OutOfMemory> {
        let size = self.allow::<u8>(LONGEST + SHORT, LONGEST + SHORT)?;
        self.scratch.try_reserve_exact(size)?;
        self.scratch.resize(size, 0);
        Ok(())
    }

    fn copy_to(&mut self, end: usize, extra: usize) -> Result<(), OutOfMemory> {
        let stretch = &self.input[self.from..end];
        if self.copied.capacity() - self.copied.len() < stretch.len() + extra {
            self.grow(stretch.len() + extra)?;
        }
        self.copied.extend_from_slice(stretch);
        Ok(())
    }

    /// The rest of the input is what the text will need, most of the time.
    #[cold]
    fn grow(&mut self, least: usize) -> Result<(), OutOfMemory> {
        let rest = self.input.len() - self.from;
        let is_enough = rest >= least && self.copied.is_empty();
        let wanted = if is_enough { rest + SHORT } else { least + self.copied.len() / 4 };
        let more = self.allow::<u8>(wanted, least)?;
        Ok(self.copied.try_reserve_exact(more)?)
    }

    /// The text from `position` on, at least to the end of the token that starts there.
    #[inline]
    pub(super) fn tail(&self, position: u32) -> &[u8] {
        let position = position as usize;
        match position.checked_sub(self.copied.len()) {
            None => &self.copied[position..],
            Some(ahead) => &self.input[self.from + ahead..],
        }
    }

    /// The whole text, which ends with input byte `end`.
    pub(super) fn finish(mut self, end: usize) -> Result<Cow<'i, [u8]>, OutOfMemory> {
        if self.copied.is_empty() {
            return Ok(Cow::Borrowed(&self.input[self.from..end]));
        }
        self.copy_to(end, 0)?;
        Ok(Cow::Owned(self.copied))
    }
}

/// Copies text from `start` to `end`. A copy of a fixed length takes a few instructions, one of an
/// unknown length a call and a guess; what is too much is overwritten by what comes next.
#[inline(always)]
fn copy_part(text: &[u8], start: usize, end: usize, to: &mut [u8]) {
    if end - start <= SHORT
        && let Some(from) = text[start..].first_chunk::<SHORT>()
        && let Some(to) = to.first_chunk_mut::<SHORT>()
    {
        *to = *from;
        return;
    }
    copy_long(&text[start..end], to);
}

#[cold]
#[inline(never)]
fn copy_long(part: &[u8], to: &mut [u8]) {
    to[..part.len()].copy_from_slice(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_copied_without_a_difference() {
        let mut text = Text::new(b"  [1] ");
        text.replace(0, 2, b"").unwrap();
        assert_eq!(text.position(b"] "), 2);
        assert_eq!(text.tail(1), b"1] ");
        assert!(matches!(text.finish(5).unwrap(), Cow::Borrowed(b"[1]")));
    }

    #[test]
    fn replacements_keep_positions() {
        let mut text = Text::new(b"[1.0, 2]");
        text.replace(2, 4, b"").unwrap();
        text.replace(5, 6, b"").unwrap();
        assert_eq!(text.position(b"2]"), 3);
        assert_eq!(text.tail(3), b"2]");
        assert_eq!(text.tail(1), b"1,");
        assert_eq!(*text.finish(8).unwrap(), *b"[1,2]");
    }

    #[test]
    fn parts_change_places() {
        let long = "x".repeat(SHORT + 1);
        let body = format!(r#"[{{"b":1.0,"{long}":2,"a":3}},0]"#);
        let mut text = Text::new(body.as_bytes());
        text.replace(7, 9, b"").unwrap();
        let end = body.len() - 4;
        let (long_end, a) = (end as u32 - 8, end as u32 - 7);
        let parts = [(a, a + 5), (2, 7), (8, long_end)];
        text.rearrange(2, &body.as_bytes()[end..], &parts).unwrap();
        assert_eq!(text.position(b"},0]"), end as u32 - 2);
        let expected = format!(r#"[{{"a":3,"b":1,"{long}":2}},0]"#);
        assert_eq!(*text.finish(body.len()).unwrap(), *expected.as_bytes());
    }

    #[test]
    fn what_is_untouched_stays() {
        let mut text = Text::untouched(b"[1.0, 2]");
        text.replace(2, 4, b"").unwrap();
        assert_eq!(text.position(b"2]"), 6);
        assert_eq!(text.tail(0), b"[1.0, 2]");
    }

    #[test]
    fn memory_is_allowed_while_there_is_room() {
        let text = Text::new(&[b'1'; 1000]);
        assert_eq!(text.allow::<u64>(1000, 1), Ok(1000));
        assert_eq!(text.allow::<u64>(2000, 1), Ok(1285));
        assert_eq!(text.allow::<u64>(1, 1), Err(OutOfMemory));
        assert_eq!(text.allow::<u64>(1, 0), Ok(0));
    }

    #[test]
    fn a_longer_token_makes_room() {
        let mut text = Text::new(b"1e9");
        text.replace(0, 3, b"1000000000").unwrap();
        assert_eq!(*text.finish(3).unwrap(), *b"1000000000");
    }
}
