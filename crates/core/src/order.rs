//! The rule that keeps keys and row locks from deadlocking with each other.
//!
//! A transaction claims before it writes or locks rows, and claims several keys in ascending
//! order. Then nobody who waits for a key holds anything that the key's holder could want.

use crate::identity::Identity;

/// Why a claim comes too late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The transaction has a transaction id: it wrote, or locked a row.
    AfterWrite,
    /// The transaction holds a key that sorts after the new one.
    Descending {
        /// The greatest key that the transaction holds.
        held: Identity,
    },
}

/// Whether a transaction may go on to claim `next`.
///
/// `greatest_held` is the greatest identity whose lock the transaction holds.
///
/// # Errors
/// The [`Fault`] that the claim would commit; writing comes before the order of the keys.
pub fn check(
    has_transaction_id: bool,
    greatest_held: Option<&Identity>,
    next: &Identity,
) -> Result<(), Fault> {
    if has_transaction_id {
        return Err(Fault::AfterWrite);
    }
    match greatest_held {
        Some(held) if held > next => Err(Fault::Descending { held: held.clone() }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str) -> Identity {
        Identity::new("s".into(), "o".into(), key.into())
    }

    #[test]
    fn a_transaction_that_wrote_nothing_may_claim_upwards() {
        assert_eq!(check(false, None, &key("a")), Ok(()));
        assert_eq!(check(false, Some(&key("a")), &key("b")), Ok(()));
    }

    #[test]
    fn the_same_key_is_not_below_itself() {
        assert_eq!(check(false, Some(&key("a")), &key("a")), Ok(()));
    }

    #[test]
    fn downwards_names_the_key_in_the_way() {
        assert_eq!(
            check(false, Some(&key("b")), &key("a")),
            Err(Fault::Descending { held: key("b") })
        );
    }

    #[test]
    fn a_write_comes_first() {
        assert_eq!(check(true, None, &key("a")), Err(Fault::AfterWrite));
        assert_eq!(check(true, Some(&key("b")), &key("a")), Err(Fault::AfterWrite));
    }
}
