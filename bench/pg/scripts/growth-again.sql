\set n random(:live + 1, :records)
BEGIN;
SELECT outcome = 'claimed' AS won FROM idempotency_claim(growth.scope(:n), :operation::text, growth.key(:n), sha256(growth.body(:n))) \gset
\if :won
INSERT INTO growth.orders (customer, total, note) VALUES (growth.scope(:n), 4711, :note::text);
SELECT outcome FROM idempotency_complete(201, body_bytes => :body::bytea, headers => :headers::jsonb);
\endif
COMMIT;
