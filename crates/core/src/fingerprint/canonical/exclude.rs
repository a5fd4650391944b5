//! Which members the canonical form leaves out.
//!
//! A pointer that leads into the container at hand is kept as the part of it that is still to be
//! followed. The parts that lead into one container stand next to each other.

use super::error::{OutOfMemory, push};
use crate::fingerprint::pace::Pace;
use crate::fingerprint::pointer;

/// The pointers that lead into one container: their places in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Live {
    from: u32,
    to: u32,
}

impl Live {
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.from == self.to
    }
}

/// The pointers that are being followed, outer containers first.
pub(super) struct Exclude<'x> {
    live: Vec<&'x str>,
}

impl<'x> Exclude<'x> {
    /// `pointers` have passed [`pointer::check`].
    pub(super) fn new(pointers: &[&'x str]) -> Result<Self, OutOfMemory> {
        let mut live = Vec::new();
        live.try_reserve_exact(pointers.len())?;
        live.extend_from_slice(pointers);
        Ok(Self { live })
    }

    /// The pointers that lead into the container that comes next, in one whose own are `outer`.
    #[inline]
    pub(super) fn inner(&self, outer: Live) -> Live {
        Live { from: outer.to, to: self.live.len() as u32 }
    }

    /// Follows the pointers of a container to one of its members, of which `is_this` knows
    /// whether a token names it; says whether the member is left out.
    pub(super) fn step(
        &mut self,
        container: Live,
        is_this: impl Fn(&str) -> bool,
        pace: &mut Pace<'_>,
    ) -> Result<bool, OutOfMemory> {
        self.live.truncate(container.to as usize);
        for i in container.from..container.to {
            let (token, rest) = pointer::split(self.live[i as usize]);
            pace.spend(token.len() + 1);
            if !is_this(token) {
                continue;
            }
            if rest.is_empty() {
                self.live.truncate(container.to as usize);
                return Ok(true);
            }
            push(&mut self.live, rest)?;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(exclude: &mut Exclude<'_>, container: Live, name: &str) -> bool {
        let mut ignore = || ();
        exclude
            .step(
                container,
                |token| pointer::token_is(token, name.bytes()),
                &mut Pace::new(&mut ignore),
            )
            .unwrap()
    }

    #[test]
    fn pointers_are_followed_member_by_member() {
        let mut exclude = Exclude::new(&["/a", "/b/c", "/b/d/e"]).unwrap();
        let root = exclude.inner(Live::default());
        assert_eq!(root, Live { from: 0, to: 3 });
        assert!(step(&mut exclude, root, "a"));
        assert!(!step(&mut exclude, root, "b"));
        let b = exclude.inner(root);
        assert_eq!(b, Live { from: 3, to: 5 });
        assert!(!step(&mut exclude, b, "a"));
        assert_eq!(exclude.inner(b), Live { from: 5, to: 5 });
        assert!(!step(&mut exclude, b, "d"));
        assert_eq!(exclude.live[exclude.inner(b).from as usize..], ["/e"]);
        assert!(step(&mut exclude, b, "c"));
        assert!(!step(&mut exclude, root, "c"));
        assert_eq!(exclude.inner(root), Live { from: 3, to: 3 });
    }

    #[test]
    fn what_is_left_out_is_not_searched() {
        let mut exclude = Exclude::new(&["/a/b", "/a"]).unwrap();
        let root = exclude.inner(Live::default());
        assert!(step(&mut exclude, root, "a"));
        assert!(exclude.inner(root).is_empty());
    }
}
