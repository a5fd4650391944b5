\set n random(1000000000, 1000000000000)
BEGIN;
SELECT operation, fingerprint, status, headers, body FROM bench.floor WHERE scope = growth.scope(:n) AND operation = :operation::text AND key = growth.key(:n);
INSERT INTO growth.orders (customer, total, note) VALUES (growth.scope(:n), 4711, :note::text);
INSERT INTO bench.floor (scope, operation, key, fingerprint, status, headers, body, token, attempt, created_at, completed_at, expires_at) VALUES (growth.scope(:n), :operation::text, growth.key(:n), :fingerprint::bytea, 201, :headers::jsonb, :body::bytea, :token::uuid, 1, now(), clock_timestamp(), now() + interval '30 days');
COMMIT;
