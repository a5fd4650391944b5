-- What all the services work on. It can be run again.
CREATE EXTENSION IF NOT EXISTS pg_idempotency;

CREATE TABLE IF NOT EXISTS stock (
    item   text PRIMARY KEY,
    pieces integer NOT NULL CHECK (pieces >= 0)
);

-- The request as it came: json, and not jsonb, keeps white space, escapes and large numbers.
CREATE TABLE IF NOT EXISTS orders (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner   text NOT NULL,
    item    text NOT NULL REFERENCES stock,
    request json NOT NULL
);

INSERT INTO stock VALUES ('book', 1000), ('lamp', 0) ON CONFLICT DO NOTHING;

-- No order without a key, and no key without a fingerprint.
SELECT idempotency_configure('POST /orders', '{"mode": "required", "fingerprint": "required"}');
