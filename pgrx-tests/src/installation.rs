//! What an installation of PostgreSQL says of itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths;
use crate::process::output_of;

/// The answer of an installation's pg_config to an option such as `--pkglibdir`.
pub fn pg_config(bin: &Path, option: &str) -> String {
    output_of(Command::new(bin.join("pg_config")).arg(option)).trim().to_owned()
}

/// The major version that the tests run on.
pub fn major() -> u32 {
    let version = pg_config(&paths::pg_bin(), "--version");
    let digits = version.trim_start_matches("PostgreSQL ").split(|c: char| !c.is_ascii_digit());
    digits.into_iter().find_map(|number| number.parse().ok()).expect("a number")
}

/// The folder of programs of another major version, which has the extension installed. Where it lies in
/// its tree, tools/env.sh knows.
///
/// # Panics
/// When there is none.
pub fn of_major(major: u32) -> PathBuf {
    let tree = paths::repository().join(format!("target/postgres-{major}"));
    let folders = [tree.join(format!("usr/lib/postgresql/{major}/bin")), tree.join("bin")];
    let bin = folders.into_iter().find(|bin| bin.join("pg_config").exists());
    let bin = bin.unwrap_or_else(|| panic!("no PostgreSQL {major}: PG_MAJOR={major} tools/setup"));
    let library = Path::new(&pg_config(&bin, "--pkglibdir")).join("pg_idempotency.so");
    assert!(library.exists(), "{library:?} is missing: tools/install-extension {major}");
    bin
}
