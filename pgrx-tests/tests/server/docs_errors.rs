//! The reference's table of errors, held against the sources.

use pg_idempotency_tests::pages::{reference, sources};
use std::collections::BTreeSet;

/// SQLSTATE and message of what SQL raises by `RAISE condition USING MESSAGE = …`.
fn raised_in_sql(source: &str) -> Vec<(String, String)> {
    let raised = source.split("RAISE ").skip(1).map(|rest| {
        let (condition, rest) = rest.split_once(" USING MESSAGE = ").expect("a message");
        let sqlstate = match condition.trim() {
            "null_value_not_allowed" => "22004",
            "undefined_object" => "42704",
            "character_not_in_repertoire" => "22021",
            "duplicate_function" => "42723",
            other => panic!("the SQLSTATE of {other}"),
        };
        let message = rest.split('\'').nth(1).expect("a literal").replace("%s", "{}");
        (sqlstate.to_owned(), message)
    });
    raised.collect()
}

/// The string literal that a text starts with, and the rest.
fn literal(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &inside[at + 1..])),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    None
}

/// SQLSTATE and message of each error in a source file; the SQLSTATE is empty for bad arguments.
fn errors(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for call in ["Self::new(", "Error::new(", "Self::argument(", "Error::argument("] {
        for rest in source.split(call).skip(1) {
            let mut rest = rest.trim_start();
            let mut sqlstate = "22023".to_owned();
            if call.ends_with("::new(") {
                let Some((code, behind)) = literal(rest) else { continue };
                (sqlstate, rest) = (code, behind.trim_start_matches(',').trim_start());
            }
            let rest = rest.strip_prefix("format!(").unwrap_or(rest).trim_start();
            if let Some((message, _)) = literal(rest) {
                found.push((sqlstate, message));
            }
        }
    }
    found
}

/// What must not be null, or holds bytes that are no text, is not named one by one.
fn general(message: &str) -> String {
    let invalid = "invalid byte sequence in ";
    match message {
        null if null.ends_with(" must not be null") => "{} must not be null".to_owned(),
        bytes if bytes.starts_with(invalid) => format!("{invalid}{{}}"),
        other => other.to_owned(),
    }
}

/// A message as the reference writes it: what is filled in is an ellipsis.
fn written(message: &str) -> String {
    let mut parts = message.split('{');
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        written.push('…');
        written.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    written
}

#[test]
fn every_error_is_described() {
    let files = sources("src");
    let mut raised: BTreeSet<_> = files.iter().flat_map(|(_, source)| errors(source)).collect();
    let scripts = sources("sql");
    let by_sql = scripts.iter().flat_map(|(_, source)| raised_in_sql(source)).collect::<Vec<_>>();
    assert!(by_sql.len() >= 2, "{by_sql:?}");
    raised.extend(by_sql.into_iter().map(|(sqlstate, message)| (sqlstate, general(&message))));
    assert!(raised.len() > 25, "errors are found in the source: {raised:?}");
    let section = reference().section("## Errors");
    let missing: Vec<_> = raised
        .iter()
        .map(|(sqlstate, message)| format!("| `{sqlstate}` | {} |", written(message)))
        .filter(|row| !section.lines().any(|line| line.starts_with(row.as_str())))
        .collect();
    assert!(missing.is_empty(), "not in the reference:\n{}", missing.join("\n"));
}
