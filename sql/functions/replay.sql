CREATE FUNCTION @extschema@.idempotency_replay(
    scope       text,
    operation   text,
    key         text,
    fingerprint bytea DEFAULT NULL
) RETURNS @extschema@.idempotency_outcome
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_replay';
COMMENT ON FUNCTION @extschema@.idempotency_replay(text, text, text, bytea) IS
    'Returns the answer recorded under a key, without locks or writes: for READ ONLY transactions and standbys';
REVOKE ALL ON FUNCTION @extschema@.idempotency_replay(text, text, text, bytea) FROM PUBLIC;
