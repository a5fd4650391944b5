\set key random(1000000000000000000, 9000000000000000000)
\set customer random(1, 100000)
\startpipeline
BEGIN;
SELECT (o).outcome, (o).status, (o).headers, (o).body FROM (SELECT idempotency_claim(:scope::text, :operation::text, :key::text, :fingerprint::bytea) AS o OFFSET 0) AS s;
\endpipeline
INSERT INTO bench.orders (customer, total, note) VALUES (:customer, 4711, :note::text);
\startpipeline
SELECT (o).outcome FROM (SELECT idempotency_complete(201, body_bytes => :body::bytea, headers => :headers::jsonb) AS o OFFSET 0) AS s;
COMMIT;
\endpipeline
