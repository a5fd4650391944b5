//! The worker is killed at every step, the completer too, the payment service fails in every way:
//! one ride, one charge, one answer.

mod support;

use pg_idempotency_tests::wait;
use support::service::Mood;
use support::worker::{BODY, PATIENT, STEPS, Town};

/// The steps behind which the request is the database's: from here on a completer finishes it.
fn is_left_behind(step: &str) -> bool {
    let at = |name| STEPS.iter().position(|step| *step == name);
    at(step) >= at("created and committed") && step != "confirmed and committed"
}

/// Runs a request up to a step and kills it there.
fn kill_a_request_at(town: &Town, step: &str) {
    let mut worker = town.start_request(step);
    worker.stands_at(step);
    town.kill(worker);
}

fn wait_for_calls(town: &Town, count: usize) {
    wait::until("the payment service is called", || {
        (town.service.calls().len() == count).then_some(())
    });
}

#[test]
fn nobody_dies() {
    let town = Town::new();
    let answer = town.request();
    town.assert_all_is_well(&answer);
    assert_eq!(town.service.calls().len(), 1);
}

/// Whatever the worker had done, the client that asks again is told the same as every other.
#[test]
fn the_worker_is_killed_at_every_step() {
    for step in STEPS {
        let town = Town::new();
        kill_a_request_at(&town, step);
        if is_left_behind(step) {
            assert!(town.request().starts_with("409 "), "a live lease, behind {step}");
        }
        town.run_out();
        let completed = town.complete();
        assert_eq!(completed.lines().count(), usize::from(is_left_behind(step)), "behind {step}");
        let answer = town.request();
        assert!(completed.is_empty() || completed == answer, "{completed} is not {answer}");
        town.assert_all_is_well(&answer);
        let calls = if step == "charged" { 2 } else { 1 };
        assert_eq!(town.service.calls().len(), calls, "calls, killed at {step}");
    }
}

/// A client that comes back in time needs no completer: its own retry takes over.
#[test]
fn the_client_itself_takes_over() {
    for step in STEPS.into_iter().filter(|step| is_left_behind(step)) {
        let town = Town::new();
        kill_a_request_at(&town, step);
        town.run_out();
        let answer = town.request();
        town.assert_all_is_well(&answer);
    }
}

/// A completer is a worker like any other, and dies like one.
#[test]
fn the_completer_is_killed_at_every_step() {
    for step in STEPS {
        let town = Town::new();
        kill_a_request_at(&town, "created and committed");
        town.run_out();
        let mut completer = town.start(&["complete"], step, PATIENT);
        completer.stands_at(step);
        town.kill(completer);
        town.run_out();
        let completed = town.complete();
        assert_eq!(completed.is_empty(), step == "confirmed and committed", "behind {step}");
        let answer = town.request();
        town.assert_all_is_well(&answer);
    }
}

/// In the middle of the call: the charge is made, nobody has heard of it.
#[test]
fn the_worker_is_killed_during_the_call() {
    let town = Town::new();
    town.service.be(Mood::Silent);
    let worker = town.start_request("");
    wait_for_calls(&town, 1);
    town.kill(worker);
    town.service.be(Mood::Good);
    town.run_out();
    let answer = town.complete();
    town.assert_all_is_well(&answer);
    assert_eq!(town.service.calls().len(), 2);
}

/// The service fails, before it has charged and after; its clients are told to wait, and nobody but
/// the completer asks again.
#[test]
fn the_payment_service_fails() {
    for mood in [Mood::Failing, Mood::FailingLate] {
        let town = Town::new();
        town.service.be(mood);
        assert_eq!(town.request(), "503 payment pending\n");
        assert!(town.request().starts_with("409 "), "a live lease");
        town.run_out();
        assert_eq!(town.complete(), "503 payment pending\n");
        assert_eq!(town.service.calls().len(), 2);
        town.service.be(Mood::Good);
        town.run_out();
        let answer = town.complete();
        town.assert_all_is_well(&answer);
        assert_eq!(town.service.calls().len(), 3);
    }
}

/// The worker gives up waiting; the charge was made.
#[test]
fn the_payment_service_does_not_answer_in_time() {
    let town = Town::new();
    town.service.be(Mood::Silent);
    let worker = town.start(&["request", "alice", "k", BODY], "", 200);
    assert_eq!(worker.finish(), "503 payment pending\n");
    assert_eq!(town.service.charges().len(), 1);
    town.service.be(Mood::Good);
    town.run_out();
    let answer = town.complete();
    town.assert_all_is_well(&answer);
}

/// A decline is an answer: recorded, and the same for everybody.
#[test]
fn the_card_is_declined() {
    let town = Town::new();
    town.service.be(Mood::Declining);
    let answer = town.request();
    assert_eq!(answer, "402 {\"ride\": 1, \"charge\": null}\n");
    town.service.be(Mood::Good);
    assert_eq!(town.request(), answer);
    assert_eq!((town.complete().as_str(), town.service.charges().len()), ("", 0));
    town.assert_one_ride("alice 1250 declined");
    assert_eq!(town.service.calls().len(), 1);
}

/// A worker that is not dead, only slow: when it is back, its request has been finished by somebody
/// else. Its own writes fail, and its client gets the answer all the same.
#[test]
fn a_slow_worker_is_stopped_by_its_checkpoint() {
    let town = Town::new();
    town.service.be(Mood::Silent);
    let slow = town.start_request("");
    wait_for_calls(&town, 1);
    town.service.be(Mood::Good);
    town.run_out();
    let completed = town.complete();
    town.service.speak();
    assert_eq!(slow.finish(), completed);
    town.assert_all_is_well(&completed);
    assert_eq!(town.service.calls().len(), 2);
}

/// Behind its last checkpoint it is the resume that stops a slow worker.
#[test]
fn a_slow_worker_is_stopped_by_its_resume() {
    let town = Town::new();
    let mut slow = town.start_request("charged and committed");
    slow.stands_at("charged and committed");
    town.run_out();
    let completed = town.complete();
    slow.goes_on();
    assert_eq!(slow.finish(), completed);
    town.assert_all_is_well(&completed);
    assert_eq!(town.service.calls().len(), 1);
}

/// Within its last phase a worker holds the key: whoever wants to take over has to wait, and then
/// there is nothing to take over.
#[test]
fn a_slow_worker_in_its_last_phase_finishes() {
    let town = Town::new();
    let mut slow = town.start_request("resumed");
    slow.stands_at("resumed");
    town.run_out();
    let completer = town.start(&["complete"], "", PATIENT);
    town.db.wait_until("EXISTS (SELECT FROM pg_stat_activity WHERE pg_blocking_pids(pid) <> '{}')");
    slow.goes_on();
    let answer = slow.finish();
    assert_eq!(completer.finish(), answer, "the completer is told the same");
    town.assert_all_is_well(&answer);
    assert_eq!(town.service.calls().len(), 1);
}

/// Another order under the same key is told so, finished or not.
#[test]
fn another_order_under_the_same_key() {
    let town = Town::new();
    let other = ["request", "alice", "k", r#"{"rider": "alice", "fare": 9}"#];
    kill_a_request_at(&town, "created and committed");
    assert!(town.start(&other, "", PATIENT).finish().starts_with("422 "));
    town.run_out();
    let answer = town.complete();
    assert!(town.start(&other, "", PATIENT).finish().starts_with("422 "));
    town.assert_all_is_well(&answer);
}
