CREATE FUNCTION @extschema@.idempotency_forget(
    scope     text,
    operation text    DEFAULT NULL,
    key       text    DEFAULT NULL,
    force     boolean DEFAULT false
) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_forget';
COMMENT ON FUNCTION @extschema@.idempotency_forget(text, text, text, boolean) IS
    'Erases the records of a scope, of one operation of it, or of one key; returns how many';
REVOKE ALL ON FUNCTION @extschema@.idempotency_forget(text, text, text, boolean) FROM PUBLIC;
