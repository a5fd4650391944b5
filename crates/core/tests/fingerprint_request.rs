//! The frame of the fingerprint: method, path, query, key, and the body as it is or canonical.

use idempotency_core::fingerprint::{
    FingerprintError, PointerFault, Request, canonicalize, fingerprint,
};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

const REQUEST: Request<'static> = Request {
    method: "POST",
    path: "/orders",
    body: Some(b"{\"b\":1,\"a\":2}"),
    exclude: &[],
    include_query: false,
    hmac_key: None,
};

fn of(request: &Request<'_>) -> [u8; 32] {
    fingerprint(request, || ()).unwrap()
}

fn sha256(message: &[u8]) -> [u8; 32] {
    Sha256::digest(message).into()
}

/// RFC 2104, with SHA-256.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    match key.len() {
        ..=64 => block[..key.len()].copy_from_slice(key),
        _ => block[..32].copy_from_slice(&sha256(key)),
    }
    let inner = sha256(&[&block.map(|byte| byte ^ 0x36), message].concat());
    sha256(&[&block.map(|byte| byte ^ 0x5c)[..], &inner].concat())
}

#[test]
fn the_frame() {
    assert_eq!(of(&REQUEST), sha256(b"POST\n/orders\n{\"a\":2,\"b\":1}"));
    assert_eq!(of(&Request { body: None, ..REQUEST }), sha256(b"POST\n/orders\n"));
    assert_eq!(of(&Request { body: Some(b""), ..REQUEST }), sha256(b"POST\n/orders\n"));
    assert_eq!(of(&Request { body: Some(b" "), ..REQUEST }), sha256(b"POST\n/orders\n "));
}

#[test]
fn only_ascii_letters_of_the_method_change() {
    assert_eq!(of(&Request { method: "pOsT", ..REQUEST }), of(&REQUEST));
    let umlaut = Request { method: "pöst", body: None, ..REQUEST };
    assert_eq!(of(&umlaut), sha256("PöST\n/orders\n".as_bytes()));
}

#[test]
fn the_query_counts_where_it_is_asked_for() {
    let with = |path, include_query| of(&Request { path, include_query, ..REQUEST });
    assert_eq!(with("/orders?a=1?b", false), of(&REQUEST));
    assert_eq!(with("/orders?", false), of(&REQUEST));
    assert_ne!(with("/orders?", true), of(&REQUEST));
    assert_eq!(with("/orders", true), of(&REQUEST));
    assert_ne!(with("/orders?a=1", true), with("/orders?a=2", true));
    // A fragment never reaches a server; if there is one, it is a part like any other.
    assert_ne!(with("/orders#a", false), of(&REQUEST));
    assert_eq!(with("/orders#a?b", false), with("/orders#a", false));
}

#[test]
fn line_feeds_are_refused() {
    let error = |request: Request<'_>| fingerprint(&request, || ()).unwrap_err();
    assert_eq!(error(Request { method: "POST\n", ..REQUEST }), FingerprintError::LineFeedInMethod);
    for path in ["\n", "/a\n", "/a?b\nc"] {
        assert_eq!(
            error(Request { path, ..REQUEST }),
            FingerprintError::LineFeedInPath,
            "{path:?}"
        );
    }
    // So these two cannot be written alike.
    assert_ne!(
        of(&Request { path: "/a", body: Some(b"x\n{}"), ..REQUEST }),
        of(&Request { path: "/a", body: Some(b"{}"), ..REQUEST })
    );
}

#[test]
fn a_key_makes_it_an_hmac() {
    let message = b"POST\n/orders\n{\"a\":2,\"b\":1}";
    for key in [&b"k"[..], &[0x0b; 20], &[0xaa; 64], &[0xaa; 65], &[0xaa; 131]] {
        assert_eq!(of(&Request { hmac_key: Some(key), ..REQUEST }), hmac(key, message));
    }
    let empty = Request { hmac_key: Some(b""), ..REQUEST };
    assert_eq!(fingerprint(&empty, || ()), Err(FingerprintError::EmptyHmacKey));
}

#[test]
fn malformed_pointers_are_refused_whatever_the_body() {
    for body in [None, Some(&b"not JSON"[..]), Some(b"{}")] {
        let request = Request { body, exclude: &["/fine", "id"], ..REQUEST };
        let error = fingerprint(&request, || ()).unwrap_err();
        assert_eq!(error, FingerprintError::Pointer { index: 1, fault: PointerFault::NoSlash });
        assert_eq!(error.to_string(), "malformed pointer 2: a pointer starts with \"/\"");
    }
}

proptest! {
    /// No bytes make it fail, and what has no canonical form counts as it is.
    #[test]
    fn any_bytes_have_a_fingerprint(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let counted = canonicalize(&body, || ()).unwrap_or(body.clone());
        let expected = sha256(&[b"POST\n/orders\n", &counted[..]].concat());
        prop_assert_eq!(of(&Request { body: Some(&body), ..REQUEST }), expected);
    }

    /// The same for bytes that are more like JSON.
    #[test]
    fn any_tokens_have_a_fingerprint(body in r#"([\[\]{}:,"\\ ]|[0-9]{1,3}|-|\.|e|true|null|"a"|"\\u00[0-9a-f]{2}"){0,24}"#) {
        let counted = canonicalize(body.as_bytes(), || ()).unwrap_or(body.clone().into());
        let expected = sha256(&[b"POST\n/orders\n", &counted[..]].concat());
        prop_assert_eq!(of(&Request { body: Some(body.as_bytes()), ..REQUEST }), expected);
    }
}
