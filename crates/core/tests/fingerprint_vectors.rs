//! The required values: `data/fingerprint.jsonl`, 185 requests with their fingerprints, most with
//! the canonical body too.

use idempotency_core::fingerprint::{Request, canonicalize, canonicalize_sparing, fingerprint};
use serde_json::Value;
use sha2::{Digest, Sha256};

const VECTORS: &str = include_str!("data/fingerprint.jsonl");

fn vectors() -> impl Iterator<Item = Value> {
    VECTORS.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn text<'v>(vector: &'v Value, field: &str) -> &'v str {
    vector[field].as_str().unwrap_or_else(|| panic!("{field} of {vector}"))
}

fn bytes(vector: &Value, field: &str) -> Option<Vec<u8>> {
    vector[field].as_str().map(from_base64)
}

/// RFC 4648 section 4.
fn from_base64(encoded: &str) -> Vec<u8> {
    let mut decoded = Vec::new();
    let (mut buffer, mut bits) = (0u32, 0);
    for byte in encoded.bytes().filter(|&byte| byte != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{encoded}"),
        };
        buffer = buffer << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            decoded.push((buffer >> bits) as u8);
        }
    }
    decoded
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_vector_has_its_fingerprint() {
    let mut wrong = Vec::new();
    for vector in vectors() {
        let body = bytes(&vector, "body");
        let request = Request {
            method: text(&vector, "method"),
            path: text(&vector, "path"),
            body: body.as_deref(),
            ..Request::default()
        };
        if hex(&fingerprint(&request, || ()).unwrap()) != text(&vector, "sha256") {
            wrong.push(format!("{}: {}", text(&vector, "name"), text(&vector, "reason")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(vectors().count(), 185);
}

#[test]
fn every_vector_has_its_canonical_form_or_none() {
    for vector in vectors() {
        let body = bytes(&vector, "body").unwrap_or_default();
        let form = canonicalize(&body, || ());
        assert_eq!(canonicalize_sparing(&body, &[]), form, "{}", text(&vector, "name"));
        let name = text(&vector, "name");
        match (text(&vector, "kind"), form) {
            ("jcs", Ok(form)) => {
                if let Some(expected) = bytes(&vector, "canonical") {
                    assert_eq!(
                        String::from_utf8_lossy(&form),
                        String::from_utf8_lossy(&expected),
                        "{name}"
                    );
                }
                assert!(reads_the_same(&form), "{name}");
            }
            ("raw" | "empty", Err(_)) => {}
            (kind, form) => panic!("{name}: {kind}, {form:?}"),
        }
    }
}

/// Whether the canonical form is its own canonical form. It is, except where an integer literal
/// was exact and its shortest spelling is not (2^64 is written 18446744073709552000).
fn reads_the_same(form: &[u8]) -> bool {
    use idempotency_core::fingerprint::{CanonicalError, Violation};
    match canonicalize(form, || ()) {
        Ok(again) => again == form,
        Err(CanonicalError::Invalid { violation, .. }) => violation == Violation::InexactInteger,
        Err(CanonicalError::OutOfMemory) => false,
    }
}

/// The negative control: serde_json's tree and serde_json_canonicalizer, with the bytes where they
/// fail, miss the duplicates, the inexact integers and the deep ones.
#[test]
fn the_obvious_pipeline_is_wrong_about_some() {
    let mut wrong: Vec<String> = vectors()
        .filter(|vector| {
            let body = bytes(vector, "body").unwrap_or_default();
            let value = serde_json::from_slice::<Value>(&body);
            let counted = value
                .ok()
                .and_then(|value| serde_json_canonicalizer::to_vec(&value).ok())
                .unwrap_or(body);
            let frame =
                format!("{}\n{}\n", text(vector, "method").to_uppercase(), text(vector, "path"));
            let print = Sha256::digest([frame.as_bytes(), &counted].concat());
            hex(&print) != text(vector, "sha256")
        })
        .map(|vector| text(&vector, "name").split('_').next().unwrap().to_owned())
        .collect();
    assert_eq!(wrong.len(), 24);
    wrong.dedup();
    assert_eq!(wrong, ["dup", "int", "depth"]);
}
