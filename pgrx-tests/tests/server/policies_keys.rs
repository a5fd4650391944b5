//! What settings make of keys: format, quoting, length, and the answer to an invalid one.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use serde_json::{Value, json};

const V4: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
const V7: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const V1: &str = "c232ab00-9414-11ec-b3c8-9f68deced846";

/// Claims and looks up each key, and checks what is wrong with it: nothing, or this code.
#[track_caller]
fn assert_judged(db: &Database<'_>, settings: Value, keys: &[(&str, Option<&str>)]) {
    let settings = configure(db, settings);
    let mut session = db.session("session");
    for (key, code) in keys {
        let (claimed, looked_up) = (session.call(claim(*key)), session.call(replay(*key)));
        match code {
            None => assert_eq!(
                (&*claimed.outcome, &*looked_up.outcome),
                ("claimed", "unknown"),
                "{key:?} {settings}"
            ),
            Some(code) => {
                assert_invalid(&claimed, 400, code);
                assert_eq!(looked_up, claimed, "replay says the same");
            }
        }
    }
    assert_eq!((db.records(), db.keys_held()), (0, 0));
}

// ---- format, quoting, length ---------------------------------------------------------------

const BAD: Option<&str> = Some("invalid_format");

#[test]
fn opaque_keys_are_anything_a_header_can_carry() {
    let db = Database::fresh();
    let keys = [
        ("abc", None),
        ("\u{e9} \u{1f600}", None),
        ("a;c=d", None),
        ("\"a,b;c=d\"", None),
        ("a,b;c=d", BAD),
        (V7, None),
        ("a\u{7}b", BAD),
        ("a\nb", BAD),
    ];
    assert_judged(&db, json!({"key_format": "opaque"}), &keys);
}

#[test]
fn uuids_are_told_by_version_and_have_one_form() {
    let db = Database::fresh();
    let bare = V4.replace('-', "");
    let (braced, urn, pair) =
        (format!("{{{V7}}}"), format!("urn:uuid:{V7}"), format!("{V7}, {V7}"));
    let wrong_variant = V7.replace("-bcce-", "-0cce-");
    let malformed = [
        ("abc", BAD),
        (&*bare, BAD),
        (&*braced, BAD),
        (&*urn, BAD),
        (&*pair, BAD),
        ("", BAD),
        (" ", BAD),
    ];
    for (format, v1, v4, v7) in
        [("uuid", None, None, None), ("uuidv4", BAD, None, BAD), ("uuidv7", BAD, BAD, None)]
    {
        let mut keys = vec![(V1, v1), (V4, v4), (V7, v7)];
        if format == "uuidv7" {
            keys.push((&wrong_variant, BAD));
        }
        keys.extend(malformed);
        assert_judged(&db, json!({"key_format": format}), &keys);
    }
}

/// RFC 9562 section 4: upper case on input is the same UUID.
#[test]
fn uuids_fold_to_lower_case_and_opaque_keys_do_not() {
    let db = Database::fresh();
    let mut session = db.session("session");
    configure(&db, json!({"key_format": "uuidv4"}));
    execute(&mut session, claim(V4.to_uppercase()), complete(204));
    for same in [V4.to_owned(), V4.to_uppercase(), format!(" \"{V4}\" ")] {
        session.call(claim(same)).expect("replayed");
    }
    assert_eq!(db.value::<String>("SELECT key FROM idempotency.records"), V4);
    configure(&db, json!({"key_format": "opaque"}));
    session.call(claim(V4.to_uppercase())).expect("claimed");
}

#[test]
fn quoting_can_be_demanded_and_switched_off() {
    let db = Database::fresh();
    let torn = [("\"abc", BAD), ("\"a\"b\"", BAD), ("\"abc\";p=", BAD), ("\"\u{e9}\"", BAD)];
    let either =
        [&[("abc", None), ("\"abc\"", None), ("\"a\\\"b\"", None), ("a\"b", None)][..], &torn]
            .concat();
    assert_judged(&db, json!({"key_quoting": "either"}), &either);
    let quoted = [&[("abc", BAD), ("\"abc\"", None)][..], &torn].concat();
    assert_judged(&db, json!({"key_quoting": "quoted"}), &quoted);
    let raw = ["abc", "\"abc\"", "\"abc", "\"a\"b\"", "\"\u{e9}\""].map(|key| (key, None));
    assert_judged(&db, json!({"key_quoting": "raw"}), &raw);
}

#[test]
fn a_quoted_key_is_the_raw_one_except_where_quotes_are_part_of_it() {
    let db = Database::fresh();
    let mut session = db.session("session");
    execute(&mut session, claim("\"k\""), complete(204));
    session.call(claim("k")).expect("replayed");
    configure(&db, json!({"key_quoting": "raw"}));
    session.call(claim("\"k\"")).expect("claimed");
    session.call(claim("k")).expect("replayed");
}

/// Catches two lines of the header, joined by a proxy or a framework, that are taken for one key: who sends
/// `fixed` and `attempt-1`, then `fixed` and `attempt-2`, would execute twice.
#[test]
fn a_header_names_one_key() {
    let db = Database::fresh();
    let two_lines =
        ["k1, k2", "k1,k2", "fixed, attempt-1", "\"k1\", \"k2\"", "\"k1\", k2", "k1, \"k2\""];
    let invalid: Vec<(&str, Option<&str>)> = two_lines.iter().map(|lines| (*lines, BAD)).collect();
    for quoting in ["either", "quoted"] {
        assert_judged(&db, json!({"key_quoting": quoting}), &invalid);
    }
    let fine: Vec<(&str, Option<&str>)> = two_lines.iter().map(|lines| (*lines, None)).collect();
    assert_judged(&db, json!({"key_quoting": "raw"}), &fine);
}

/// A quoted key is an Item of RFC 8941, which may have parameters; they are no part of the key.
#[test]
fn parameters_behind_a_quoted_key_mean_nothing() {
    let db = Database::fresh();
    let mut session = db.session("session");
    execute(&mut session, claim("\"k\""), complete(204));
    for key in ["\"k\";p=1", "\"k\"; p=\"a,b\";q"] {
        session.call(claim(key)).expect("replayed");
    }
    let db = Database::fresh();
    let malformed =
        ["\"k\";", "\"k\";P=1", "\"k\" ;p=1", "\"k\";p=", "\"k\"p=1"].map(|key| (key, BAD));
    assert_judged(&db, json!({}), &malformed);
}

/// What the client's developer reads says what to change.
#[test]
fn refusals_name_the_limit() {
    let db = Database::fresh();
    let mut session = db.session("session");
    let mut assert_detail = |settings: Value, key: &str, detail: &str| {
        configure(&db, settings);
        let problem = session.call(claim(key)).expect("invalid").expect_problem(400);
        assert!(problem["detail"].as_str().expect("a text").ends_with(detail), "{problem}");
        assert_eq!(problem["errors"][0]["detail"], problem["detail"]);
    };
    assert_detail(json!({"key_max_length": 4}), "abcde", "at most 4 characters.");
    assert_detail(
        json!({"key_max_length": null, "key_min_length": 16}),
        "abcde",
        "at least 16 characters.",
    );
    assert_detail(json!({"key_min_length": null}), "", "at least 1 character.");
    assert_detail(json!({}), &"\u{e9}".repeat(128), "at most 255 bytes.");
    assert_detail(json!({"key_format": "uuidv7"}), "abc", "is not a UUID of version 7.");
}

#[test]
fn lengths_are_characters_and_the_hard_limit_is_bytes() {
    let db = Database::fresh();
    let (short, long) = (Some("too_short"), Some("too_long"));
    let keys = [
        ("a", short),
        ("\u{e9}", short),
        ("\u{e9}\u{e9}", None),
        ("\u{1f600}bcd", None),
        ("abcde", long),
        ("  abcd  ", None),
        ("\"abcd\"", None),
        ("", short),
    ];
    assert_judged(&db, json!({"key_min_length": 2, "key_max_length": 4}), &keys);
    let (bytes_255, bytes_256) = ("\u{e9}".repeat(127) + "a", "\u{1f600}".repeat(64));
    let (chars_255, chars_256) = ("a".repeat(255), "a".repeat(256));
    let keys = [
        (&*bytes_255, None),
        (&*bytes_256, long),
        (&*chars_255, None),
        (&*chars_256, long),
        (" ", short),
    ];
    assert_judged(&db, json!({"key_min_length": null, "key_max_length": null}), &keys);
}

// ---- what an invalid key leaves ------------------------------------------------------------

#[test]
fn an_invalid_key_leaves_nothing_and_the_transaction_goes_on() {
    let db = Database::fresh();
    configure(&db, json!({"key_format": "uuidv7", "mode": "required", "invalid_status": 422}));
    let mut session = db.session("session");
    session.run("BEGIN");
    assert_invalid(&session.call(claim("abc")), 422, "invalid_format");
    assert_invalid(&session.call(claim(None::<&str>)), 422, "missing");
    session.refused_inside_savepoint(complete(200), "IK002");
    assert!(!session.has_transaction_id() && db.key_locks_of(&session) == 0);
    session.run("INSERT INTO orders (key) VALUES ('k'); COMMIT");
    assert_eq!((db.orders("k"), db.records()), (1, 0), "the guard has nothing to guard");
}

#[test]
fn of_many_keys_each_is_judged_on_its_own() {
    let db = Database::fresh();
    configure(&db, json!({"key_format": "uuidv4", "key_quoting": "raw"}));
    let mut session = db.session("session");
    session.run("BEGIN");
    let rows = session.rows(claim_many(&["abc", V4, V7]));
    let outcomes: Vec<Outcome> = rows.iter().map(Outcome::from).collect();
    assert_invalid(&outcomes[0], 400, "invalid_format");
    assert_eq!(outcomes[1].outcome, "claimed");
    assert_invalid(&outcomes[2], 400, "invalid_format");
    assert_eq!(db.keys_held(), 1);
}
