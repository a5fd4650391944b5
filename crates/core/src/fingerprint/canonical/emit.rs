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

/// Writes the canonical form into `sink`. The stack of open objects is a list, not the machine's.
///
/// # Errors
/// Memory ran out.
pub(in crate::fingerprint) fn emit(
    canonical: &Canonical<'_>,
    sink: &mut impl Sink,
    pace: &mut Pace<'_>,
) -> Result<(), OutOfMemory> {
    let mut emitter = Emitter { canonical, sink, pace, open: Vec::new() };
    let mut next = Some(Stretch { start: 0, end: canonical.text.len() as u32, object: 0 });
    while let Some(stretch) = next {
        emitter.stretch(stretch)?;
        next = emitter.resume()?;
    }
    Ok(())
}

/// Text that is written from left to right.
struct Stretch {
    start: u32,
    end: u32,
    /// The first object of the list that starts behind `start`, if it starts before `end`.
    object: usize,
}

/// An object whose members are being written.
struct Open {
    object: usize,
    /// The member that comes next.
    member: u32,
    /// The end of the stretch in which the object stands.
    end: u32,
}

struct Emitter<'e, 'p, S> {
    canonical: &'e Canonical<'e>,
    sink: &'e mut S,
    pace: &'e mut Pace<'p>,
    open: Vec<Open>,
}

impl<S: Sink> Emitter<'_, '_, S> {
    /// Writes a stretch up to the first object in it that has an order of its own.
    fn stretch(&mut self, stretch: Stretch) -> Result<(), OutOfMemory> {
        let mut object = stretch.object;
        while let Some(found) = self.object_before(object, stretch.end) {
            if found.is_reordered() {
                self.write(stretch.start, found.start)?;
                return push(
                    &mut self.open,
                    Open { object, member: found.first, end: stretch.end },
                );
            }
            object += 1;
            self.pace.spend(1);
        }
        self.write(stretch.start, stretch.end)
    }

    fn object_before(&self, object: usize, end: u32) -> Option<Reordered> {
        self.canonical.outline.containers.get(object).filter(|object| object.start < end).copied()
    }

    /// The next member of the innermost open object, or what follows the object.
    fn resume(&mut self) -> Result<Option<Stretch>, OutOfMemory> {
        let Some(open) = self.open.last_mut() else { return Ok(None) };
        let object = &self.canonical.outline.containers[open.object];
        if open.member == object.last {
            let stretch =
                Stretch { start: object.end, end: open.end, object: object.next as usize };
            self.open.pop();
            return Ok(Some(stretch));
        }
        let member = open.member;
        open.member += 1;
        let inner = open.object + 1..object.next as usize;
        if member > object.first {
            self.sink.put(b",")?;
        }
        let (start, end) = self.canonical.outline.arranged[member as usize];
        let object = inner.start
            + self.canonical.outline.containers[inner]
                .partition_point(|object| object.start <= start);
        Ok(Some(Stretch { start, end, object }))
    }

    #[inline]
    fn write(&mut self, start: u32, end: u32) -> Result<(), OutOfMemory> {
        let text = &self.canonical.text[start as usize..end as usize];
        if self.canonical.deferred {
            return self.write_expanded(text);
        }
        if text.len() > Pace::STEP {
            return put_all(text, self.sink, self.pace);
        }
        self.pace.spend(text.len());
        self.sink.put(text)
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
