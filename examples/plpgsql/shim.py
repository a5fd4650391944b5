"""HTTP for a database whose function http() is the service: one request, one call, one transaction.

It knows nothing of orders and of keys. What it does for them is what a function cannot do for itself:
it calls again after a serialization failure or a deadlock, and rolls back what is not to be kept.
"""

import json, os, queue
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

CALL = "SELECT * FROM http(%s, %s, %s, %s)"
connections = queue.LifoQueue()
for _ in range(8):
    connections.put(None)  # opened when it is needed


def call(request):
    for last in (False, False, True):
        db = connections.get()
        try:
            db = db or psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=None)
            with db.transaction():
                is_kept, *answer = db.execute(CALL, request, binary=True).fetchone()
                if not is_kept:
                    raise psycopg.Rollback
            return answer
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            if last:
                raise
        finally:
            connections.put(db if db and not db.closed else None)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        headers = json.dumps({name.lower(): ", ".join(self.headers.get_all(name)) for name in self.headers})
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, headers, body = call((self.command, self.path, headers, body))
        except psycopg.Error as error:
            self.log_error("%s", error)
            status, headers, body = 500, {}, b""
        self.send_response(status)
        for name, value in headers.items():
            for one in value if isinstance(value, list) else [value]:
                self.send_header(name, one)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_request(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    with Server(("127.0.0.1", int(os.environ.get("PORT", 0))), Handler) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
