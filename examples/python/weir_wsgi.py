"""Limits the requests of a WSGI application by a node of Weir.

    app = Limit(app, "127.0.0.1:8080")

The node runs with --auth-proxy and the address of this service. It is asked about each
request at /v1/auth. Its fields RateLimit, RateLimit-Policy, X-RateLimit-* and Retry-After are passed
on, and what it refuses is answered as it says, without the application.
"""

import http.client
import threading
import urllib.parse

PASSED_ON = (
    "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After", "Content-Type",
)
MOST_FIELDS = 16 << 10


class Limit:
    """A WSGI application around another one. It is safe for use by several threads.

    node: the node's HTTP address, as "host:port".
    timeout: seconds to wait for its answer.
    fail_open: whether requests pass while it does not answer; else they get 503.
    user: a function of the environment that returns the user's name, or None. Only what was
        verified before may be believed. It needs --auth-user-header X-Weir-User.
    """

    def __init__(self, app, node, timeout=1.0, fail_open=False, user=None):
        self.app, self.node, self.timeout = app, node, timeout
        self.fail_open, self.user = fail_open, user
        self.local = threading.local()

    def __call__(self, environ, start_response):
        try:
            status, reason, fields, body = self.ask(environ)
        except ValueError:  # a field that cannot be written: its client must not be able to have it pass uncounted
            status, reason, fields, body = 400, "Bad Request", [], b"the request cannot be counted against its limits\n"
        except (OSError, http.client.HTTPException):
            status, reason, fields, body = 503, "Service Unavailable", [], b"the limits cannot be looked up\n"
            if self.fail_open:
                return self.app(environ, start_response)
        if status != 200:
            start_response(f"{status} {reason}", fields + [("Content-Length", str(len(body)))])
            return [body]
        kept = [f for f in fields if f[0] != "Content-Type"]

        def start(status, headers, exc_info=None):
            return start_response(status, list(headers) + kept, *([exc_info] if exc_info else []))

        return self.app(environ, start)

    def ask(self, environ):
        """Returns the node's status, its reason, the fields to pass on, and its body."""
        uri = urllib.parse.quote(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""), safe="/;=,@:!$&'()*+~", encoding="latin-1")
        headers = {
            "X-Original-URI": uri or "/",
            "X-Original-Method": environ["REQUEST_METHOD"],
            "X-Forwarded-For": environ.get("REMOTE_ADDR", ""),
        }
        name = self.user(environ) if self.user else None
        if name:
            headers["X-Weir-User"] = name.encode()
        if sum(map(len, headers.values())) > MOST_FIELDS:
            raise ValueError("the node refuses fields of this size before it counts, and may close while its answer is read")
        again = getattr(self.local, "connection", None) is not None
        while True:  # a connection that was used before may have been closed
            if getattr(self.local, "connection", None) is None:
                self.local.connection = http.client.HTTPConnection(self.node, timeout=self.timeout)
            try:
                self.local.connection.request("GET", "/v1/auth", headers=headers)
                answer = self.local.connection.getresponse()
                body = answer.read()
                break
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.local.connection.close()
                self.local.connection = None
                if not again or not isinstance(error, (ConnectionError, http.client.RemoteDisconnected)):
                    raise
                again = False
        fields = [(n, answer.headers[n]) for n in PASSED_ON if n in answer.headers]
        return answer.status, answer.reason, fields, body
