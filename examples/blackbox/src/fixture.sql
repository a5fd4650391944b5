-- What makes requests stand still or fail, by their user. All of it is here from the start: CREATE TRIGGER
-- would wait for the requests of other scenarios.

CREATE TABLE trouble (owner text PRIMARY KEY);

-- In the middle of the work: an error that nobody has foreseen.
CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM trouble WHERE owner = NEW.owner) THEN
        RAISE 'trouble' USING ERRCODE = '57000';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER trouble AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION trouble();

-- In the middle of COMMIT.
CREATE FUNCTION lock_4711() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4711);
    RETURN NEW;
END $$;
CREATE CONSTRAINT TRIGGER lock_4711 AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.owner = 'lost answer') EXECUTE FUNCTION lock_4711();

-- Before the order: a lock that somebody else may ask for, so that there is a deadlock.
CREATE FUNCTION lock_4712() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4712);
    RETURN NEW;
END $$;
CREATE TRIGGER lock_4712 BEFORE INSERT ON orders
    FOR EACH ROW WHEN (NEW.owner = 'deadlock') EXECUTE FUNCTION lock_4712();
