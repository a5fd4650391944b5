"""Requests that are executed at most once: a client of the PostgreSQL extension pg_idempotency.

Take `keyed` from the module of your driver, or the adapter of your framework; nothing else is imported.
"""

from .core import Answer, Refused, Request

__all__ = ["Answer", "Refused", "Request"]
