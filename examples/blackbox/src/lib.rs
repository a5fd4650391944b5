//! One test for all the example services, over HTTP and the database's own view: the same requests, the
//! same answers, and never a second effect.
//!
//! A service is a folder beside this one, with a program `build` and a program `run` that takes
//! `DATABASE_URL` and `PORT` and prints where it listens. `tests/NAME.rs` is one line.

pub mod http;
pub mod scenarios;
pub mod service;
pub mod world;

/// All scenarios as tests of the service in the folder `examples/NAME`.
#[macro_export]
macro_rules! tests_of {
    ($name:literal) => {
        $crate::tests_of!($name:
            answers::a_first_request_and_its_retries,
            answers::the_bytes_of_the_answer_are_kept,
            answers::an_answer_without_a_body_is_sent_without_one,
            answers::a_query_makes_no_other_request,
            answers::a_retry_written_otherwise_is_the_same_request,
            answers::another_request_under_the_same_key_is_refused,
            answers::a_key_is_wanted_and_must_be_one,
            answers::keys_are_told_apart_byte_for_byte,
            answers::two_keys_in_one_request_are_refused,
            answers::keys_of_different_users_do_not_meet,
            answers::without_a_user_nothing_happens,
            refusals::a_refusal_is_kept_and_its_effects_are_not,
            refusals::a_request_that_makes_no_sense_is_refused_for_good,
            refusals::an_answer_that_is_not_kept_leaves_nothing,
            refusals::after_an_error_of_the_database_a_retry_is_executed,
            together::fifty_duplicates_at_once_have_one_effect,
            together::a_duplicate_that_has_waited_enough_is_told_so,
            together::a_serialization_failure_is_tried_again,
            together::a_deadlock_is_tried_again,
            kills::a_service_killed_in_its_work_has_no_effect,
            kills::a_service_killed_in_its_commit_has_one_effect,
            kills::a_backend_that_is_terminated_has_no_effect,
            poolers::behind_pgbouncer_everything_is_the_same,
        );
    };
    ($name:literal: $($file:ident::$scenario:ident,)*) => {
        $(
            #[test]
            fn $scenario() {
                $crate::scenarios::$file::$scenario($crate::world::World::of($name));
            }
        )*
    };
}
