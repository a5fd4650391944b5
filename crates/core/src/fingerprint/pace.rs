//! Chances to stop.

/// Units of work between two calls of the interrupt: about this many bytes read or written.
const STRIDE: usize = 128 * 1024;

/// Counts work and calls the interrupt now and then, so that a cancelled query ends soon however
/// large the body is. The interrupt may leave by a panic; nothing here is left half done by it.
pub(super) struct Pace<'a> {
    left: usize,
    interrupt: &'a mut dyn FnMut(),
}

impl<'a> Pace<'a> {
    pub(super) fn new(interrupt: &'a mut dyn FnMut()) -> Self {
        Self { left: STRIDE, interrupt }
    }

    /// Accounts for `work` bytes. Callers take steps of at most [`Pace::STEP`] bytes.
    #[inline]
    pub(super) fn spend(&mut self, work: usize) {
        match self.left.checked_sub(work) {
            Some(left) => self.left = left,
            None => self.pause(),
        }
    }

    #[cold]
    fn pause(&mut self) {
        self.left = STRIDE;
        (self.interrupt)();
    }

    /// The most bytes a caller handles before it spends them.
    pub(super) const STEP: usize = 64 * 1024;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interrupt_comes_once_per_stride() {
        let mut calls = 0;
        let mut interrupt = || calls += 1;
        let mut pace = Pace::new(&mut interrupt);
        for _ in 0..64 {
            pace.spend(Pace::STEP);
        }
        assert!((16..=32).contains(&calls), "{calls} calls for 4 MiB");
    }
}
