\set key random(1000000000000000000, 9000000000000000000)
\set customer random(1, 100000)
BEGIN;
SELECT operation, fingerprint, status, headers, body FROM bench.floor WHERE scope = :scope::text AND operation = :operation::text AND key = :key::text;
INSERT INTO bench.orders (customer, total, note) VALUES (:customer, 4711, :note::text);
INSERT INTO bench.floor (scope, operation, key, fingerprint, status, headers, body, token, attempt, created_at, completed_at) VALUES (:scope::text, :operation::text, :key::text, :fingerprint::bytea, 201, :headers::jsonb, :body::bytea, :token::uuid, 1, now(), clock_timestamp());
COMMIT;
