-- What a backend needs, and nothing more.

CREATE FUNCTION @extschema@.idempotency_grant(role name) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    called_by_backends CONSTANT name[] := ARRAY[
        'idempotency_claim', 'idempotency_claim_many', 'idempotency_complete',
        'idempotency_release', 'idempotency_replay', 'idempotency_resume', 'idempotency_checkpoint',
        'idempotency_extend', 'idempotency_abandoned'];
    extension CONSTANT pg_extension := e FROM pg_extension AS e WHERE e.extname = 'pg_idempotency';
    function regprocedure;
BEGIN
    IF role IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'role must not be null',
            DETAIL = 'The call has no value for role.', HINT = 'Pass the name of a role.';
    END IF;
    -- PostgreSQL does not check the settings that a session starts with, which current_setting returns.
    BEGIN
        PERFORM convert_to(role, 'UTF8');
    EXCEPTION WHEN character_not_in_repertoire THEN
        RAISE character_not_in_repertoire USING MESSAGE = 'invalid byte sequence in role',
            DETAIL = 'It holds bytes that are not valid in the database''s encoding.',
            HINT = 'Pass the name of a role.';
    END;
    -- PUBLIC is no role, and GRANT would take it for the keyword.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
        RAISE undefined_object USING MESSAGE = format('role "%s" does not exist', role),
            DETAIL = 'Rights are granted to roles only, not to PUBLIC.',
            HINT = 'Pass the name of the role that the backend connects as.';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %s TO %I', extension.extnamespace::regnamespace, role);
    FOR function IN
        SELECT p.oid
        FROM pg_proc AS p
        JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = extension.oid
          AND d.deptype = 'e' AND p.proname = ANY (called_by_backends)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', function, role);
    END LOOP;
END
$$;
COMMENT ON FUNCTION @extschema@.idempotency_grant(name) IS 'Lets a role do what a backend needs: claim, complete, release, replay, and work on leases';
REVOKE ALL ON FUNCTION @extschema@.idempotency_grant(name) FROM PUBLIC;

-- A function of somebody else's with one of our names may match a call better than ours does.
DO $$
DECLARE
    extension CONSTANT pg_extension := e FROM pg_extension AS e WHERE e.extname = 'pg_idempotency';
    stranger CONSTANT regprocedure := min(p.oid)
        FROM pg_proc AS p
        WHERE p.pronamespace = extension.extnamespace
          AND p.oid NOT IN (SELECT objid FROM pg_depend WHERE classid = 'pg_proc'::regclass
                            AND refclassid = 'pg_extension'::regclass AND refobjid = extension.oid)
          AND p.proname IN (SELECT o.proname FROM pg_depend AS d JOIN pg_proc AS o ON o.oid = d.objid
                            WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
                              AND d.refobjid = extension.oid);
BEGIN
    IF stranger IS NOT NULL THEN
        RAISE duplicate_function USING MESSAGE = format('function %s has the name of a function of pg_idempotency', stranger),
            DETAIL = 'A call of the extension''s function could run it instead.',
            HINT = 'Drop or rename it, or create the extension in another schema.';
    END IF;
END
$$;
