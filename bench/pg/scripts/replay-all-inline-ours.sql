\set key random(1, :records)
SELECT (o).* FROM (SELECT idempotency_claim(:scope::text, :operation::text, :key::text, :fingerprint::bytea) AS o OFFSET 0) AS s;
