//! Writes the canonical form: the text, with the members of some objects in another order.

use super::error::{OutOfMemory, push};
use super::number::{self, Form};
use super::outline::Reordered;
use super::{Canonical, DEFERRED, es6};
use crate::fingerprint::pace::Pace;

/// Where canonical text goes.
pub(in crate::fingerprint) trait Sink {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// There is no room for them.
    fn put(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory>;

    /// Takes `text` from `start` to `end`. What follows may be read too, and ignored.
    ///
    /// # Errors
    /// There is no room for them.
    #[inline]
    fn put_part(&mut self, text: &[u8], start: usize, end: usize) -> Result<(), OutOfMemory> {
        self.put(&text[start..end])
    }
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
pub(in crate::fingerprint) fn emit(
    canonical: &Canonical<'_>,
    sink: &mut impl Sink,
    pace: &mut Pace<'_>,
) -> Result<(), OutOfMemory> {
    let mut emitter = Emitter { canonical, sink, pace, open: Vec::new() };
    let mut next = Some(Stretch { start: 0, end: canonical.text.len() as u32, container: 0 });
    while let Some(stretch) = next {
        emitter.stretch(stretch)?;
        next = emitter.members()?;
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
    canonical: &'e Canonical<'e>,
    sink: &'e mut S,
    pace: &'e mut Pace<'p>,
    open: Vec<Open>,
}

impl<S: Sink> Emitter<'_, '_, S> {
    /// Writes a stretch up to the first container in it that is reordered, and opens that one.
    fn stretch(&mut self, stretch: Stretch) -> Result<(), OutOfMemory> {
        let Stretch { start, end, mut container } = stretch;
        while let Some(found) = self.container_before(container, end) {
            if found.is_reordered() {
                push(&mut self.open, Open { container, member: found.first, end })?;
                return self.write(start, found.start);
            }
            container += 1;
            self.pace.spend(1);
        }
        self.write(start, end)
    }

    fn container_before(&self, container: usize, end: u32) -> Option<Reordered> {
        self.canonical.outline.containers.get(container).filter(|found| found.start < end).copied()
    }

    /// Writes the members of the innermost open container, up to one with a container inside.
    /// Returns that member, or what follows the container, or nothing if none is open.
    fn members(&mut self) -> Result<Option<Stretch>, OutOfMemory> {
        let Some(&Open { container, member: mut next, end }) = self.open.last() else {
            return Ok(None);
        };
        let reordered = self.canonical.outline.containers[container];
        while next < reordered.last {
            let member = self.member(&reordered, container, next)?;
            next += 1;
            if self.container_before(member.container, member.end).is_some() {
                self.open.pop();
                self.open.push(Open { container, member: next, end });
                return Ok(Some(member));
            }
            self.write(member.start, member.end)?;
        }
        self.open.pop();
        Ok(Some(Stretch { start: reordered.end, end, container: reordered.next as usize }))
    }

    /// A member of an open container, with the comma before it where it is not the first.
    #[inline(always)]
    fn member(
        &mut self,
        reordered: &Reordered,
        container: usize,
        member: u32,
    ) -> Result<Stretch, OutOfMemory> {
        let (mut start, end) = self.canonical.outline.arranged[member as usize];
        let inside = &self.canonical.outline.containers[container + 1..reordered.next as usize];
        let before = inside.partition_point(|found| found.start <= start);
        if member > reordered.first {
            // Most often the comma that is wanted stands right there.
            match self.canonical.text[start as usize - 1] {
                b',' => start -= 1,
                _ => self.sink.put(b",")?,
            }
        }
        Ok(Stretch { start, end, container: container + 1 + before })
    }

    #[inline(always)]
    fn write(&mut self, start: u32, end: u32) -> Result<(), OutOfMemory> {
        let (text, start, end) = (&*self.canonical.text, start as usize, end as usize);
        if self.canonical.deferred || end - start > Pace::STEP {
            return self.write_far(&text[start..end]);
        }
        self.pace.spend(end - start);
        self.sink.put_part(text, start, end)
    }

    #[cold]
    fn write_far(&mut self, text: &[u8]) -> Result<(), OutOfMemory> {
        if self.canonical.deferred {
            return self.write_expanded(text);
        }
        put_all(text, self.sink, self.pace)
    }

    /// Writes text in which marked numbers are to be brought into canonical form.
    fn write_expanded(&mut self, mut text: &[u8]) -> Result<(), OutOfMemory> {
        while let Some(mark) = self.find_mark(text) {
            put_all(&text[..mark], self.sink, self.pace)?;
            let literal = &text[mark + 1..];
            let (length, form) =
                number::scan(literal, 0, self.pace).unwrap_or((0, Form::Prefix(0)));
            match form {
                Form::Prefix(length) => self.sink.put(&literal[..length])?,
                Form::Value(value) => {
                    self.sink.put(es6::format(value, &mut es6::Buffer::default()))?
                }
            }
            text = &literal[length..];
        }
        put_all(text, self.sink, self.pace)
    }

    fn find_mark(&mut self, text: &[u8]) -> Option<usize> {
        for (i, step) in text.chunks(Pace::STEP).enumerate() {
            self.pace.spend(step.len());
            if let Some(mark) = step.iter().position(|&byte| byte == DEFERRED) {
                return Some(i * Pace::STEP + mark);
            }
        }
        None
    }
}
