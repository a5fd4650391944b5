//! One request after the other.

use crate::http::Request;
use crate::world::World;

pub fn a_first_request_and_its_retries(world: &World) {
    let user = world.user("first");
    let first = user.send("k");
    user.assert_created(&first, "{\"item\": \"first\"}", false);
    for _ in 0..3 {
        assert_eq!(user.send("k"), first.replayed(), "the same bytes, and the header that says so");
    }
    assert_eq!(user.send("\"k\""), first.replayed(), "the same key, written as a quoted string");
    user.assert_one_effect();
    let place = first.header("location").expect("where it is");
    let read = |name| world.service().answer(&Request::get(place).with("Authorization", name));
    read("Bearer first").expect_json(200, first.text());
    read("Bearer somebody").expect_json(404, "{\"error\": \"no such order\"}");
}

/// Catches a body that goes through a JSON library, a character set, or jsonb, on either way.
pub fn the_bytes_of_the_answer_are_kept(world: &World) {
    let user = world.user("bytes");
    let bodies = [
        "{ \"item\" :\t\"bytes\"  ,\r\n \"n\": 123456789012345678901234567890, \"f\": 1.10E+2 }\n",
        "{\"item\": \"bytes\", \"escaped\": \"\\u00e9\\u20ac\\ud83d\\ude00\\/\", \"raw\": \"é€😀\"}",
        "{\"z\": 1, \"item\": \"bytes\", \"a\": 9007199254740993, \"z\": [-0, 1e400]}",
        "{\"item\": \"bytes\", \"like\": \"%s %(x)s $1 ? :name \\\\x00 {} {{0}} '' -- \"}",
    ];
    for (n, body) in bodies.iter().enumerate() {
        let request = user.order_with(body).keyed(format!("k{n}"));
        let first = world.service().answer(&request);
        user.assert_created(&first, body, false);
        assert_eq!(world.service().answer(&request), first.replayed());
        let place = first.header("location").expect("where it is");
        let read =
            world.service().answer(&Request::get(place).with("Authorization", "Bearer bytes"));
        read.expect_json(200, first.text());
    }
    assert_eq!(user.orders(), 4);
}

/// An operator, or another version of the service, may have recorded an answer that has no body.
pub fn an_answer_without_a_body_is_sent_without_one(world: &World) {
    let user = world.user("no body");
    for status in [200, 204] {
        user.db().run(&format!(
            "BEGIN;
             SELECT FROM idempotency_claim('no body', 'POST /orders', 'k{status}',
                 idempotency_fingerprint('POST', '/orders', '{}'));
             SELECT FROM idempotency_complete({status}, headers => '{{\"X-Of\": \"the record\"}}');
             COMMIT",
            user.usual_body()
        ));
        let answer = user.send(&format!("k{status}"));
        assert_eq!((answer.status, answer.text()), (status, ""));
        assert_eq!(answer.header("x-of"), Some("the record"));
        assert!(answer.is_replay());
    }
    assert_eq!((user.orders(), user.records()), (0, 2));
}

/// The fingerprint is of the JSON value; the answer is the first one's, byte for byte.
pub fn a_retry_written_otherwise_is_the_same_request(world: &World) {
    let user = world.user("rewritten");
    let first =
        world.service().answer(&user.order_with("{\"item\": \"rewritten\", \"n\": 10}").keyed("k"));
    let again = user.order_with("{ \"n\":1e1,\n\"item\":\"\\u0072ewritten\" }").keyed("k");
    assert_eq!(world.service().answer(&again), first.replayed());
    user.assert_one_effect();
}

/// The path counts up to its query. Catches a service that takes the query for a part of it.
pub fn a_query_makes_no_other_request(world: &World) {
    let user = world.user("query");
    let first = world.service().answer(&user.order().to("/orders?from=mail").keyed("k"));
    user.assert_created(&first, "{\"item\": \"query\"}", false);
    assert_eq!(world.service().answer(&user.order().keyed("k")), first.replayed());
    user.assert_one_effect();
}

pub fn another_request_under_the_same_key_is_refused(world: &World) {
    let user = world.user("mismatch");
    let first = user.send("k");
    let other = user.order_with("{\"item\": \"mismatch\", \"n\": 2}").keyed("k");
    let refused = world.service().answer(&other);
    refused.expect_problem(422, "This idempotency key was used with another request.");
    assert!(!refused.is_replay());
    assert_eq!(user.send("k"), first.replayed());
    user.assert_one_effect();
}

pub fn a_key_is_wanted_and_must_be_one(world: &World) {
    let user = world.user("keys");
    let problem = |request: Request, detail: &str, code: &str| {
        let answer = world.service().answer(&request);
        answer.expect_problem(400, detail);
        assert!(answer.text().contains(&format!("\"code\":\"{code}\"")), "{}", answer.text());
    };
    let detail = "This operation requires an idempotency key.";
    problem(user.order(), detail, "missing");
    let detail = "The idempotency key is not a string in quotation marks, as RFC 8941 defines it.";
    problem(user.order().keyed("\"no end"), detail, "invalid_format");
    let detail = "The idempotency key is too short: at least 1 character.";
    problem(user.order().keyed(""), detail, "too_short");
    let detail = "The idempotency key is too long: at most 255 characters.";
    problem(user.order().keyed("k".repeat(256)), detail, "too_long");
    user.assert_no_effect();
    let longest = user.send(&"k".repeat(255));
    assert_eq!(user.send(&"k".repeat(255)), longest.replayed());
    user.assert_one_effect();
}

/// Bytes that are no ASCII, and no UTF-8. Catches a service that turns what it cannot read into one
/// character, so that different keys become the same.
pub fn keys_are_told_apart_byte_for_byte(world: &World) {
    let user = world.user("bytes of keys");
    let keys: [&[u8]; 4] = [b"k\xfe", b"k\xff", b"k\xc3\xbf", b"k\xc3\x28"];
    for (n, key) in keys.into_iter().enumerate() {
        let request = user.order().keyed(key);
        let first = world.service().answer(&request);
        user.assert_created(&first, "{\"item\": \"bytes of keys\"}", false);
        assert_eq!(world.service().answer(&request), first.replayed());
        assert_eq!(user.orders(), n as i64 + 1, "{key:?}");
    }
}

/// Catches a service that takes one line of the header for all: a client that sends a fixed one and one for
/// each attempt would be executed once, or at each attempt, as it happens.
pub fn two_keys_in_one_request_are_refused(world: &World) {
    let user = world.user("two keys");
    for (one, other) in [("fixed", "attempt-1"), ("fixed", "fixed"), ("\"a\"", "\"b\"")] {
        let answer = world.service().answer(&user.order().keyed(one).keyed(other));
        let detail =
            "The idempotency key has a comma: send one key, or quote a key that has commas.";
        answer.expect_problem(400, detail);
    }
    user.assert_no_effect();
}

pub fn keys_of_different_users_do_not_meet(world: &World) {
    let (one, two) = (world.user("user one"), world.user("user two"));
    let (first, other) = (one.send("k"), two.send("k"));
    assert!(!first.is_replay() && !other.is_replay());
    assert_ne!(first.header("location"), other.header("location"));
    assert_eq!((one.send("k"), two.send("k")), (first.replayed(), other.replayed()));
    one.assert_one_effect();
    two.assert_one_effect();
}

pub fn without_a_user_nothing_happens(world: &World) {
    let answer =
        world.service().answer(&Request::post("/orders", "{\"item\": \"book\"}").keyed("k"));
    answer.expect_json(401, "{\"error\": \"a bearer is wanted\"}");
    let none = "NOT EXISTS (SELECT FROM orders WHERE item = 'book')";
    assert!(world.db().value::<bool>(&format!("SELECT {none}")));
}
