\set n random(1, :live)
SELECT operation, fingerprint = sha256(growth.body(:n)), status, headers, body FROM bench.floor WHERE scope = growth.scope(:n) AND operation = :operation::text AND key = growth.key(:n);
