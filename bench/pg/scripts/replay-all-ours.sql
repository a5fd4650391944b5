\set key random(1, :records)
SELECT * FROM idempotency_claim(:scope::text, :operation::text, :key::text, :fingerprint::bytea);
