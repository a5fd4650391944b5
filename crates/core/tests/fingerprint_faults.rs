//! What `canonicalize` says is wrong, and where.

use idempotency_core::fingerprint::{canonicalize, canonicalize_sparing};

fn fault(body: impl AsRef<[u8]>) -> String {
    let body = body.as_ref();
    let sparing = canonicalize_sparing(body, &[]);
    assert_eq!(sparing, canonicalize(body, || ()), "{:?}", body.escape_ascii());
    match canonicalize(body, || ()) {
        Err(error) => error.to_string(),
        Ok(form) => panic!("{:?} has a form: {:?}", body.escape_ascii(), form.escape_ascii()),
    }
}

#[test]
fn the_grammar() {
    for (body, expected) in [
        ("", "unexpected end at byte 0"),
        (" \n", "unexpected end at byte 2"),
        ("tru", "expected a value at byte 0"),
        ("[nul]", "expected a value at byte 1"),
        ("True", "expected a value at byte 0"),
        ("[1,]", "expected a value at byte 3"),
        ("[,1]", "expected a value at byte 1"),
        ("[+1]", "expected a value at byte 1"),
        ("[.5]", "expected a value at byte 1"),
        ("[1 2]", "expected a comma or a closing bracket at byte 3"),
        ("[01]", "expected a comma or a closing bracket at byte 2"),
        ("[0x10]", "expected a comma or a closing bracket at byte 2"),
        ("[1}", "expected a comma or a closing bracket at byte 2"),
        (r#"{"a":1]"#, "expected a comma or a closing bracket at byte 6"),
        ("[1", "unexpected end at byte 2"),
        (r#"{"a":1"#, "unexpected end at byte 6"),
        (r#"{"a":1,}"#, "expected a member name at byte 7"),
        ("{a:1}", "expected a member name at byte 1"),
        ("{1:1}", "expected a member name at byte 1"),
        ("{", "unexpected end at byte 1"),
        (r#"{"a" 1}"#, "expected a colon at byte 5"),
        (r#"{"a"}"#, "expected a colon at byte 4"),
        (r#"{"a":}"#, "expected a value at byte 5"),
        (r#"{"a""#, "unexpected end at byte 4"),
        ("{} {}", "unexpected data after the value at byte 3"),
        ("1 2", "unexpected data after the value at byte 2"),
        ("1\u{0}", "unexpected data after the value at byte 1"),
        ("[1\u{b}]", "expected a comma or a closing bracket at byte 2"),
        ("1\u{a0}", "unexpected data after the value at byte 1"),
        ("\u{feff}1", "expected a value at byte 0"),
    ] {
        assert_eq!(fault(body), expected, "{body:?}");
    }
}

#[test]
fn tokens() {
    for (body, expected) in [
        (&b"[1.]"[..], "expected a digit at byte 3"),
        (b"[-]", "expected a digit at byte 2"),
        (b"[1e]", "expected a digit at byte 3"),
        (b"1e+", "unexpected end at byte 3"),
        (b"[9007199254740993]", "integer that a double cannot hold exactly at byte 1"),
        (b"[-9007199254740993]", "integer that a double cannot hold exactly at byte 1"),
        (b"[1e309]", "number out of the range of a double at byte 1"),
        (b"\"abc", "unexpected end at byte 4"),
        (b"[\"a\tb\"]", "unescaped control character in a string at byte 3"),
        (br#"["\x41"]"#, "invalid escape in a string at byte 2"),
        (br#"["\ud800"]"#, "lone surrogate in a string at byte 2"),
        (b"[\"ab\xff\"]", "invalid UTF-8 at byte 4"),
        (b"{\"\xe2\x82\":1}", "invalid UTF-8 at byte 2"),
        (b"\xff\xfe1\0", "expected a value at byte 0"),
    ] {
        assert_eq!(fault(body), expected, "{}", body.escape_ascii());
    }
}

/// The second name is where the fault is, whatever stands between and around the two, and however
/// the text differs from the body.
#[test]
fn duplicates() {
    for (body, at) in [
        (r#"{"a":1,"a":2}"#, 7),
        (r#"{"a":1,"\u0061":2}"#, 7),
        (r#"{ "b" : 1.50, "a":[{"b":2},"b"], "b" :3}"#, 33),
        (r#"[{"x":"\u0041\"},"},{"k":1,"l":{"k":0},"k":3}]"#, 39),
        (r#"{"":1,"":2}"#, 6),
        (r#"{"z":{"é":1,"e":2,"\u00e9":3}}"#, 19),
        (r#"{"a long name, 1":1,"a long name, 2":2,"a long name, 1":3}"#, 39),
    ] {
        assert_eq!(fault(body), format!("duplicate member name at byte {at}"), "{body}");
    }
    let many: String = (0..500).map(|i| format!("\"name {}\":{i},", i % 499)).collect();
    let body = format!("{{{}}}", many.trim_end_matches(','));
    let second = body.rfind("\"name 0\"").unwrap();
    assert_eq!(fault(&body), format!("duplicate member name at byte {second}"));
}

/// A body that ends anywhere is faulted there, or before.
#[test]
fn every_beginning_of_a_body() {
    let body = r#" { "a\n\u00e9" : [ 1.25e-3, -0, true, null, "x\\" , {} , [ ] ] , "b" : { "c" : "😀" } } "#;
    let whole = body.trim_end().len();
    for end in 0..whole {
        let message = fault(&body.as_bytes()[..end]);
        let (_, at) = message.rsplit_once(' ').unwrap();
        assert!(at.parse::<usize>().unwrap() <= end, "{end}: {message}");
    }
    assert!(canonicalize(&body.as_bytes()[..whole], || ()).is_ok());
}
