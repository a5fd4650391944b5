//! The canonical form against serde_json_canonicalizer, an independent writer of RFC 8785, on
//! generated documents. It gets the value, we get one of the value's spellings.

mod fingerprint_support;

use fingerprint_support::{spell, value};
use idempotency_core::fingerprint::{canonicalize, canonicalize_sparing};
use proptest::prelude::*;

/// The form, which is the same in both ways.
fn canonical(body: &str) -> String {
    let form = canonicalize(body.as_bytes(), || ()).unwrap();
    assert_eq!(canonicalize_sparing(body.as_bytes(), &[]).as_ref(), Ok(&form), "{body}");
    String::from_utf8(form).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn generated_documents(value in value(), seed in any::<u64>()) {
        let expected = serde_json_canonicalizer::to_string(&value).unwrap();
        prop_assert_eq!(canonical(&spell(&value, seed)), expected);
    }

    /// Whatever the bytes: if they have a canonical form, a tolerant reader and the other writer
    /// come to the same one.
    #[test]
    fn damaged_documents(value in value(), seed in any::<u64>(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut body = spell(&value, seed).into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        let form = canonicalize(&body, || ()).ok();
        prop_assert_eq!(&form, &canonicalize_sparing(&body, &[]).ok());
        if let Some(form) = form {
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
            prop_assert_eq!(form, serde_json_canonicalizer::to_vec(&value).unwrap());
        }
    }
}

/// The control of this test: what the obvious pipeline gets wrong, ours does not.
#[test]
fn where_the_obvious_pipeline_is_wrong() {
    let obvious = |body: &str| {
        let value: serde_json::Value = serde_json::from_str(body).unwrap();
        serde_json_canonicalizer::to_string(&value).unwrap()
    };
    assert_eq!(obvious(r#"{"a":1,"\u0061":2}"#), r#"{"a":2}"#);
    assert_eq!(obvious("9007199254740993"), "9007199254740992");
    for body in [r#"{"a":1,"\u0061":2}"#, "9007199254740993"] {
        assert!(canonicalize(body.as_bytes(), || ()).is_err(), "{body}");
    }
    let deep = "[".repeat(200) + &"]".repeat(200);
    assert!(serde_json::from_str::<serde_json::Value>(&deep).is_err());
    assert_eq!(canonical(&deep), deep);
}
