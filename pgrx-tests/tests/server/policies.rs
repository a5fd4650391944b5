//! `idempotency_configure`: what it takes, what it refuses, what it makes of a patch.
//!
//! Whom a change reaches is in `policies_changes`; what each setting does is in `policies_keys`,
//! `policies_answers`, `policies_resources` and `policies_time`.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use serde_json::{Value, json};

fn admin(db: &Database<'_>) -> Session {
    db.session_as(Role::Superuser, "admin")
}

/// What is stored for `POST /orders`, as a superuser reads it.
fn stored(db: &Database<'_>) -> Value {
    db.value("SELECT settings FROM idempotency.operations WHERE operation = 'POST /orders'")
}

fn rows(db: &Database<'_>) -> i64 {
    db.value("SELECT count(*) FROM idempotency.operations")
}

/// The names of section 7.
const NAMES: [&str; 23] = [
    "preset",
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

// ---- names and values ----------------------------------------------------------------------

#[test]
fn every_setting_takes_its_values() {
    let db = Database::fresh();
    db.run(
        "CREATE SCHEMA app; CREATE FUNCTION app.\"Agrees, too\"(text, text, integer) RETURNS boolean
             LANGUAGE sql AS 'SELECT true'",
    );
    for (name, values) in [
        ("mode", json!(["optional", "required", "ignored", "forbidden"])),
        ("anonymous", json!(["bypass", "error"])),
        ("key_space", json!(["orders", "a".repeat(255)])),
        ("key_format", json!(["opaque", "uuid", "uuidv4", "uuidv7"])),
        ("key_quoting", json!(["either", "raw", "quoted"])),
        ("key_min_length", json!([1, 255])),
        ("key_max_length", json!([1, 255])),
        ("fingerprint", json!(["optional", "required", "ignored"])),
        ("form", json!(["response", "resource"])),
        ("body_format", json!(["any", "json", "strict_json"])),
        ("kept_statuses", json!(["{}", "{[200,300)}", "{[200,300),[404,404]}", "{(,)}"])),
        ("max_body", json!([0, 2147483647])),
        ("retention", json!(["forever", "30 days", "1 month", "PT1H", "1 microsecond"])),
        ("late_retry", json!(["execute"])),
        ("wait_ms", json!([-1, 0, 2147483647])),
        ("max_waiters", json!([0, 1, 2147483647])),
        ("completion_check", json!(["app.\"Agrees, too\""])),
        ("replay_header", json!(["X-Replay"])),
        ("invalid_status", json!([400, 599])),
        ("mismatch_status", json!([400, 599])),
        ("in_progress_status", json!([400, 599])),
        ("on_lease_expiry", json!(["retry", "hold"])),
        ("preset", json!(["unit_of_work", "create"])),
    ] {
        assert!(NAMES.contains(&name));
        for value in values.as_array().expect("a list") {
            let settings = configure(&db, json!({name: value}));
            if name != "preset" {
                assert_eq!(settings, json!({name: value}));
            }
            assert_eq!(stored(&db), settings);
            db.run("DELETE FROM idempotency.operations");
        }
    }
    configure(&db, json!({"late_retry": "refuse", "key_format": "uuidv7"}));
}

#[test]
fn a_wrong_value_is_refused_with_what_is_allowed() {
    let db = Database::fresh();
    let mut admin = admin(&db);
    for (name, wrong, allowed) in [
        (
            "mode",
            json!(["on", true, 1, ["optional"], {}]),
            "\"optional\" or \"required\" or \"ignored\" or \"forbidden\"",
        ),
        ("anonymous", json!(["Bypass", "reject"]), "\"bypass\" or \"error\""),
        ("key_space", json!(["", 7, "a".repeat(256), "\u{e9}".repeat(128)]), "1 to 255 bytes"),
        (
            "key_format",
            json!(["ulid", "uuidv1"]),
            "\"opaque\" or \"uuid\" or \"uuidv4\" or \"uuidv7\"",
        ),
        ("key_quoting", json!(["none"]), "\"either\" or \"raw\" or \"quoted\""),
        ("key_min_length", json!([0, 256, "1", 1.5]), "from 1 to 255"),
        ("key_max_length", json!([0, 256, -1]), "from 1 to 255"),
        ("fingerprint", json!(["no", false]), "\"optional\" or \"required\" or \"ignored\""),
        ("form", json!(["pointer"]), "\"response\" or \"resource\""),
        ("body_format", json!(["xml"]), "\"any\" or \"json\" or \"strict_json\""),
        (
            "kept_statuses",
            json!(["2xx", "[200,300)", "{[300,200]}", [200], 200, "{[a,b]}"]),
            "multirange",
        ),
        ("max_body", json!([-1, "1MB", 2147483648_i64]), "from 0 to 2147483647"),
        (
            "retention",
            json!(["soon", "0", "-1 day", "1 month -40 days", 30, "20000 years"]),
            "interval",
        ),
        ("late_retry", json!(["maybe"]), "\"execute\" or \"refuse\""),
        ("wait_ms", json!([-2, 1e10, "10s"]), "from -1 to 2147483647"),
        ("max_waiters", json!([-1, "none"]), "from 0 to 2147483647"),
        ("replay_header", json!(["", "a b", "a:", "a\nb", 5, "\u{e9}"]), "header name"),
        ("invalid_status", json!([200, 399, 600, "400"]), "from 400 to 599"),
        ("mismatch_status", json!([201, 399, 600]), "from 400 to 599"),
        ("in_progress_status", json!([302, 399, 600]), "from 400 to 599"),
        ("on_lease_expiry", json!(["panic"]), "\"retry\" or \"hold\""),
        ("preset", json!(["", "draft", 1]), "\"unit_of_work\" or \"create\""),
    ] {
        for value in wrong.as_array().expect("a list") {
            let refusal = admin.refused(configuring(ORDERS, json!({name: value})));
            let detail = format!("\"{name}\" must be ");
            let message = "invalid settings of operation \"POST /orders\"";
            let refusal = refusal.mentions(allowed);
            assert_says(refusal, "22023", [message, &detail, "settings"]);
        }
    }
    assert_eq!(rows(&db), 0);
}

/// The function must be there, with its schema, its arguments and its result.
#[test]
fn a_wrong_completion_check_is_refused() {
    let db = Database::fresh();
    db.run(
        "CREATE SCHEMA app; SET search_path = app, public;
         CREATE FUNCTION app.right(text, text, integer) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE FUNCTION app.text(text, text, integer) RETURNS text LANGUAGE sql AS 'SELECT $1';
         CREATE FUNCTION app.two(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE FUNCTION app.wide(text, text, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE TABLE app.relation (x int)",
    );
    let mut admin = admin(&db);
    admin.run("SET search_path = app, public");
    for wrong in [
        "right",
        "app.nothing",
        "nowhere.right",
        "app.text",
        "app.two",
        "app.wide",
        "app.relation",
        "app.\"Right\"",
        "app.right(text, text, integer)",
        "a.app.right",
        "",
        ".",
        "app.",
        "app.right; DROP TABLE app.relation",
        "\"",
    ] {
        let refusal = admin.refused(configuring(ORDERS, json!({"completion_check": wrong})));
        let detail = "\"completion_check\" must be the name of a function, with its schema";
        let message = "invalid settings of operation \"POST /orders\"";
        assert_says(refusal, "22023", [message, detail, "settings"]);
    }
    assert_eq!(rows(&db), 0);
    configure(&db, json!({"completion_check": "app.right"}));
}

#[test]
fn a_wrong_name_is_refused_with_all_right_ones() {
    let db = Database::fresh();
    let mut admin = admin(&db);
    for wrong in ["modes", "Mode", "", "wait", "purge_interval"] {
        let refusal = admin.refused(configuring(ORDERS, json!({"mode": "required", wrong: "x"})));
        let message = "invalid settings of operation \"POST /orders\"";
        let refusal = refusal.expect_ours("22023").mentions(&format!("\"{wrong}\" must be one of"));
        let detail = refusal.db().detail().unwrap_or_default().to_owned();
        for name in NAMES {
            assert!(detail.contains(name), "{name} in {detail}");
        }
        assert_says(refusal, "22023", [message, "", "settings"]);
    }
    assert_eq!(rows(&db), 0, "all or nothing");
}

/// A misspelt name is an error in every patch: here it would leave a setting that was to go.
#[test]
fn a_wrong_name_is_refused_with_null_too() {
    let db = Database::fresh();
    configure(&db, json!({"completion_check": null, "mode": "required"}));
    let refusal = admin(&db).refused(configuring(ORDERS, json!({"completion_chek": null})));
    let message = "invalid settings of operation \"POST /orders\"";
    assert_says(refusal, "22023", [message, "\"completion_chek\" must be one of", "settings"]);
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let db = Database::fresh();
    configure(&db, json!({"key_max_length": 8}));
    for (patch, setting, allowed) in [
        (json!({"key_min_length": 9}), "key_min_length", "at most key_max_length"),
        (json!({"late_retry": "refuse"}), "late_retry", "key_format is \"uuidv7\""),
        (json!({"late_retry": "refuse", "key_format": "uuidv4"}), "late_retry", "\"uuidv7\""),
    ] {
        let refusal = admin(&db).refused(configuring(ORDERS, patch)).mentions(allowed);
        let detail = format!("\"{setting}\" must be ");
        assert_says(
            refusal,
            "22023",
            ["invalid settings of operation \"POST /orders\"", &detail, "settings"],
        );
    }
    assert_eq!(stored(&db), json!({"key_max_length": 8}), "what was refused left no trace");
}

#[test]
fn arguments_that_are_no_settings_are_refused() {
    let db = Database::fresh();
    let mut admin = admin(&db);
    for other in [json!([]), json!("mode"), json!(1), Value::Null] {
        let refusal = admin.refused(configuring(ORDERS, other));
        assert_says(
            refusal,
            "22023",
            ["settings must be an object", "another JSON value", "object"],
        );
    }
    let configure = || Call::new("idempotency_configure");
    for (missing, call) in [
        ("settings", configure().with("operation", ORDERS).with("settings", None::<Value>)),
        ("operation", configure().with("operation", None::<&str>).with("settings", json!({}))),
    ] {
        admin.refused(call).expect("22004").mentions(&format!("{missing} must not be null"));
    }
    let refusal = admin.refused(configuring(&"o".repeat(256), json!({})));
    assert_says(refusal, "22023", ["operation is too long", "256 bytes", "shorter"]);
    admin
        .refused(configuring(ORDERS, json!({"key_space": "x".repeat(70_000)})))
        .expect_ours("22023");
    assert_eq!(rows(&db), 0);
}

// ---- merge patch ---------------------------------------------------------------------------

#[test]
fn a_patch_changes_what_it_names_and_nothing_else() {
    let db = Database::fresh();
    configure(&db, json!({"wait_ms": 5, "mode": "required", "retention": "1 day"}));
    let settings = configure(&db, json!({"wait_ms": null, "mode": "optional", "form": "resource"}));
    assert_eq!(settings, json!({"mode": "optional", "form": "resource", "retention": "1 day"}));
    assert_eq!(stored(&db), settings);
    assert_eq!(configure(&db, json!({})), settings, "an empty patch reads");
    configure_operation(&db, "POST /other", json!({"mode": "ignored"}));
    assert_eq!(stored(&db), settings, "each operation has its own");
}

#[test]
fn null_puts_a_setting_back_to_its_default() {
    let db = Database::fresh();
    let mut session = db.session("session");
    configure(&db, json!({"mode": "required", "invalid_status": 422}));
    session.call(claim(None::<&str>)).expect("invalid").expect_problem(422);
    configure(&db, json!({"invalid_status": null}));
    session.call(claim(None::<&str>)).expect("invalid").expect_problem(400);
    configure(&db, json!({"mode": null, "retention": null}));
    session.call(claim(None::<&str>)).expect("bypassed");
    assert_eq!(stored(&db), json!({}));
}

/// Two administrators change different settings at once: neither change is lost.
#[test]
fn concurrent_patches_are_both_kept() {
    let db = Database::fresh();
    configure(&db, json!({"mode": "required"}));
    let (mut one, mut other) = (admin(&db), admin(&db));
    one.run("BEGIN");
    one.rows(configuring(ORDERS, json!({"wait_ms": 5})));
    other.start(configuring(ORDERS, json!({"max_waiters": 7})));
    db.wait_until_blocked(&other, &one);
    one.run("COMMIT");
    other.finish().expect("it goes on");
    assert_eq!(stored(&db), json!({"mode": "required", "wait_ms": 5, "max_waiters": 7}));
}

// ---- presets -------------------------------------------------------------------------------

#[test]
fn a_preset_sets_what_its_design_needs() {
    let db = Database::fresh();
    assert_eq!(
        configure(&db, json!({"preset": "unit_of_work"})),
        json!({"key_space": "unit_of_work", "key_format": "uuidv7", "key_quoting": "raw", "fingerprint": "required",
               "body_format": "strict_json", "replay_header": "Idempotent-Replay"}),
    );
    let create = configure_operation(&db, "POST /create", json!({"preset": "create"}));
    for (name, value) in [
        ("key_quoting", json!("raw")),
        ("key_max_length", json!(64)),
        ("invalid_status", json!(422)),
        ("fingerprint", json!("ignored")),
        ("form", json!("resource")),
        ("kept_statuses", json!("{[200,300)}")),
        ("wait_ms", json!(-1)),
    ] {
        assert_eq!(create[name], value, "{name}");
    }
}

/// In one patch and in a later one.
#[test]
fn other_settings_go_over_a_preset() {
    let db = Database::fresh();
    let patch =
        json!({"wait_ms": 5, "preset": "create", "invalid_status": null, "mode": "required"});
    let settings = configure(&db, patch);
    assert_eq!((&settings["wait_ms"], &settings["mode"]), (&json!(5), &json!("required")));
    assert_eq!(settings["key_max_length"], 64);
    let mut session = db.session("session");
    session.call(claim(" ")).expect("invalid").expect_problem(400);
    configure(&db, json!({"invalid_status": 409}));
    session.call(claim(" ")).expect("invalid").expect_problem(409);
}
