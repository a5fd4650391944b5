//! What names one recorded request: scope, key space and key, three separate values.
//!
//! They are never joined into one string: `("a", "bc")` and `("ab", "c")` are different identities
//! whatever separator a client manages to smuggle into its key.

use sha2::{Digest, Sha256};

/// The hard limit on each of scope, operation, key space and key, in bytes.
///
/// Three of them together stay far below what one B-tree entry of PostgreSQL can hold (2704 bytes,
/// nbtree.h `BTMaxItemSize`), whatever the characters.
pub const MAX_BYTES: usize = 255;

/// One recorded request. The derived order, byte for byte from scope to key, is the order in
/// which a transaction has to claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The principal or tenant.
    pub scope: String,
    /// The operation, or the name that several operations share.
    pub key_space: String,
    /// The key itself, as [`crate::key::parse`] returns it.
    pub key: String,
}

impl Identity {
    /// The 64 bits that name the key's lock.
    ///
    /// The first bytes of a SHA-256 over the length-prefixed parts: a tenant who may choose keys
    /// cannot aim at another tenant's lock. A chance collision makes two strangers wait for each
    /// other and does nothing else, because the record is looked up by the identity itself.
    pub fn lock_hash(&self) -> u64 {
        let mut hasher = Sha256::new();
        for part in [&self.scope, &self.key_space, &self.key] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let digest: [u8; 32] = hasher.finalize().into();
        u64::from_be_bytes(std::array::from_fn(|i| digest[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(scope: &str, key_space: &str, key: &str) -> Identity {
        Identity { scope: scope.into(), key_space: key_space.into(), key: key.into() }
    }

    #[test]
    fn parts_that_would_join_alike_have_different_locks() {
        let locks = [
            identity("a", "bc", "d").lock_hash(),
            identity("ab", "c", "d").lock_hash(),
            identity("a", "b", "cd").lock_hash(),
            identity("", "abc", "d").lock_hash(),
        ];
        for (i, lock) in locks.iter().enumerate() {
            assert!(!locks[..i].contains(lock), "{locks:?}");
        }
    }

    /// Locks outlive an upgrade of the library (prepared transactions), so the hash may not change.
    #[test]
    fn the_lock_of_an_identity_never_changes() {
        // printf of the parts, each behind its length as eight bytes, through sha256sum
        assert_eq!(identity("alice", "POST /orders", "k1").lock_hash(), 0x1a28_b385_8e74_7743);
    }

    #[test]
    fn order_is_by_bytes_from_scope_to_key() {
        assert!(identity("a", "z", "z") < identity("b", "a", "a"));
        assert!(identity("a", "a", "z") < identity("a", "b", "a"));
        assert!(identity("a", "a", "B") < identity("a", "a", "a"));
        assert!(identity("a", "a", "z") < identity("a", "a", "é"));
    }
}
