//! A stranger who was in the database before the extension came: squat.sql, filled with the names and operators
//! that the extension's SQL uses, so that a new one is squatted on as well.

use crate::paths;
use crate::server::Server;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What PostgreSQL's lexer takes into an operator.
const OPERATOR: &str = "+-*/<>=~!@#%^&|`?";

/// Has `role`, who may create in the schema public of `database`, leave all of it there.
pub fn squat(server: &Server, role: &str, database: &str) {
    let (sql, all) = (text_of(&["sql", "contrib"]), text_of(&["sql", "contrib", "src"]));
    let script = include_str!("squat.sql")
        .replace("SQUAT_WORDS", &array(words(&all)))
        .replace("SQUAT_OPERATORS", &array(operators(&sql)));
    let mut client = connect(server, role, database);
    client.batch_execute(&script).unwrap_or_else(|error| panic!("{role} squats: {error:?}"));
}

/// A connection of `role`'s that nobody who squats can reach.
pub fn connect(server: &Server, role: &str, database: &str) -> postgres::Client {
    let mut config = server.config(crate::session::Role::Superuser, database);
    config.user(role).options("-c search_path=pg_catalog");
    config.connect(postgres::NoTls).unwrap_or_else(|error| panic!("{role}: {error:?}"))
}

/// What ran of it in a database, or in a worker, whose lines name none, since the log had this length.
pub fn seen_since(server: &Server, database: &str, start: usize) -> Vec<String> {
    let from = [format!("@{database} "), "] @ ".into()];
    let log = server.log_from(start);
    let seen = log.lines().filter(|line| line.contains("WARNING:  squatted"));
    let seen = seen.filter(|line| from.iter().any(|from| line.contains(from)));
    seen.map(str::to_owned).collect()
}

/// All text in these folders: words of it that are no SQL do no harm.
fn text_of(folders: &[&str]) -> String {
    let root = paths::repository();
    let mut all = String::new();
    folders.iter().for_each(|folder| read(&root.join(folder), &mut all));
    all
}

fn read(path: &Path, into: &mut String) {
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("a folder of the repository");
        entries.for_each(|entry| read(&entry.expect("an entry").path(), into));
    } else {
        into.push_str(&fs::read_to_string(path).expect("text"));
        into.push('\n');
    }
}

fn words(source: &str) -> BTreeSet<&str> {
    source
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|w| !w.is_empty())
        .collect()
}

fn operators(source: &str) -> BTreeSet<&str> {
    source.split(|c: char| !OPERATOR.contains(c)).filter(|o| !o.is_empty()).collect()
}

fn array(items: BTreeSet<&str>) -> String {
    let quoted: Vec<_> = items.iter().map(|item| format!("'{item}'")).collect();
    format!("ARRAY[{}]", quoted.join(", "))
}
