CREATE FUNCTION @extschema@.idempotency_key_lock(scope text, key_space text, key text) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'idempotency_key_lock';
COMMENT ON FUNCTION @extschema@.idempotency_key_lock(text, text, text) IS
    'The number of a key''s lock: column key_lock of the view idempotency.in_progress';

-- The table of locks is read once, so that holders and waiters are of one moment. What belongs to
-- sessions of others is hidden by pg_stat_activity itself: its function asks who looks.
CREATE VIEW idempotency.in_progress AS
    WITH locks AS MATERIALIZED (
        SELECT l.locktype, l.granted, l.pid, l.virtualtransaction, l.transactionid, l.waitstart, l.classid, l.objid,
               (l.classid::bigint << 32) | l.objid::bigint AS key_lock
        FROM pg_catalog.pg_locks AS l
        WHERE l.locktype = 'transactionid' AND l.pid IS NULL
           OR l.locktype = 'advisory' AND l.objsubid = 18763 AND l.database = (
                  SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
    ), held AS (
        SELECT l.key_lock, l.classid, l.objid, l.pid, x.transactionid AS prepared
        FROM locks AS l
        LEFT JOIN locks AS x ON l.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
        WHERE l.locktype = 'advisory' AND l.granted
    ), queues AS (
        SELECT l.key_lock, pg_catalog.count(*)::integer AS waiting, pg_catalog.min(l.waitstart) AS since,
               pg_catalog.array_agg(l.pid ORDER BY l.waitstart, l.pid) AS pids
        FROM locks AS l
        WHERE l.locktype = 'advisory' AND NOT l.granted
        GROUP BY l.key_lock
    ), leased AS (
        SELECT @extschema@.idempotency_key_lock(l.scope, l.key_space, l.key) AS key_lock, r.scope, r.operation, r.key_space, r.key,
               l.token, r.attempt, r.created_at, l.recovery_point, l.deadline
        FROM idempotency.leases AS l
        JOIN idempotency.records AS r ON r.digest = l.digest AND r.token = l.token
        WHERE NOT l.ended AND r.completed_at IS NULL
    ), keys AS (
        SELECT coalesce(h.key_lock, l.key_lock) AS key_lock, h.classid, h.objid, h.pid, p.gid, l.scope, l.operation,
               l.key_space, l.key, l.token, l.attempt, l.recovery_point, l.deadline,
               CASE WHEN h.pid IS NOT NULL THEN 'session' WHEN h.key_lock IS NOT NULL THEN 'prepared' ELSE 'lease' END AS holder,
               coalesce(p.prepared, CASE WHEN h.key_lock IS NULL THEN l.created_at END) AS since
        FROM held AS h
        FULL JOIN leased AS l ON l.key_lock = h.key_lock
        LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction = h.prepared
    )
    SELECT k.key_lock, k.holder, k.pid, k.gid, coalesce(k.since, a.xact_start) AS since,
           pg_catalog.clock_timestamp() - coalesce(k.since, a.xact_start) AS age,
           a.usename, a.application_name, a.state, a.query,
           coalesce(q.waiting, 0) AS waiting, q.pids AS waiting_pids,
           pg_catalog.clock_timestamp() - q.since AS longest_wait,
           k.scope, k.operation, k.key_space, k.key, k.token, k.attempt, k.recovery_point, k.deadline, k.classid, k.objid
    FROM keys AS k
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = k.pid
    LEFT JOIN queues AS q ON q.key_lock = k.key_lock;
COMMENT ON VIEW idempotency.in_progress IS 'Keys that are held at this moment, by whom and since when, and how many wait for them; and all open leases';
COMMENT ON COLUMN idempotency.in_progress.key_lock IS 'Number of the key''s lock, as idempotency_key_lock returns it';
COMMENT ON COLUMN idempotency.in_progress.holder IS 'session, prepared (a prepared transaction) or lease (nobody works on it at this moment)';
COMMENT ON COLUMN idempotency.in_progress.pid IS 'The session that holds the key''s lock';
COMMENT ON COLUMN idempotency.in_progress.gid IS 'The prepared transaction that holds the key''s lock';
COMMENT ON COLUMN idempotency.in_progress.since IS 'When the holder''s transaction began or was prepared; where only a lease holds the key, when it was won';
COMMENT ON COLUMN idempotency.in_progress.age IS 'How long ago that was';
COMMENT ON COLUMN idempotency.in_progress.usename IS 'Role of the session';
COMMENT ON COLUMN idempotency.in_progress.application_name IS 'What the session calls itself';
COMMENT ON COLUMN idempotency.in_progress.state IS 'active, idle in transaction and so on, as pg_stat_activity has it';
COMMENT ON COLUMN idempotency.in_progress.query IS 'The session''s last statement';
COMMENT ON COLUMN idempotency.in_progress.waiting IS 'How many sessions wait for the key''s lock';
COMMENT ON COLUMN idempotency.in_progress.waiting_pids IS 'Those sessions, who has waited longest first';
COMMENT ON COLUMN idempotency.in_progress.longest_wait IS 'How long the first of them has waited';
COMMENT ON COLUMN idempotency.in_progress.scope IS 'Principal or tenant; of leases only, as a lock does not tell';
COMMENT ON COLUMN idempotency.in_progress.operation IS 'The operation that is executed; of leases only';
COMMENT ON COLUMN idempotency.in_progress.key_space IS 'The operation, or the name that several operations share; of leases only';
COMMENT ON COLUMN idempotency.in_progress.key IS 'The key; of leases only';
COMMENT ON COLUMN idempotency.in_progress.token IS 'Token of the lease';
COMMENT ON COLUMN idempotency.in_progress.attempt IS 'How many workers have had the request on lease';
COMMENT ON COLUMN idempotency.in_progress.recovery_point IS 'The last checkpoint of the lease';
COMMENT ON COLUMN idempotency.in_progress.deadline IS 'When the lease runs out; in the past: it is abandoned';
COMMENT ON COLUMN idempotency.in_progress.classid IS 'The lock in pg_locks: the upper half of its number';
COMMENT ON COLUMN idempotency.in_progress.objid IS 'The lock in pg_locks: the lower half of its number';
