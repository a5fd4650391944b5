\set key random(1000000000000000000, 9000000000000000000)
\set customer random(1, 100000)
\startpipeline
BEGIN;
SELECT outcome, status, headers, body FROM idempotency_claim(:scope::text, :operation::text, :key::text, :fingerprint::bytea);
\endpipeline
INSERT INTO bench.orders (customer, total, note) VALUES (:customer, 4711, :note::text);
\startpipeline
SELECT outcome FROM idempotency_complete(201, body_bytes => :body::bytea, headers => :headers::jsonb);
COMMIT;
\endpipeline
