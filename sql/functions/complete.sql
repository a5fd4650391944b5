CREATE FUNCTION @extschema@.idempotency_complete(
    status        integer,
    body          text  DEFAULT NULL,
    body_json     jsonb DEFAULT NULL,
    body_bytes    bytea DEFAULT NULL,
    content_type  text  DEFAULT NULL,
    headers       jsonb DEFAULT NULL,
    resource_type text  DEFAULT NULL,
    resource_id   text  DEFAULT NULL,
    withhold      text  DEFAULT NULL,
    token         uuid  DEFAULT NULL
) RETURNS @extschema@.idempotency_outcome
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_complete';
COMMENT ON FUNCTION @extschema@.idempotency_complete(integer, text, jsonb, bytea, text, jsonb, text, text, text, uuid) IS
    'Records the answer of a claimed request and returns what to send after COMMIT';
REVOKE ALL ON FUNCTION @extschema@.idempotency_complete(integer, text, jsonb, bytea, text, jsonb, text, text, text, uuid) FROM PUBLIC;

CREATE FUNCTION @extschema@.idempotency_release(token uuid DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_release';
COMMENT ON FUNCTION @extschema@.idempotency_release(uuid) IS
    'Gives a claim up: nothing is recorded, and the next caller claims once this transaction has ended';
REVOKE ALL ON FUNCTION @extschema@.idempotency_release(uuid) FROM PUBLIC;
