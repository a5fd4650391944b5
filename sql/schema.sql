-- The tables. Backends have no rights on them: the functions reach them by themselves.

-- CREATE EXTENSION puts the extension's schema into the search path, and an operator or a function there that
-- matches better than pg_catalog's would be taken: whoever may create there would choose what the views run.
-- From here on names and operators are looked up in pg_catalog only, and what is ours is written with its schema.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE SCHEMA idempotency;
COMMENT ON SCHEMA idempotency IS 'Records and settings of the extension pg_idempotency';

-- No CHECK constraints: the functions are the only writers, and the executor would parse each
-- constraint anew for every insert. NOT NULL costs nothing.
CREATE TABLE idempotency.records (
    digest        uuid NOT NULL,
    scope         text COLLATE "C" NOT NULL,
    key_space     text COLLATE "C" NOT NULL,
    key           text COLLATE "C" NOT NULL,
    operation     text COLLATE "C" NOT NULL,
    fingerprint   bytea,
    status        integer,
    headers       jsonb,
    body          bytea,
    resource_type text COLLATE "C",
    resource_id   text COLLATE "C",
    withheld      text COLLATE "C",
    token         uuid NOT NULL,
    attempt       integer NOT NULL,
    created_at    timestamptz NOT NULL,
    completed_at  timestamptz,
    expires_at    timestamptz,
    CONSTRAINT records_pkey PRIMARY KEY (digest)
) USING heap;
COMMENT ON TABLE idempotency.records IS 'One row per executed request: who asked for what under which key, and the answer that every later caller gets';
COMMENT ON CONSTRAINT records_pkey ON idempotency.records IS 'The last line of defence; the key''s lock comes before it';
COMMENT ON COLUMN idempotency.records.digest IS 'The first 128 bits of a SHA-256 over scope, key space and key; of a UUIDv7 key the first 32 are its own';
COMMENT ON COLUMN idempotency.records.scope IS 'Principal or tenant';
COMMENT ON COLUMN idempotency.records.key_space IS 'The operation, or the name that several operations share';
COMMENT ON COLUMN idempotency.records.key IS 'The key, without the quotation marks and white space of its header';
COMMENT ON COLUMN idempotency.records.operation IS 'The operation that was executed';
COMMENT ON COLUMN idempotency.records.fingerprint IS 'Fingerprint of the request, 32 bytes, where one was given';
COMMENT ON COLUMN idempotency.records.status IS 'HTTP status of the answer';
COMMENT ON COLUMN idempotency.records.headers IS 'Headers of the answer: name to string, or to array of strings where there are several';
COMMENT ON COLUMN idempotency.records.body IS 'Body of the answer, byte for byte';
COMMENT ON COLUMN idempotency.records.resource_type IS 'Type of the created resource, where a pointer to it was recorded';
COMMENT ON COLUMN idempotency.records.resource_id IS 'Id of the created resource, where a pointer to it was recorded';
COMMENT ON COLUMN idempotency.records.withheld IS 'Why the answer was not kept, where it was not';
COMMENT ON COLUMN idempotency.records.token IS 'Token of the claim';
COMMENT ON COLUMN idempotency.records.attempt IS '1 for the first execution';
COMMENT ON COLUMN idempotency.records.created_at IS 'When the key was won';
COMMENT ON COLUMN idempotency.records.completed_at IS 'When the answer was recorded';
COMMENT ON COLUMN idempotency.records.expires_at IS 'From when on the record counts as absent; NULL for never';

SELECT pg_catalog.pg_extension_config_dump('idempotency.records', '');

CREATE TABLE idempotency.operations (
    operation       text COLLATE "C" NOT NULL,
    settings        jsonb NOT NULL,
    past_retentions jsonb NOT NULL DEFAULT '[]',
    CONSTRAINT operations_pkey PRIMARY KEY (operation)
) USING heap;
COMMENT ON TABLE idempotency.operations IS 'Settings of operations that differ from the defaults; changed by idempotency_configure';
COMMENT ON CONSTRAINT operations_pkey ON idempotency.operations IS 'One row per operation';
COMMENT ON COLUMN idempotency.operations.operation IS 'The operation';
COMMENT ON COLUMN idempotency.operations.settings IS 'Its settings: an object, a setting that is not there has its default';
COMMENT ON COLUMN idempotency.operations.past_retentions IS 'Earlier retentions that still refuse keys, with the time until which each was in force, in milliseconds since 1970';

-- Names, not OIDs: they survive pg_upgrade and a relation that is dropped and created again.
CREATE TABLE idempotency.resource_types (
    resource_type   text COLLATE "C" NOT NULL,
    relation_schema text COLLATE "C" NOT NULL,
    relation_name   text COLLATE "C" NOT NULL,
    id_column       text COLLATE "C" NOT NULL,
    relation_owner  text COLLATE "C" NOT NULL,
    CONSTRAINT resource_types_pkey PRIMARY KEY (resource_type)
) USING heap;
COMMENT ON TABLE idempotency.resource_types IS 'Where the resources of a type are, so that a replay can tell whether they still exist; changed by idempotency_register_resource';
COMMENT ON CONSTRAINT resource_types_pkey ON idempotency.resource_types IS 'One row per type';
COMMENT ON COLUMN idempotency.resource_types.resource_type IS 'The type, as completions name it';
COMMENT ON COLUMN idempotency.resource_types.relation_schema IS 'Schema of the table or view';
COMMENT ON COLUMN idempotency.resource_types.relation_name IS 'Name of the table or view';
COMMENT ON COLUMN idempotency.resource_types.id_column IS 'The column that holds the id';
COMMENT ON COLUMN idempotency.resource_types.relation_owner IS 'Role that owned the relation when it was registered: under another owner a row that is missing proves nothing';

SELECT pg_catalog.pg_extension_config_dump('idempotency.operations', '');
SELECT pg_catalog.pg_extension_config_dump('idempotency.resource_types', '');

-- Where records have expired: an index on the time would make every create dearer. This is a hint that
-- idempotency_purge keeps for itself as it goes; it may be emptied at any time, and a crash does so.
CREATE UNLOGGED TABLE idempotency.stretches (
    stretch integer NOT NULL,
    due     timestamptz NOT NULL,
    CONSTRAINT stretches_pkey PRIMARY KEY (stretch)
) USING heap;
COMMENT ON TABLE idempotency.stretches IS 'When a purge has to look at which part of the records'' table again';
COMMENT ON CONSTRAINT stretches_pkey ON idempotency.stretches IS 'One row per part';
COMMENT ON COLUMN idempotency.stretches.stretch IS 'The part: 1024 blocks, counted from 0';
COMMENT ON COLUMN idempotency.stretches.due IS 'When the first of its records expires, or a day after the last look';

-- Leases of claims that outlive their transaction. While a lease is open, its request has a record
-- without an answer (completed_at is NULL) whose token is the lease's. Ended leases are kept for a
-- while, so that a worker that lost its lease learns that, and not that its token is unknown.
CREATE TABLE idempotency.leases (
    token          uuid NOT NULL,
    digest         uuid NOT NULL,
    scope          text COLLATE "C" NOT NULL,
    key_space      text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    deadline       timestamptz NOT NULL,
    recovery_point text COLLATE "C",
    recovery_data  jsonb,
    data           jsonb,
    ended          boolean NOT NULL,
    settings       jsonb,
    CONSTRAINT leases_pkey PRIMARY KEY (token)
) USING heap;
CREATE INDEX leases_open ON idempotency.leases (deadline) WHERE NOT ended;
CREATE INDEX leases_ended ON idempotency.leases (deadline) WHERE ended;
COMMENT ON TABLE idempotency.leases IS 'Who works on requests that outlive their transaction, until when, and how far the work has come';
COMMENT ON CONSTRAINT leases_pkey ON idempotency.leases IS 'One row per token';
COMMENT ON INDEX idempotency.leases_open IS 'Finds leases that have run out';
COMMENT ON INDEX idempotency.leases_ended IS 'Finds leases that ended long ago, for idempotency_purge';
COMMENT ON COLUMN idempotency.leases.token IS 'Token of the claim';
COMMENT ON COLUMN idempotency.leases.digest IS 'Names the record, as there';
COMMENT ON COLUMN idempotency.leases.scope IS 'Principal or tenant';
COMMENT ON COLUMN idempotency.leases.key_space IS 'The operation, or the name that several operations share';
COMMENT ON COLUMN idempotency.leases.key IS 'The key';
COMMENT ON COLUMN idempotency.leases.deadline IS 'Until when nobody else may take over';
COMMENT ON COLUMN idempotency.leases.recovery_point IS 'The last checkpoint';
COMMENT ON COLUMN idempotency.leases.recovery_data IS 'What the last checkpoint kept';
COMMENT ON COLUMN idempotency.leases.data IS 'What a completer needs to repeat the request';
COMMENT ON COLUMN idempotency.leases.ended IS 'Whether the request was completed, given back or taken over';
COMMENT ON COLUMN idempotency.leases.settings IS 'Settings of the operation as they were when it was claimed';

SELECT pg_catalog.pg_extension_config_dump('idempotency.leases', '');
