use super::*;

struct Fake;

impl Types for Fake {
    fn interval(&self, text: &str) -> Option<Span> {
        (text == "1 day").then_some(Span { months: 0, days: 1, micros: 0 })
    }
    fn ranges(&self, text: &str) -> Option<Vec<(i32, i32)>> {
        (text == "{[200,300)}").then(|| vec![(200, 299)])
    }
    fn is_completion_check(&self, name: &str) -> bool {
        name == "app.check"
    }
}

fn object(json: Value) -> Map<String, Value> {
    json.as_object().unwrap().clone()
}

fn settings(json: Value) -> Result<Policy, Fault> {
    read(&object(json), &Fake)
}

#[test]
fn nothing_set_is_the_default() {
    assert_eq!(settings(json!({})), Ok(Policy::default()));
}

#[test]
fn every_setting() {
    let all = json!({
        "mode": "required", "anonymous": "error", "key_space": "orders", "key_format": "uuidv7",
        "key_quoting": "quoted", "key_min_length": 2, "key_max_length": 64, "fingerprint": "required",
        "form": "resource", "body_format": "strict_json", "kept_statuses": "{[200,300)}", "max_body": 10,
        "retention": "1 day", "late_retry": "refuse", "wait_ms": -1, "max_waiters": 3,
        "completion_check": "app.check", "replay_header": "X-Replay", "invalid_status": 422,
        "mismatch_status": 409, "in_progress_status": 425, "on_lease_expiry": "hold"
    });
    let policy = settings(all.clone());
    let expected = Policy {
        mode: Mode::Required,
        anonymous: Anonymous::Error,
        key_space: Some("orders".into()),
        key: crate::key::Rules {
            format: Format::UuidV7,
            quoting: Quoting::Quoted,
            min_length: 2,
            max_length: 64,
        },
        fingerprint: FingerprintRule::Required,
        form: Form::Resource,
        body_format: BodyFormat::StrictJson,
        kept: crate::policy::StatusSet(vec![(200, 299)]),
        max_body: Some(10),
        retention: Retention::For(Span { months: 0, days: 1, micros: 0 }),
        past: Vec::new(),
        late_retry: LateRetry::Refuse,
        wait_ms: Some(-1),
        max_waiters: Some(3),
        completion_check: Some("app.check".into()),
        replay_header: "X-Replay".into(),
        invalid_status: 422,
        mismatch_status: 409,
        in_progress_status: 425,
        on_lease_expiry: OnLeaseExpiry::Hold,
        set: object(all),
    };
    assert_eq!(policy, Ok(expected));
}

#[test]
fn a_wrong_value_names_the_setting_and_what_is_allowed() {
    for (name, value, allowed) in [
        ("mode", json!("on"), "\"optional\" or \"required\" or \"ignored\" or \"forbidden\""),
        ("anonymous", json!(true), "\"bypass\" or \"error\""),
        ("key_space", json!(""), "1 to 255 bytes"),
        ("key_space", json!("a".repeat(256)), "1 to 255 bytes"),
        ("key_format", json!("ulid"), "\"uuidv7\""),
        ("key_quoting", json!(1), "\"quoted\""),
        ("key_min_length", json!(0), "1 to 255"),
        ("key_max_length", json!(256), "1 to 255"),
        ("fingerprint", json!("no"), "\"ignored\""),
        ("form", json!("pointer"), "\"resource\""),
        ("body_format", json!("xml"), "\"strict_json\""),
        ("kept_statuses", json!("2xx"), "multirange"),
        ("kept_statuses", json!([200]), "multirange"),
        ("max_body", json!(-1), "0 to 2147483647"),
        ("max_body", json!("1MB"), "0 to 2147483647"),
        ("retention", json!("soon"), "interval"),
        ("retention", json!(5), "interval"),
        ("late_retry", json!("maybe"), "\"refuse\""),
        ("wait_ms", json!(-2), "-1 to 2147483647"),
        ("wait_ms", json!(1.5), "-1 to 2147483647"),
        ("max_waiters", json!(-1), "0 to 2147483647"),
        ("completion_check", json!("nope"), "function"),
        ("replay_header", json!("a b"), "header name"),
        ("replay_header", json!("content-type"), "means nothing else"),
        ("replay_header", json!("Set-Cookie"), "means nothing else"),
        ("invalid_status", json!(200), "400 to 599"),
        ("mismatch_status", json!(600), "400 to 599"),
        ("in_progress_status", json!(99), "400 to 599"),
        ("on_lease_expiry", json!("panic"), "\"hold\""),
        ("modes", json!("optional"), "one of preset, mode, anonymous"),
    ] {
        let fault = settings(json!({name: value})).unwrap_err();
        assert_eq!(fault.setting, name);
        assert!(fault.allowed.contains(allowed), "{name}: {}", fault.allowed);
    }
}

#[test]
fn settings_have_to_fit_together() {
    let fault = settings(json!({"key_min_length": 9, "key_max_length": 8})).unwrap_err();
    assert_eq!(fault.to_string(), "\"key_min_length\" must be at most key_max_length.");
    assert!(settings(json!({"key_min_length": 8, "key_max_length": 8})).is_ok());
    assert_eq!(settings(json!({"late_retry": "refuse"})).unwrap_err().setting, "late_retry");
    assert!(settings(json!({"late_retry": "execute"})).is_ok());
}

#[test]
fn a_patch_merges_and_null_takes_out() {
    let before = object(json!({"mode": "required", "wait_ms": 5}));
    let after =
        patch(before, object(json!({"wait_ms": null, "max_body": 3, "form": null}))).unwrap();
    assert_eq!(after, object(json!({"mode": "required", "max_body": 3})));
}

#[test]
fn a_preset_is_several_settings_and_others_go_over_it() {
    let after =
        patch(Map::new(), object(json!({"preset": "create", "wait_ms": 7, "form": null}))).unwrap();
    assert_eq!(after["wait_ms"], 7);
    assert_eq!(after["key_max_length"], 64);
    assert!(!after.contains_key("preset") && !after.contains_key("form"));
    assert_eq!(patch(Map::new(), object(json!({"preset": null}))).unwrap(), Map::new());
    for wrong in [json!("stripe"), json!(1)] {
        assert_eq!(
            patch(Map::new(), object(json!({"preset": wrong}))).unwrap_err().setting,
            "preset"
        );
    }
}

#[test]
fn both_presets_are_valid_settings() {
    for preset in ["unit_of_work", "create"] {
        let settings = patch(Map::new(), object(json!({"preset": preset}))).unwrap();
        assert!(read(&settings, &Fake).is_ok(), "{preset}");
    }
}

#[test]
fn the_names_are_those_that_are_read() {
    for name in NAMES {
        let allowed = settings(json!({name: {}})).unwrap_err().allowed;
        assert!(!allowed.starts_with("one of preset"), "{name}");
    }
}

#[test]
fn an_unknown_name_is_refused_with_null_too() {
    let fault = patch(Map::new(), object(json!({"modus": null}))).unwrap_err();
    assert_eq!(fault.setting, "modus");
    assert_eq!(Fault::not_an_object().to_string(), "\"settings\" must be a JSON object.");
}

#[test]
fn a_preset_forgets_what_was_set_before() {
    let before = patch(Map::new(), object(json!({"preset": "unit_of_work", "mode": "required"})));
    let after = patch(before.unwrap(), object(json!({"preset": "create"}))).unwrap();
    let fresh = patch(Map::new(), object(json!({"preset": "create"}))).unwrap();
    assert_eq!(after, fresh);
}

#[test]
fn earlier_retentions_are_read_as_they_were_written() {
    let day = Span { months: 0, days: 1, micros: 0 };
    let written = json!([{"until": 946_684_800_005_u64, "retention": "1 day"}]);
    let past = vec![Past { until: 5000, retention: day }];
    assert_eq!(read_past(&written, &Fake), Ok(past));
    let long = Past { until: 5000, retention: Span { months: 2, days: 1, micros: 7 } };
    let json =
        json!([{"until": 946_684_800_005_u64, "retention": "2 months 1 days 7 microseconds"}]);
    assert_eq!(write_past(&[long]), json);
    assert_eq!(write_past(&[]), json!([]));
    for wrong in
        [json!({}), json!([1]), json!([{"until": -1, "retention": "1 day"}]), json!([{"until": 1}])]
    {
        assert_eq!(read_past(&wrong, &Fake).unwrap_err().setting, "past_retentions", "{wrong}");
    }
}
