//! Where things are: the repository, the private PostgreSQL tree, room for throwaway clusters.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The root of the repository.
pub fn repository() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package lies in the repository").to_path_buf()
}

/// The folder of `initdb`, `postgres`, `psql`: `PG_IDEMPOTENCY_PG_BIN`, else the private tree that
/// has the extension installed.
pub fn pg_bin() -> PathBuf {
    match std::env::var_os("PG_IDEMPOTENCY_PG_BIN") {
        Some(path) => PathBuf::from(path),
        None => repository().join("target/postgres-15/usr/lib/postgresql/15/bin"),
    }
}

/// The script that runs a server as somebody who is not root.
pub fn unroot() -> PathBuf {
    repository().join("tools/unroot")
}

/// The folder that holds everything one cluster or pooler of this process writes.
pub fn scratch(name: &str) -> PathBuf {
    repository().join(format!("target/tests/{name}-{}", std::process::id()))
}

/// A port of 127.0.0.1 that nobody listens on just now. It lies below those that the system gives to
/// connections, so that none of them takes it before its server does.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let some = || std::process::id().wrapping_mul(31) + NEXT.fetch_add(1, Relaxed);
    let mut ports = std::iter::repeat_with(|| 20_000 + (some() % 12_000) as u16);
    ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).expect("a free port")
}

/// A folder for sockets. Not below the repository: a socket's path has 107 bytes at most.
pub fn sockets(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("idem-{}-{name}", std::process::id()))
}
