//! What is compared.

use idempotency_core::fingerprint::{Request, fingerprint};
use sha2::{Digest, Sha256};

const METHOD: &str = "POST";
const PATH: &str = "/api/v1/orders";

/// Ours.
pub fn ours(body: &[u8]) -> [u8; 32] {
    let request = Request { method: METHOD, path: PATH, body: Some(body), ..Request::default() };
    fingerprint(&request, || ()).expect("the request is right")
}

/// The obvious way: serde_json's tree, the canonicalizer crate, the hash. (It is not right for
/// every body, see the required vectors.)
pub fn obvious(body: &[u8]) -> [u8; 32] {
    let value: serde_json::Value = serde_json::from_slice(body).expect("the body is JSON");
    let form = serde_json_canonicalizer::to_vec(&value).expect("the body has a form");
    hash(&form)
}

/// SHA-256 alone, of the body as it is.
pub fn hash(body: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update(METHOD)
        .chain_update("\n")
        .chain_update(PATH)
        .chain_update("\n")
        .chain_update(body)
        .finalize()
        .into()
}
