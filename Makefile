# The commands people type; the work is done by the scripts in tools/.
#
#   PROFILE=release     with optimisation (server, demo, test)
#   PG=15               PostgreSQL's major version: 15, 16, 17 or 18; 15-assert for a 15 built with assertions

.DEFAULT_GOAL := $(if $(PG_CONFIG),all,help)
PROFILE ?= debug
PG_MAJOR := $(or $(PG),$(PG_MAJOR),15)
export PROFILE PG_MAJOR
MAKEFLAGS += --no-print-directory

.PHONY: help all install dist setup demo test server psql stop example clients build bench bench-check bench-growth package package-test source-test fuzz mutants fuzz-sql torture docs fmt lint clean

help: ## list the commands
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 16

setup: ## install what is missing: Debian packages, crates, cargo-pgrx
	@tools/setup

demo: setup ## the whole story on a throwaway server: retries, duplicates, crashes, a storm
	@tools/demo

test: setup ## every check and every test; SUITE=name for one suite
	@tools/test $(SUITE)

server: setup ## start the throwaway server with the extension, print its connection string
	@tools/server start

psql: setup ## a session on the throwaway server; ARGS='-c ...' for psql
	@tools/server psql $(ARGS)

stop: ## end the throwaway server
	@tools/server stop

example: setup ## an example service on the throwaway server; NAME=flask, PORT=8080
	@PORT=$(PORT) tools/example $(NAME)

clients: ## the client packages for Python and Node, target/clients/*.whl and *.tgz
	@tools/clients

build: setup ## build the extension and install it into target/postgres-15
	@tools/install-extension $(PG_MAJOR) $(PROFILE)

# Optimised, but for PROFILE=debug on the command line.
all install dist source-test: PROFILE = release
all: ## the extension for the server of PG_CONFIG=/path/to/pg_config, optimised
	@bash tools/install build $(PG_CONFIG)

install: ## put it into that server's directories, below DESTDIR
	@bash tools/install put $(PG_CONFIG)

package: setup ## a Debian package with an optimised build, target/package/*.deb
	@PROFILE=release tools/package

package-test: setup ## install, use, upgrade and remove that package in a bare Debian
	@PROFILE=release tools/package-test

bench: setup ## measure against what people write by hand, write docs/benchmarks; QUICK=1 for a first look
	@tools/bench $(ARGS)

bench-check: setup ## fail where a ratio in docs/benchmarks has fallen back by more than its noise
	@tools/bench --check $(ARGS)

ROWS ?= 10000000
bench-growth: setup ## fill 10 million records, measure on the way, while a purge runs, and by the order of keys; ROWS=100000 for a trial
	@tools/bench --growth $(ROWS) $(ARGS)

dist: setup ## what a release consists of, in target/dist; MAJORS='15 17' for some of the packages
	@tools/dist $(MAJORS)

source-test: setup ## install the source archive with pgxn in a bare Debian
	@tools/source-test

FUZZ_SECONDS ?= 60
fuzz: ## fuzz the canonicalizer and the key parser for a minute each; FUZZ_SECONDS=600 for longer
	@fuzz/run $(FUZZ_SECONDS)

docs: ## the pages as a book, in target/book/html
	@tools/docs

fuzz-sql: build ## random SQL against every function for SECONDS=600; FUZZ_SEED=n repeats a run
	@tools/fuzz-sql $(SECONDS)

torture: setup ## every fault there is for MINUTES=10, optimised; then the effects are counted; SEED=n repeats a run
	@MINUTES=$(MINUTES) SEED=$(SEED) tools/torture

mutants: setup ## put faults into the rules and the boundary, one at a time: a test has to notice each
	@status=0; mutants/core || status=1; mutants/run || status=1; exit $$status

fmt: ## format the code
	@cargo fmt --all && cargo fmt --all --manifest-path examples/Cargo.toml

lint: setup ## formatting and lints, without changing anything
	@tools/lint

clean: ## end the throwaway servers; remove them with their data, and all that was built here
	@for server in target/server-*; do [ ! -d "$$server" ] || PG_MAJOR=$${server#target/server-} tools/server stop || exit; done
	@rm -rf target fuzz/target
