//! Which containers are written in another order than they came, and in which.

use super::error::{OutOfMemory, push};
use super::order::{self, Fault, Member};
use super::text::Text;
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
    /// The reordered containers in the order of their starts.
    pub(super) containers: Vec<Reordered>,
    /// Where the members of closed, reordered containers start and end in the text; those of one
    /// container stand in a row, in canonical order.
    pub(super) arranged: Vec<(u32, u32)>,
}

/// What was listed before a container was opened.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    noted: usize,
    container: usize,
}

impl Outline {
    /// Opens a container whose first member starts at `start`.
    pub(super) fn open(&mut self, start: u32) -> Result<Mark, OutOfMemory> {
        let mark = Mark { noted: self.noted.len(), container: self.containers.len() };
        push(&mut self.containers, Reordered { start, end: 0, first: 0, last: 0, next: 0 })?;
        Ok(mark)
    }

    /// Notes the next member of the innermost open container.
    #[inline]
    pub(super) fn note(&mut self, member: Member) -> Result<(), OutOfMemory> {
        push(&mut self.noted, member)
    }

    /// How many members of the innermost open container have been noted.
    pub(super) fn count(&self, mark: Mark) -> usize {
        self.noted.len() - mark.noted
    }

    /// Closes a container whose members stand in canonical order and are all kept.
    #[inline]
    pub(super) fn close_unchanged(&mut self, mark: Mark) {
        self.noted.truncate(mark.noted);
        if self.containers.len() == mark.container + 1 {
            self.containers.pop();
        }
    }

    /// Closes an object at `end`, sorting its members.
    ///
    /// # Errors
    /// Two members have one name: the number of the second, from 0. Or memory ran out.
    pub(super) fn close_object(
        &mut self,
        mark: Mark,
        end: u32,
        text: &Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), Fault> {
        let members = &mut self.noted[mark.noted..];
        set_ends(members, end, pace);
        match order::sort(members, text, pace) {
            Err(Fault::Duplicate(start)) => Err(Fault::Duplicate(earlier(members, start))),
            Err(fault) => Err(fault),
            Ok(()) => Ok(self.close_sorted(mark, end, pace)?),
        }
    }

    /// Closes an array at `end`, whose elements were noted because some may be left out.
    pub(super) fn close_array(
        &mut self,
        mark: Mark,
        end: u32,
        pace: &mut Pace<'_>,
    ) -> Result<(), OutOfMemory> {
        set_ends(&mut self.noted[mark.noted..], end, pace);
        self.close_sorted(mark, end, pace)
    }

    fn close_sorted(
        &mut self,
        mark: Mark,
        end: u32,
        pace: &mut Pace<'_>,
    ) -> Result<(), OutOfMemory> {
        let members = &self.noted[mark.noted..];
        pace.spend(members.len());
        if members.iter().all(is_kept) && members.is_sorted_by_key(|member| member.start) {
            self.close_unchanged(mark);
            return Ok(());
        }
        let first = self.arranged.len();
        self.arranged.try_reserve(members.len())?;
        for member in members.iter().filter(|member| is_kept(member)) {
            pace.spend(size_of::<Member>());
            self.arranged.push((member.start, member.end));
        }
        let next = self.containers.len() as u32;
        let container = &mut self.containers[mark.container];
        *container = Reordered {
            end,
            first: first as u32,
            last: self.arranged.len() as u32,
            next,
            ..*container
        };
        self.noted.truncate(mark.noted);
        Ok(())
    }
}

/// A member ends where the comma before the next one stands, the last one before the bracket.
/// What is left out becomes empty.
fn set_ends(members: &mut [Member], mut end: u32, pace: &mut Pace<'_>) {
    for member in members.iter_mut().rev() {
        pace.spend(size_of::<Member>());
        member.end = if member.end == Member::LEFT_OUT { member.start } else { end };
        end = member.start - 1;
    }
}

fn is_kept(member: &Member) -> bool {
    member.end > member.start
}

/// How many of the members stand before `start`.
fn earlier(members: &[Member], start: u32) -> u32 {
    members.iter().filter(|member| member.start < start).count() as u32
}
