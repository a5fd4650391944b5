//! Whoever dies, and when: one effect in the end.

use crate::world::{As, World};
use pg_idempotency_tests::prelude::*;
use std::thread;

/// SIGKILL between claim and complete: everything is undone, the key is free, the retry is the first.
pub fn a_service_killed_in_its_work_has_no_effect(world: &World) {
    let user = world.user("killed");
    let mut service = world.start(As::Usual);
    let mut holder = user.hold_stock();
    thread::scope(|scope| {
        let request = user.send_to(scope, &service, "k");
        user.wait_until_blocked_by(&holder);
        service.kill();
        assert_eq!(request.join().expect("no thread panics"), None, "no answer");
    });
    holder.run("COMMIT");
    // It waits for the key until the server has noticed that nobody is there any more.
    let first = user.send("k");
    user.assert_created(&first, "{\"item\": \"killed\"}", false);
    assert_eq!(user.send("k"), first.replayed());
    user.assert_one_effect();
}

/// SIGKILL while COMMIT is under way: the effect is there, the answer is lost, the retry gets it.
pub fn a_service_killed_in_its_commit_has_one_effect(world: &World) {
    let user = world.user("lost answer");
    let mut service = world.start(As::Usual);
    let mut holder = user.db().session_as(Role::Superuser, "holder");
    holder.run("SELECT pg_advisory_lock(4711)");
    thread::scope(|scope| {
        let request = user.send_to(scope, &service, "k");
        user.wait_until_blocked_by(&holder);
        service.kill();
        assert_eq!(request.join().expect("no thread panics"), None, "no answer");
    });
    holder.run("SELECT pg_advisory_unlock(4711)");
    let answer = user.send("k");
    user.assert_created(&answer, "{\"item\": \"lost answer\"}", true);
    user.assert_one_effect();
}

/// The service lives, and says that it does not know.
pub fn a_backend_that_is_terminated_has_no_effect(world: &World) {
    let user = world.user("terminated");
    let mut holder = user.hold_stock();
    thread::scope(|scope| {
        let request = user.send_to(scope, world.service(), "k");
        let backend = user.wait_until_blocked_by(&holder);
        assert!(user.db().value::<bool>(&format!("SELECT pg_terminate_backend({backend})")));
        let answer = request.join().expect("no thread panics").expect("an answer");
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(!answer.is_replay());
    });
    holder.run("COMMIT");
    user.assert_no_effect();
    let first = user.send("k");
    user.assert_created(&first, "{\"item\": \"terminated\"}", false);
    assert_eq!(user.send("k"), first.replayed());
    user.assert_one_effect();
}
