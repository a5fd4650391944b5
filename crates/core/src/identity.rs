//! What names one recorded request: scope, key space and key, three separate values.
//!
//! They are never joined into one string: `("a", "bc")` and `("ab", "c")` are different identities
//! whatever separator a client manages to smuggle into its key. A hash of them names the record and the
//! key's lock; it is computed once, when the identity is made.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::key;

/// The hard limit on each of scope, operation, key space and key, in bytes.
///
/// Names of principals and operations, and keys, are shorter; and three of them together stay far
/// below what one B-tree entry of PostgreSQL can hold (2704 bytes, nbtree.h `BTMaxItemSize`), whatever
/// the characters, so that anybody can put an index on them.
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
    digest: Uuid,
    lock_hash: u64,
}

impl Identity {
    /// The identity of these three.
    pub fn new(scope: String, key_space: String, key: String) -> Self {
        let hash = hash([&scope, &key_space, &key]);
        let (digest, lock_hash) = (digest(hash, &key), hash.as_u64_pair().0);
        Self { scope, key_space, key, digest, lock_hash }
    }

    /// The 128 bits that name the record: the first of a SHA-256 over the length-prefixed parts, each
    /// length being eight bytes, the highest first. Not a UUID of RFC 9562, for which it would have to
    /// give up six bits.
    ///
    /// Where the key is a UUIDv7 ([`key::uuidv7`]), its first 32 bits, which are its time in units of
    /// some 65 seconds, stand in the place of the first 32 of the hash. So records whose keys were made
    /// one after the other lie near each other in the index.
    ///
    /// Who may choose keys can find two of its own with one digest in some 2^48 tries, and one with the
    /// digest of another's key in 2^96. So whoever finds a record by its digest compares the names.
    pub fn digest(&self) -> Uuid {
        self.digest
    }

    /// The 64 bits that name the key's lock: the first of the SHA-256, whatever the key is.
    ///
    /// A tenant who may choose keys cannot aim at another tenant's lock. A chance collision makes two
    /// strangers wait for each other and does nothing else.
    pub fn lock_hash(&self) -> u64 {
        self.lock_hash
    }
}

/// The first 128 bits of the SHA-256.
fn hash(parts: [&str; 3]) -> Uuid {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let digest: [u8; 32] = hasher.finalize().into();
    Uuid::from_bytes(std::array::from_fn(|i| digest[i]))
}

/// The hash, which leads with the time of the key where that has one.
fn digest(hash: Uuid, key: &str) -> Uuid {
    let mut bytes = hash.into_bytes();
    if let Some(id) = key::uuidv7(key) {
        bytes[..4].copy_from_slice(&id.as_bytes()[..4]);
    }
    Uuid::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(scope: &str, key_space: &str, key: &str) -> Identity {
        Identity::new(scope.into(), key_space.into(), key.into())
    }

    #[test]
    fn parts_that_would_join_alike_have_different_locks() {
        let joined_alike = [
            identity("a", "bc", "d"),
            identity("ab", "c", "d"),
            identity("a", "b", "cd"),
            identity("", "abc", "d"),
        ];
        let locks = joined_alike.each_ref().map(Identity::lock_hash);
        let digests = joined_alike.each_ref().map(Identity::digest);
        for i in 0..locks.len() {
            assert!(!locks[..i].contains(&locks[i]), "{locks:?}");
            assert!(!digests[..i].contains(&digests[i]), "{digests:?}");
        }
    }

    /// Records and locks (of prepared transactions) outlive an upgrade of the library, so neither may
    /// ever change.
    #[test]
    fn the_digest_of_an_identity_never_changes() {
        // printf of the parts, each behind its length as eight bytes, through sha256sum
        let identity = identity("alice", "POST /orders", "k1");
        assert_eq!(identity.digest().to_string(), "1a28b385-8e74-7743-6e5b-76a97947936e");
        assert_eq!(identity.lock_hash(), 0x1a28_b385_8e74_7743);
    }

    /// Catches creates that touch a page of the index each, and keys with two digests.
    #[test]
    fn the_digest_of_a_uuidv7_leads_with_its_time() {
        let hashes = [
            ("01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-bc03-b240-23b3-8cfa969cea38"),
            ("01890A5D-AC96-774B-BCCE-B302099A8057", "01890a5d-9b8d-6df1-94a5-aa893dcd1fa4"),
        ];
        for (key, digest) in hashes {
            let identity = identity("alice", "POST /orders", key);
            assert_eq!(identity.digest().to_string(), digest);
        }
    }

    /// Catches a time that is read from what is no UUIDv7, and a lock that depends on it.
    #[test]
    fn other_keys_and_every_lock_have_the_pure_hash() {
        for key in [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "01890a5d-ac96-774b-0cce-b302099a8057",
            "01890a5d-ac96-774b-ccce-b302099a8057",
            "01890a5dac96774bbcceb302099a8057",
            "{01890a5d-ac96-774b-bcce-b302099a8057}",
            "01890a5d-ac96-774b-bcce-b302099a805",
            "01890a5d-ac96-774b-bcce-b302099a80577",
            "01890a5d-ac96-774b-bcce_b302099a8057",
            "01890a5d-ac96-774b-bcce-b302099a8\u{e9}7",
            "k1",
        ] {
            let identity = identity("alice", "POST /orders", key);
            assert_eq!(identity.digest(), hash(["alice", "POST /orders", key]), "{key}");
        }
        let timed = identity("alice", "POST /orders", "01890a5d-ac96-774b-bcce-b302099a8057");
        let hash = hash(["alice", "POST /orders", &timed.key]);
        assert_eq!(timed.lock_hash(), hash.as_u64_pair().0);
        assert_eq!(timed.digest().as_bytes()[4..], hash.as_bytes()[4..]);
    }

    #[test]
    fn order_is_by_bytes_from_scope_to_key() {
        assert!(identity("a", "z", "z") < identity("b", "a", "a"));
        assert!(identity("a", "a", "z") < identity("a", "b", "a"));
        assert!(identity("a", "a", "B") < identity("a", "a", "a"));
        assert!(identity("a", "a", "z") < identity("a", "a", "é"));
    }
}
