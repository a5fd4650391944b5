-- What is counted, and how automatic purge is doing. The functions look at shared memory; the views
-- are what people look at. Both show only what concerns this database, and pg_monitor may.

CREATE FUNCTION idempotency.counters(
    OUT kind            text,
    OUT operation       text,
    OUT outcomes        jsonb,
    OUT errors          jsonb,
    OUT waits           bigint,
    OUT waited_ms       double precision,
    OUT longest_wait_ms double precision,
    OUT counted_since   timestamptz
) RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL SAFE ROWS 100
    AS 'MODULE_PATHNAME', 'idempotency_counters';
COMMENT ON FUNCTION idempotency.counters() IS 'What has been counted, by operation; no row where nothing is counted';
REVOKE ALL ON FUNCTION idempotency.counters() FROM PUBLIC;

CREATE FUNCTION idempotency.counting(
    OUT is_on          boolean,
    OUT reason         text,
    OUT operations     integer,
    OUT max_operations integer
) RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL SAFE ROWS 1
    AS 'MODULE_PATHNAME', 'idempotency_counting';
COMMENT ON FUNCTION idempotency.counting() IS 'Whether calls are counted, and why not';
REVOKE ALL ON FUNCTION idempotency.counting() FROM PUBLIC;

CREATE FUNCTION @extschema@.idempotency_stats_reset() RETURNS void
    LANGUAGE c VOLATILE PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'idempotency_stats_reset';
COMMENT ON FUNCTION @extschema@.idempotency_stats_reset() IS 'Begins the counters of this database anew';
REVOKE ALL ON FUNCTION @extschema@.idempotency_stats_reset() FROM PUBLIC;

CREATE FUNCTION idempotency.automatic_purge(
    OUT is_on            boolean,
    OUT reason           text,
    OUT pid              integer,
    OUT last_started_at  timestamptz,
    OUT last_finished_at timestamptz,
    OUT purged           bigint,
    OUT last_error       text,
    OUT last_error_at    timestamptz
) RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL SAFE ROWS 1
    AS 'MODULE_PATHNAME', 'idempotency_automatic_purge';
COMMENT ON FUNCTION idempotency.automatic_purge() IS 'Whether this database is purged automatically, why not, and what came of it';
REVOKE ALL ON FUNCTION idempotency.automatic_purge() FROM PUBLIC;

-- How many records an operation has is estimated from what ANALYZE has found: counting hundreds of
-- millions of rows is nothing that a monitor should do.
CREATE VIEW idempotency.stats AS
    WITH estimated AS (
        SELECT common.operation, (c.reltuples * common.share)::bigint AS records,
               (pg_catalog.pg_total_relation_size(c.oid) * common.share)::bigint AS bytes
        FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'operation'
        JOIN pg_catalog.pg_statistic AS s ON s.starelid = c.oid AND s.staattnum = a.attnum AND NOT s.stainherit
        CROSS JOIN LATERAL unnest(
            CASE 1 WHEN s.stakind1 THEN s.stavalues1 WHEN s.stakind2 THEN s.stavalues2 WHEN s.stakind3 THEN s.stavalues3
                   WHEN s.stakind4 THEN s.stavalues4 WHEN s.stakind5 THEN s.stavalues5 END::text::text[],
            CASE 1 WHEN s.stakind1 THEN s.stanumbers1 WHEN s.stakind2 THEN s.stanumbers2 WHEN s.stakind3 THEN s.stanumbers3
                   WHEN s.stakind4 THEN s.stanumbers4 WHEN s.stakind5 THEN s.stanumbers5 END
        ) AS common (operation, share)
        WHERE c.oid = 'idempotency.records'::pg_catalog.regclass AND c.reltuples >= 0
    )
    SELECT coalesce(counted.kind, 'operation') AS kind,
           coalesce(counted.operation, estimated.operation) AS operation,
           estimated.records,
           estimated.bytes,
           (counted.outcomes ->> 'claimed')::bigint AS claimed,
           (counted.outcomes ->> 'bypassed')::bigint AS bypassed,
           (counted.outcomes ->> 'completed')::bigint AS completed,
           (counted.outcomes ->> 'released')::bigint AS released,
           (counted.outcomes ->> 'replayed')::bigint AS replayed,
           (counted.outcomes ->> 'deleted')::bigint AS deleted,
           (counted.outcomes ->> 'withheld')::bigint AS withheld,
           (counted.outcomes ->> 'in_progress')::bigint AS in_progress,
           (counted.outcomes ->> 'mismatch')::bigint AS mismatch,
           (counted.outcomes ->> 'invalid')::bigint AS invalid,
           (counted.outcomes ->> 'expired')::bigint AS expired,
           (counted.outcomes ->> 'unknown')::bigint AS unknown,
           counted.errors,
           counted.waits,
           counted.waited_ms,
           counted.longest_wait_ms,
           counted.counted_since
    FROM idempotency.counters() AS counted
    FULL JOIN estimated ON estimated.operation = counted.operation;
COMMENT ON VIEW idempotency.stats IS 'What each operation has: records, by estimate, and what its calls came to, where that is counted';
COMMENT ON COLUMN idempotency.stats.kind IS 'operation; none: calls that name none; others: those that found no room, of all databases together';
COMMENT ON COLUMN idempotency.stats.operation IS 'The operation';
COMMENT ON COLUMN idempotency.stats.records IS 'Records, estimated from the last ANALYZE; NULL where that does not list the operation';
COMMENT ON COLUMN idempotency.stats.bytes IS 'Their share of the table and its indexes, in bytes, by the same estimate';
COMMENT ON COLUMN idempotency.stats.claimed IS 'Answers: the caller is to do the work';
COMMENT ON COLUMN idempotency.stats.bypassed IS 'Answers: keys have no effect';
COMMENT ON COLUMN idempotency.stats.completed IS 'Answers that were recorded';
COMMENT ON COLUMN idempotency.stats.released IS 'Claims that were given up';
COMMENT ON COLUMN idempotency.stats.replayed IS 'Answers: the recorded one';
COMMENT ON COLUMN idempotency.stats.deleted IS 'Answers: the recorded resource is gone';
COMMENT ON COLUMN idempotency.stats.withheld IS 'Answers: finished, and not kept';
COMMENT ON COLUMN idempotency.stats.in_progress IS 'Answers: somebody else has the request';
COMMENT ON COLUMN idempotency.stats.mismatch IS 'Answers: same key, other request';
COMMENT ON COLUMN idempotency.stats.invalid IS 'Answers: the key is missing or malformed';
COMMENT ON COLUMN idempotency.stats.expired IS 'Answers: the retry comes too late';
COMMENT ON COLUMN idempotency.stats.unknown IS 'Answers of replay: no record';
COMMENT ON COLUMN idempotency.stats.errors IS 'Errors by SQLSTATE, those of the extension';
COMMENT ON COLUMN idempotency.stats.waits IS 'Calls that waited for the holder of a key';
COMMENT ON COLUMN idempotency.stats.waited_ms IS 'How long they waited, in milliseconds';
COMMENT ON COLUMN idempotency.stats.longest_wait_ms IS 'The longest wait, in milliseconds';
COMMENT ON COLUMN idempotency.stats.counted_since IS 'Since when it is counted; NULL where it is not';

CREATE VIEW idempotency.counting AS
    SELECT is_on, reason, operations, max_operations FROM idempotency.counting();
COMMENT ON VIEW idempotency.counting IS 'Whether calls are counted';
COMMENT ON COLUMN idempotency.counting.is_on IS 'Whether calls are counted';
COMMENT ON COLUMN idempotency.counting.reason IS 'Why they are not';
COMMENT ON COLUMN idempotency.counting.operations IS 'Operations that are counted by name, in all databases';
COMMENT ON COLUMN idempotency.counting.max_operations IS 'How many can be';

CREATE VIEW idempotency.automatic_purge AS
    SELECT is_on, reason, pid, last_started_at, last_finished_at, purged, last_error, last_error_at
    FROM idempotency.automatic_purge();
COMMENT ON VIEW idempotency.automatic_purge IS 'How automatic purge of this database is doing';
COMMENT ON COLUMN idempotency.automatic_purge.is_on IS 'Whether this database is purged automatically';
COMMENT ON COLUMN idempotency.automatic_purge.reason IS 'Why it is not';
COMMENT ON COLUMN idempotency.automatic_purge.pid IS 'The worker that is here now';
COMMENT ON COLUMN idempotency.automatic_purge.last_started_at IS 'When a worker last came';
COMMENT ON COLUMN idempotency.automatic_purge.last_finished_at IS 'When one last found nothing more to purge';
COMMENT ON COLUMN idempotency.automatic_purge.purged IS 'Rows purged since the server started';
COMMENT ON COLUMN idempotency.automatic_purge.last_error IS 'What last went wrong';
COMMENT ON COLUMN idempotency.automatic_purge.last_error_at IS 'When';

GRANT USAGE ON SCHEMA idempotency TO pg_monitor;
GRANT SELECT ON idempotency.stats, idempotency.counting, idempotency.automatic_purge TO pg_monitor;
GRANT EXECUTE ON FUNCTION idempotency.counters(), idempotency.counting(), idempotency.automatic_purge() TO pg_monitor;
