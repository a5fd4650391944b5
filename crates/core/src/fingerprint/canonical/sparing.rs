//! What is kept of containers and members where memory is short: bodies of nothing but tiny members,
//! for which `outline` would take many times their size.
//!
//! A member is four bytes, the offset of its name in the body. There is no text and there are no
//! keys: names are read again in the body when they are compared, and `respell` brings each token
//! into canonical form when it is written. That takes about twice the time, and less than twice the
//! body.

use std::cmp::Ordering;

use super::error::OutOfMemory;
use super::listing::{Listing, Mark};
use super::order::{self, Fault};
use super::text::Text;
use crate::fingerprint::pace::Pace;

/// Offsets are below 2^31 ([`super::MAX_BYTES`]). While a member's container is open this bit says
/// that it is left out, and afterwards that it is the last one.
const FLAG: u32 = 1 << 31;

/// An offset without its flag.
fn offset(word: u32) -> u32 {
    word & !FLAG
}

/// An object with members in another order than in the body, or without some of them; or an array
/// without some of its elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Container {
    /// The offset of its first member.
    pub(super) start: u32,
    /// The offset of its closing bracket.
    pub(super) end: u32,
    /// Where its list starts in [`Sparing::listed`].
    first: u32,
}

/// The containers of a body and their members, while the body is read and after.
#[derive(Default)]
pub(super) struct Sparing {
    /// The members of the open objects, and the elements that are left out of the open arrays; outer
    /// containers first.
    noted: Vec<u32>,
    /// The containers that are not written as they stand; once the body is read, in the order of
    /// their starts.
    pub(super) containers: Vec<Container>,
    /// Of each of them a list: an object's members in canonical order, or the elements that are
    /// left out of an array.
    listed: Vec<u32>,
}

impl Listing for Sparing {
    const HAS_KEYS: bool = false;

    fn open(&mut self, rest: &[u8], text: &Text<'_>) -> Result<Mark, OutOfMemory> {
        Ok(Mark { noted: self.noted.len() as u32, container: text.position(rest) })
    }

    fn start_member(&mut self, _: u64, start: u32, _: &Text<'_>) -> Result<(), OutOfMemory> {
        push(&mut self.noted, start)
    }

    fn leave_out(&mut self) {
        if let Some(member) = self.noted.last_mut() {
            *member |= FLAG;
        }
    }

    fn leave_out_element(&mut self, start: u32, _: &Text<'_>) -> Result<(), OutOfMemory> {
        push(&mut self.noted, start)
    }

    fn end_element(&mut self, _: Mark, _: u32) {}

    fn close_object(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &mut Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), Fault> {
        let body = text.tail(0);
        let members = &mut self.noted[mark.noted()..];
        let in_order = is_sorted(members, body, pace);
        if !in_order {
            sort(members, body, pace)?;
            find_twins(members, body, pace)?;
        }
        if in_order && members.iter().all(|&member| member & FLAG == 0) {
            self.noted.truncate(mark.noted());
            return Ok(());
        }
        Ok(self.list(mark, text.position(rest), pace, |member| member & FLAG == 0)?)
    }

    fn close_array(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), OutOfMemory> {
        if self.noted.len() == mark.noted() {
            return Ok(());
        }
        self.list(mark, text.position(rest), pace, |_| true)
    }

    /// Puts the containers, which were listed as they ended, into the order of their starts.
    fn finish(&mut self, pace: &mut Pace<'_>) {
        self.containers.sort_unstable_by(|a, b| {
            pace.spend(size_of::<Container>());
            a.start.cmp(&b.start)
        });
    }
}

impl Sparing {
    /// The list of a container, of which an element may be missing.
    pub(super) fn list_of(&self, container: Container) -> List<'_> {
        List { rest: self.listed.get(container.first as usize..).unwrap_or_default() }
    }

    /// Lists a container that ends at `end`, and of what was noted in it what is to be kept.
    fn list(
        &mut self,
        mark: Mark,
        end: u32,
        pace: &mut Pace<'_>,
        keep: impl Fn(u32) -> bool,
    ) -> Result<(), OutOfMemory> {
        let before = self.listed.len();
        reserve(&mut self.listed, self.noted.len() - mark.noted())?;
        for &word in &self.noted[mark.noted()..] {
            pace.spend(size_of::<u32>());
            if keep(word) {
                self.listed.push(word);
            }
        }
        self.noted.truncate(mark.noted());
        let last = self.listed[before..].last_mut().map(|word| *word |= FLAG);
        let first = if last.is_some() { before as u32 } else { u32::MAX };
        push(&mut self.containers, Container { start: mark.container, end, first })
    }
}

/// What is left of a container's list.
#[derive(Clone, Copy)]
pub(super) struct List<'l> {
    rest: &'l [u32],
}

impl List<'_> {
    /// The next offset.
    pub(super) fn first(self) -> Option<usize> {
        self.rest.first().map(|&word| offset(word) as usize)
    }

    /// The list behind that.
    pub(super) fn after_first(self) -> Self {
        match self.rest {
            [word, rest @ ..] if word & FLAG == 0 => Self { rest },
            _ => Self { rest: &[] },
        }
    }
}

/// Adds to a list. What is allocated in advance is a small part of it, as lists of such bodies are
/// about as large as the body.
fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), OutOfMemory> {
    reserve(list, 1)?;
    list.push(item);
    Ok(())
}

fn reserve<T>(list: &mut Vec<T>, count: usize) -> Result<(), OutOfMemory> {
    const LEAST: usize = 256;
    if list.capacity() - list.len() < count {
        list.try_reserve_exact(count + LEAST + list.len() / 64)?;
    }
    Ok(())
}

/// A member with the key of its name's first eight bytes, see [`order::key`].
struct Keyed {
    key: u64,
    word: u32,
}

impl Keyed {
    fn new(word: u32, body: &[u8]) -> Self {
        Self { key: order::raw_key(name(word, body)), word }
    }

    /// The order of two names. Each byte of one that is compared costs the pace one.
    fn compare(&self, other: &Self, body: &[u8], pace: &mut Pace<'_>) -> Ordering {
        pace.spend(size_of::<Self>());
        match self.key.cmp(&other.key) {
            Ordering::Equal if self.key & 0xff > 0 => {
                let spelled = |keyed: &Self| name(keyed.word, body);
                order::compare(spelled(self), spelled(other), pace)
            }
            ordering => ordering,
        }
    }
}

/// What follows a name's opening quotation mark.
fn name(word: u32, body: &[u8]) -> &[u8] {
    &body[offset(word) as usize + 1..]
}

/// Whether names ascend, and no two are equal.
fn is_sorted(members: &[u32], body: &[u8], pace: &mut Pace<'_>) -> bool {
    let mut keyed = members.iter().map(|&word| Keyed::new(word, body));
    let Some(mut last) = keyed.next() else { return true };
    keyed.all(|next| {
        let ascends = last.compare(&next, body, pace).is_lt();
        last = next;
        ascends
    })
}

/// Sorts members by name. Of many a quarter at a time gets keys: first those that come first are
/// brought to the front, without keys.
fn sort(mut members: &mut [u32], body: &[u8], pace: &mut Pace<'_>) -> Result<(), OutOfMemory> {
    const MANY: usize = 1024;
    let most = (members.len() / 4).max(MANY);
    let mut keyed = Vec::new();
    keyed.try_reserve_exact(members.len().min(most))?;
    while members.len() > most {
        members.select_nth_unstable_by(most, |&a, &b| {
            Keyed::new(a, body).compare(&Keyed::new(b, body), body, pace)
        });
        let (first, others) = members.split_at_mut(most);
        sort_keyed(first, &mut keyed, body, pace);
        members = others;
    }
    sort_keyed(members, &mut keyed, body, pace);
    Ok(())
}

/// Sorts members with the help of a list that has room for them.
fn sort_keyed(members: &mut [u32], keyed: &mut Vec<Keyed>, body: &[u8], pace: &mut Pace<'_>) {
    keyed.clear();
    keyed.extend(members.iter().map(|&word| {
        pace.spend(size_of::<Keyed>());
        Keyed::new(word, body)
    }));
    keyed.sort_unstable_by(|a, b| a.compare(b, body, pace));
    for (word, keyed) in members.iter_mut().zip(keyed) {
        *word = keyed.word;
    }
}

/// Finds equal names among sorted ones.
fn find_twins(members: &[u32], body: &[u8], pace: &mut Pace<'_>) -> Result<(), Fault> {
    let equal =
        |&a: &u32, &b: &u32| Keyed::new(a, body).compare(&Keyed::new(b, body), body, pace).is_eq();
    let Some(run) = members.chunk_by(equal).find(|run| run.len() > 1) else { return Ok(()) };
    let (mut first, mut second) = (u32::MAX, u32::MAX);
    for start in run.iter().copied().map(offset) {
        pace.spend(size_of::<u32>());
        second = second.min(first.max(start));
        first = first.min(start);
    }
    let is_before = |member: &&u32| {
        pace.spend(size_of::<u32>());
        offset(**member) < second
    };
    Err(Fault::Duplicate(members.iter().filter(is_before).count() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Closes an object whose members have these names, one after the other and without values; the
    /// answer is the numbers of the listed members, or the second twin.
    fn closed(names: &[String], left_out: &[usize]) -> Result<Vec<usize>, u32> {
        let mut body = String::from("{");
        let starts: Vec<usize> = names
            .iter()
            .map(|name| {
                body.push_str(&format!("\"{name}\","));
                body.len() - name.len() - 3
            })
            .collect();
        let mut text = Text::untouched(body.as_bytes());
        let mut ignore = || ();
        let mut pace = Pace::new(&mut ignore);
        let mut sparing = Sparing::default();
        let mark = sparing.open(&body.as_bytes()[1..], &text).unwrap();
        for (i, &start) in starts.iter().enumerate() {
            sparing.start_member(0, start as u32, &text).unwrap();
            if left_out.contains(&i) {
                sparing.leave_out();
            }
        }
        match sparing.close_object(mark, b"", &mut text, &mut pace) {
            Ok(()) => {}
            Err(Fault::Duplicate(number)) => return Err(number),
            Err(Fault::OutOfMemory) => panic!("out of memory"),
        }
        let Some(&container) = sparing.containers.first() else {
            return Ok((0..names.len()).collect());
        };
        let mut list = sparing.list_of(container);
        let mut numbers = Vec::new();
        while let Some(start) = list.first() {
            numbers.push(starts.iter().position(|&other| other == start).unwrap());
            list = list.after_first();
        }
        Ok(numbers)
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn any_spelling_counts() {
        let names = strings(&["b", r"\u0061", r"a\/", "a/0", r"\ud83d\ude00", "\u{ffff}", "é"]);
        assert_eq!(closed(&names, &[]), Ok(vec![1, 2, 3, 0, 6, 4, 5]));
        assert_eq!(closed(&names, &[1, 5]), Ok(vec![2, 3, 0, 6, 4]));
        for (twin, second) in [("a", 3), (r"\u0061", 3), ("A", 4), (r"\u0041", 4)] {
            let names = strings(&["x", twin, "b", r"\u0061", r"\u0041"]);
            assert_eq!(closed(&names, &[]), Err(second), "{twin}");
        }
    }

    #[test]
    fn what_is_left_out_is_missing() {
        let names = strings(&["a", "b", "c"]);
        assert_eq!(closed(&names, &[]), Ok(vec![0, 1, 2]));
        assert_eq!(closed(&names, &[1]), Ok(vec![0, 2]));
        assert_eq!(closed(&names, &[0, 1, 2]), Ok(vec![]));
        assert_eq!(closed(&strings(&["b", "a", "b"]), &[0]), Err(2));
    }

    #[test]
    fn many_names_are_sorted_in_parts() {
        let count = 5000;
        let number = |i: usize| i * 1237 % count;
        for prefix in ["", "a name that begins alike "] {
            let names: Vec<String> =
                (0..count).map(|i| format!("{prefix}{:04}", number(i))).collect();
            let mut expected: Vec<usize> = (0..count).collect();
            expected.sort_by_key(|&i| number(i));
            assert_eq!(closed(&names, &[]), Ok(expected));
            let twins = [&names[..], &names[17..18]].concat();
            assert_eq!(closed(&twins, &[]), Err(count as u32));
        }
        assert_eq!(closed(&vec!["x".into(); count], &[]), Err(1));
    }
}
