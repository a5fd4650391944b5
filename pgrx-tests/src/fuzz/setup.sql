-- What the fuzzer's statements meet: functions that raise, re-enter and write, relations of every kind.

GRANT CREATE ON SCHEMA public TO PUBLIC;
GRANT SET ON PARAMETER pg_idempotency.unlisted, pg_idempotency.max_body TO PUBLIC;
CREATE SCHEMA elsewhere;
GRANT ALL ON SCHEMA elsewhere TO PUBLIC;
CREATE SCHEMA fuzz;
GRANT ALL ON SCHEMA fuzz TO PUBLIC;

CREATE DOMAIN fuzz.short_text AS text CHECK (length(VALUE) < 300);
CREATE DOMAIN fuzz.some_bytes AS bytea NOT NULL;
CREATE DOMAIN fuzz.small AS integer CHECK (VALUE < 1000);
CREATE DOMAIN fuzz.flat AS jsonb;

CREATE FUNCTION fuzz.agrees(text, text, integer) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION fuzz.disagrees(text, text, integer) RETURNS boolean LANGUAGE sql AS 'SELECT NULL::boolean';
CREATE FUNCTION fuzz.raises(text, text, integer) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'no' USING ERRCODE = 'P0001'; END $$;
CREATE FUNCTION fuzz.reenters(text, text, integer) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    PERFORM public.idempotency_claim('alice', 'reentered', 'k' || (random() * 5)::int);
    PERFORM public.idempotency_complete(204);
    RETURN true;
END $$;
CREATE FUNCTION fuzz.catches(text, text, integer) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    BEGIN
        PERFORM public.idempotency_release();
        PERFORM 1 / 0;
    EXCEPTION WHEN others THEN
        INSERT INTO public.orders (key) VALUES ('caught');
    END;
    RETURN true;
END $$;

CREATE TABLE fuzz.things (id text);
INSERT INTO fuzz.things SELECT n::text FROM generate_series(1, 9) AS n;
CREATE TABLE fuzz.numbered (id bigint PRIMARY KEY) PARTITION BY HASH (id);
CREATE TABLE fuzz.numbered_0 PARTITION OF fuzz.numbered FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE fuzz.numbered_1 PARTITION OF fuzz.numbered FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO fuzz.numbered SELECT generate_series(1, 9);
CREATE VIEW fuzz.raising AS SELECT (1 / (random() * 0)::int)::text AS id;
CREATE FUNCTION fuzz.ids() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM idempotency_claim('alice', 'reentered', 'k1', wait_ms => 0);
    RETURN NEXT '1';
END $$;
CREATE VIEW fuzz.reentering AS SELECT id FROM fuzz.ids() AS id;
CREATE MATERIALIZED VIEW fuzz.kept AS SELECT id FROM fuzz.things;
CREATE TABLE fuzz.guarded (id uuid DEFAULT gen_random_uuid());
ALTER TABLE fuzz.guarded ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON fuzz.guarded USING ((idempotency_replay('alice', 'reentered', 'k1')).outcome IS NOT NULL);

CREATE FUNCTION fuzz.work() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.how = 'claim' THEN PERFORM idempotency_claim('alice', 'by trigger', NEW.key); END IF;
    IF NEW.how = 'complete' THEN PERFORM idempotency_complete(200, body => NEW.key); END IF;
    IF NEW.how = 'release' THEN PERFORM idempotency_release(); END IF;
    RETURN NEW;
END $$;
CREATE TABLE fuzz.worked (
    how text, key text,
    told text DEFAULT (idempotency_replay('alice', 'by default', 'k1')).outcome
);
CREATE TRIGGER at_once BEFORE INSERT ON fuzz.worked FOR EACH ROW EXECUTE FUNCTION fuzz.work();
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON fuzz.worked DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.told = 'late') EXECUTE FUNCTION fuzz.work();

CREATE FUNCTION fuzz.at_ddl() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('fuzz.at_ddl', true) = 'on' THEN
        PERFORM idempotency_claim('alice', 'by event trigger', 'k1', wait_ms => 0);
    END IF;
END $$;
CREATE EVENT TRIGGER at_ddl ON ddl_command_end EXECUTE FUNCTION fuzz.at_ddl();

-- Says that it may run in parallel workers, and lies.
CREATE FUNCTION fuzz.lying(n integer) RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN
    RETURN (idempotency_replay('alice', 'in parallel', 'k' || n)).outcome;
END $$;
CREATE FUNCTION fuzz.lying_claim(n integer) RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN
    RETURN (idempotency_claim('alice', 'in parallel', 'k' || n, wait_ms => 0)).outcome;
END $$;
CREATE TABLE fuzz.many AS SELECT n FROM generate_series(1, 3000) AS n;
ANALYZE fuzz.many;
CREATE PROCEDURE fuzz.place(key text, completes boolean) LANGUAGE plpgsql AS $$ BEGIN
    PERFORM idempotency_claim('alice', 'POST /orders', key);
    INSERT INTO orders (key) VALUES (place.key);
    IF completes THEN PERFORM idempotency_complete(201); END IF;
    COMMIT;
    PERFORM idempotency_claim('alice', 'POST /orders', key || '-2');
    ROLLBACK;
END $$;
GRANT ALL ON ALL TABLES IN SCHEMA fuzz TO PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO PUBLIC;
