-- The extension in a database, a line for each fact that an update could get wrong; no OIDs.

WITH member AS (
    SELECT d.classid, d.objid
    FROM pg_depend AS d JOIN pg_extension AS e ON d.refobjid = e.oid
    WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'pg_idempotency'
),
relation AS (
    SELECT c.* FROM pg_class AS c JOIN member AS m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
    UNION
    SELECT c.* FROM pg_class AS c JOIN pg_type AS t ON t.typrelid = c.oid
        JOIN member AS m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
)
SELECT concat_ws(' ', 'member', pg_describe_object(classid, objid, 0), 'comment:',
                 obj_description(objid, classid::regclass::name)) AS line
FROM member
UNION ALL
SELECT concat_ws(' ', 'extension', e.extversion, e.extrelocatable, e.extnamespace::regnamespace, 'dumped:',
                 (SELECT string_agg(t::regclass || ' ' || quote_literal(e.extcondition[n]), ', ' ORDER BY t::regclass::text)
                  FROM unnest(e.extconfig) WITH ORDINALITY AS u (t, n)),
                 'needs:', (SELECT string_agg(o, ', ' ORDER BY o) FROM (SELECT pg_describe_object(refclassid, refobjid, 0) AS o
                            FROM pg_depend WHERE classid = 'pg_extension'::regclass AND objid = e.oid) AS needed))
FROM pg_extension AS e WHERE e.extname = 'pg_idempotency'
UNION ALL
SELECT concat_ws(' ', 'function', p.oid::regprocedure, pg_get_functiondef(p.oid), p.proowner::regrole, 'rights:', p.proacl,
                 p.prosrc, p.probin)
FROM pg_proc AS p JOIN member AS m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid WHERE p.prokind <> 'a'
UNION ALL
SELECT concat_ws(' ', 'schema', n.nspname, n.nspowner::regrole, 'rights:', n.nspacl)
FROM pg_namespace AS n JOIN member AS m ON m.classid = 'pg_namespace'::regclass AND m.objid = n.oid
UNION ALL
SELECT concat_ws(' ', 'type', t.oid::regtype, t.typtype, t.typowner::regrole, 'rights:', t.typacl, t.typnotnull, t.typdefault)
FROM pg_type AS t JOIN member AS m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
UNION ALL
SELECT concat_ws(' ', 'relation', oid::regclass, relkind, relpersistence, relowner::regrole, 'rights:', relacl, relrowsecurity,
                 relforcerowsecurity, reloptions, relreplident, relhasrules AND relkind <> 'v',
                 CASE WHEN relkind IN ('v', 'm') THEN pg_get_viewdef(oid) END)
FROM relation
UNION ALL
SELECT concat_ws(' ', 'column', a.attrelid::regclass, row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum), a.attname,
                 format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation, 'not null:', a.attnotnull, a.attstorage,
                 a.attcompression, a.attidentity, a.attgenerated,
                 'rights:', a.attacl,
                 'default:', pg_get_expr(d.adbin, d.adrelid), 'comment:', col_description(a.attrelid, a.attnum))
FROM pg_attribute AS a JOIN relation AS r ON r.oid = a.attrelid
    LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT concat_ws(' ', 'constraint', c.conrelid::regclass, c.conname, pg_get_constraintdef(c.oid), c.convalidated,
                 'comment:', obj_description(c.oid, 'pg_constraint'))
FROM pg_constraint AS c JOIN relation AS r ON r.oid = c.conrelid
UNION ALL
SELECT concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisclustered, i.indisreplident,
                 'comment:', obj_description(i.indexrelid, 'pg_class'))
FROM pg_index AS i JOIN relation AS r ON r.oid = i.indrelid
UNION ALL
SELECT concat_ws(' ', 'trigger', pg_get_triggerdef(t.oid), t.tgenabled, 'comment:', obj_description(t.oid, 'pg_trigger'))
FROM pg_trigger AS t JOIN relation AS r ON r.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL
SELECT concat_ws(' ', 'rule', pg_get_ruledef(w.oid)) FROM pg_rewrite AS w JOIN relation AS r ON r.oid = w.ev_class
UNION ALL
SELECT concat_ws(' ', 'policy', p.polname, p.polrelid::regclass, p.polcmd, pg_get_expr(p.polqual, p.polrelid))
FROM pg_policy AS p JOIN relation AS r ON r.oid = p.polrelid
UNION ALL
SELECT concat_ws(' ', 'statistics', pg_get_statisticsobjdef(s.oid)) FROM pg_statistic_ext AS s JOIN relation AS r ON r.oid = s.stxrelid
UNION ALL
SELECT concat_ws(' ', 'rights at first of', pg_describe_object(i.classoid, i.objoid, i.objsubid), i.initprivs)
FROM pg_init_privs AS i JOIN member AS m ON m.classid = i.classoid AND m.objid = i.objoid
ORDER BY 1
