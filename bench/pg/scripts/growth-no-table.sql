\set n random(1, :live)
SELECT growth.scope(:n), growth.key(:n), sha256(growth.body(:n));
