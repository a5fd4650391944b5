//! The canonical form of a JSON body (RFC 8785), with three rules more: no duplicate member, no
//! integer literal that a double cannot hold exactly, no nesting beyond [`MAX_DEPTH`].
//!
//! `parse` reads the body once. It checks it and makes a *text*: the body without white space,
//! every token in canonical form (`string`, `number`, `es6`), members in the order in which they
//! came. Mostly that is the body itself, so `text` copies only from the first difference on. Where
//! members have to change places (`order`), `outline` has the text of a small object rearranged as soon
//! as the object ends, and keeps their order for a larger one. `emit` writes the text in that order. Where all this would take more than twice the body, `sparing`
//! keeps less, and `respell` writes from the body itself. No part recurses, none is slower than linear but for the
//! sorting.

mod decimal;
mod emit;
mod error;
mod es6;
mod exclude;
mod listing;
mod literal;
mod locate;
mod number;
mod order;
mod outline;
mod parse;
mod respell;
mod sparing;
mod string;
mod swar;
mod text;

use std::borrow::Cow;

pub(super) use emit::{Sink, put_all};
pub use error::{CanonicalError, OutOfMemory, Violation};
pub(super) use parse::parse;

use super::pace::Pace;
use outline::Outline;
#[cfg(test)]
use parse::parse_sparing;
use sparing::Sparing;

/// The deepest nesting of arrays and objects that has a canonical form.
pub const MAX_DEPTH: usize = 10_000;

/// The longest body that has a canonical form, in bytes: 2 GiB. PostgreSQL's values end at 1 GiB.
pub const MAX_BYTES: usize = 1 << 31;

/// Stands in the text before a number that is to be written in canonical form only when it is
/// emitted, because that form is longer than the literal: `[1e20,1e20]` would grow to four times
/// its size. No such byte can occur in the text otherwise.
const DEFERRED: u8 = 0;

/// A body that has a canonical form.
pub(super) struct Canonical<'i>(Way<'i>);

/// The way in which it was read, and what came of it.
enum Way<'i> {
    /// With a text and an outline.
    Arranged(Arranged<'i>),
    /// As it came, with what is kept of it in the sparing way.
    Sparing(&'i [u8], Sparing),
}

/// A text and what is to be changed in it.
pub(super) struct Arranged<'i> {
    /// Without white space, each token in canonical form, members as they came.
    text: Cow<'i, [u8]>,
    /// Where members are to be written in another order.
    outline: Outline,
    /// Some numbers in the text are marked with [`DEFERRED`].
    deferred: bool,
}

impl Canonical<'_> {
    /// Writes the canonical form into `sink`.
    ///
    /// # Errors
    /// Memory ran out.
    pub(super) fn write(
        &self,
        sink: &mut impl Sink,
        pace: &mut Pace<'_>,
    ) -> Result<(), OutOfMemory> {
        match &self.0 {
            Way::Arranged(arranged) => emit::emit(arranged, sink, pace),
            Way::Sparing(body, sparing) => respell::respell(body, sparing, sink, pace),
        }
    }

    /// About how long the form is, in bytes.
    fn len(&self) -> usize {
        match &self.0 {
            Way::Arranged(arranged) => arranged.text.len(),
            Way::Sparing(body, _) => body.len(),
        }
    }
}

/// The canonical form of `body` (RFC 8785). `interrupt` is called at least once for every 256 KiB
/// read or written and may panic to end the work.
///
/// # Errors
/// The first rule that the body breaks and where, or that memory ran out.
pub fn canonicalize(body: &[u8], mut interrupt: impl FnMut()) -> Result<Vec<u8>, CanonicalError> {
    let mut pace = Pace::new(&mut interrupt);
    written(&parse(body, &[], &mut pace)?, &mut pace)
}

/// [`canonicalize`] in the way for bodies of nothing but tiny members, for tests that compare the
/// two: every body can go either way. `body` is at most [`MAX_BYTES`] long, the pointers are well
/// formed.
///
/// # Errors
/// As [`canonicalize`].
#[doc(hidden)]
pub fn canonicalize_sparing(body: &[u8], exclude: &[&str]) -> Result<Vec<u8>, CanonicalError> {
    let mut ignore = || ();
    let mut pace = Pace::new(&mut ignore);
    written(&parse::parse_sparing(body, exclude, &mut pace)?, &mut pace)
}

fn written(canonical: &Canonical<'_>, pace: &mut Pace<'_>) -> Result<Vec<u8>, CanonicalError> {
    let mut form = Vec::new();
    form.try_reserve_exact(canonical.len()).map_err(OutOfMemory::from)?;
    canonical.write(&mut form, pace)?;
    Ok(form)
}
