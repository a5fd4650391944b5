\set key random(1, :records)
BEGIN;
SELECT outcome, status, headers, body FROM idempotency_claim(:scope::text, :operation::text, :key::text, :fingerprint::bytea);
COMMIT;
