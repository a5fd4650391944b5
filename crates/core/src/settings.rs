//! Reads an operation's settings, as `idempotency_configure` takes them: a JSON object whose
//! members each name a setting.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::calendar::{from_unix_millis, to_unix_millis};
use crate::headers::can_mark;
use crate::identity::MAX_BYTES;
use crate::key::{Format, Quoting};
use crate::late::Past;
use crate::policy::{
    Anonymous, BodyFormat, FingerprintRule, Form, LateRetry, Mode, OnLeaseExpiry, Policy,
    Retention, Span,
};

/// What only PostgreSQL can read.
pub trait Types {
    /// A positive `interval`; `None` where the text is none.
    fn interval(&self, text: &str) -> Option<Span>;
    /// An `int4multirange` as inclusive ranges in ascending order; `None` where the text is none.
    fn ranges(&self, text: &str) -> Option<Vec<(i32, i32)>>;
    /// Whether there is such a function with the arguments and the result of a completion check.
    fn is_completion_check(&self, name: &str) -> bool;
}

/// What is wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The setting, as it was named.
    pub setting: String,
    /// What it is allowed to be.
    pub allowed: String,
}

impl Fault {
    /// The settings as a whole are no object.
    pub fn not_an_object() -> Self {
        Self { setting: "settings".into(), allowed: "a JSON object".into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" must be {}.", self.setting, self.allowed)
    }
}

/// The names of all settings, `preset` apart.
pub const NAMES: [&str; 22] = [
    "mode",
    "anonymous",
    "key_space",
    "key_format",
    "key_quoting",
    "key_min_length",
    "key_max_length",
    "fingerprint",
    "form",
    "body_format",
    "kept_statuses",
    "max_body",
    "retention",
    "late_retry",
    "wait_ms",
    "max_waiters",
    "completion_check",
    "replay_header",
    "invalid_status",
    "mismatch_status",
    "in_progress_status",
    "on_lease_expiry",
];

/// Settings as they are after a merge patch (RFC 7396): null takes a setting out, so that its
/// default holds. A `preset` is a whole design: settings made before are forgotten, and others in
/// the patch go over it.
///
/// # Errors
/// A [`Fault`] where the preset or a setting is unknown. The settings themselves are checked by [`read`].
pub fn patch(
    mut settings: Map<String, Value>,
    patch: Map<String, Value>,
) -> Result<Map<String, Value>, Fault> {
    let mut patch = patch;
    if let Some(preset) = patch.remove("preset").filter(|preset| !preset.is_null()) {
        settings = self::preset(&preset)?;
    }
    for (name, value) in patch {
        if !NAMES.contains(&name.as_str()) {
            return Err(Fault { setting: name, allowed: known_names() });
        }
        match value {
            Value::Null => drop(settings.remove(&name)),
            value => drop(settings.insert(name, value)),
        }
    }
    Ok(settings)
}

/// The policy that settings make.
///
/// # Errors
/// A [`Fault`] that names the setting, and what is allowed.
pub fn read(settings: &Map<String, Value>, types: &dyn Types) -> Result<Policy, Fault> {
    let mut policy = Policy::default();
    for (name, value) in settings {
        set(&mut policy, name, value, types)
            .map_err(|allowed| Fault { setting: name.clone(), allowed })?;
    }
    check_together(&policy)?;
    policy.set = settings.clone();
    Ok(policy)
}

/// Earlier retentions, as [`write_past`] writes them: `[{"until": 1780272000000, "retention": "1 day"}]`, the
/// time in milliseconds since 1970.
///
/// # Errors
/// A [`Fault`] where they are anything else.
pub fn read_past(past: &Value, types: &dyn Types) -> Result<Vec<Past>, Fault> {
    let one = |past: &Value| {
        let retention = past["retention"].as_str().and_then(|text| types.interval(text))?;
        Some(Past { until: from_unix_millis(past["until"].as_u64()?), retention })
    };
    let all = past.as_array().and_then(|past| past.iter().map(one).collect());
    all.ok_or_else(|| Fault {
        setting: "past_retentions".into(),
        allowed: "as idempotency_configure writes them".into(),
    })
}

/// Earlier retentions as they are kept beside the settings.
pub fn write_past(past: &[Past]) -> Value {
    let one = |past: &Past| {
        let Span { months, days, micros } = past.retention;
        let parts =
            [(i64::from(months), "months"), (i64::from(days), "days"), (micros, "microseconds")];
        let parts = parts.iter().filter(|(number, _)| *number != 0);
        let retention: Vec<String> =
            parts.map(|(number, unit)| format!("{number} {unit}")).collect();
        json!({"until": to_unix_millis(past.until), "retention": retention.join(" ")})
    };
    Value::Array(past.iter().map(one).collect())
}

fn preset(name: &Value) -> Result<Map<String, Value>, Fault> {
    let settings = match name.as_str() {
        Some("unit_of_work") => json!({
            "key_space": "unit_of_work",
            "key_format": "uuidv7",
            "key_quoting": "raw",
            "fingerprint": "required",
            "body_format": "strict_json",
            "replay_header": "Idempotent-Replay",
        }),
        Some("create") => json!({
            "key_format": "opaque",
            "key_quoting": "raw",
            "key_max_length": 64,
            "fingerprint": "ignored",
            "form": "resource",
            "kept_statuses": "{[200,300)}",
            "retention": "forever",
            "wait_ms": -1,
            "invalid_status": 422,
        }),
        _ => {
            return Err(Fault {
                setting: "preset".into(),
                allowed: "\"unit_of_work\" or \"create\"".into(),
            });
        }
    };
    match settings {
        Value::Object(settings) => Ok(settings),
        _ => Ok(Map::new()),
    }
}

fn known_names() -> String {
    format!("one of preset, {}", NAMES.join(", "))
}

type Allowed<T> = Result<T, String>;

fn set(policy: &mut Policy, name: &str, value: &Value, types: &dyn Types) -> Allowed<()> {
    match name {
        "mode" => {
            policy.mode = one_of(
                value,
                &[
                    ("optional", Mode::Optional),
                    ("required", Mode::Required),
                    ("ignored", Mode::Ignored),
                    ("forbidden", Mode::Forbidden),
                ],
            )?
        }
        "anonymous" => {
            policy.anonymous =
                one_of(value, &[("bypass", Anonymous::Bypass), ("error", Anonymous::Error)])?
        }
        "key_space" => policy.key_space = Some(short_text(value)?),
        "key_format" | "key_quoting" | "key_min_length" | "key_max_length" => {
            set_key(policy, name, value)?
        }
        "fingerprint" => {
            policy.fingerprint = one_of(
                value,
                &[
                    ("optional", FingerprintRule::Optional),
                    ("required", FingerprintRule::Required),
                    ("ignored", FingerprintRule::Ignored),
                ],
            )?
        }
        "form" => {
            policy.form =
                one_of(value, &[("response", Form::Response), ("resource", Form::Resource)])?
        }
        "body_format" => {
            policy.body_format = one_of(
                value,
                &[
                    ("any", BodyFormat::Any),
                    ("json", BodyFormat::Json),
                    ("strict_json", BodyFormat::StrictJson),
                ],
            )?
        }
        "kept_statuses" => policy.kept.0 = kept_statuses(value, types)?,
        "max_body" => policy.max_body = Some(integer(value, 0, i32::MAX)? as usize),
        "retention" => policy.retention = retention(value, types)?,
        "late_retry" => {
            policy.late_retry =
                one_of(value, &[("execute", LateRetry::Execute), ("refuse", LateRetry::Refuse)])?
        }
        "wait_ms" => policy.wait_ms = Some(integer(value, -1, i32::MAX)?),
        "max_waiters" => policy.max_waiters = Some(integer(value, 0, i32::MAX)?),
        "completion_check" => policy.completion_check = Some(completion_check(value, types)?),
        "replay_header" => policy.replay_header = header_name(value)?,
        "invalid_status" => policy.invalid_status = integer(value, 400, 599)?,
        "mismatch_status" => policy.mismatch_status = integer(value, 400, 599)?,
        "in_progress_status" => policy.in_progress_status = integer(value, 400, 599)?,
        "on_lease_expiry" => {
            policy.on_lease_expiry =
                one_of(value, &[("retry", OnLeaseExpiry::Retry), ("hold", OnLeaseExpiry::Hold)])?
        }
        _ => return Err(known_names()),
    }
    Ok(())
}

fn set_key(policy: &mut Policy, name: &str, value: &Value) -> Allowed<()> {
    match name {
        "key_format" => {
            policy.key.format = one_of(
                value,
                &[
                    ("opaque", Format::Opaque),
                    ("uuid", Format::Uuid),
                    ("uuidv4", Format::UuidV4),
                    ("uuidv7", Format::UuidV7),
                ],
            )?
        }
        "key_quoting" => {
            policy.key.quoting = one_of(
                value,
                &[("either", Quoting::Either), ("raw", Quoting::Raw), ("quoted", Quoting::Quoted)],
            )?
        }
        "key_min_length" => policy.key.min_length = integer(value, 1, MAX_BYTES as i32)? as usize,
        _ => policy.key.max_length = integer(value, 1, MAX_BYTES as i32)? as usize,
    }
    Ok(())
}

fn check_together(policy: &Policy) -> Result<(), Fault> {
    let fault = |setting: &str, allowed: &str| {
        Err(Fault { setting: setting.into(), allowed: allowed.into() })
    };
    if policy.key.min_length > policy.key.max_length {
        return fault("key_min_length", "at most key_max_length");
    }
    if policy.late_retry == LateRetry::Refuse && policy.key.format != Format::UuidV7 {
        return fault(
            "late_retry",
            "\"execute\" unless key_format is \"uuidv7\": no other key tells its age",
        );
    }
    Ok(())
}

fn one_of<T: Copy>(value: &Value, allowed: &[(&str, T)]) -> Allowed<T> {
    let found = allowed.iter().find(|(name, _)| value.as_str() == Some(*name));
    found.map(|(_, setting)| *setting).ok_or_else(|| {
        let names: Vec<String> = allowed.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        names.join(" or ")
    })
}

fn integer(value: &Value, least: i32, greatest: i32) -> Allowed<i32> {
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number
        .filter(|number| (least..=greatest).contains(number))
        .ok_or_else(|| format!("an integer from {least} to {greatest}"))
}

fn short_text(value: &Value) -> Allowed<String> {
    let text = value.as_str().filter(|text| (1..=MAX_BYTES).contains(&text.len()));
    text.map(str::to_owned).ok_or_else(|| format!("a string of 1 to {MAX_BYTES} bytes"))
}

fn header_name(value: &Value) -> Allowed<String> {
    let name = value.as_str().filter(|name| can_mark(name) && name.len() <= MAX_BYTES);
    name.map(str::to_owned).ok_or_else(|| "a header name that means nothing else".into())
}

fn kept_statuses(value: &Value, types: &dyn Types) -> Allowed<Vec<(i32, i32)>> {
    let ranges = value.as_str().and_then(|text| types.ranges(text));
    ranges.ok_or_else(|| "a multirange of statuses such as \"{[200,300),[400,408)}\"".into())
}

fn retention(value: &Value, types: &dyn Types) -> Allowed<Retention> {
    match value.as_str() {
        Some("forever") => Ok(Retention::Forever),
        other => other
            .and_then(|text| types.interval(text))
            .map(Retention::For)
            .ok_or_else(|| "a positive interval such as \"30 days\", or \"forever\"".into()),
    }
}

fn completion_check(value: &Value, types: &dyn Types) -> Allowed<String> {
    let name = value.as_str().filter(|name| types.is_completion_check(name));
    name.map(str::to_owned).ok_or_else(|| {
        "the name of a function, with its schema, that takes (scope text, operation text, status integer) and returns \
         boolean"
            .into()
    })
}

#[cfg(test)]
mod tests;
