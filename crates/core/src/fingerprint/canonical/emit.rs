//! Writes the canonical form: the text, with the members of some objects in another order.

use super::error::{OutOfMemory, push};
use super::number::{self, Form};
use super::outline::Reordered;
use super::{Arranged, DEFERRED, es6};
use crate::fingerprint::pace::Pace;

/// Where canonical text goes.
pub(in crate::fingerprint) trait Sink {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// There is no room for them.
    fn put(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory>;
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory> {
        self.try_reserve(bytes.len())?;
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// Writes `bytes` in steps that an interrupt can come between.
pub(in crate::fingerprint) fn put_all(
    bytes: &[u8],
    sink: &mut impl Sink,
    pace: &mut Pace<'_>,
) -> Result<(), OutOfMemory> {
    for step in bytes.chunks(Pace::STEP) {
        pace.spend(step.len());
        sink.put(step)?;
    }
    Ok(())
}

/// Writes the canonical form into `sink`. The stack of open containers is a list, not the
/// machine's.
///
/// # Errors
/// Memory ran out.
pub(super) fn emit(
    arranged: &Arranged<'_>,
    sink: &mut impl Sink,
    pace: &mut Pace<'_>,
) -> Result<(), OutOfMemory> {
    let Arranged { text, outline, deferred } = arranged;
    let mut emitter = Emitter {
        text,
        containers: &outline.containers,
        arranged: &outline.arranged,
        deferred: *deferred,
        open: Vec::new(),
        sink,
        pace,
    };
    let mut next = emitter.stretch(Stretch { start: 0, end: text.len() as u32, container: 0 })?;
    while let Some(open) = next.or_else(|| emitter.open.pop()) {
        next = emitter.members(open)?;
    }
    Ok(())
}

/// Text that is written from left to right.
struct Stretch {
    start: u32,
    end: u32,
    /// The first container of the list that starts behind `start`, maybe behind `end`.
    container: usize,
}

/// A container whose members are being written.
struct Open {
    container: usize,
    /// The member that comes next.
    member: u32,
    /// The end of the stretch in which the container stands.
    end: u32,
}

struct Emitter<'e, 'p, S> {
    text: &'e [u8],
    containers: &'e [Reordered],
    arranged: &'e [(u32, u32)],
    deferred: bool,
    /// The containers around the one that is being written.
    open: Vec<Open>,
    sink: &'e mut S,
    pace: &'e mut Pace<'p>,
}

impl<S: Sink> Emitter<'_, '_, S> {
    /// Writes a stretch; or only up to the first container in it that is reordered and has such
    /// inside, and returns that one, to be written next.
    #[inline(always)]
    fn stretch(&mut self, stretch: Stretch) -> Result<Option<Open>, OutOfMemory> {
        let Stretch { mut start, end, mut container } = stretch;
        while let Some(found) = self.containers.get(container)
            && found.start < end
        {
            if found.is_reordered() {
                self.write(start, found.start)?;
                if found.next as usize > container + 1 {
                    return Ok(Some(Open { container, member: found.first, end }));
                }
                self.flat_members(found)?;
                start = found.end;
            }
            container += 1;
            self.pace.spend(1);
        }
        self.write(start, end)?;
        Ok(None)
    }

    /// Writes the members of a container without reordered ones inside.
    #[inline(always)]
    fn flat_members(&mut self, reordered: &Reordered) -> Result<(), OutOfMemory> {
        let members = &self.arranged[reordered.first as usize..reordered.last as usize];
        for (i, &(start, end)) in members.iter().enumerate() {
            let start = if i > 0 { self.comma(start)? } else { start };
            self.write(start, end)?;
        }
        Ok(())
    }

    /// Writes the members of a container, and what follows it in its stretch; or only up to a
    /// container that is returned, to be written next.
    #[inline(always)]
    fn members(&mut self, open: Open) -> Result<Option<Open>, OutOfMemory> {
        let reordered = &self.containers[open.container];
        let (first, next) = (open.container + 1, reordered.next as usize);
        let inside = &self.containers[first..next];
        let members = &self.arranged[open.member as usize..reordered.last as usize];
        for (member, &(start, end)) in (open.member..).zip(members) {
            let before = inside.partition_point(|found| found.start <= start);
            let start = if member > reordered.first { self.comma(start)? } else { start };
            let stretch = Stretch { start, end, container: first + before };
            if let Some(inner) = self.stretch(stretch)? {
                push(&mut self.open, Open { member: member + 1, ..open })?;
                return Ok(Some(inner));
            }
        }
        self.stretch(Stretch { start: reordered.end, end: open.end, container: next })
    }

    /// Writes a comma before the member that starts at `start`; or has it written with the member,
    /// as it stands right there most often. Returns where the member then starts.
    #[inline(always)]
    fn comma(&mut self, start: u32) -> Result<u32, OutOfMemory> {
        if self.text[start as usize - 1] == b',' {
            return Ok(start - 1);
        }
        self.sink.put(b",")?;
        Ok(start)
    }

    fn write(&mut self, start: u32, end: u32) -> Result<(), OutOfMemory> {
        let text = &self.text[start as usize..end as usize];
        match self.deferred {
            true => put_expanded(text, self.sink, self.pace),
            false => put_all(text, self.sink, self.pace),
        }
    }
}

/// Writes text and brings the numbers in it that are marked into canonical form.
fn put_expanded(
    mut text: &[u8],
    sink: &mut impl Sink,
    pace: &mut Pace<'_>,
) -> Result<(), OutOfMemory> {
    while let Some(mark) = find_mark(text, pace) {
        put_all(&text[..mark], sink, pace)?;
        text = &text[mark + 1..];
        text = &text[put_number(text, sink, pace)?..];
    }
    put_all(text, sink, pace)
}

/// Writes the canonical form of the literal at the start of `text`, and returns its length.
pub(super) fn put_number(
    text: &[u8],
    sink: &mut impl Sink,
    pace: &mut Pace<'_>,
) -> Result<usize, OutOfMemory> {
    // Infallible but for memory: it was read before.
    let (length, form) = number::scan(text, 0, pace).map_err(|_| OutOfMemory)?;
    match form {
        Form::Prefix(length) => put_all(&text[..length], sink, pace)?,
        Form::Value(value) => sink.put(es6::format(value, &mut es6::Buffer::default()))?,
    }
    Ok(length)
}

fn find_mark(text: &[u8], pace: &mut Pace<'_>) -> Option<usize> {
    for (i, step) in text.chunks(Pace::STEP).enumerate() {
        let mark = step.iter().position(|&byte| byte == DEFERRED);
        pace.spend(mark.unwrap_or(step.len()));
        if let Some(mark) = mark {
            return Some(i * Pace::STEP + mark);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::canonical::{parse, parse_sparing};

    fn emitted(body: &str, exclude: &[&str]) -> String {
        let mut ignore = || ();
        let mut pace = Pace::new(&mut ignore);
        let mut form = Vec::new();
        let canonical = parse(body.as_bytes(), exclude, &mut pace).unwrap();
        canonical.write(&mut form, &mut pace).unwrap();
        let mut again = Vec::new();
        let sparing = parse_sparing(body.as_bytes(), exclude, &mut pace).unwrap();
        sparing.write(&mut again, &mut pace).unwrap();
        assert!(form == again, "{body:.1000}");
        String::from_utf8(form).unwrap()
    }

    #[test]
    fn members_are_written_in_order_on_every_level() {
        for (body, expected) in [
            ("1", "1"),
            ("[]", "[]"),
            (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
            (r#"{"a":{"c":1,"b":2},"d":3}"#, r#"{"a":{"b":2,"c":1},"d":3}"#),
            (
                r#"{"b":{"d":1,"c":2},"a":[{"f":1,"e":2},0,{"h":1,"g":2}]}"#,
                r#"{"a":[{"e":2,"f":1},0,{"g":2,"h":1}],"b":{"c":2,"d":1}}"#,
            ),
            (
                r#"{"c":{"a":{"z":1,"y":2}},"b":[],"a":{"a":{"x":1,"w":2}}}"#,
                r#"{"a":{"a":{"w":2,"x":1}},"b":[],"c":{"a":{"y":2,"z":1}}}"#,
            ),
            (
                r#"[{"a":[{"b":[{"d":1,"c":2}]}]},{"b":1,"a":2}]"#,
                r#"[{"a":[{"b":[{"c":2,"d":1}]}]},{"a":2,"b":1}]"#,
            ),
        ] {
            assert_eq!(emitted(body, &[]), expected, "{body}");
        }
    }

    #[test]
    fn deferred_numbers_are_written_out() {
        for (body, expected) in [
            ("1e20", "100000000000000000000"),
            ("[1e9,-1E9,1e-6,2]", "[1000000000,-1000000000,0.000001,2]"),
            (r#"{"b":1e3,"a":{"d":[1e4],"c":"e5"}}"#, r#"{"a":{"c":"e5","d":[10000]},"b":1000}"#),
        ] {
            assert_eq!(emitted(body, &[]), expected, "{body}");
        }
    }

    #[test]
    fn what_is_left_out_takes_its_comma_along() {
        let body = r#"{"b":[1,2,3],"a":{"d":1,"c":2},"e":0}"#;
        for (exclude, expected) in [
            (["/a", "/b/1"], r#"{"b":[1,3],"e":0}"#),
            (["/e", "/a/d"], r#"{"a":{"c":2},"b":[1,2,3]}"#),
            (["/b/0", "/b/2"], r#"{"a":{"c":2,"d":1},"b":[2],"e":0}"#),
        ] {
            assert_eq!(emitted(body, &exclude), expected);
        }
    }

    #[test]
    fn long_text_is_written_whole() {
        let long = "x".repeat(3 * Pace::STEP + 7);
        let body = format!(r#"{{"b":"{long}","a":["{long}",1e2]}}"#);
        assert_eq!(emitted(&body, &[]), format!(r#"{{"a":["{long}",100],"b":"{long}"}}"#));
    }
}
