\set n random(1000000000, 1000000000000)
BEGIN;
SELECT outcome FROM idempotency_claim(growth.scope(:n), :operation::text, growth.key_of(:version, clock_timestamp()), :fingerprint::bytea);
SELECT outcome FROM idempotency_complete(201, body_bytes => :body::bytea, headers => :headers::jsonb);
COMMIT;
