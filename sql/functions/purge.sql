CREATE FUNCTION @extschema@.idempotency_purge(max_rows integer DEFAULT 10000) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_purge';
COMMENT ON FUNCTION @extschema@.idempotency_purge(integer) IS
    'Deletes one batch of expired records, and of leases that ended long ago; returns how many rows';
REVOKE ALL ON FUNCTION @extschema@.idempotency_purge(integer) FROM PUBLIC;
