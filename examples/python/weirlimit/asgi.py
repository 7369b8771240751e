"""Limits an ASGI application, such as one of FastAPI.

    app.add_middleware(Limit, nodes=["10.0.0.1:8080", "10.0.0.2:8080"])

The nodes run with --auth-proxy and the address of this service. One of them is asked about each request. The headers
RateLimit, RateLimit-Policy, X-RateLimit-* and Retry-After are passed on, and what is refused is answered as the node
says, without the application.
"""

from __future__ import annotations

import urllib.parse
from typing import Any, Awaitable, Callable, MutableMapping, Sequence

from .aio import AsyncClient
from .auth import Verdict, instead, question
from .errors import Invalid, WeirError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Limit:
    """An ASGI application around another one, for one event loop.

    nodes, and options such as timeout and token: as Client has them.
    fail_open: whether requests pass while no node answers; else they get 503. What a client can cause never passes.
    user: a function of the scope that returns the user's name, or None. Only what was verified before may be
        believed. It needs --auth-user-header X-Weir-User.
    The client's address is that of the scope. Behind a proxy, let the server set it, as uvicorn --proxy-headers does.
    A websocket that is refused is answered so where the server can (websocket.http.response), and else is closed.
    """

    def __init__(self, app: App, nodes: str | Sequence[str], *, fail_open: bool = False,
                 user: Callable[[Message], str | None] | None = None, **options: Any) -> None:
        self.app, self.fail_open, self.user = app, fail_open, user
        self.client = AsyncClient(nodes, **options)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        verdict = await self._ask(scope)
        if not verdict.passes:
            await self._refuse(scope, send, verdict)
            return
        more = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in verdict.headers]

        async def passing(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                message = {**message, "headers": [*message.get("headers", []), *more]}
            await send(message)

        await self.app(scope, receive, passing)

    async def _ask(self, scope: Message) -> Verdict:
        try:
            uri = scope.get("raw_path") or urllib.parse.quote(scope["path"]).encode("ascii")
            address = (scope.get("client") or ("",))[0]
            user = self.user(scope) if self.user else None
            return await self.client.call(
                question(self.client.caller, uri, scope.get("method", "GET"), address, user))
        except WeirError as error:
            return instead(error, self.fail_open)
        except UnicodeEncodeError:
            return instead(Invalid("the path cannot be written"), self.fail_open)

    @staticmethod
    async def _refuse(scope: Message, send: Send, verdict: Verdict) -> None:
        kind = "http.response"
        if scope["type"] == "websocket":
            if "websocket.http.response" not in (scope.get("extensions") or {}):
                await send({"type": "websocket.close", "code": 1013})
                return
            kind = "websocket.http.response"
        headers = [*verdict.headers, ("content-length", str(len(verdict.body)))]
        raw = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in headers]
        await send({"type": kind + ".start", "status": verdict.status, "headers": raw})
        await send({"type": kind + ".body", "body": verdict.body})
