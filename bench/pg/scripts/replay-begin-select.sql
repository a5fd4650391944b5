\set key random(1, :records)
BEGIN;
SELECT operation, status, headers, body FROM idempotency.records WHERE scope = :scope::text AND key_space = :operation::text AND key = :key::text;
COMMIT;
