//! What a body is.

use serde::de::IgnoredAny;

/// Whether a text is one JSON value (RFC 8259).
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_json_value() {
        for json in ["{}", " [1, 2] ", "null", "0", "\"a\"", "false"] {
            assert!(is_json(json), "{json}");
        }
        for other in ["", " ", "{}{}", "{a: 1}", "hello", "01"] {
            assert!(!is_json(other), "{other}");
        }
    }
}
