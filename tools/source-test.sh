#!/bin/bash
# What tools/source-test does inside of the bare Debian: source-test.sh ARCHIVE, as root.
set -euo pipefail
archive=$1
pg_config=/usr/lib/postgresql/15/bin/pg_config
export LC_ALL=C.UTF-8 MAKEFLAGS=PROFILE=$PROFILE

sql() { su postgres -c 'psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1' <<< "$1"; }
is() { [ "$1" = "$2" ] || { echo "source-test: FAILED: expected $2, found $1"; exit 1; }; }

echo "source-test: pgxn install"
pgxn install --yes --pg_config "$pg_config" "$archive"
pg_ctlcluster 15 main start

echo "source-test: use: a request and its retry"
sql 'CREATE EXTENSION pg_idempotency'
claim="SELECT outcome FROM idempotency_claim('alice', 'POST /orders', 'k1', sha256(''))"
is "$(sql "BEGIN; $claim; SELECT outcome FROM idempotency_complete(201, '{}'); COMMIT" | xargs)" "claimed completed"
is "$(sql "BEGIN; $claim; COMMIT")" replayed
pg_ctlcluster 15 main stop
