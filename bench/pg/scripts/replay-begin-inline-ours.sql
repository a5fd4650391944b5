\set key random(1, :records)
BEGIN;
SELECT (o).outcome, (o).status, (o).headers, (o).body FROM (SELECT idempotency_claim(:scope::text, :operation::text, :key::text, :fingerprint::bytea) AS o OFFSET 0) AS s;
COMMIT;
