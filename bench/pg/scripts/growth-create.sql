\set n random(1000000000, 1000000000000)
BEGIN;
SELECT outcome, status, headers, body FROM idempotency_claim(growth.scope(:n), :operation::text, growth.key(:n), :fingerprint::bytea);
INSERT INTO growth.orders (customer, total, note) VALUES (growth.scope(:n), 4711, :note::text);
SELECT outcome FROM idempotency_complete(201, body_bytes => :body::bytea, headers => :headers::jsonb);
COMMIT;
