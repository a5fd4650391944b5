\set n random(1, :live)
SELECT outcome, status, headers, body FROM idempotency_claim(growth.scope(:n), :operation::text, growth.key(:n), sha256(growth.body(:n)));
