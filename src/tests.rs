//! What one backend can show inside one transaction that is rolled back. Everything about
//! concurrency, commits and crashes is in `pgrx-tests/`, over real connections.

use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use pgrx::prelude::*;

    /// One value of a statement, read as text. By `select`, because pgrx's other ways assign a
    /// transaction id by themselves.
    fn value(sql: &str) -> Option<String> {
        Spi::connect(|client| client.select(sql, Some(1), &[])?.first().get_one::<String>())
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn outcome(call: &str) -> String {
        value(&format!("SELECT outcome FROM {call}")).unwrap_or_default()
    }

    fn has_transaction_id() -> bool {
        value("SELECT pg_current_xact_id_if_assigned()::text").is_some()
    }

    /// Catches pgrx's own ways of running SQL creeping in: they would make the very next claim
    /// IK001, and write WAL for a replay.
    #[pg_test]
    fn what_only_reads_assigns_no_transaction_id() {
        for (call, expected) in [
            ("idempotency_claim('s', 'o', 'k1')", "claimed"),
            ("idempotency_claim(NULL, 'o', 'k')", "bypassed"),
            ("idempotency_claim('s', 'o', ' ')", "invalid"),
            ("idempotency_claim('s', 'o', 'k2')", "claimed"),
            ("idempotency_replay('s', 'o', 'k9')", "unknown"),
            (
                "idempotency_complete(503, token => (SELECT token FROM idempotency_claim('s', 'o', 'k3')))",
                "released",
            ),
        ] {
            assert_eq!(outcome(call), expected, "{call}");
            assert!(!has_transaction_id(), "{call}");
        }
    }

    #[pg_test]
    fn a_completed_claim_is_replayed_in_its_own_transaction() {
        assert_eq!(outcome("idempotency_claim('s', 'o', 'k')"), "claimed");
        assert_eq!(outcome("idempotency_complete(201, '{\"id\": 1}')"), "completed");
        assert!(has_transaction_id());
        assert_eq!(outcome("idempotency_claim('s', 'o', 'k')"), "replayed");
        let body =
            value("SELECT convert_from(body, 'UTF8') FROM idempotency_replay('s', 'o', 'k')");
        assert_eq!(body.as_deref(), Some("{\"id\": 1}"));
    }

    /// Where the system has no more memory, small allocations come out of a reserve. What the calls ask for by
    /// `memory::ensure` is not part of it, so bodies and lists are short here, and names as long as they can be.
    #[pg_test]
    fn the_reserve_is_more_than_the_small_allocations_of_a_call() {
        let longest = "repeat('x', 255)";
        let claim = format!("idempotency_claim({longest}, {longest}, {longest}, sha256('r'))");
        let headers =
            "(SELECT jsonb_object_agg('x-' || n, repeat('v', 500)) FROM generate_series(1, 100) n)";
        let settings =
            "jsonb_build_object('key_space', repeat('k', 255), 'replay_header', repeat('h', 60))";
        for call in [
            format!("SELECT outcome FROM {claim}"),
            format!("SELECT outcome FROM idempotency_complete(201, '{{}}', headers => {headers})"),
            format!("SELECT outcome FROM {claim}"),
            format!("SELECT outcome FROM {}", claim.replace("_claim", "_replay")),
            format!("SELECT idempotency_configure({longest}, {settings})::text"),
            "SELECT encode(idempotency_fingerprint('POST', '/', '{\"a\": [1, 2, 3]}'), 'hex')"
                .into(),
        ] {
            let most = crate::memory::measured::most_during(|| drop(value(&call)));
            assert!(most > 0 && most < crate::memory::RUST_RESERVE / 2, "{most} bytes: {call}");
        }
    }

    #[pg_test(error = "key already held by this transaction")]
    fn a_key_is_claimed_once() {
        outcome("idempotency_claim('s', 'o', 'k')");
        outcome("idempotency_claim('s', 'o', 'k')");
    }

    #[pg_test(error = "claim out of order: this transaction holds a greater key")]
    fn keys_are_claimed_upwards() {
        outcome("idempotency_claim('s', 'o', 'b')");
        outcome("idempotency_claim('s', 'o', 'a')");
    }

    #[pg_test(error = "claim out of order: this transaction has already written or locked rows")]
    fn a_claim_comes_before_writes() {
        value("SELECT pg_current_xact_id()::text");
        outcome("idempotency_claim('s', 'o', 'k')");
    }

    #[pg_test]
    fn an_exception_block_takes_a_claim_back() {
        // pgrx' Spi::run assigns a transaction id by itself.
        value("SELECT set_config('pg_idempotency.lock_order', 'off', true)");
        Spi::run(
            "DO $$ BEGIN
                 BEGIN
                     PERFORM idempotency_claim('s', 'o', 'k');
                     RAISE EXCEPTION 'undone';
                 EXCEPTION WHEN raise_exception THEN NULL;
                 END;
                 BEGIN
                     PERFORM idempotency_complete(200);
                     RAISE 'not refused';
                 EXCEPTION WHEN SQLSTATE 'IK002' THEN NULL;
                 END;
             END $$",
        )
        .unwrap();
    }

    #[pg_test]
    fn settings_are_read_anew_after_a_change_in_the_same_transaction() {
        assert_eq!(outcome("idempotency_claim('s', 'o', NULL)"), "bypassed");
        Spi::run("SELECT idempotency_configure('o', '{\"mode\": \"required\"}')").unwrap();
        assert_eq!(outcome("idempotency_claim('s', 'o', NULL)"), "invalid");
    }

    #[pg_test]
    fn the_fingerprint_is_that_of_the_value() {
        let one = value(
            "SELECT encode(idempotency_fingerprint('post', '/o?x', '{\"a\":1,\"b\":2}'), 'hex')",
        );
        let same = value(
            "SELECT encode(idempotency_fingerprint('POST', '/o', ' {\"b\":2.0,\"\\u0061\":1}'), 'hex')",
        );
        assert_eq!(one, same);
    }
}

/// What `cargo pgrx test` asks of a library.
#[cfg(test)]
pub mod pg_test {
    /// Nothing to set up.
    pub fn setup(_options: Vec<&str>) {}

    /// No settings of the server.
    #[must_use]
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        Vec::new()
    }
}
