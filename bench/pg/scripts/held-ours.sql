SELECT outcome, status, headers, body FROM idempotency_claim(:scope::text, :operation::text, 'held', :fingerprint::bytea, 0);
