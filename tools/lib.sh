# shellcheck shell=bash
# What the scripts in tools/ share. Source me first, from bash: strict mode, the project's environment,
# the checkout as current directory, and no PostgreSQL client settings of the caller's.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$root"
export CARGO_TARGET_DIR=$root/target   # whatever else is set: the paths in the scripts count on it
unset PGHOST PGHOSTADDR PGPORT PGDATABASE PGUSER PGPASSWORD PGPASSFILE PGSERVICE PGSERVICEFILE \
      PGOPTIONS PGDATA PGSSLMODE PGAPPNAME PGCLIENTENCODING PGTZ PGDATESTYLE

# say WORDS: one line about what happens now.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die WORDS: the one line that names what is wrong, and the end.
die() { say "$*"; exit 1; }

# In continuous integration Cargo.lock is law; at a desk cargo may add what a new dependency needs.
# shellcheck disable=SC2034
locked=(${CI:+--locked})

# The extension's version: Cargo.toml is the one place that has it.
extension_version() { sed -nE '0,/^version = "([^"]+)"$/s//\1/p' Cargo.toml; }

# The Debian mirror that this machine's apt is set up with.
debian_mirror() {
  local mirror
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
    "Codename: $(. /etc/os-release; echo "$VERSION_CODENAME")" 'Component: main' | head -n 1)
  [ -n "$mirror" ] || die "apt knows no Debian mirror"
  printf '%s\n' "$mirror"
}

# one_at_a_time LOCK ARGUMENTS...: from here on this script, called with ARGUMENTS, runs while no other holder of
# LOCK in this checkout does. What it leaves running does not keep the lock.
one_at_a_time() {
  [ "${HOLDS_LOCK:-}" != "$1" ] || return 0
  mkdir -p target
  HOLDS_LOCK=$1 exec flock --close "target/.$1.lock" "$0" "${@:2}"
}

# need PACKAGE...: install the Debian packages that are missing.
need() {
  local package reason missing=() become=()
  for package; do
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "missing, and there is no apt-get to install them: ${missing[*]}"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "missing Debian packages: ${missing[*]} (run as root, or install sudo)"
    become=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  reason=$("${become[@]}" tools/apt-install "${missing[@]}") ||
    die "cannot install ${missing[*]}${reason:+: $reason}"
}
