\set key random(1, :records)
SELECT outcome, status, headers, body FROM bench.upsert_claim(:scope::text, :operation::text, :key::text, :other_fingerprint::bytea, :token::uuid);
