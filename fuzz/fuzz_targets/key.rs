//! The key parser on any text, with all formats and both ways of quoting.
#![no_main]

use idempotency_core::key::{Format, Quoting, Rules, parse};
use libfuzzer_sys::fuzz_target;

const FORMATS: [Format; 4] = [Format::Opaque, Format::Uuid, Format::UuidV4, Format::UuidV7];
const QUOTINGS: [Quoting; 3] = [Quoting::Either, Quoting::Raw, Quoting::Quoted];

fuzz_target!(|header: &str| {
    for (format, quoting) in FORMATS.into_iter().flat_map(|f| QUOTINGS.map(|q| (f, q))) {
        let rules = Rules { format, quoting, ..Rules::default() };
        if let Ok(key) = parse(header, &rules) {
            accepted(&key, &rules);
        }
    }
});

fn accepted(key: &str, rules: &Rules) {
    let length = key.chars().count();
    assert!((rules.min_length..=rules.max_length).contains(&length), "{length} characters");
    assert!(key.len() <= 255, "{} bytes", key.len());
    if rules.format != Format::Opaque {
        assert_eq!(key.len(), 36);
        assert!(!key.bytes().any(|byte| byte.is_ascii_uppercase()));
    }
    // A key that is sent again in quotation marks is the same key.
    let quoted = format!("\"{}\"", key.replace('\\', r"\\").replace('"', r#"\""#));
    let rules = Rules { quoting: Quoting::Quoted, ..rules.clone() };
    if let Ok(again) = parse(&quoted, &rules) {
        assert_eq!(again, key);
    }
}
