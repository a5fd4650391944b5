//! Several at once. A scenario knows that they are: the database says who waits for whom.

use crate::http;
use crate::world::{As, POOL, World};
use pg_idempotency_tests::prelude::*;
use std::thread;

/// The first stands in its work, duplicates take all the other connections, the rest queue up in the service.
pub fn fifty_duplicates_at_once_have_one_effect(world: &World) {
    let user = world.user("fifty");
    let service = world.service();
    let mut holder = user.hold_stock();
    let answers: Vec<_> = thread::scope(|scope| {
        let first = user.send_to(scope, service, "k");
        let working = user.wait_until_blocked_by(&holder);
        let others: Vec<_> = (1..50).map(|_| user.send_to(scope, service, "k")).collect();
        // Other scenarios may have connections of the pool at this moment, but not for long.
        user.wait_until_behind(working, POOL - 1);
        holder.run("COMMIT");
        let all = std::iter::once(first).chain(others);
        all.map(|one| one.join().expect("no thread panics").expect("an answer")).collect()
    });
    let executed: Vec<_> = answers.iter().filter(|answer| !answer.is_replay()).collect();
    assert_eq!((answers.len(), executed.len()), (50, 1), "one is the first");
    user.assert_created(executed[0], "{\"item\": \"fifty\"}", false);
    let replay = executed[0].replayed();
    assert!(answers.iter().all(|answer| answer == executed[0] || *answer == replay));
    user.assert_one_effect();
}

pub fn a_duplicate_that_has_waited_enough_is_told_so(world: &World) {
    let user = world.user("impatient");
    let service = world.start(As::Impatient);
    let mut holder = user.hold_stock();
    thread::scope(|scope| {
        let first = user.send_to(scope, &service, "k");
        user.wait_until_blocked_by(&holder);
        let told = service.answer(&user.order().keyed("k"));
        told.expect_problem(409, "A request with this idempotency key is still being executed.");
        let seconds = told.header("retry-after").expect("when to come again");
        assert!(seconds.parse::<u32>().expect("seconds") >= 1);
        holder.run("COMMIT");
        let first = first.join().expect("no thread panics").expect("an answer");
        user.assert_created(&first, "{\"item\": \"impatient\"}", false);
        assert_eq!(service.answer(&user.order().keyed("k")), first.replayed());
    });
    user.assert_one_effect();
}

/// At REPEATABLE READ, an item that somebody else has just bought is 40001.
pub fn a_serialization_failure_is_tried_again(world: &World) {
    let user = world.user("conflict");
    let service = world.start(As::Repeatable);
    let log = world.db().server().log_length();
    let mut other = user.db().session_as(Role::Superuser, "other");
    other.run("BEGIN; UPDATE stock SET pieces = pieces WHERE item = 'conflict'");
    thread::scope(|scope| {
        let request = user.send_to(scope, &service, "k");
        user.wait_until_blocked_by(&other);
        other.run("COMMIT");
        let answer = request.join().expect("no thread panics").expect("an answer");
        user.assert_created(&answer, "{\"item\": \"conflict\"}", false);
    });
    let said = world.db().server().log_from(log);
    assert!(said.contains("could not serialize access due to concurrent update"), "{said}");
    user.assert_one_effect();
}

/// The service inserts its order, which takes a lock of ours, and waits for the item; whoever has the item
/// asks for that lock. The service looks for deadlocks first, so it is the one that gives way.
pub fn a_deadlock_is_tried_again(world: &World) {
    let user = world.user("deadlock");
    let service = world.start(As::Patient);
    let log = world.db().server().log_length();
    let mut holder = user.hold_stock();
    holder.run("SET deadlock_timeout = '1min'");
    thread::scope(|scope| {
        let request = user.send_to(scope, &service, "k");
        user.wait_until_blocked_by(&holder);
        holder.run("SELECT pg_advisory_xact_lock(4712); COMMIT");
        let answer = request.join().expect("no thread panics").expect("an answer");
        user.assert_created(&answer, "{\"item\": \"deadlock\"}", false);
    });
    let said = world.db().server().log_from(log);
    assert!(said.contains("deadlock detected"), "{said}");
    let again = http::send(service.address(), &user.order().keyed("k")).expect("an answer");
    assert!(again.is_replay());
    user.assert_one_effect();
}
