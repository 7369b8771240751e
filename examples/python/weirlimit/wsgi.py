"""Limits a WSGI application, such as one of Flask.

    app.wsgi_app = Limit(app.wsgi_app, ["10.0.0.1:8080", "10.0.0.2:8080"])

The nodes run with --auth-proxy and the address of this service. One of them is asked about each request. The headers
RateLimit, RateLimit-Policy, X-RateLimit-* and Retry-After are passed on, and what is refused is answered as the node
says, without the application.
"""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any, Callable, Iterable, Sequence

from .auth import instead, question
from .client import Client
from .errors import Invalid, WeirError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

SAFE = "/;=,@:!$&'()*+~"


class Limit:
    """A WSGI application around another one. It is safe for use by several threads.

    nodes, and options such as timeout and token: as Client has them.
    fail_open: whether requests pass while no node answers; else they get 503. What a client can cause never passes.
    user: a function of the environment that returns the user's name, or None. Only what was verified before may be
        believed. It needs --auth-user-header X-Weir-User.
    The client's address is REMOTE_ADDR. Behind a proxy, let werkzeug's ProxyFix or the like set it.
    """

    def __init__(self, app: WSGIApplication, nodes: str | Sequence[str], *, fail_open: bool = False,
                 user: Callable[[WSGIEnvironment], str | None] | None = None, **options: Any) -> None:
        self.app, self.fail_open, self.user = app, fail_open, user
        self.client = Client(nodes, **options)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        try:
            path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
            uri = urllib.parse.quote(path, safe=SAFE, encoding="latin-1") or "/"
            user = self.user(environ) if self.user else None
            address = environ.get("REMOTE_ADDR", "")
            verdict = self.client.call(question(self.client.caller, uri.encode("ascii"), method, address, user))
        except WeirError as error:
            verdict = instead(error, self.fail_open)
        except UnicodeEncodeError:
            verdict = instead(Invalid("the path cannot be written"), self.fail_open)
        if not verdict.passes:
            headers = [*verdict.headers, ("Content-Length", str(len(verdict.body)))]
            start_response(f"{verdict.status} {verdict.reason()}", headers)
            return [] if method == "HEAD" else [verdict.body]

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], object]:
            return start_response(status, [*headers, *verdict.headers], *more)

        return self.app(environ, start)
