\set key random(1, :records)
SELECT outcome, status, headers, body FROM idempotency_claim(:scope::text, :operation::text, :key::text, :fingerprint::bytea);
