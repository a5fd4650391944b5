SELECT outcome, status, headers, body FROM bench.advisory_claim(:scope::text, :operation::text, 'held', :fingerprint::bytea, false);
