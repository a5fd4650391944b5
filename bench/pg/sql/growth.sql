-- Many finished records, and requests that are known by their number.

CREATE SCHEMA growth;
GRANT USAGE ON SCHEMA growth TO backend;

-- One of 100,000 people.
CREATE FUNCTION growth.scope(n bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'user-' || lpad((n * 7919 % 100000)::text, 5, '0')
$$;

-- Half of the keys are random UUIDs (version 4), half are ordered in time (version 7). One expression, so
-- that PostgreSQL puts it in the place of the call.
CREATE FUNCTION growth.key(n bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE n % 2
        WHEN 0 THEN overlay(overlay(md5(n::text)::uuid::text PLACING '4' FROM 15 FOR 1) PLACING 'a' FROM 20 FOR 1)
        ELSE overlay(overlay((lpad(to_hex(1767225600000 + n * 50), 12, '0') || left(md5(n::text), 20))::uuid::text
                             PLACING '7' FROM 15 FOR 1) PLACING 'a' FROM 20 FOR 1)
    END
$$;

CREATE FUNCTION growth.body(n bigint) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT convert_to('{"id":' || n || ',"status":"created","customer":"' || growth.scope(n) || '","total":' || n * 31 % 100000
                      || ',"currency":"EUR","items":[{"sku":"SKU-' || n * 17 % 9999 || '","quantity":' || n % 9 + 1
                      || '}],"created_at":"2026-03-' || lpad((n % 28 + 1)::text, 2, '0') || 'T10:00:00Z"}', 'UTF8')
$$;

-- Records number `low` to `high`, as if they had been made one after the other; those behind `expired` have expired.
-- The floor's table gets the same.
CREATE PROCEDURE growth.fill(low bigint, high bigint, expired bigint) LANGUAGE sql AS $$
    WITH made AS (
        INSERT INTO idempotency.records (digest, scope, key_space, key, operation, fingerprint, status, headers, body, token,
                                         attempt, created_at, completed_at, expires_at)
        SELECT bench.digest(who, 'POST /orders', key), who, 'POST /orders', key, 'POST /orders', sha256(body), 201,
               ('{"Content-Type": "application/json", "Location": "/orders/' || n || '"}')::jsonb, body,
               gen_random_uuid(), 1, at, at + interval '20 ms', at + interval '20 ms' + interval '30 days'
        FROM (SELECT n, growth.scope(n) AS who, growth.key(n) AS key, growth.body(n) AS body,
                     now() - CASE WHEN n > expired THEN interval '40 days' ELSE interval '20 days' END + n * interval '50 ms' AS at
              FROM generate_series(low, high) AS n OFFSET 0) AS numbered
        RETURNING *
    )
    INSERT INTO bench.floor (scope, operation, key, fingerprint, status, headers, body, token, attempt, created_at, completed_at,
                             expires_at)
    SELECT scope, operation, key, fingerprint, status, headers, body, token, attempt, created_at, completed_at, expires_at
    FROM made
$$;

CREATE TABLE growth.orders (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer   text NOT NULL,
    total      integer NOT NULL,
    note       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
GRANT INSERT ON growth.orders TO backend;
SELECT idempotency_configure('POST /orders', '{"retention": "30 days"}');

-- A key of this UUID version that is made at this time. Version 4 has no time.
CREATE FUNCTION growth.key_of(version integer, at timestamptz) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT CASE version
        WHEN 4 THEN gen_random_uuid()::text
        ELSE overlay(lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') PLACING '-' FROM 9 FOR 0)
             || '-7' || right(gen_random_uuid()::text, 21)
    END
$$;

-- Records number `low` to `high` of `total`, whose keys are of this version, made one after the other in the last 31
-- days and kept for 30: those of the first day have expired.
CREATE PROCEDURE growth.fill_in_time(version integer, low bigint, high bigint, total bigint) LANGUAGE sql AS $$
    INSERT INTO idempotency.records (digest, scope, key_space, key, operation, fingerprint, status, headers, body, token,
                                     attempt, created_at, completed_at, expires_at)
    SELECT bench.digest(who, 'POST /orders', key), who, 'POST /orders', key, 'POST /orders', sha256(body), 201,
           ('{"Content-Type": "application/json", "Location": "/orders/' || n || '"}')::jsonb, body,
           gen_random_uuid(), 1, at, at + interval '20 ms', at + interval '20 ms' + interval '30 days'
    FROM (SELECT n, at, growth.scope(n) AS who, growth.key_of(version, at) AS key, growth.body(n) AS body
          FROM (SELECT n, now() - interval '31 days' + n * (interval '31 days' / total) AS at
                FROM generate_series(low, high) AS n OFFSET 0) AS timed OFFSET 0) AS numbered
$$;
