\set key random(1, :records)
SELECT operation, status, headers, body FROM bench.floor WHERE scope = :scope::text AND operation = :operation::text AND key = :key::text;
