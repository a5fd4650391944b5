//! Which containers are written in another order than they came, and in which.

use super::error::OutOfMemory;
use super::listing::{Listing, Mark};
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

    #[inline(always)]
    fn end_member(&mut self, end: u32) {
        if let Some(member) = self.noted.last_mut()
            && member.end == 0
        {
            member.end = end;
        }
    }

    /// Of an array's elements only those are noted that are left out.
    fn leave_out_element(&mut self, start: u32, text: &Text<'_>) -> Result<(), OutOfMemory> {
        self.start_member(0, start, text)
    }

    fn end_element(&mut self, mark: Mark, end: u32) {
        if self.noted.len() > mark.noted() {
            self.end_member(end);
        }
    }

    #[inline(always)]
    fn close_object(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), Fault> {
        let members = &self.noted[mark.noted()..];
        pace.spend(size_of_val(members));
        if members.is_sorted_by(|a, b| a.key < b.key) {
            self.close_sorted(mark, rest, text, pace)?;
        } else if let Some(order) = order::of_few(members) {
            let order = &order[..members.len()];
            self.arrange(mark, order.iter().map(|&i| usize::from(i)), rest, text, pace)?;
        } else {
            self.close_large(mark, rest, text, pace)?;
        }
        Ok(())
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
        let wanted = if length < LARGE { length.max(16) } else { length / 4 };
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
        let members = &self.noted[mark.noted()..];
        if self.incomplete && !members.iter().all(Member::is_kept) {
            let count = members.len();
            return self.arrange(mark, 0..count, rest, text, pace);
        }
        self.close_unchanged(mark);
        Ok(())
    }

    /// Closes a container that is written as it stands.
    #[inline(always)]
    fn close_unchanged(&mut self, mark: Mark) {
        self.noted.truncate(mark.noted());
        if self.containers.len() == mark.container as usize + 1 {
            self.containers.pop();
        }
    }

    /// Closes an object with many members, or with names that begin alike.
    #[inline(never)]
    fn close_large(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), Fault> {
        let members = &mut self.noted[mark.noted()..];
        if let Err(fault) = order::sort(members, text, pace) {
            return Err(match fault {
                Fault::Duplicate(start) => Fault::Duplicate(earlier(members, start, pace)),
                Fault::OutOfMemory => Fault::OutOfMemory,
            });
        }
        if members.is_sorted_by_key(|member| member.start) {
            return Ok(self.close_sorted(mark, rest, text, pace)?);
        }
        let count = members.len();
        Ok(self.arrange(mark, 0..count, rest, text, pace)?)
    }

    /// Closes a container whose members, of which `order` has the numbers, are written in that
    /// order, those left out excepted.
    #[inline(always)]
    fn arrange(
        &mut self,
        mark: Mark,
        order: impl ExactSizeIterator<Item = usize>,
        rest: &[u8],
        text: &Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), OutOfMemory> {
        let first = self.arranged.len() as u32;
        self.reserve_arranged(order.len(), rest, text)?;
        let members = &self.noted[mark.noted()..];
        for i in order {
            pace.spend(size_of::<Member>());
            if members[i].is_kept() {
                self.arranged.push((members[i].start, members[i].end));
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
    /// The shortest member, `"":0,`.
    const SHORTEST: usize = 5;
    let (length, read) = (list.len() + count, text.body_len() - left);
    let expected = length as u64 * left as u64 / read.max(1) as u64;
    let most = if list.len() < FEW { FEW } else { left / SHORTEST };
    let more = (expected as usize + length / 16).min(most);
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
mod tests {
    use super::*;

    /// Closes an object whose members have these names, one after the other and without values.
    fn closed(names: &[&str], left_out: &[usize]) -> Result<Outline, u32> {
        let members: String = names.iter().map(|name| format!("\"{name}\",")).collect();
        let body = format!("{{{members}");
        let text = Text::new(body.as_bytes());
        let mut outline = Outline::default();
        let mut rest = &body.as_bytes()[1..];
        let mark = outline.open(rest, &text).unwrap();
        for (i, name) in names.iter().enumerate() {
            let start = text.position(rest);
            rest = &rest[name.len() + 3..];
            outline.start_member(order::key(&text.tail(start)[1..]).0, start, &text).unwrap();
            if left_out.contains(&i) {
                outline.leave_out();
            }
            outline.end_member(text.position(rest) - 1);
        }
        match outline.close_object(mark, rest, &text, &mut Pace::new(&mut || ())) {
            Ok(()) => Ok(outline),
            Err(Fault::Duplicate(number)) => Err(number),
            Err(Fault::OutOfMemory) => panic!("out of memory"),
        }
    }

    #[test]
    fn what_is_in_order_is_not_listed() {
        let alike = ["a long name, 1", "a long name, 2"];
        for names in [&[][..], &[""], &["a", "b", "c"], &alike] {
            let outline = closed(names, &[]).unwrap();
            assert!(outline.containers.is_empty() && outline.arranged.is_empty(), "{names:?}");
        }
    }

    #[test]
    fn what_is_not_in_order_is() {
        let outline = closed(&["c", "a", "b"], &[]).unwrap();
        assert_eq!(outline.arranged, [(5, 8), (9, 12), (1, 4)]);
        assert_eq!(
            outline.containers,
            [Reordered { start: 1, end: 13, first: 0, last: 3, next: 1 }]
        );
    }

    #[test]
    fn what_is_left_out_is_missing() {
        assert_eq!(closed(&["a", "b", "c"], &[1]).unwrap().arranged, [(1, 4), (9, 12)]);
        assert_eq!(closed(&["b", "a"], &[0]).unwrap().arranged, [(5, 8)]);
        let outline = closed(&["a"], &[0]).unwrap();
        assert!(outline.arranged.is_empty() && outline.containers[0].is_reordered());
    }

    #[test]
    fn few_members_and_many_are_arranged_alike() {
        let names: Vec<String> = (0..100).map(|i| format!("{:02}", (99 - i) * 37 % 100)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for count in [2, 31, 32, 33, 100] {
            let outline = closed(&names[..count], &[]).unwrap();
            let mut expected: Vec<usize> = (0..count).collect();
            expected.sort_by_key(|&i| names[i]);
            let starts: Vec<u32> = expected.iter().map(|&i| 1 + i as u32 * 5).collect();
            let found: Vec<u32> = outline.arranged.iter().map(|member| member.0).collect();
            assert_eq!(found, starts, "{count}");
        }
    }

    #[test]
    fn the_second_of_two_twins_is_named() {
        assert_eq!(closed(&["b", "a", "b"], &[]).err(), Some(2));
        assert_eq!(closed(&["b", "a", "b"], &[0]).err(), Some(2));
        let mut names = vec!["x"; 40];
        names[0] = "y";
        assert_eq!(closed(&names, &[]).err(), Some(2));
    }
}
