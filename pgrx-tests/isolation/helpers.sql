-- What the steps of the specs call. A step says in a notice what it was answered; work and complete do something only
-- where the transaction has claimed the key, as a backend does.
--
-- Run by a superuser in a database that has the extension and the role `backend`.

CREATE TABLE effects (key text NOT NULL, by text NOT NULL);
CREATE TABLE stock (item text PRIMARY KEY, pieces integer NOT NULL);
GRANT ALL ON effects, stock TO backend;

-- The session's name in the spec, which the tester puts behind the last slash; `setup` in what is done before.
CREATE FUNCTION me() RETURNS text LANGUAGE sql AS $$
    SELECT replace(regexp_replace(current_setting('application_name'), '.*/', ''), 'control connection', 'setup')
$$;

-- What the transaction knows of its claim on a key, as a backend keeps it in a variable. Goes with the transaction and
-- with a savepoint.
CREATE PROCEDURE remember(key text, outcome text, token uuid) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('spec.claimed_' || key, CASE outcome WHEN 'claimed' THEN token::text ELSE '' END, true);
END $$;

CREATE FUNCTION token_of(key text) RETURNS uuid LANGUAGE sql AS $$
    SELECT nullif(current_setting('spec.claimed_' || key, true), '')::uuid
$$;

-- One outcome in words: `claimed`, `replayed s1` (whose answer it is), `in_progress`.
CREATE FUNCTION in_words(outcome text, body bytea) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', outcome, CASE WHEN outcome = 'replayed' THEN convert_from(body, 'UTF8') END)
$$;

-- ---- claims ---------------------------------------------------------------------------------------------------------

CREATE PROCEDURE claim(key text, operation text DEFAULT 'POST /orders', wait_ms integer DEFAULT -1) LANGUAGE plpgsql AS $$
DECLARE answer idempotency_outcome;
BEGIN
    answer := idempotency_claim('alice', operation, key, wait_ms => wait_ms);
    CALL remember(key, answer.outcome, answer.token);
    RAISE NOTICE '%', in_words(answer.outcome, answer.body);
END $$;

CREATE PROCEDURE claim_at_once(key text) LANGUAGE sql AS $$ CALL claim(key, wait_ms => 0) $$;

CREATE PROCEDURE claim_for_refund(key text) LANGUAGE sql AS $$ CALL claim(key, 'POST /refunds') $$;

CREATE PROCEDURE claim_many(VARIADIC keys text[]) LANGUAGE plpgsql AS $$
DECLARE answer record; answers text;
BEGIN
    FOR answer IN SELECT * FROM idempotency_claim_many('alice', 'POST /orders', keys, wait_ms => -1) ORDER BY ordinal LOOP
        CALL remember(keys[answer.ordinal], answer.outcome, answer.token);
        answers := concat_ws(', ', answers, keys[answer.ordinal] || ' ' || in_words(answer.outcome, answer.body));
    END LOOP;
    RAISE NOTICE '%', answers;
END $$;

-- ---- what follows a claim -------------------------------------------------------------------------------------------

CREATE PROCEDURE work(key text) LANGUAGE sql AS $$
    INSERT INTO effects SELECT key, me() WHERE token_of(key) IS NOT NULL
$$;

CREATE PROCEDURE complete(key text) LANGUAGE plpgsql AS $$
BEGIN
    IF token_of(key) IS NOT NULL THEN
        RAISE NOTICE '%', (idempotency_complete(201, me(), token => token_of(key))).outcome;
    END IF;
END $$;

CREATE PROCEDURE work_and_complete(VARIADIC keys text[]) LANGUAGE plpgsql AS $$
DECLARE key text;
BEGIN
    FOREACH key IN ARRAY keys LOOP
        CALL work(key);
        CALL complete(key);
    END LOOP;
END $$;

CREATE PROCEDURE release(key text) LANGUAGE plpgsql AS $$
BEGIN
    IF token_of(key) IS NOT NULL THEN
        PERFORM idempotency_release(token_of(key));
        CALL remember(key, 'released', NULL);
        RAISE NOTICE 'released';
    END IF;
END $$;

-- ---- leases ---------------------------------------------------------------------------------------------------------

-- The token of a worker is known from its name, so that every step can name it.
CREATE FUNCTION lease_of(worker text) RETURNS uuid LANGUAGE sql AS $$
    SELECT ('00000000-0000-7000-8000-' || lpad(right(worker, 1), 12, '0'))::uuid
$$;

CREATE PROCEDURE claim_on_lease(key text, worker text DEFAULT me()) LANGUAGE plpgsql AS $$
DECLARE answer idempotency_outcome;
BEGIN
    answer := idempotency_claim('alice', 'POST /orders', key, wait_ms => -1, lease_ms => 600000, token => lease_of(worker));
    CALL remember(key, answer.outcome, answer.token);
    RAISE NOTICE '%', concat_ws(' ', in_words(answer.outcome, answer.body), 'attempt ' || answer.attempt);
END $$;

CREATE PROCEDURE resume(key text) LANGUAGE plpgsql AS $$
DECLARE answer idempotency_outcome;
BEGIN
    answer := idempotency_resume(lease_of(me()));
    CALL remember(key, answer.outcome, answer.token);
    RAISE NOTICE '%', concat_ws(' ', 'resumed:', answer.outcome, answer.recovery_point);
END $$;

CREATE PROCEDURE checkpoint_at(point text) LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE 'checkpoint %', (idempotency_checkpoint(lease_of(me()), point)).recovery_point;
END $$;

CREATE PROCEDURE run_out() LANGUAGE sql AS $$
    UPDATE idempotency.leases SET deadline = clock_timestamp()
$$;

-- ---- before and after an interleaving -------------------------------------------------------------------------------

CREATE PROCEDURE start_anew() LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM effects;
    DELETE FROM idempotency.records;
    DELETE FROM idempotency.leases;
    DELETE FROM idempotency.operations;
    DELETE FROM stock;
    INSERT INTO stock VALUES ('lamp', 10), ('oven', 10);
END $$;

-- A finished record of `before`, whose time has run out.
CREATE PROCEDURE expired_record(key text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idempotency_claim('alice', 'POST /orders', key);
    PERFORM idempotency_complete(201, 'before');
    UPDATE idempotency.records SET expires_at = clock_timestamp();
END $$;

CREATE PROCEDURE configure(settings jsonb) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idempotency_configure('POST /orders', settings);
END $$;

-- What is left: by whom each key was executed, whose answer is recorded, and how many keys are held by whomever.
CREATE FUNCTION what_is_left(OUT key text, OUT effects text, OUT record text, OUT held bigint) RETURNS SETOF record
LANGUAGE sql AS $$
    SELECT k.key,
           (SELECT string_agg(e.by, ' ' ORDER BY e.by) FROM effects AS e WHERE e.key = k.key),
           (SELECT string_agg(coalesce(convert_from(r.body, 'UTF8'), 'lease'), ' ' ORDER BY r.key_space)
            FROM idempotency.records AS r WHERE r.key = k.key),
           (SELECT count(*) FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.objsubid = 18763)
    FROM (SELECT e.key FROM effects AS e UNION SELECT r.key FROM idempotency.records AS r) AS k
    ORDER BY k.key
$$;

-- ---- the tester -----------------------------------------------------------------------------------------------------

-- PostgreSQL's tester asks this function whether a session waits for another one of the spec. A prepared transaction has
-- no session: pg_blocking_pids() says 0 for it, and the tester would wait for its end, which is in a later step. So here
-- 0 counts.
SET allow_system_table_mods = on;
ALTER FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(integer, integer[]) RENAME TO waits_for_a_session;
CREATE FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(pid integer, sessions integer[]) RETURNS boolean
LANGUAGE sql AS $$
    SELECT pg_catalog.waits_for_a_session(pid, sessions) OR 0 = ANY (pg_catalog.pg_blocking_pids(pid))
$$;
