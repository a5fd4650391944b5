\set customer random(1, 100000)
BEGIN;
INSERT INTO bench.orders (customer, total, note) VALUES (:customer, 4711, :note::text);
COMMIT;
