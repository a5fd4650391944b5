-- The same records under two primary keys, the three names and their digest, to compare what they take.

CREATE SCHEMA sizes;
CREATE TABLE sizes.digest (LIKE idempotency.records INCLUDING ALL);
CREATE TABLE sizes.names AS
    SELECT scope, key_space, key, operation, fingerprint, status, headers, body, resource_type, resource_id, withheld,
           token, attempt, created_at, completed_at, expires_at
    FROM idempotency.records WITH NO DATA;
ALTER TABLE sizes.names ADD PRIMARY KEY (scope, key_space, key);

-- 13 bytes.
CREATE FUNCTION sizes.scope(n bigint, scopes integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'tenant-' || lpad((n * 7919 % scopes)::text, 6, '0')
$$;

-- A UUID of version 4, or one of version 7 whose time goes on by 20 ms with each record.
CREATE FUNCTION sizes.key(n bigint, version integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT overlay(overlay((CASE version WHEN 4 THEN md5(n::text)
                            ELSE lpad(to_hex(1767225600000 + n * 20), 12, '0') || left(md5(n::text), 20) END)::uuid::text
                           PLACING version::text FROM 15 FOR 1) PLACING 'a' FROM 20 FOR 1)
$$;

CREATE FUNCTION sizes.key_digest(scope text, key_space text, key text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT overlay(left(encode(sha256(int8send(length(scope)) || scope::bytea || int8send(length(key_space)) || key_space::bytea
                                      || int8send(length(key)) || key::bytea), 'hex'), 32)
                   PLACING CASE WHEN key ~ '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$'
                                THEN left(key, 8) ELSE '' END FROM 1)::uuid
$$;

-- Records number `low` to `high`, with bodies of 198 bytes, as if they had been made one after the other.
CREATE PROCEDURE sizes.fill(target regclass, version integer, scopes integer, low bigint, high bigint) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'INSERT INTO %s
         SELECT %s scope, ''POST /orders'', key, ''POST /orders'', sha256(key::bytea), 201, ''{"content-type": "application/json"}'',
                convert_to(rpad(''{"n":'' || n || '',"note":"'', 196, md5(n::text)) || ''"}'', ''UTF8''),
                NULL, NULL, NULL, gen_random_uuid(), 1, now(), now(), now() + interval ''30 days''
         FROM (SELECT n, sizes.scope(n, $2) AS scope, sizes.key(n, $1) AS key FROM generate_series($3, $4) AS n OFFSET 0) AS numbered',
        target, CASE WHEN target = 'sizes.digest'::regclass THEN 'sizes.key_digest(scope, ''POST /orders'', key),' END)
    USING version, scopes, low, high;
END
$$;
