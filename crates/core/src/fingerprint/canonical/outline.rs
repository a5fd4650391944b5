//! Which containers are written in another order than they came, and in which.

use super::error::OutOfMemory;
use super::listing::{Listing, Mark};
use super::order::{self, Fault, Member};
use super::text::{self, Text};
use crate::fingerprint::pace::Pace;

/// A container with members in another order than in the text, or without some of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reordered {
    /// The position in the text after the opening bracket.
    pub(super) start: u32,
    /// The position of the closing bracket; 0 if the container is written as it stands.
    pub(super) end: u32,
    /// Its members in [`Outline::arranged`].
    pub(super) first: u32,
    /// The end of its members there.
    pub(super) last: u32,
    /// The first of [`Outline::containers`] that is not inside this one.
    pub(super) next: u32,
}

impl Reordered {
    /// False for one that is listed only because it has others inside.
    pub(super) fn is_reordered(&self) -> bool {
        self.end > 0
    }
}

/// The containers of a body and their members, while the body is read and after.
#[derive(Default)]
pub(super) struct Outline {
    /// The members of the open containers, outer ones first.
    noted: Vec<Member>,
    /// Whether a member of the body is left out.
    incomplete: bool,
    /// The reordered containers in the order of their starts.
    pub(super) containers: Vec<Reordered>,
    /// Where the members of closed, reordered containers start and end in the text; those of one
    /// container stand in a row, in canonical order.
    pub(super) arranged: Vec<(u32, u32)>,
}

impl Listing for Outline {
    const HAS_KEYS: bool = true;

    fn open(&mut self, rest: &[u8], text: &Text<'_>) -> Result<Mark, OutOfMemory> {
        let mark = Mark { noted: self.noted.len() as u32, container: self.containers.len() as u32 };
        if self.containers.len() == self.containers.capacity() {
            grow(&mut self.containers, 1, rest.len(), text)?;
        }
        let start = text.position(rest);
        self.containers.push(Reordered { start, end: 0, first: 0, last: 0, next: 0 });
        Ok(mark)
    }

    #[inline(always)]
    fn start_member(&mut self, key: u64, start: u32, text: &Text<'_>) -> Result<(), OutOfMemory> {
        if self.noted.len() == self.noted.capacity() {
            self.grow_noted(text)?;
        }
        self.noted.push(Member { key, start, end: 0 });
        Ok(())
    }

    /// It ends where it starts.
    fn leave_out(&mut self) {
        self.incomplete = true;
        if let Some(member) = self.noted.last_mut() {
            member.end = member.start;
        }
    }

    /// Of an array's elements only those are noted that are left out.
    fn leave_out_element(&mut self, start: u32, text: &Text<'_>) -> Result<(), OutOfMemory> {
        self.start_member(0, start, text)
    }

    fn end_element(&mut self, mark: Mark, end: u32) {
        if let Some(left_out) = self.noted[mark.noted()..].last_mut()
            && left_out.end == 0
        {
            left_out.end = end;
        }
    }

    #[inline(always)]
    fn close_object(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &mut Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), Fault> {
        let members = &self.noted[mark.noted()..];
        pace.spend(size_of_val(members));
        if members.is_sorted_by(|a, b| a.key < b.key) {
            return Ok(self.close_sorted(mark, rest, text, pace)?);
        }
        if self.is_small(mark, text.position(rest)) && self.rearrange(mark, rest, text)? {
            self.close_unchanged(mark);
            return Ok(());
        }
        self.close_large(mark, rest, text, pace)
    }

    /// What is left of an array is written in stretches, as if they were members.
    fn close_array(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &Text<'_>,
        _: &mut Pace<'_>,
    ) -> Result<(), OutOfMemory> {
        let count = self.noted.len() - mark.noted();
        if count == 0 {
            self.close_unchanged(mark);
            return Ok(());
        }
        let (first, end) = (self.arranged.len() as u32, text.position(rest));
        self.reserve_arranged(count + 1, rest, text)?;
        let mut start = self.containers[mark.container as usize].start;
        for left_out in &self.noted[mark.noted()..] {
            if left_out.start > start {
                self.arranged.push((start, left_out.start - 1));
            }
            start = left_out.end + 1;
        }
        if start < end {
            self.arranged.push((start, end));
        }
        self.close_arranged(mark, first, end);
        Ok(())
    }

    fn finish(&mut self, _: &mut Pace<'_>) {}
}

impl Outline {
    #[cold]
    #[inline(never)]
    fn grow_noted(&mut self, text: &Text<'_>) -> Result<(), OutOfMemory> {
        const LARGE: usize = 64 * 1024;
        let length = self.noted.len();
        let wanted = if length < LARGE { length.max(32) } else { length / 4 };
        Ok(self.noted.try_reserve_exact(text.allow::<Member>(wanted, 1)?)?)
    }

    /// Closes an object whose members are in order.
    #[inline(always)]
    fn close_sorted(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), OutOfMemory> {
        if self.is_whole(mark) {
            self.close_unchanged(mark);
            return Ok(());
        }
        note_ends(&mut self.noted[mark.noted()..], text.position(rest), pace);
        self.arrange(mark, rest, text, pace)
    }

    /// Whether no member of an object is left out.
    #[inline(always)]
    fn is_whole(&self, mark: Mark) -> bool {
        !self.incomplete || self.noted[mark.noted()..].iter().all(Member::is_kept)
    }

    /// Closes a container that is written as it stands.
    #[inline(always)]
    fn close_unchanged(&mut self, mark: Mark) {
        self.noted.truncate(mark.noted());
        if self.containers.len() == mark.container as usize + 1 {
            self.containers.pop();
        }
    }

    /// Whether an object that ends at `end` is a small one in which nothing is listed, nor left out.
    #[inline(always)]
    fn is_small(&self, mark: Mark, end: u32) -> bool {
        let start = self.containers[mark.container as usize].start;
        (end - start) as usize <= text::LONGEST
            && self.noted.len() - mark.noted() <= order::FEW
            && self.containers.len() == mark.container as usize + 1
            && self.is_whole(mark)
    }

    /// Brings the members of a small object into order in the text itself, so that there is nothing
    /// to be listed. False if two names begin alike.
    #[inline(always)]
    fn rearrange(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &mut Text<'_>,
    ) -> Result<bool, OutOfMemory> {
        let members = &self.noted[mark.noted()..];
        let (mut places, mut parts) = ([0; order::FEW], [(0, 0); order::FEW]);
        if !order::find_places(members, &mut places) {
            return Ok(false);
        }
        let mut end = text.position(rest);
        for (member, &place) in members.iter().zip(&places).rev() {
            parts[usize::from(place)] = (member.start, end);
            end = member.start - 1;
        }
        text.rearrange(end + 1, rest, &parts[..members.len()])?;
        Ok(true)
    }

    /// Closes an object with many members, with names that begin alike, or with members left out.
    #[inline(never)]
    fn close_large(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), Fault> {
        let members = &mut self.noted[mark.noted()..];
        note_ends(members, text.position(rest), pace);
        if let Err(fault) = order::sort(members, text, pace) {
            return Err(match fault {
                Fault::Duplicate(start) => Fault::Duplicate(earlier(members, start, pace)),
                Fault::OutOfMemory => Fault::OutOfMemory,
            });
        }
        if members.is_sorted_by_key(|member| member.start) {
            return Ok(self.close_sorted(mark, rest, text, pace)?);
        }
        Ok(self.arrange(mark, rest, text, pace)?)
    }

    /// Closes a container whose members are written in the order in which they are noted, those left
    /// out excepted.
    fn arrange(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), OutOfMemory> {
        let (first, count) = (self.arranged.len() as u32, self.noted.len() - mark.noted());
        self.reserve_arranged(count, rest, text)?;
        for member in &self.noted[mark.noted()..] {
            pace.spend(size_of::<Member>());
            if member.is_kept() {
                self.arranged.push((member.start, member.end));
            }
        }
        self.close_arranged(mark, first, text.position(rest));
        Ok(())
    }

    #[inline(always)]
    fn reserve_arranged(
        &mut self,
        count: usize,
        rest: &[u8],
        text: &Text<'_>,
    ) -> Result<(), OutOfMemory> {
        if self.arranged.capacity() - self.arranged.len() < count {
            grow(&mut self.arranged, count, rest.len(), text)?;
        }
        Ok(())
    }

    /// Closes a container that ends at `end`, and whose members are arranged from `first` on.
    #[inline(always)]
    fn close_arranged(&mut self, mark: Mark, first: u32, end: u32) {
        let (last, next) = (self.arranged.len() as u32, self.containers.len() as u32);
        let container = &mut self.containers[mark.container as usize];
        *container = Reordered { start: container.start, end, first, last, next };
        self.noted.truncate(mark.noted());
    }
}

/// Notes where the members of an object end, the last one at `end`: each before the comma that is
/// before the next one.
fn note_ends(members: &mut [Member], mut end: u32, pace: &mut Pace<'_>) {
    for part in members.rchunks_mut(Pace::STEP / size_of::<Member>()) {
        pace.spend(size_of_val(part));
        for member in part.iter_mut().rev() {
            if member.end == 0 {
                member.end = end;
            }
            end = member.start - 1;
        }
    }
}

/// Makes room for `count` items more in a list that keeps what it gets. With `left` bytes of the
/// body to go, it is likely known how long it will be.
#[cold]
#[inline(never)]
fn grow<T>(
    list: &mut Vec<T>,
    count: usize,
    left: usize,
    text: &Text<'_>,
) -> Result<(), OutOfMemory> {
    const FEW: usize = 32;
    const MANY: usize = 256;
    /// A usual member.
    const USUAL: usize = 16;
    /// The shortest member, `"":0,`.
    const SHORTEST: usize = 5;
    let (length, read) = (list.len() + count, text.body_len() - left);
    let expected = length as u64 * left as u64 / read.max(1) as u64;
    let more = match list.len() {
        0 => (left / USUAL).clamp(FEW, MANY),
        _ => (expected as usize + length / 16).min(left / SHORTEST),
    };
    Ok(list.try_reserve_exact(text.allow::<T>(more + count, count)?)?)
}

/// How many of the members stand before `start`.
fn earlier(members: &[Member], start: u32, pace: &mut Pace<'_>) -> u32 {
    let is_earlier = |member: &&Member| {
        pace.spend(size_of::<Member>());
        member.start < start
    };
    members.iter().filter(is_earlier).count() as u32
}

#[cfg(test)]
mod tests;
