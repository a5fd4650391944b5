#!/bin/bash
# What tools/package-test does inside of the bare Debian: package-test.sh MAJOR PACKAGE, as root.
set -euo pipefail
major=$1 deb=$2 name=postgresql-$1-idempotency
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

step() { printf 'package-test: %s\n' "$*"; }
die() { step "FAILED: $*"; exit 1; }
sql() { su postgres -c 'psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1' <<< "$1"; }
is() { [ "$1" = "$2" ] || die "expected $2, found $1"; }
nothing() { local found; found=$("$@") || die "$* failed"; is "$found" ""; }
files() { find / -xdev \( -path /proc -o -path /sys -o -path /root \) -prune -o -iname '*idempotency*' -print; }

step "install: the package brings PostgreSQL with it"
nothing files
apt-get -qq install -y --no-install-recommends "$deb" >/dev/null
is "$(dpkg-query --show --showformat='${db:Status-Status}' "$name")" installed
nothing dpkg --verify "$name"
apt-get -qq install -y --no-install-recommends procps >/dev/null
pg_ctlcluster "$major" main start

step "use: a request and its retry"
sql 'CREATE EXTENSION pg_idempotency'
claim="SELECT outcome FROM idempotency_claim('alice', 'POST /orders', 'k1', sha256(''))"
is "$(sql "BEGIN; $claim; SELECT outcome FROM idempotency_complete(201, '{}'); COMMIT" | xargs)" "claimed completed"
is "$(sql "BEGIN; $claim; COMMIT")" replayed

step "upgrade: a session that has loaded the library goes on, records stay"
coproc su postgres -c 'psql --no-psqlrc --quiet --tuples-only --no-align'
ask() { printf '%s;\n' "$1" >&"${COPROC[1]}"; read -r answer <&"${COPROC[0]}"; is "$answer" "$2"; }
ask "$claim" replayed
dpkg --install "$deb" >/dev/null
ask "$claim" replayed
is "$(sql "$claim")" replayed

step "removal: nothing is left, and the server goes on"
sql 'DROP EXTENSION pg_idempotency'
apt-get -qq purge -y "$name" >/dev/null
nothing files
is "$(sql 'SELECT 1')" 1
is "$(sql "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_idempotency'")" 0
pg_ctlcluster "$major" main stop
