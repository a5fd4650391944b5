//! Behind PgBouncer in transaction mode.

use crate::world::{As, World};
use pg_idempotency_tests::pooler::Pooler;
use std::thread;

/// What is to be said in the connection string of a driver, so that it leaves nothing in a connection.
fn options(name: &str) -> &'static str {
    match name {
        "jdbc" => "?prepareThreshold=0",
        "go" => "?binary_parameters=yes",
        _ => "",
    }
}

/// Two processes of the service share two connections, so what one leaves in them the other meets: prepared
/// statements above all. More requests than any driver waits for before it prepares.
pub fn behind_pgbouncer_everything_is_the_same(world: &World) {
    let user = world.user("pooled");
    let server = world.db().server();
    let pooler = Pooler::listening(server, "examples-pooler", 2, world.password());
    let start = || world.start_at(As::Usual, pooler.port(), options(world.name()));
    let services = [start(), start()];
    for n in 0..12 {
        let request = user.order().keyed(format!("k{n}"));
        let first = services[n % 2].answer(&request);
        user.assert_created(&first, "{\"item\": \"pooled\"}", false);
        for service in &services {
            assert_eq!(service.answer(&request), first.replayed());
        }
    }
    let answers: Vec<_> = thread::scope(|scope| {
        let send = |n: usize| user.send_to(scope, &services[n % 2], "together");
        let all: Vec<_> = (0..20).map(send).collect();
        all.into_iter()
            .map(|one| one.join().expect("no thread panics").expect("an answer"))
            .collect()
    });
    assert_eq!(answers.iter().filter(|answer| !answer.is_replay()).count(), 1);
    assert!(answers.iter().all(|answer| (answer.status, &answer.body) == (201, &answers[0].body)));
    assert_eq!((user.orders(), user.pieces(), user.records()), (13, 987, 13));
}
