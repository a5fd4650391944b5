//! How ids are compared: as a real foreign key compares them, whatever operators others have made.

use pg_idempotency_tests::operation::*;
use pg_idempotency_tests::prelude::*;
use pg_idempotency_tests::squat::seen_since;
use serde_json::json;

/// A type of ids, and what makes it.
struct Case {
    /// Makes the type, and what it needs.
    make: &'static str,
    /// The type.
    of: &'static str,
    /// All types that an operator of the stranger's may take.
    strangers: &'static [&'static str],
    /// The index that a foreign key refers to.
    index: &'static str,
    /// The id of the only row.
    id: &'static str,
    /// Another text of the same id, and of another one.
    same: &'static str,
    other: &'static str,
}

const PRIMARY: &str = "ALTER TABLE public.things ADD PRIMARY KEY (id)";

const CASES: [Case; 12] = [
    Case {
        make: "CREATE EXTENSION citext; CREATE DOMAIN email AS citext",
        of: "email",
        strangers: &["email", "citext"],
        index: PRIMARY,
        id: "a@b",
        same: "A@B",
        other: "a@c",
    },
    Case {
        make: "CREATE EXTENSION citext; CREATE DOMAIN email AS citext; CREATE DOMAIN work_email AS email",
        of: "work_email",
        strangers: &["work_email", "email", "citext"],
        index: PRIMARY,
        id: "a@b",
        same: "A@B",
        other: "a@c",
    },
    // The index compares as text, and so does a foreign key to it.
    Case {
        make: "CREATE EXTENSION citext; CREATE DOMAIN email AS citext",
        of: "email",
        strangers: &["email", "citext"],
        index: "CREATE UNIQUE INDEX ON public.things (id text_ops)",
        id: "a@b",
        same: "a@b",
        other: "A@B",
    },
    Case {
        make: "CREATE EXTENSION ltree; CREATE DOMAIN tree_path AS ltree",
        of: "tree_path",
        strangers: &["tree_path", "ltree"],
        index: PRIMARY,
        id: "a.b",
        same: "a.b",
        other: "a.B",
    },
    Case {
        make: "CREATE EXTENSION isn; CREATE DOMAIN book AS isbn13",
        of: "book",
        strangers: &["book", "isbn13", "ean13", "isbn"],
        index: PRIMARY,
        id: "978-0-393-04002-9",
        same: "9780393040029",
        other: "978-0-901690-54-8",
    },
    Case {
        make: "CREATE TYPE color AS ENUM ('red', 'blue'); CREATE DOMAIN paint AS color",
        of: "paint",
        strangers: &["paint", "color"],
        index: PRIMARY,
        id: "red",
        same: "red",
        other: "blue",
    },
    Case {
        make: "CREATE TYPE color AS ENUM ('red', 'blue')",
        of: "color",
        strangers: &["color"],
        index: PRIMARY,
        id: "red",
        same: "red",
        other: "blue",
    },
    Case {
        make: "CREATE TYPE place AS (x integer, y text)",
        of: "place",
        strangers: &["place"],
        index: PRIMARY,
        id: "(1,a)",
        same: "( 1,a)",
        other: "(1,b)",
    },
    Case {
        make: "CREATE TYPE place AS (x integer, y text); CREATE DOMAIN spot AS place",
        of: "spot",
        strangers: &["spot", "place"],
        index: PRIMARY,
        id: "(1,a)",
        same: "( 1,a)",
        other: "(1,b)",
    },
    Case {
        make: "CREATE DOMAIN code AS varchar(9) COLLATE \"C\"",
        of: "code",
        strangers: &["code", "varchar", "name"],
        index: PRIMARY,
        id: "a",
        same: "a",
        other: "A",
    },
    Case {
        make: "CREATE DOMAIN number AS bigint",
        of: "number",
        strangers: &["number", "integer", "numeric"],
        index: PRIMARY,
        id: "7",
        same: "007",
        other: "70",
    },
    Case {
        make: "CREATE DOMAIN numbers AS integer[]",
        of: "numbers",
        strangers: &["numbers"],
        index: PRIMARY,
        id: "{1,2}",
        same: "{1, 2}",
        other: "{2,1}",
    },
];

/// A table with one row, a real foreign key to it, and a stranger's operators.
fn with_things(case: &Case) -> Database<'static> {
    let db = Database::fresh();
    db.run(case.make);
    db.run(&format!(
        "CREATE TABLE public.things (id {0}); {1}; INSERT INTO public.things VALUES ('{2}');
         CREATE TABLE public.references_things (id {0});
         SELECT idempotency_register_resource('thing', 'public.things', 'id')",
        case.of, case.index, case.id
    ));
    configure(&db, json!({"form": "resource"}));
    let stranger = format!("stranger_of_{}", db.name());
    db.run(&format!(
        "CREATE ROLE {stranger}; GRANT CREATE ON SCHEMA public TO {stranger}; SET ROLE {stranger}"
    ));
    for left in case.strangers {
        for right in case.strangers {
            db.run(&squatter(left, right));
        }
    }
    db.run("RESET ROLE");
    db
}

/// Makes an operator unless it is there: the type's own may be in the same schema.
fn squatter(left: &str, right: &str) -> String {
    format!(
        "DO $do$ BEGIN
             CREATE FUNCTION public.squat({left}, {right}) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                 RAISE WARNING 'squatted: as %', current_user; RETURN true; END $$;
             CREATE OPERATOR public.= (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.squat);
         EXCEPTION WHEN duplicate_function THEN NULL; END $do$"
    )
}

/// PostgreSQL has no foreign keys of a domain over an enum.
const WITHOUT_FOREIGN_KEYS: [&str; 1] = ["paint"];

/// Catches a comparison by what is found for the column's type, instead of the operator of its index.
#[test]
fn a_registered_resource_is_found_as_by_a_foreign_key() {
    for case in &CASES {
        let db = with_things(case);
        let mut owner = db.session_as(Role::Superuser, "owner");
        let key = "ALTER TABLE public.references_things ADD FOREIGN KEY (id) REFERENCES public.things (id)";
        let has_key = owner.attempt(key).is_ok();
        assert_eq!(has_key, !WITHOUT_FOREIGN_KEYS.contains(&case.of), "{}", case.of);
        let mut session = db.session("session");
        let start = db.server().log_length();
        let ids = [("k", case.id, true), ("same", case.same, true), ("other", case.other, false)];
        for (key, id, is_there) in ids {
            let insert = format!("INSERT INTO public.references_things VALUES ('{id}')");
            let agrees = owner.attempt(insert).is_ok() == is_there || !has_key;
            assert!(agrees, "foreign key, {} {id}", case.of);
            session.run("BEGIN");
            session.call(claim(key)).expect("claimed");
            let thing = complete(201).with("resource_type", "thing").with("resource_id", id);
            if is_there {
                session.call(thing).expect("completed");
                session.run("COMMIT");
                session.call(claim(key)).expect("replayed");
            } else {
                session.refused(thing).expect_ours("IK006").mentions("There is no thing");
                session.run("ROLLBACK");
            }
        }
        db.run("TRUNCATE public.references_things, public.things");
        session.call(claim("k")).expect("deleted");
        assert!(session.take_notices().is_empty(), "{}", case.of);
        assert_eq!(seen_since(db.server(), db.name(), start), Vec::<String>::new(), "{}", case.of);
    }
}

/// A view has no index; its column's type says how it is compared, and nothing of a stranger's runs either.
#[test]
fn a_view_is_asked_by_its_types_own_operator() {
    for case in CASES.iter().filter(|case| case.index == PRIMARY) {
        let db = with_things(case);
        db.run("CREATE VIEW public.seen AS SELECT id FROM public.things");
        db.run("SELECT idempotency_register_resource('thing', 'public.seen', 'id')");
        let mut session = db.session("session");
        let start = db.server().log_length();
        let thing = |id: &str| complete(201).with("resource_type", "thing").with("resource_id", id);
        session.run("BEGIN");
        session.call(claim("k")).expect("claimed");
        session.refused_inside_savepoint(thing(case.other), "IK006");
        session.call(thing(case.same)).expect("completed");
        session.run("COMMIT");
        session.call(claim("k")).expect("replayed");
        assert_eq!(seen_since(db.server(), db.name(), start), Vec::<String>::new(), "{}", case.of);
    }
}
