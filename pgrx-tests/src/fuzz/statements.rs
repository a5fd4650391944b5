//! Random statements: calls wherever SQL lets one be made, and what sessions do around them.

use super::catalog::Function;
use super::values::{self, Pool};
use crate::dice::Dice;

pub struct Statements {
    pub functions: Vec<Function>,
    pub pool: Pool,
}

/// What is drawn more often than the rest: without claims there is nothing to complete.
const FREQUENT: [&str; 7] = [
    "idempotency_claim",
    "idempotency_claim",
    "idempotency_complete",
    "idempotency_complete",
    "idempotency_replay",
    "idempotency_claim_many",
    "idempotency_resume",
];

const SETTINGS: [&str; 21] = [
    "pg_idempotency.lock_order = off",
    "pg_idempotency.lock_order = warning",
    "pg_idempotency.lock_order = error",
    "pg_idempotency.unlisted = ignored",
    "pg_idempotency.unlisted = optional",
    "pg_idempotency.max_body = 0",
    "pg_idempotency.max_body = '1GB'",
    "pg_idempotency.wait_ms = 0",
    "pg_idempotency.wait_ms = -1",
    "pg_idempotency.problem_type_base = 'https://example.com/'",
    "statement_timeout = 3",
    "statement_timeout = 2000",
    "lock_timeout = 5",
    "lock_timeout = 500",
    "search_path = elsewhere, public",
    "search_path = ''",
    "fuzz.at_ddl = on",
    "session_replication_role = replica",
    "jit_above_cost = 0",
    "work_mem = '64kB'",
    "bytea_output = escape",
];

impl Statements {
    /// One statement, or what is as good as one.
    pub fn any(&self, dice: &mut Dice) -> String {
        match dice.below(60) {
            0..14 => format!("SELECT * FROM {}", self.call(dice)),
            14 => format!("SELECT ({}).*", self.call(dice)),
            15..17 => self.in_a_query(dice),
            17..19 => self.in_a_block(dice),
            19..21 => self.in_ddl(dice),
            21..23 => self.cursor(dice),
            23..27 => savepoint(dice),
            27..31 => work(dice),
            31..33 => self.trigger(dice),
            33 => format!("EXPLAIN (ANALYZE, TIMING off) SELECT * FROM {}", self.call(dice)),
            34 => format!("PREPARE p{} AS SELECT * FROM {}", dice.below(3), self.call(dice)),
            35..37 => format!("EXECUTE p{}", dice.below(3)),
            37..40 => format!("SET {}{}", dice.pick(&["", "LOCAL "]), dice.pick(&SETTINGS)),
            40 => (*dice.pick(&["RESET ALL", "DISCARD PLANS", "DISCARD TEMP", "DISCARD SEQUENCES", "DEALLOCATE ALL"])).into(),
            41 => (*dice.pick(&["SET ROLE backend", "SET ROLE outsider", "RESET ROLE"])).into(),
            42 => self.in_parallel(dice),
            43 => format!("CALL fuzz.place('k{}', {})", dice.below(9), dice.once_in(2)),
            44..48 => boundary(dice),
            48 => self.configuring(dice),
            49 => "NOTIFY fuzz, 'x'".into(),
            50..53 => "SELECT * FROM idempotency_claim('alice', 'POST /orders', 'k1', sha256('x'), 0)".into(),
            53..56 => "SELECT * FROM idempotency_complete(201, body => 'x', resource_type => 'thing', resource_id => '1')".into(),
            _ => format!("SELECT * FROM {}, {}", self.call(dice), self.call(dice)),
        }
    }

    /// A call of some function, by position or by name, with some of its defaults left out.
    fn call(&self, dice: &mut Dice) -> String {
        let frequent = dice.once_in(2).then(|| *dice.pick(&FREQUENT));
        let named = frequent.and_then(|name| self.functions.iter().find(|f| f.name == name));
        let function = named.unwrap_or_else(|| dice.pick(&self.functions));
        let required = function.arguments.len() - function.defaults;
        let by_name = dice.once_in(2) && function.arguments.iter().all(|a| !a.name.is_empty());
        let count = required + dice.below(function.defaults + 1);
        let mut given = Vec::new();
        for (n, argument) in function.arguments.iter().enumerate() {
            let value = values::any(dice, &self.pool, &argument.sql_type);
            match by_name {
                true if n < required || dice.once_in(2) => {
                    given.push(format!("{} => {value}", argument.name))
                }
                false if n < count => given.push(value),
                _ => {}
            }
        }
        format!("{}({})", function.name, given.join(", "))
    }

    fn in_a_query(&self, dice: &mut Dice) -> String {
        let call = self.call(dice);
        match dice.below(9) {
            0 => format!("SELECT count(*) FROM generate_series(1, 3) WHERE ({call}) IS NOT NULL"),
            1 => format!("SELECT * FROM generate_series(1, 3) n, LATERAL {call} c"),
            2 => "SELECT * FROM generate_series(1, 5) n, LATERAL idempotency_claim('alice', 'POST /orders', 'k' || n, wait_ms => 0) c".into(),
            3 => format!("SELECT (SELECT c FROM {call} c LIMIT 1), {call}"),
            4 => format!(
                "WITH c AS MATERIALIZED (SELECT * FROM {call}) INSERT INTO orders (key) SELECT 'k' FROM c RETURNING *"
            ),
            5 => format!("SELECT * FROM {call} LEFT JOIN {call} d ON true ORDER BY 1 LIMIT 1"),
            6 => format!(
                "SELECT ROW(({call})), array_agg(({call})::text) FROM generate_series(1, 2)"
            ),
            7 => format!("SELECT * FROM ROWS FROM ({call}, generate_series(1, 2)) WITH ORDINALITY"),
            _ => format!("SELECT * FROM {call} WINDOW w AS (ORDER BY 1)"),
        }
    }

    fn in_a_block(&self, dice: &mut Dice) -> String {
        let (one, other) = (self.call(dice), self.call(dice));
        let body = match dice.below(5) {
            0 => format!("BEGIN PERFORM {one}; EXCEPTION WHEN others THEN PERFORM {other}; END"),
            1 => format!("BEGIN PERFORM {one}; COMMIT; PERFORM {other}; ROLLBACK; END"),
            2 => format!("BEGIN PERFORM {one}; RAISE 'undo'; EXCEPTION WHEN raise_exception THEN END"),
            3 => format!(
                "BEGIN FOR n IN 1..5 LOOP BEGIN PERFORM {one}; INSERT INTO orders (key) VALUES ('b'); PERFORM {other};
                 EXCEPTION WHEN others THEN NULL; END; END LOOP; END"
            ),
            _ => format!("DECLARE r record; BEGIN FOR r IN SELECT * FROM {one} LOOP PERFORM {other}; COMMIT; END LOOP; END"),
        };
        format!("DO $do$ {body} $do$")
    }

    fn in_ddl(&self, dice: &mut Dice) -> String {
        let (call, n) = (self.call(dice), dice.below(4));
        match dice.below(7) {
            0 => format!("CREATE TEMP TABLE t{n} ON COMMIT DROP AS SELECT * FROM {call}"),
            1 => format!("CREATE TEMP TABLE t{n} (a text DEFAULT ({call})::text, b int); INSERT INTO t{n} (b) VALUES (1), (2)"),
            2 => format!("CREATE TEMP TABLE i{n} AS SELECT 1 a; CREATE INDEX ON i{n} ((({call})::text))"),
            3 => format!("CREATE TEMP TABLE g{n} (a int, b text GENERATED ALWAYS AS (({call})::text) STORED)"),
            4 => format!("CREATE TEMP TABLE c{n} (a int CHECK (({call}) IS NOT NULL)); INSERT INTO c{n} VALUES (1)"),
            5 => format!("CREATE TEMP VIEW v{n} AS SELECT * FROM {call}; SELECT * FROM v{n}"),
            _ => format!("CREATE TEMP TABLE s{n} (a int); CREATE TRIGGER s BEFORE INSERT ON s{n} FOR EACH ROW
                          EXECUTE FUNCTION {}(); INSERT INTO s{n} VALUES (1)", dice.pick(&["idempotency.settings_changed", "fuzz.work"])),
        }
    }

    fn cursor(&self, dice: &mut Dice) -> String {
        match dice.below(4) {
            0 => format!("DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT * FROM {}", self.call(dice)),
            1 => format!(
                "DECLARE c {}CURSOR FOR SELECT {}",
                dice.pick(&["", "SCROLL "]),
                self.call(dice)
            ),
            _ => (*dice.pick(&[
                "FETCH 2 FROM c",
                "FETCH BACKWARD 1 FROM c",
                "FETCH ABSOLUTE 1 FROM c",
                "FETCH LAST FROM c",
                "MOVE FIRST FROM c",
                "CLOSE c",
            ]))
            .into(),
        }
    }

    fn trigger(&self, dice: &mut Dice) -> String {
        let how = dice.pick(&["claim", "complete", "release", "nothing"]);
        match dice.below(3) {
            0 => {
                format!("INSERT INTO fuzz.worked (how, key) VALUES ('{how}', 'k{}')", dice.below(4))
            }
            1 => format!("INSERT INTO fuzz.worked VALUES ('{how}', 'k{}', 'late')", dice.below(4)),
            _ => "SET CONSTRAINTS ALL IMMEDIATE".into(),
        }
    }

    fn in_parallel(&self, dice: &mut Dice) -> String {
        let function = dice.pick(&["lying", "lying_claim"]);
        format!(
            "SET LOCAL min_parallel_table_scan_size = 0; SET LOCAL parallel_setup_cost = 0;
             SET LOCAL parallel_tuple_cost = 0; SELECT count(fuzz.{function}(n)) FROM fuzz.many WHERE n < 50"
        )
    }

    /// Settings of the operations that the calls name.
    pub fn configuring(&self, dice: &mut Dice) -> String {
        let operation = dice.pick(&[
            "POST /orders",
            "POST /orders",
            "reentered",
            "resources",
            "by trigger",
            "a",
        ]);
        let settings = match dice.below(4) {
            0 => "{\"preset\": null, \"mode\": null, \"unheard\": null}".into(),
            1 => "{\"form\": \"resource\", \"completion_check\": null, \"retention\": \"1 microsecond\"}".into(),
            _ => values::settings(dice, &self.pool),
        };
        format!("SELECT idempotency_configure('{operation}', '{settings}')")
    }
}

fn savepoint(dice: &mut Dice) -> String {
    (*dice.pick(&["SAVEPOINT s", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"])).into()
}

fn work(dice: &mut Dice) -> String {
    (*dice.pick(&[
        "INSERT INTO orders (key) VALUES ('work')",
        "SELECT * FROM orders LIMIT 1 FOR UPDATE SKIP LOCKED",
        "SELECT nextval('orders_id_seq')",
        "SELECT 1 / 0",
        "SELECT pg_current_xact_id()",
        "LOCK TABLE orders IN ROW EXCLUSIVE MODE",
    ]))
    .into()
}

/// Where a transaction begins and ends.
fn boundary(dice: &mut Dice) -> String {
    (*dice.pick(&[
        "COMMIT",
        "COMMIT",
        "ROLLBACK",
        "COMMIT AND CHAIN",
        "ROLLBACK AND CHAIN",
        "BEGIN",
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "BEGIN READ ONLY",
        "SET TRANSACTION READ ONLY",
    ]))
    .into()
}
