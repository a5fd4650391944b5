-- Pure functions: they read no record, so everybody may call them.

CREATE FUNCTION @extschema@.idempotency_fingerprint(
    method        text,
    path          text,
    body          text    DEFAULT NULL,
    body_bytes    bytea   DEFAULT NULL,
    exclude       text[]  DEFAULT '{}',
    include_query boolean DEFAULT false,
    hmac_key      bytea   DEFAULT NULL
) RETURNS bytea
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'idempotency_fingerprint';
COMMENT ON FUNCTION @extschema@.idempotency_fingerprint(text, text, text, bytea, text[], boolean, bytea) IS
    'SHA-256 of a request by its method, path and the value of its body: what a retry has to repeat';

CREATE FUNCTION @extschema@.idempotency_canonicalize(body text DEFAULT NULL, body_bytes bytea DEFAULT NULL) RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'idempotency_canonicalize';
COMMENT ON FUNCTION @extschema@.idempotency_canonicalize(text, bytea) IS
    'The canonical form of a JSON value (RFC 8785), or an error that says what is wrong and where';

CREATE FUNCTION @extschema@.idempotency_parse_key(header text, format text DEFAULT 'opaque', max_length integer DEFAULT 255)
    RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'idempotency_parse_key';
COMMENT ON FUNCTION @extschema@.idempotency_parse_key(text, text, integer) IS
    'The key that a header value names, raw or quoted';
