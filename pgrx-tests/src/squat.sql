-- What a stranger leaves in the schema public before the extension comes: objects for all that its SQL uses, which
-- write a line to the server's log when they run. SQUAT_WORDS and SQUAT_OPERATORS are arrays, from the extension's SQL.

SET search_path = pg_catalog, pg_temp;

CREATE PROCEDURE public.squat_try(statement text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
    -- Some cannot be made: PL/pgSQL takes no "any", and some names are taken by now.
    NULL;
END
$$;

CREATE FUNCTION public.squat_seen(what text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE WARNING 'squatted: % as %', what, current_user;
    RETURN true;
END
$$;

-- A type of the stranger's, with casts from and to everything: whatever takes it could be taken for anything.
CREATE TYPE public.squat AS (t text);

DO $$
DECLARE
    types CONSTANT text[] := ARRAY['text', 'name', '"char"', 'oid', 'int2', 'int4', 'int8', 'float4', 'float8', 'numeric',
        'bool', 'bytea', 'jsonb', 'json', 'uuid', 'timestamptz', 'timestamp', 'interval', 'regclass', 'regproc',
        'regprocedure', 'xid', 'varchar', 'text[]', 'oid[]', 'int4[]', 'float4[]'];
    body CONSTANT text := 'LANGUAGE plpgsql VOLATILE AS $f$BEGIN PERFORM public.squat_seen(%3$L); RETURN NULL; END$f$';
    operators CONSTANT text[] := ARRAY(
        SELECT DISTINCT oprname FROM pg_operator WHERE oprkind = 'b' AND oprname = ANY (SQUAT_OPERATORS));
    words CONSTANT text[] := SQUAT_WORDS;
    predicates CONSTANT text[] := ARRAY(
        SELECT DISTINCT oprname FROM pg_operator WHERE oprresult = 'bool'::regtype AND oprname = ANY (operators));
    l text;
    r text;
    o text;
    t regtype;
    p record;
BEGIN
    FOREACH l IN ARRAY types LOOP
        FOREACH r IN ARRAY types LOOP
            EXECUTE format('CREATE FUNCTION public.squat_is(%1$s, %2$s) RETURNS boolean ' || body,
                           l, r, format('a predicate of %s and %s', l, r));
            EXECUTE format('CREATE FUNCTION public.squat_of(%1$s, %2$s) RETURNS %1$s ' || body,
                           l, r, format('an operator of %s and %s', l, r));
            FOREACH o IN ARRAY operators LOOP
                EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.squat_%s)',
                               o, l, r, CASE WHEN o = ANY (predicates) THEN 'is' ELSE 'of' END);
            END LOOP;
        END LOOP;
        EXECUTE format('CREATE FUNCTION public.squat_from(%1$s) RETURNS public.squat ' || body, l, '', 'a cast from ' || l);
        EXECUTE format('CREATE FUNCTION public.squat_to_%2$s(public.squat) RETURNS %1$s ' || body,
                       l, translate(l, '."[]', '____'), 'a cast to ' || l);
        CALL public.squat_try(format('CREATE CAST (%s AS public.squat) WITH FUNCTION public.squat_from(%1$s) AS IMPLICIT', l));
        CALL public.squat_try(format('CREATE CAST (public.squat AS %s) WITH FUNCTION public.squat_to_%s(public.squat) AS IMPLICIT',
                                     l, translate(l, '."[]', '____')));
    END LOOP;
    -- Functions with the names and arguments of pg_catalog's.
    FOR p IN SELECT proname, pg_get_function_identity_arguments(oid) AS arguments, prorettype::regtype AS result
             FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (words)
    LOOP
        CALL public.squat_try(format('CREATE FUNCTION public.%1$I(%2$s) RETURNS %4$s ' || body, p.proname, p.arguments,
                                     format('function %s(%s)', p.proname, p.arguments), p.result));
    END LOOP;
    -- Relations and types with the names of pg_catalog's.
    FOR p IN SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relname = ANY (words) LOOP
        CALL public.squat_try(format('CREATE VIEW public.%1$I AS SELECT * FROM pg_catalog.%1$I WHERE public.squat_seen(%2$L)',
                                     p.relname, 'relation ' || p.relname));
    END LOOP;
    FOR p IN SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typname = ANY (words) LOOP
        CALL public.squat_try(format('CREATE DOMAIN public.%I AS pg_catalog.text CHECK (public.squat_seen(%L))',
                                     p.typname, 'type ' || p.typname));
    END LOOP;
    CALL public.squat_try('CREATE COLLATION public."C" FROM pg_catalog."POSIX"');
END
$$;
