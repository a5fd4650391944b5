//! Answers of the business that are errors, and errors that are no answers.

use crate::http::Answer;
use crate::world::{User, World};

const SOLD_OUT: &str = "{\"error\": \"not in stock\"}";

fn set_pieces(user: &User<'_>, pieces: i32) {
    user.db().run(&format!("UPDATE stock SET pieces = {pieces} WHERE item = '{}'", user.name));
}

/// The savepoint recipe. Catches a refusal that is not recorded, and one whose order stays.
pub fn a_refusal_is_kept_and_its_effects_are_not(world: &World) {
    let user = world.user("sold out");
    set_pieces(&user, 0);
    let refused = user.send("k");
    refused.expect_json(409, SOLD_OUT);
    assert!(!refused.is_replay());
    assert_eq!((user.orders(), user.pieces(), user.records()), (0, 0, 1));
    set_pieces(&user, 1000);
    assert_eq!(user.send("k"), refused.replayed(), "the answer is final");
    assert_eq!(user.orders(), 0);
    user.assert_created(&user.send("another"), "{\"item\": \"sold out\"}", false);
    let unknown = user.order_with("{\"item\": \"no such item\"}").keyed("unknown");
    world.service().answer(&unknown).expect_json(409, SOLD_OUT);
    assert_eq!((user.orders(), user.pieces(), user.records()), (1, 999, 3));
}

pub fn a_request_that_makes_no_sense_is_refused_for_good(world: &World) {
    let user = world.user("nonsense");
    let bodies: [&[u8]; 16] = [
        b"",
        b"{\"item\": ",
        b"[]",
        b"{\"item\": 5}",
        b"{\"item\": null}",
        b"{\"ITEM\": \"nonsense\"}",
        b"\"item\"",
        b"{\"item\": \"nonsense\"} {}",
        b"{\"item\": \"nonsense\", \"n\": NaN}",
        // Not UTF-8: in the item, beside it, between; cut off, too long, a surrogate; UTF-16.
        b"{\"item\": \"nonsense\xff\"}",
        b"{\"item\": \"nonsense\", \"n\": \"\xe2\x82\"}",
        b"{\"item\": \"nonsense\", \"n\": \"\xc0\x80 \xed\xa0\x80\"}",
        b"{\"item\": \"nonsense\"}\xff",
        b"\xff\xfe{\0\"\0i\0t\0e\0m\0\"\0:\0\"\0n\0\"\0}\0",
        // What PostgreSQL's text cannot hold.
        b"{\"item\": \"nonsense\\u0000\"}",
        b"{\"item\": \"nonsense\", \"n\": \"\0\"}",
    ];
    for (n, body) in bodies.iter().enumerate() {
        let request = user.order_with(body).keyed(format!("k{n}"));
        let refused = world.service().answer(&request);
        refused.expect_json(400, "{\"error\": \"a JSON object with an item is wanted\"}");
        assert_eq!(world.service().answer(&request), refused.replayed(), "{body:?}");
    }
    assert_eq!((user.orders(), user.records()), (0, bodies.len() as i64));
}

/// Catches a service that commits what is `released`. The operation keeps nothing but successes here.
pub fn an_answer_that_is_not_kept_leaves_nothing(world: &World) {
    let world = world.another();
    let user = world.user("released");
    world
        .db()
        .run(r#"SELECT idempotency_configure('POST /orders', '{"kept_statuses": "{[200,300)}"}')"#);
    set_pieces(&user, 0);
    for _ in 0..2 {
        let refused = user.send("k");
        refused.expect_json(409, SOLD_OUT);
        assert!(!refused.is_replay());
        assert_eq!((user.orders(), user.records()), (0, 0));
    }
    set_pieces(&user, 1000);
    let first = user.send("k");
    user.assert_created(&first, "{\"item\": \"released\"}", false);
    assert_eq!(user.send("k"), first.replayed());
    user.assert_one_effect();
}

/// An error that nobody has foreseen: 500, nothing is recorded, and a retry is executed.
pub fn after_an_error_of_the_database_a_retry_is_executed(world: &World) {
    let user = world.user("trouble");
    user.db().run("INSERT INTO trouble VALUES ('trouble')");
    let Answer { status, .. } = user.send("k");
    assert_eq!(status, 500);
    user.assert_no_effect();
    user.db().run("DELETE FROM trouble");
    let first = user.send("k");
    user.assert_created(&first, "{\"item\": \"trouble\"}", false);
    assert_eq!(user.send("k"), first.replayed());
    user.assert_one_effect();
}
