CREATE FUNCTION @extschema@.idempotency_resume(token uuid) RETURNS @extschema@.idempotency_outcome
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_resume';
COMMENT ON FUNCTION @extschema@.idempotency_resume(uuid) IS
    'Goes on with a leased claim: holds its key for the rest of the transaction, or fails where the lease was lost';
REVOKE ALL ON FUNCTION @extschema@.idempotency_resume(uuid) FROM PUBLIC;

CREATE FUNCTION @extschema@.idempotency_checkpoint(token uuid, recovery_point text, data jsonb DEFAULT NULL)
    RETURNS @extschema@.idempotency_outcome
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_checkpoint';
COMMENT ON FUNCTION @extschema@.idempotency_checkpoint(uuid, text, jsonb) IS
    'Records how far a leased claim has come, for whoever goes on with it';
REVOKE ALL ON FUNCTION @extschema@.idempotency_checkpoint(uuid, text, jsonb) FROM PUBLIC;

CREATE FUNCTION @extschema@.idempotency_extend(token uuid, lease_ms integer) RETURNS @extschema@.idempotency_outcome
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_extend';
COMMENT ON FUNCTION @extschema@.idempotency_extend(uuid, integer) IS
    'Gives a leased claim more time, counted from now; never less than it has';
REVOKE ALL ON FUNCTION @extschema@.idempotency_extend(uuid, integer) FROM PUBLIC;

CREATE FUNCTION @extschema@.idempotency_settle(
    scope         text,
    operation     text,
    key           text,
    status        integer DEFAULT NULL,
    body          text    DEFAULT NULL,
    body_json     jsonb   DEFAULT NULL,
    body_bytes    bytea   DEFAULT NULL,
    content_type  text    DEFAULT NULL,
    headers       jsonb   DEFAULT NULL,
    resource_type text    DEFAULT NULL,
    resource_id   text    DEFAULT NULL,
    withhold      text    DEFAULT NULL
) RETURNS @extschema@.idempotency_outcome
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_settle';
COMMENT ON FUNCTION @extschema@.idempotency_settle(text, text, text, integer, text, jsonb, bytea, text, jsonb, text, text, text) IS
    'For operators: decides what became of a request whose lease has run out; without a status, that it may be executed again';
REVOKE ALL ON FUNCTION @extschema@.idempotency_settle(text, text, text, integer, text, jsonb, bytea, text, jsonb, text, text, text) FROM PUBLIC;

CREATE VIEW idempotency.abandoned AS
    SELECT r.scope, r.operation, r.key_space, r.key, l.token, r.attempt, l.recovery_point, l.recovery_data, l.data,
           r.fingerprint, r.created_at, l.deadline AS expired_at
    FROM idempotency.leases AS l
    JOIN idempotency.records AS r ON r.digest = l.digest AND r.token = l.token
    WHERE NOT l.ended AND l.deadline <= pg_catalog.clock_timestamp() AND r.completed_at IS NULL;
COMMENT ON VIEW idempotency.abandoned IS 'Requests whose lease has run out before they were completed';
COMMENT ON COLUMN idempotency.abandoned.scope IS 'Principal or tenant';
COMMENT ON COLUMN idempotency.abandoned.operation IS 'The operation that is executed';
COMMENT ON COLUMN idempotency.abandoned.key_space IS 'The operation, or the name that several operations share';
COMMENT ON COLUMN idempotency.abandoned.key IS 'The key';
COMMENT ON COLUMN idempotency.abandoned.token IS 'Token of the lease that has run out';
COMMENT ON COLUMN idempotency.abandoned.attempt IS 'How many workers have had the request';
COMMENT ON COLUMN idempotency.abandoned.recovery_point IS 'The last checkpoint';
COMMENT ON COLUMN idempotency.abandoned.recovery_data IS 'What the last checkpoint kept';
COMMENT ON COLUMN idempotency.abandoned.data IS 'What the claim gave a completer to repeat the request';
COMMENT ON COLUMN idempotency.abandoned.fingerprint IS 'Fingerprint of the request';
COMMENT ON COLUMN idempotency.abandoned.created_at IS 'When the key was won';
COMMENT ON COLUMN idempotency.abandoned.expired_at IS 'When the lease ran out';

CREATE FUNCTION @extschema@.idempotency_abandoned(max_rows integer DEFAULT 100) RETURNS SETOF idempotency.abandoned
    LANGUAGE sql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT * FROM idempotency.abandoned ORDER BY expired_at LIMIT max_rows;
END;
COMMENT ON FUNCTION @extschema@.idempotency_abandoned(integer) IS
    'Requests whose lease has run out, the oldest first, for a completer to claim and to finish';
REVOKE ALL ON FUNCTION @extschema@.idempotency_abandoned(integer) FROM PUBLIC;
