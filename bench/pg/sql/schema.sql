-- What the contenders write to. Every hand-written table of keys keeps what our own keeps, under the
-- primary key that people give it: the names themselves.

CREATE SCHEMA bench;
GRANT USAGE ON SCHEMA bench TO backend;

CREATE TABLE bench.orders (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer   bigint NOT NULL,
    total      integer NOT NULL,
    note       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- The table as people write it by hand, and so written out here: our own (sql/schema.sql) has the same
-- columns besides a digest, which is its primary key, and the key's space.
CREATE TABLE bench.floor (
    scope         text COLLATE "C" NOT NULL,
    operation     text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    fingerprint   bytea,
    status        integer,
    headers       jsonb,
    body          bytea,
    resource_type text COLLATE "C",
    resource_id   text COLLATE "C",
    withheld      text COLLATE "C",
    token         uuid NOT NULL,
    attempt       integer NOT NULL,
    created_at    timestamptz NOT NULL,
    completed_at  timestamptz,
    expires_at    timestamptz,
    PRIMARY KEY (scope, operation, key)
);
CREATE TABLE bench.upsert (LIKE bench.floor INCLUDING ALL);
CREATE TABLE bench.plpgsql (LIKE bench.floor INCLUDING ALL);
CREATE TABLE bench.advisory (LIKE bench.floor INCLUDING ALL);

-- What the hand-written functions return: as much of an answer as a backend needs.
CREATE TYPE bench.answer AS (outcome text, status integer, headers jsonb, body bytea);

-- Insert on conflict, then update.

CREATE FUNCTION bench.upsert_claim(in_scope text, in_operation text, in_key text, in_fingerprint bytea, in_token uuid)
RETURNS bench.answer LANGUAGE plpgsql AS $$
DECLARE
    found_row bench.plpgsql;
BEGIN
    INSERT INTO bench.plpgsql (scope, operation, key, fingerprint, token, attempt, created_at)
    VALUES (in_scope, in_operation, in_key, in_fingerprint, in_token, 1, clock_timestamp())
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN ('claimed', NULL, NULL, NULL)::bench.answer;
    END IF;
    SELECT * INTO found_row FROM bench.plpgsql
    WHERE scope = in_scope AND operation = in_operation AND key = in_key;
    IF found_row.fingerprint IS DISTINCT FROM in_fingerprint THEN
        RETURN ('mismatch', 422, NULL, NULL)::bench.answer;
    END IF;
    RETURN ('replayed', found_row.status, found_row.headers, found_row.body)::bench.answer;
END
$$;

CREATE FUNCTION bench.upsert_complete(in_scope text, in_operation text, in_key text, in_status integer, in_headers jsonb, in_body bytea)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    UPDATE bench.plpgsql
    SET status = in_status, headers = in_headers, body = in_body, completed_at = clock_timestamp()
    WHERE scope = in_scope AND operation = in_operation AND key = in_key;
    RETURN 'completed';
END
$$;

-- Look, lock, look again, insert once: our own way, by hand. `wait` false gives up at once.

CREATE FUNCTION bench.advisory_claim(in_scope text, in_operation text, in_key text, in_fingerprint bytea, wait boolean)
RETURNS bench.answer LANGUAGE plpgsql AS $$
DECLARE
    found_row bench.advisory;
    lock bigint;
BEGIN
    SELECT * INTO found_row FROM bench.advisory
    WHERE scope = in_scope AND operation = in_operation AND key = in_key;
    IF NOT FOUND THEN
        lock := hashtextextended(in_scope || '/' || in_operation || '/' || in_key, 0);
        IF wait THEN
            PERFORM pg_advisory_xact_lock(lock);
        ELSIF NOT pg_try_advisory_xact_lock(lock) THEN
            RETURN ('in_progress', 409, NULL, NULL)::bench.answer;
        END IF;
        SELECT * INTO found_row FROM bench.advisory
        WHERE scope = in_scope AND operation = in_operation AND key = in_key;
        IF NOT FOUND THEN
            RETURN ('claimed', NULL, NULL, NULL)::bench.answer;
        END IF;
    END IF;
    IF found_row.fingerprint IS DISTINCT FROM in_fingerprint THEN
        RETURN ('mismatch', 422, NULL, NULL)::bench.answer;
    END IF;
    RETURN ('replayed', found_row.status, found_row.headers, found_row.body)::bench.answer;
END
$$;

CREATE FUNCTION bench.advisory_complete(in_scope text, in_operation text, in_key text, in_fingerprint bytea, in_token uuid, in_status integer, in_headers jsonb, in_body bytea)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO bench.advisory (scope, operation, key, fingerprint, status, headers, body, token, attempt, created_at, completed_at)
    VALUES (in_scope, in_operation, in_key, in_fingerprint, in_status, in_headers, in_body, in_token, 1, now(), clock_timestamp());
    RETURN 'completed';
END
$$;

GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA bench TO backend;

-- The digest that our own primary key is, as in docs/design/layout.md.
CREATE FUNCTION bench.digest(scope text, key_space text, key text) RETURNS uuid LANGUAGE sql
RETURN overlay(left(encode(sha256(
    int8send(octet_length(scope)) || convert_to(scope, 'UTF8') ||
    int8send(octet_length(key_space)) || convert_to(key_space, 'UTF8') ||
    int8send(octet_length(key)) || convert_to(key, 'UTF8')), 'hex'), 32)
    PLACING CASE WHEN key ~ '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$'
                 THEN left(key, 8) ELSE '' END FROM 1)::uuid;

-- The same finished records in every table of keys, no orders, statistics, and nothing dirty.
CREATE PROCEDURE bench.reset(records integer) LANGUAGE plpgsql AS $$
DECLARE
    key_table regclass;
BEGIN
    TRUNCATE bench.orders RESTART IDENTITY;
    TRUNCATE bench.floor, bench.upsert, bench.plpgsql, bench.advisory, idempotency.records;
    INSERT INTO bench.floor (scope, operation, key, fingerprint, status, headers, body, token, attempt,
                             created_at, completed_at)
    SELECT 'tenant-0001', 'POST /orders', n::text,
           '\x5f1d7a84db00d2fce00b31a7fc73224f0c5d3b1e6f7a8d9c0b1a2f3e4d5c6b7a', 201,
           '{"content-type": "application/json"}',
           convert_to(rpad('{"n":' || n || ',"note":"', 196, 'x') || '"}', 'UTF8'),
           gen_random_uuid(), 1, now(), now()
    FROM generate_series(1, records) AS n;
    INSERT INTO idempotency.records (digest, scope, key_space, key, operation, fingerprint, status, headers,
                                     body, token, attempt, created_at, completed_at)
    SELECT bench.digest(scope, operation, key), scope, operation, key, operation, fingerprint, status,
           headers, body, token, attempt, created_at, completed_at
    FROM bench.floor;
    FOREACH key_table IN ARRAY ARRAY['bench.upsert', 'bench.plpgsql', 'bench.advisory']::regclass[]
    LOOP
        EXECUTE format('INSERT INTO %s SELECT * FROM bench.floor', key_table);
    END LOOP;
    ANALYZE bench.floor, bench.upsert, bench.plpgsql, bench.advisory, idempotency.records;
    COMMIT;
END
$$;
