//! What has to be equal is equal, and nothing else: any spelling of a value has the value's
//! fingerprint, any other value another.

mod fingerprint_support;

use fingerprint_support::{Numbers, object_at_the_edge, spell, value};
use idempotency_core::fingerprint::{
    CanonicalError, Request, Violation, canonicalize, canonicalize_sparing, fingerprint,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn of(body: &str) -> [u8; 32] {
    without(body, &[])
}

fn without(body: &str, exclude: &[&str]) -> [u8; 32] {
    let request = Request {
        method: "POST",
        path: "/",
        body: Some(body.as_bytes()),
        exclude,
        ..Request::default()
    };
    fingerprint(&request, || ()).unwrap()
}

/// An object with the first of the members once more, all in some order, and where the second of the
/// two stands in it.
fn with_twins(members: &Map<String, Value>, numbers: &mut Numbers) -> (String, usize) {
    let mut all: Vec<(&String, &Value)> = members.iter().collect();
    for _ in 0..=numbers.below(3) {
        all.rotate_left(numbers.below(members.len() as u64) as usize);
    }
    let twin = all[0].0;
    all.insert(numbers.below(members.len() as u64 + 1) as usize, (twin, &Value::Null));
    let (mut body, mut places) = (String::from("{"), Vec::new());
    for (name, value) in all {
        body.push_str(if body.len() > 1 { "," } else { "" });
        if name == twin {
            places.push(body.len());
        }
        let spelled = spell(&json!(name), numbers.below(u64::MAX));
        body.push_str(&format!("{}:{}", spelled.trim(), spell(value, numbers.below(u64::MAX))));
    }
    (body + "}", places[1])
}

/// Changes one value inside, the one that `numbers` leads to.
fn change(value: &mut Value, numbers: &mut Numbers) {
    match value {
        Value::Array(elements) if !elements.is_empty() => {
            let at = numbers.below(elements.len() as u64) as usize;
            change(&mut elements[at], numbers);
        }
        Value::Object(members) if !members.is_empty() => {
            let at = numbers.below(members.len() as u64) as usize;
            change(members.values_mut().nth(at).unwrap(), numbers);
        }
        Value::Array(elements) => elements.push(Value::Null),
        Value::Object(members) => drop(members.insert(String::new(), Value::Null)),
        Value::String(string) => string.push(' '),
        Value::Bool(truth) => *truth = !*truth,
        Value::Null => *value = json!(false),
        Value::Number(number) => *value = json!(if number.as_f64() == Some(1.0) { 2 } else { 1 }),
    }
}

/// The pointer to a member or an element inside, and the value without it; none in a scalar.
fn cut(value: &Value, numbers: &mut Numbers) -> Option<(String, Value)> {
    let mut rest = value.clone();
    let key = match &rest {
        Value::Array(elements) if !elements.is_empty() => {
            numbers.below(elements.len() as u64).to_string()
        }
        Value::Object(members) if !members.is_empty() => {
            members.keys().nth(numbers.below(members.len() as u64) as usize)?.clone()
        }
        _ => return None,
    };
    let token = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
    let inner = rest.pointer_mut(&token)?;
    if let Some((deeper, replaced)) = cut(inner, numbers).filter(|_| numbers.below(3) > 0) {
        *inner = replaced;
        return Some((token + &deeper, rest));
    }
    match &mut rest {
        Value::Array(elements) => drop(elements.remove(key.parse().ok()?)),
        Value::Object(members) => drop(members.remove(&key)),
        _ => return None,
    }
    Some((token, rest))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_spelling_has_the_same(value in value(), one: u64, other: u64) {
        prop_assert_eq!(of(&spell(&value, one)), of(&spell(&value, other)));
    }

    #[test]
    fn every_change_makes_another(value in value(), seed: u64) {
        let mut other = value.clone();
        change(&mut other, &mut Numbers::new(seed));
        prop_assert_ne!(of(&spell(&value, seed)), of(&spell(&other, seed)));
    }

    #[test]
    fn what_is_left_out_does_not_count(value in value(), seed: u64) {
        if let Some((pointer, rest)) = cut(&value, &mut Numbers::new(seed)) {
            let body = spell(&value, seed);
            let expected = of(&spell(&rest, seed));
            prop_assert_eq!(without(&body, &[&pointer]), expected, "{}", pointer);
            let form = canonicalize_sparing(body.as_bytes(), &[&pointer]).unwrap();
            prop_assert_eq!(of(std::str::from_utf8(&form).unwrap()), expected, "{}", pointer);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_name_stands_once(value in object_at_the_edge(), seed: u64) {
        if let Value::Object(members) = &value {
            let (body, at) = with_twins(members, &mut Numbers::new(seed));
            let body = format!("[{body}]");
            let second = CanonicalError::Invalid { violation: Violation::DuplicateMember, at: at + 1 };
            prop_assert_eq!(canonicalize(body.as_bytes(), || ()), Err(second), "{}", body);
            prop_assert_eq!(canonicalize_sparing(body.as_bytes(), &[]), Err(second));
        }
    }
}

#[test]
fn several_pointers() {
    let body = r#"{"z":0,"b":{"d":[1,2,3],"c":1},"a":{"y":2,"x":{"b":1,"a":[]}}}"#;
    for (exclude, rest) in [
        (&["/a/x", "/b/c"][..], r#"{"a":{"y":2},"b":{"d":[1,2,3]},"z":0}"#),
        (&["/b/c", "/b", "/z"], r#"{"a":{"x":{"a":[],"b":1},"y":2}}"#),
        (&["/b", "/b/c"], r#"{"a":{"x":{"a":[],"b":1},"y":2},"z":0}"#),
        (
            &["/b/d/2", "/a/x/a", "/b/d/0", "/no"],
            r#"{"a":{"x":{"b":1},"y":2},"b":{"c":1,"d":[2]},"z":0}"#,
        ),
        (
            &["/b/d/0", "/b/d/1", "/b/d/2", "/a/x/b"],
            r#"{"a":{"x":{"a":[]},"y":2},"b":{"c":1,"d":[]},"z":0}"#,
        ),
        (&["/a", "/b", "/z"], "{}"),
    ] {
        assert_eq!(without(body, exclude), of(rest), "{exclude:?}");
        assert_eq!(canonicalize_sparing(body.as_bytes(), exclude).unwrap(), rest.as_bytes());
        let backwards: Vec<&str> = exclude.iter().rev().copied().collect();
        assert_eq!(without(body, &backwards), of(rest), "{backwards:?}");
    }
}

#[test]
fn pointers_that_find_nothing_change_nothing() {
    let body = r#"{"b":[1,{"c":2}],"a":"x"}"#;
    for pointer in ["/c", "/b/2", "/b/-", "/b/01", "/b/0/c", "/a/0", "/b/1/c/d", "/", "/A"] {
        assert_eq!(without(body, &[pointer]), of(body), "{pointer}");
    }
    assert_eq!(without("[1]", &["/a"]), of("[1]"));
    assert_eq!(without("1", &["/0"]), of("1"));
}

#[test]
fn pointers_mean_decoded_names() {
    for (body, pointer) in [
        (r#"{"\u0061":1,"z":2}"#, "/a"),
        (r#"{"a\/b":1,"z":2}"#, "/a~1b"),
        (r#"{"~":1,"z":2}"#, "/~0"),
        (r#"{"":1,"z":2}"#, "/"),
        (r#"{"\n\u0001\"":1,"z":2}"#, "/\n\u{1}\""),
        (r#"{"\ud83d\ude00é":1,"z":2}"#, "/😀é"),
        (r#"{"0":1,"z":2}"#, "/0"),
        (r#"{"z":2,"a":[1,2,3]}"#, "/a"),
    ] {
        assert_eq!(without(body, &[pointer]), of(r#"{"z":2}"#), "{pointer}");
    }
}

#[test]
fn elements_are_counted_as_they_were_sent() {
    assert_eq!(without("[1, 2, 3, 4]", &["/0", "/2"]), of("[2,4]"));
    assert_eq!(without("[{\"a\":1,\"b\":2}, [1, 2]]", &["/0/a", "/1/0"]), of(r#"[{"b":2},[2]]"#));
    assert_eq!(without("[1]", &["/0"]), of("[]"));
    assert_eq!(without("{\"a\":1}", &["/a", "/a"]), of("{}"));
}

/// Left out is not left unread: what has no canonical form counts by its bytes, pointers or not.
#[test]
fn rules_hold_in_what_is_left_out() {
    for body in [
        r#"{"a":{"x":1,"x":2},"b":1}"#,
        r#"{"a":1,"a":2,"b":1}"#,
        r#"{"a":9007199254740993,"b":1}"#,
        r#"{"a":"\ud800","b":1}"#,
        r#"{"a":1,"b":1"#,
    ] {
        assert_eq!(without(body, &["/a"]), of(body), "{body}");
    }
    assert_ne!(without(r#"{"a":1,"b":1}"#, &["/a"]), of(r#"{"a":1,"b":1}"#));
}
