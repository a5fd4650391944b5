\set key random(1000000000000000000, 9000000000000000000)
\set customer random(1, 100000)
BEGIN;
INSERT INTO bench.upsert (scope, operation, key, fingerprint, token, attempt, created_at) VALUES (:scope::text, :operation::text, :key::text, :fingerprint::bytea, :token::uuid, 1, now()) ON CONFLICT DO NOTHING;
INSERT INTO bench.orders (customer, total, note) VALUES (:customer, 4711, :note::text);
UPDATE bench.upsert SET status = 201, headers = :headers::jsonb, body = :body::bytea, completed_at = clock_timestamp() WHERE scope = :scope::text AND operation = :operation::text AND key = :key::text;
COMMIT;
