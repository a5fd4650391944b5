//! The hash at the end.

use hmac::{Hmac, Mac};
use sha2::{Digest as _, Sha256};

use super::canonical::{OutOfMemory, Sink};

/// What is hashed at once. Many members are a few bytes long, and the hash takes 64 at a time.
const STAGE: usize = 8 * 1024;

enum Function {
    Sha256(Sha256),
    Hmac(Hmac<Sha256>),
}

/// SHA-256 (FIPS 180-4), or HMAC-SHA-256 (RFC 2104) if there is a key.
pub(super) struct Digest {
    function: Function,
    stage: Vec<u8>,
    /// How much of the stage waits to be hashed.
    staged: usize,
}

impl Digest {
    /// A digest of about `size` bytes to come.
    pub(super) fn new(key: Option<&[u8]>, size: usize) -> Result<Self, OutOfMemory> {
        let function = match key {
            None => Function::Sha256(Sha256::new()),
            // Infallible: HMAC takes keys of any length.
            Some(key) => Function::Hmac(Hmac::new_from_slice(key).map_err(|_| OutOfMemory)?),
        };
        let mut stage = Vec::new();
        stage.try_reserve_exact(size.min(STAGE))?;
        stage.resize(size.min(STAGE), 0);
        Ok(Self { function, stage, staged: 0 })
    }

    /// The digest of all that was put.
    pub(super) fn finish(mut self) -> [u8; 32] {
        self.flush();
        match self.function {
            Function::Sha256(hash) => hash.finalize().into(),
            Function::Hmac(mac) => mac.finalize().into_bytes().into(),
        }
    }

    fn flush(&mut self) {
        self.function.update(&self.stage[..self.staged]);
        self.staged = 0;
    }

    /// Takes bytes for which the stage has no room.
    #[inline(never)]
    fn put_through(&mut self, bytes: &[u8]) {
        self.flush();
        match self.stage.get_mut(..bytes.len()) {
            None => self.function.update(bytes),
            Some(room) => {
                room.copy_from_slice(bytes);
                self.staged = bytes.len();
            }
        }
    }
}

impl Function {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Hmac(mac) => mac.update(bytes),
        }
    }
}

impl Sink for Digest {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory> {
        let end = self.staged + bytes.len();
        match self.stage.get_mut(self.staged..end) {
            None => self.put_through(bytes),
            Some(room) => {
                room.copy_from_slice(bytes);
                self.staged = end;
            }
        }
        Ok(())
    }
}
