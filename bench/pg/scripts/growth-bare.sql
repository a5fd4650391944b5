\set n random(1000000000, 1000000000000)
BEGIN;
INSERT INTO growth.orders (customer, total, note) VALUES (growth.scope(:n), 4711, :note::text);
COMMIT;
