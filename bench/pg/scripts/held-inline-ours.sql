SELECT (o).outcome, (o).status, (o).headers, (o).body FROM (SELECT idempotency_claim(:scope::text, :operation::text, 'held', :fingerprint::bytea, 0) AS o OFFSET 0) AS s;
