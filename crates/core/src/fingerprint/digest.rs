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
        Ok(Self { function, stage })
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
        self.function.update(&self.stage);
        self.stage.clear();
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
        if bytes.len() > self.stage.capacity() - self.stage.len() {
            self.flush();
            if bytes.len() > self.stage.capacity() {
                self.function.update(bytes);
                return Ok(());
            }
        }
        // Within the capacity, so nothing is allocated.
        self.stage.extend_from_slice(bytes);
        Ok(())
    }
}
