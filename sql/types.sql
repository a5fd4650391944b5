-- What claim, complete and replay return.

CREATE TYPE @extschema@.idempotency_outcome AS (
    outcome        text,
    status         integer,
    headers        jsonb,
    body           bytea,
    resource_type  text,
    resource_id    text,
    token          uuid,
    attempt        integer,
    recovery_point text,
    recovery_data  jsonb,
    fingerprint    bytea,
    created_at     timestamptz,
    completed_at   timestamptz,
    expires_at     timestamptz,
    retry_after    integer
);
COMMENT ON TYPE @extschema@.idempotency_outcome IS 'What a call came to, and what to send where there is something to send';
COMMENT ON COLUMN @extschema@.idempotency_outcome.outcome IS 'claimed, bypassed, completed, released, replayed, deleted, withheld, in_progress, mismatch, invalid, expired or unknown';
COMMENT ON COLUMN @extschema@.idempotency_outcome.status IS 'HTTP status to send';
COMMENT ON COLUMN @extschema@.idempotency_outcome.headers IS 'Headers to send: name to string, or to array of strings where there are several';
COMMENT ON COLUMN @extschema@.idempotency_outcome.body IS 'Body to send, byte for byte';
COMMENT ON COLUMN @extschema@.idempotency_outcome.resource_type IS 'Type of the created resource, where a pointer to it was recorded';
COMMENT ON COLUMN @extschema@.idempotency_outcome.resource_id IS 'Id of the created resource, where a pointer to it was recorded';
COMMENT ON COLUMN @extschema@.idempotency_outcome.token IS 'Token of the claim (UUIDv7)';
COMMENT ON COLUMN @extschema@.idempotency_outcome.attempt IS '1 for the first execution';
COMMENT ON COLUMN @extschema@.idempotency_outcome.recovery_point IS 'Last checkpoint of a leased claim';
COMMENT ON COLUMN @extschema@.idempotency_outcome.recovery_data IS 'Data of the last checkpoint of a leased claim';
COMMENT ON COLUMN @extschema@.idempotency_outcome.fingerprint IS 'Fingerprint of the recorded request';
COMMENT ON COLUMN @extschema@.idempotency_outcome.created_at IS 'When the key was won';
COMMENT ON COLUMN @extschema@.idempotency_outcome.completed_at IS 'When the answer was recorded';
COMMENT ON COLUMN @extschema@.idempotency_outcome.expires_at IS 'From when on the record counts as absent; NULL for never';
COMMENT ON COLUMN @extschema@.idempotency_outcome.retry_after IS 'Seconds after which a retry makes sense';
