-- Orders, executed at most once per idempotency key: the whole service is PL/pgSQL.
--
-- One request is one call of http(), in one transaction. Whoever speaks HTTP for it calls it again, as a
-- whole, where it fails with 40001 or 40P01, and rolls back where the answer is not to be kept: a function can
-- do neither for itself.

CREATE OR REPLACE FUNCTION post_orders(scope text, key text, request bytea) RETURNS idempotency_outcome
LANGUAGE plpgsql AS $$
DECLARE
    answer idempotency_outcome;
    text_of_request text;
    wanted json;
    id bigint;
BEGIN
    answer := idempotency_claim(scope, 'POST /orders', key,
        idempotency_fingerprint('POST', '/orders', body_bytes => request));
    IF answer.outcome NOT IN ('claimed', 'bypassed') THEN
        RETURN answer;
    END IF;
    BEGIN  -- a block with EXCEPTION is a savepoint: what a refusal has written goes
        text_of_request := convert_from(request, 'UTF8');
        wanted := text_of_request::json -> 'item';
        IF json_typeof(wanted) IS DISTINCT FROM 'string' THEN
            RAISE data_exception;
        END IF;
        INSERT INTO orders (owner, item, request)
        VALUES (scope, wanted #>> '{}', text_of_request::json) RETURNING orders.id INTO id;
        UPDATE stock SET pieces = pieces - 1 WHERE item = wanted #>> '{}';
    EXCEPTION
        WHEN data_exception THEN
            RETURN idempotency_complete(400, '{"error": "a JSON object with an item is wanted"}');
        WHEN integrity_constraint_violation THEN
            RETURN idempotency_complete(409, '{"error": "not in stock"}');
    END;
    -- Not format(), which knows %: the request is the client's, and goes in as it is.
    RETURN idempotency_complete(201, '{"order": ' || id || ', "request": ' || text_of_request || '}',
        headers => jsonb_build_object('Location', '/orders/' || id));
END $$;

-- Which function serves a request, and what to send. The names of headers are in lower case; the path may have a
-- query, which nobody here asks for.
CREATE OR REPLACE FUNCTION http(method text, path text, headers jsonb, body bytea)
RETURNS TABLE (is_kept boolean, answer_status integer, answer_headers jsonb, answer_body bytea)
LANGUAGE plpgsql AS $$
DECLARE
    json_type CONSTANT jsonb := '{"Content-Type": "application/json"}';
    page CONSTANT text := split_part(path, '?', 1);
    scope CONSTANT text := substring(headers ->> 'authorization' FROM '^Bearer (.+)$');
    found_order text;
BEGIN
    CASE
        WHEN scope IS NULL THEN
            RETURN QUERY VALUES (true, 401, json_type, '{"error": "a bearer is wanted"}'::bytea);
        WHEN method = 'POST' AND page = '/orders' THEN
            RETURN QUERY SELECT a.outcome <> 'released', a.status, a.headers, a.body
            FROM post_orders(scope, headers ->> 'idempotency-key', body) a;
        WHEN method = 'GET' AND page ~ '^/orders/[0-9]{1,18}$' THEN
            SELECT '{"order": ' || o.id || ', "request": ' || o.request || '}' INTO found_order
            FROM orders o WHERE o.id = substring(page FROM 9)::bigint AND o.owner = scope;
            RETURN QUERY SELECT true, CASE WHEN found_order IS NULL THEN 404 ELSE 200 END, json_type,
                convert_to(coalesce(found_order, '{"error": "no such order"}'), 'UTF8');
        ELSE
            RETURN QUERY VALUES (true, 404, json_type, '{"error": "no such page"}'::bytea);
    END CASE;
END $$;
