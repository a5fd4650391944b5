\set key random(1000000000000000000, 9000000000000000000)
\set customer random(1, 100000)
BEGIN;
SELECT outcome, status, headers, body FROM bench.upsert_claim(:scope::text, :operation::text, :key::text, :fingerprint::bytea, :token::uuid);
INSERT INTO bench.orders (customer, total, note) VALUES (:customer, 4711, :note::text);
SELECT bench.upsert_complete(:scope::text, :operation::text, :key::text, 201, :headers::jsonb, :body::bytea);
COMMIT;
