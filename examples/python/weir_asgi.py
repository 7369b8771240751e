"""Limits the requests of an ASGI application by a node of Weir.

    app = Limit(app, "127.0.0.1", 8080)

The node runs with --auth-proxy and the address of this service. It is asked about each
request at /v1/auth. Its fields RateLimit, RateLimit-Policy, X-RateLimit-* and Retry-After are passed
on, and what it refuses is answered as it says, without the application.
"""

import asyncio
import urllib.parse

PASSED_ON = (
    b"ratelimit", b"ratelimit-policy", b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset", b"retry-after", b"content-type",
)
MOST_BODY = 64 << 10


class Limit:
    """An ASGI application around another one, for one event loop.

    host, port: the node's HTTP address.
    timeout: seconds to wait for its answer.
    fail_open: whether requests pass while it does not answer; else they get 503.
    user: a function of the scope that returns the user's name, or None. Only what was
        verified before may be believed. It needs --auth-user-header X-Weir-User.
    """

    def __init__(self, app, host, port, timeout=1.0, fail_open=False, user=None):
        self.app, self.host, self.port, self.timeout = app, host, port, timeout
        self.fail_open, self.user = fail_open, user
        self.idle = []  # connections to the node

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            question = self.question(scope)
        except ValueError:  # its client must not be able to have it pass uncounted
            question, status, fields, body = None, 400, [], b"the request cannot be counted against its limits\n"
        try:
            if question:
                status, fields, body = await asyncio.wait_for(self.ask(question), self.timeout)
        except (OSError, ValueError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            status, fields, body = (200 if self.fail_open else 503), [], b"the limits cannot be looked up\n"
        if status == 200:
            kept = [f for f in fields if f[0] != b"content-type"]

            async def passing(message):
                if message["type"] in ("http.response.start", "websocket.accept"):
                    message = {**message, "headers": [*message.get("headers", []), *kept]}
                await send(message)

            await self.app(scope, receive, passing)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1013})
        else:
            fields = [*fields, (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": fields})
            await send({"type": "http.response.body", "body": body})

    def question(self, scope):
        """Returns what the node is asked about a request, or raises ValueError for one that cannot be written."""
        name = self.user(scope) if self.user else None
        fields = {
            b"Host": self.host.encode(),
            b"X-Original-URI": scope.get("raw_path") or urllib.parse.quote(scope["path"]).encode(),
            b"X-Original-Method": scope.get("method", "GET").encode(),
            b"X-Forwarded-For": (scope.get("client") or ("",))[0].encode(),
            b"X-Weir-User": (name or "").encode(),
        }
        if any(c in v for v in fields.values() for c in b"\r\n"):
            raise ValueError("a line break in a field")
        return b"GET /v1/auth HTTP/1.1\r\n" + b"".join(b"%s: %s\r\n" % f for f in fields.items()) + b"\r\n"

    async def ask(self, request):
        """Returns the node's status, the fields to pass on, and its body."""
        while self.idle:
            try:  # a connection that was used before may have been closed
                return await self.once(self.idle.pop(), request)
            except (ConnectionError, EOFError):
                pass
        return await self.once(await asyncio.open_connection(self.host, self.port), request)

    async def once(self, connection, request):
        reader, writer = connection
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            fields = [(n.strip().lower(), v.strip()) for n, _, v in (line.partition(b":") for line in head[1:] if line)]
            size = int(dict(fields).get(b"content-length", b"0"))
            if size > MOST_BODY or b"transfer-encoding" in dict(fields):
                raise ValueError("the answer of the node is too large")
            body = await reader.readexactly(size)
        except BaseException:
            writer.close()
            raise
        if dict(fields).get(b"connection", b"").lower() == b"close" or len(self.idle) >= 64:
            writer.close()
        else:
            self.idle.append(connection)
        return int(head[0].split()[1]), [f for f in fields if f[0] in PASSED_ON], body
