CREATE FUNCTION @extschema@.idempotency_configure(operation text, settings jsonb) RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_configure';
COMMENT ON FUNCTION @extschema@.idempotency_configure(text, jsonb) IS
    'Changes settings of an operation by a merge patch (RFC 7396) and returns all that are set';
REVOKE ALL ON FUNCTION @extschema@.idempotency_configure(text, jsonb) FROM PUBLIC;

CREATE FUNCTION @extschema@.idempotency_register_resource(resource_type text, relation regclass, id_column name) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_register_resource';
COMMENT ON FUNCTION @extschema@.idempotency_register_resource(text, regclass, name) IS
    'Tells where the resources of a type are, so that a replay can tell whether they still exist';
REVOKE ALL ON FUNCTION @extschema@.idempotency_register_resource(text, regclass, name) FROM PUBLIC;

-- Row changes alone tell other sessions nothing; these triggers make them read the settings anew,
-- however the rows were changed. For each row, and ALWAYS, because logical replication fires no
-- others.
CREATE FUNCTION idempotency.settings_changed() RETURNS trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'idempotency_settings_changed';
COMMENT ON FUNCTION idempotency.settings_changed() IS 'Makes all sessions read the settings anew';
REVOKE ALL ON FUNCTION idempotency.settings_changed() FROM PUBLIC;

CREATE TRIGGER settings_changed AFTER INSERT OR UPDATE OR DELETE ON idempotency.operations
    FOR EACH ROW EXECUTE FUNCTION idempotency.settings_changed();
CREATE TRIGGER settings_truncated AFTER TRUNCATE ON idempotency.operations
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.settings_changed();
ALTER TABLE idempotency.operations ENABLE ALWAYS TRIGGER settings_changed, ENABLE ALWAYS TRIGGER settings_truncated;
COMMENT ON TRIGGER settings_changed ON idempotency.operations IS 'Makes all sessions read the settings anew';
COMMENT ON TRIGGER settings_truncated ON idempotency.operations IS 'Makes all sessions read the settings anew';

CREATE TRIGGER settings_changed AFTER INSERT OR UPDATE OR DELETE ON idempotency.resource_types
    FOR EACH ROW EXECUTE FUNCTION idempotency.settings_changed();
CREATE TRIGGER settings_truncated AFTER TRUNCATE ON idempotency.resource_types
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.settings_changed();
ALTER TABLE idempotency.resource_types ENABLE ALWAYS TRIGGER settings_changed, ENABLE ALWAYS TRIGGER settings_truncated;
COMMENT ON TRIGGER settings_changed ON idempotency.resource_types IS 'Makes all sessions read the settings anew';
COMMENT ON TRIGGER settings_truncated ON idempotency.resource_types IS 'Makes all sessions read the settings anew';
