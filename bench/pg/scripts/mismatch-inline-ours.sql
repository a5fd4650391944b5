\set key random(1, :records)
SELECT (o).outcome, (o).status, (o).headers, (o).body FROM (SELECT idempotency_claim(:scope::text, :operation::text, :key::text, :other_fingerprint::bytea) AS o OFFSET 0) AS s;
