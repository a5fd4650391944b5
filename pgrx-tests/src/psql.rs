//! psql, as people and scripts use it.

use crate::database::Database;
use crate::paths;
use crate::session::Role;
use std::process::{Command, Output};

/// Runs `script` through psql as the backend role, with errors told in full.
pub fn psql(database: &Database<'_>, script: &str) -> Output {
    command(database, Role::Backend, script).output().expect("psql starts")
}

/// psql that runs `script` as a role, with errors told in full.
pub fn command(database: &Database<'_>, role: Role, script: &str) -> Command {
    let mut command = Command::new(paths::pg_bin().join("psql"));
    command.args(["-X", "-A", "-t", "-q", "-v", "VERBOSITY=verbose", "-d", database.name()]);
    command.args(["-U", role.name(), "-c", script]);
    command.arg("-h").arg(database.server().sockets());
    command
}
