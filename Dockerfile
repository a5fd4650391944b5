# PostgreSQL's official image with the extension. Not built by the tests: where they run there is no Docker.
#
#     make package
#     docker build --tag postgres-idempotency .
#
# Another major: make package PG=17, and --build-arg PG_MAJOR=17. The database that a new container
# makes (POSTGRES_DB) has the extension; in others it is CREATE EXTENSION, as ever.
ARG PG_MAJOR=15
FROM postgres:${PG_MAJOR}-bookworm
ARG PG_MAJOR
COPY target/package/postgresql-${PG_MAJOR}-idempotency_*.deb /tmp/
RUN dpkg --install /tmp/postgresql-*-idempotency_*.deb && rm /tmp/postgresql-*-idempotency_*.deb
RUN echo 'CREATE EXTENSION pg_idempotency;' > /docker-entrypoint-initdb.d/10-pg_idempotency.sql
