# shellcheck shell=bash
# The environment of every build, test and server of this project. Source me, from bash or zsh:
#
#     . tools/env.sh
#
# tools/* and the Makefile do so themselves. Nothing is created or installed here: tools/setup does that.
#
#   PG_MAJOR              PostgreSQL's major version: 15, 16, 17 or 18; 15-assert for a 15 built with assertions
#   PGRX_PG_CONFIG_PATH   pg_config of the installed PostgreSQL: pgrx builds against it. It is the same for every
#                         checkout, so that a copied target/ is not built anew.
#   PG_IDEMPOTENCY_PG_BIN the programs of our private tree (tools/postgres-tree): the tests run these
#   PGRX_HOME             pgrx' own settings
#   PGRX_VERSION          the version that Cargo.toml pins
#   TOOLS_CACHE           what outlives target/ and is shared by checkouts: cargo-pgrx, PostgreSQL but for 15

root=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/.." && pwd -P)

# The private PostgreSQL tree of a version.
postgres_tree() { printf '%s/target/postgres-%s\n' "$root" "$1"; }

# What the tree is made of: Debian 12 has 15, the others tools/setup puts into our cache.
postgres_origin() { [ "$1" = 15 ] || printf '%s/postgres-%s\n' "$TOOLS_CACHE" "$1"; }

# The directory of programs in a tree, or its origin ($1), of a version ($2). Debian's packages have one per major.
postgres_bindir() {
  case $2 in
    16 | *-assert) printf '%s/bin\n' "$1" ;;
    *) printf '%s/usr/lib/postgresql/%s/bin\n' "$1" "$2" ;;
  esac
}

# The feature of our crate, and of pgrx, for a version.
postgres_feature() { printf 'pg%s\n' "${1%-assert}"; }

[ -n "${HOME:-}" ] || HOME=$(getent passwd "$(id -u)" | cut -d: -f6)

# Cargo from rustup's usual place, where a login shell would have put it on PATH; pgbouncer lies in /usr/sbin.
command -v cargo >/dev/null || PATH=$PATH:$HOME/.cargo/bin
case :$PATH: in *:/usr/sbin:*) ;; *) PATH=$PATH:/usr/sbin ;; esac

PG_MAJOR=${PG_MAJOR:-15}
TOOLS_CACHE=${TOOLS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pg_idempotency}
PGRX_VERSION=$(sed -nE 's/^pgrx = .*"=([0-9.]+)".*/\1/p' "$root/Cargo.toml")
PGRX_HOME=$TOOLS_CACHE/pgrx-home
PG_IDEMPOTENCY_PG_BIN=$(postgres_bindir "$(postgres_tree "$PG_MAJOR")" "$PG_MAJOR")
PGRX_PG_CONFIG_PATH=$(postgres_bindir "$(postgres_origin "$PG_MAJOR")" "$PG_MAJOR")/pg_config
RUST_BACKTRACE=0                       # else pgrx writes backtraces into DETAIL
USER=${USER:-$(id -un)}                # pgrx' test framework wants it set
case :$PATH: in
  *":$TOOLS_CACHE/cargo-pgrx-$PGRX_VERSION/bin:"*) ;;
  *) PATH=$TOOLS_CACHE/cargo-pgrx-$PGRX_VERSION/bin:$PATH ;;
esac
export PG_MAJOR TOOLS_CACHE PGRX_VERSION PGRX_HOME PG_IDEMPOTENCY_PG_BIN PGRX_PG_CONFIG_PATH HOME RUST_BACKTRACE USER PATH
unset PG_VERSION                       # cargo pgrx would read it as an argument
