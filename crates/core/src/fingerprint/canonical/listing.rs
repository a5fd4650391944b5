//! What the parser tells of containers and members. Two kinds of list take it down: `outline`, which
//! is fast, and `sparing`, which is small.

use super::error::OutOfMemory;
use super::order::Fault;
use super::text::Text;
use crate::fingerprint::pace::Pace;

/// What was listed before a container was opened.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    /// How many members.
    pub(super) noted: u32,
    /// How many containers, or what else tells which one it is.
    pub(super) container: u32,
}

impl Mark {
    pub(super) fn noted(self) -> usize {
        self.noted as usize
    }
}

/// The containers of a body and their members, while the body is read.
pub(super) trait Listing: Default {
    /// Members come with the key of their name, see [`super::order::key`].
    const HAS_KEYS: bool;

    /// Opens a container whose first member starts with `rest`.
    fn open(&mut self, rest: &[u8], text: &Text<'_>) -> Result<Mark, OutOfMemory>;

    /// Notes the next member of the innermost open object, which starts at `start`.
    fn start_member(&mut self, key: u64, start: u32, text: &Text<'_>) -> Result<(), OutOfMemory>;

    /// Leaves that member out.
    fn leave_out(&mut self);

    /// Leaves out the next element of the innermost open array, which starts at `start`.
    fn leave_out_element(&mut self, start: u32, text: &Text<'_>) -> Result<(), OutOfMemory>;

    /// Notes where an element of the array that `mark` belongs to ends.
    fn end_element(&mut self, mark: Mark, end: u32);

    /// Closes an object before `rest`, its closing bracket, and puts its members in order.
    ///
    /// # Errors
    /// Two members have one name: the number of the second, from 0. Or memory ran out.
    fn close_object(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &mut Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), Fault>;

    /// Closes an array before `rest`, its closing bracket.
    fn close_array(
        &mut self,
        mark: Mark,
        rest: &[u8],
        text: &Text<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<(), OutOfMemory>;

    /// The body has been read.
    fn finish(&mut self, pace: &mut Pace<'_>);
}
