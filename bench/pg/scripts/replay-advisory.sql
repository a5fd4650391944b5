\set key random(1, :records)
SELECT outcome, status, headers, body FROM bench.advisory_claim(:scope::text, :operation::text, :key::text, :fingerprint::bytea, true);
