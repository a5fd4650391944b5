CREATE FUNCTION @extschema@.idempotency_claim(
    scope       text,
    operation   text,
    key         text,
    fingerprint bytea   DEFAULT NULL,
    wait_ms     integer DEFAULT NULL,
    lease_ms    integer DEFAULT NULL,
    token       uuid    DEFAULT NULL,
    data        jsonb   DEFAULT NULL
) RETURNS @extschema@.idempotency_outcome
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_claim';
COMMENT ON FUNCTION @extschema@.idempotency_claim(text, text, text, bytea, integer, integer, uuid, jsonb) IS
    'Claims a key for the rest of the transaction, or returns the answer recorded under it';
REVOKE ALL ON FUNCTION @extschema@.idempotency_claim(text, text, text, bytea, integer, integer, uuid, jsonb) FROM PUBLIC;

CREATE FUNCTION @extschema@.idempotency_claim_many(
    scope        text,
    operation    text,
    keys         text[],
    fingerprints bytea[] DEFAULT NULL,
    wait_ms      integer DEFAULT NULL,
    OUT ordinal        integer,
    OUT outcome        text,
    OUT status         integer,
    OUT headers        jsonb,
    OUT body           bytea,
    OUT resource_type  text,
    OUT resource_id    text,
    OUT token          uuid,
    OUT attempt        integer,
    OUT recovery_point text,
    OUT recovery_data  jsonb,
    OUT fingerprint    bytea,
    OUT created_at     timestamptz,
    OUT completed_at   timestamptz,
    OUT expires_at     timestamptz,
    OUT retry_after    integer
) RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10
    AS 'MODULE_PATHNAME', 'idempotency_claim_many';
COMMENT ON FUNCTION @extschema@.idempotency_claim_many(text, text, text[], bytea[], integer) IS
    'Claims several keys of one operation in the right order; one row per key, in the caller''s order';
REVOKE ALL ON FUNCTION @extschema@.idempotency_claim_many(text, text, text[], bytea[], integer) FROM PUBLIC;
