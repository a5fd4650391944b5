\set key random(1, :records)
SELECT operation, status, headers, body, resource_type, resource_id, token, attempt, NULL::text, NULL::jsonb, fingerprint, created_at, completed_at, expires_at, NULL::integer FROM bench.floor WHERE scope = :scope::text AND operation = :operation::text AND key = :key::text;
