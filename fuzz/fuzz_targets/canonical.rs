//! The canonicalizer on any bytes, against serde_json and serde_json_canonicalizer.
#![no_main]

use idempotency_core::fingerprint::{
    CanonicalError, Request, Violation, canonicalize, canonicalize_sparing, fingerprint,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// serde_json stops at this depth.
const ORACLE_DEPTH: usize = 127;

fuzz_target!(|body: &[u8]| {
    let print = of(body, &[]);
    let form = canonicalize(body, || ());
    // Of several faults the two ways may find different ones.
    assert_eq!(form.as_ref().ok(), canonicalize_sparing(body, &[]).ok().as_ref());
    match form {
        Ok(form) => accepted(body, &form, print),
        Err(CanonicalError::Invalid { violation, at }) => {
            assert!(at <= body.len(), "{violation} at {at}");
            assert_eq!(of(body, &["/a", "/0/b"]), print, "counts by its bytes");
            refused(body, violation);
        }
        Err(CanonicalError::OutOfMemory) => panic!("out of memory"),
    }
});

fn of(body: &[u8], exclude: &[&str]) -> [u8; 32] {
    let request =
        Request { method: "POST", path: "/", body: Some(body), exclude, ..Request::default() };
    fingerprint(&request, || ()).expect("no body is refused")
}

fn accepted(body: &[u8], form: &[u8], print: [u8; 32]) {
    // The form has a fingerprint of its own only where it writes an integer with rounded digits;
    // then it counts by its bytes, which are the same.
    assert_eq!(of(form, &[]), print);
    match canonicalize(form, || ()) {
        Ok(again) => assert_eq!(again, form),
        Err(CanonicalError::Invalid { violation, .. }) => {
            assert_eq!(violation, Violation::InexactInteger);
        }
        Err(CanonicalError::OutOfMemory) => panic!("out of memory"),
    }
    if depth(body) <= ORACLE_DEPTH {
        let value: Value = serde_json::from_slice(body).expect("what has a form is JSON");
        assert_eq!(serde_json_canonicalizer::to_vec(&value).unwrap(), form);
        left_out(&value, body);
    }
}

/// One pointer, followed by hand.
fn left_out(value: &Value, body: &[u8]) {
    let mut rest = value.clone();
    match &mut rest {
        Value::Object(members) => drop(members.remove("a")),
        Value::Array(elements) => {
            if let Some(Value::Object(members)) = elements.first_mut() {
                members.remove("b");
            }
        }
        _ => {}
    }
    let rest = serde_json_canonicalizer::to_vec(&rest).unwrap();
    let exclude = ["/a", "/0/b"];
    assert_eq!(of(body, &exclude), of(&rest, &[]));
    assert_eq!(canonicalize_sparing(body, &exclude).unwrap(), rest);
}

fn refused(body: &[u8], violation: Violation) {
    use Violation::*;
    // Those are JSON still, to serde_json.
    let stricter = matches!(violation, DuplicateMember | InexactInteger | TooDeep);
    let read = serde_json::from_slice::<Value>(body);
    assert!(stricter || read.is_err(), "{violation}");
}

/// No less than the depth of the nesting.
fn depth(body: &[u8]) -> usize {
    body.iter().filter(|byte| matches!(byte, b'[' | b'{')).count()
}
