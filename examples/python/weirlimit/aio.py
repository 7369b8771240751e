"""A client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Callable, Literal, Mapping, Sequence, TypeVar

from .answers import Amended, Answer
from .calls import Caller
from .client import readable
from .errors import Undecided, WeirError
from .nodes import LEAST, OUTCOMES, Attempt, Call, Late, Node, NoSlot, Unreached
from .requests import Request
from .wire import Broken, Parser, Response, TooLarge

T = TypeVar("T")
# Seconds by which a timer may be late. One that is later shows that the event loop was blocked.
PUNCTUAL = 0.05


class Connection(asyncio.Protocol):
    """One connection. It reads an answer as it arrives, so that one that is there is not taken for late while the event
    loop is busy."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.ended = False
        self._parser = Parser()
        self._answer: asyncio.Future[Response] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # nothing was asked
            return
        try:
            response = self._parser.feed(data)
        except (Broken, TooLarge) as error:
            self._answer.set_exception(error)
            return
        if response is not None:
            self._answer.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        if self._answer is None or self._answer.done():
            return
        try:
            if not self._parser.begun or error is not None:
                raise Broken(f"the connection broke: {error or 'it was closed before the answer'}")
            self._answer.set_result(self._parser.end())
        except Broken as broken:
            self._answer.set_exception(broken)

    def close(self) -> None:
        self.ended = True
        if self.transport is not None:
            self.transport.abort()

    async def exchange(self, data: bytes, wait: float) -> Response:
        """Sends a request and returns its response. The connection is closed unless it can be used again."""
        assert self.transport is not None
        self._parser, self._answer = Parser(), asyncio.get_running_loop().create_future()
        try:
            self.transport.write(data)
            await asyncio.wait((self._answer,), timeout=wait)
            if not self._answer.done():
                raise TimeoutError("no answer in time")
            return self._answer.result()
        finally:
            if not self._parser.reusable:
                self.close()
            self._answer.cancel()
            self._answer = None

    def usable(self) -> bool:
        """Whether it can be used again. The event loop may not have noticed yet that the node has closed it."""
        if self.ended or self.transport is None:
            return False
        opened = self.transport.get_extra_info("socket")
        return opened is None or not readable(opened.fileno())


class Pool:
    """The connections to one node. Those that are not in use are kept for a while, the last one first."""

    def __init__(self, connections: int) -> None:
        self.slots = asyncio.Semaphore(connections)
        self.idle: list[tuple[float, Connection]] = []


class AsyncClient:
    """Asks nodes of Weir over HTTP, as Client does with the same arguments. Its methods are coroutines. It serves one
    event loop at a time."""

    def __init__(self, nodes: str | Sequence[str], *, timeout: float = 1.0,
                 fail: Literal["raise", "open", "closed"] = "raise", token: str | Callable[[], str] | None = None,
                 tls: ssl.SSLContext | None = None, avoid: float = 5.0, first: int | None = None,
                 connections: int = 64, idle: float = 60.0) -> None:
        self.caller = Caller(nodes, timeout, fail, token, avoid, first, connections, idle)
        self._tls = tls
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pools: dict[Node, Pool] = {}

    async def check(self, r: Request) -> Answer:
        """See Client.check."""
        try:
            return await self.call(self.caller.check(r))
        except Undecided as error:
            return self.caller.instead(error)

    async def check_many(self, requests: Sequence[Request]) -> list[Answer | WeirError]:
        """See Client.check_many."""
        try:
            return await self.call(self.caller.check_many(requests))
        except Undecided as error:
            return [self.caller.instead(error) for _ in requests]

    async def explain(self, r: Request) -> dict[str, Any]:
        """See Client.explain."""
        return await self.call(self.caller.explain(r))

    async def settle(self, r: Request, actual: int | Mapping[str, int], *, ignore_unknown: bool = False) -> Amended:
        """See Client.settle."""
        return await self.call(self.caller.settle(r, actual, ignore_unknown))

    async def cancel(self, r: Request) -> Amended:
        """See Client.cancel."""
        return await self.call(self.caller.amend("cancel", r, {}))

    async def extend(self, r: Request) -> Amended:
        """See Client.extend."""
        return await self.call(self.caller.amend("extend", r, {}, "hold", "cost"))

    async def refund(self, r: Request, receipt: str) -> None:
        """See Client.refund."""
        await self.call(self.caller.refund(r, receipt))

    async def reset(self, r: Request) -> int:
        """See Client.reset."""
        return await self.call(self.caller.reset(r))

    async def close(self) -> None:
        """Closes what is not in use. The client may be used further."""
        if self._loop is asyncio.get_running_loop():
            for pool in self._pools.values():
                self._drop(pool)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(self, call: Call[T]) -> T:
        """Makes a call at one node after the other."""
        if self._loop is not asyncio.get_running_loop():  # the connections are another loop's
            self._loop = asyncio.get_running_loop()
            self.caller.nodes.alone()
            self._pools = {node: Pool(self.caller.connections) for node in self.caller.nodes.all}
        asking = self.caller.nodes.ask(call)
        try:
            attempt = next(asking)
            while True:
                outcome: Response | Exception
                try:
                    outcome = await self._attempt(attempt)
                except OUTCOMES as error:
                    outcome = error
                attempt = asking.send(outcome)
        except StopIteration as done:
            out: T = done.value
            return out
        finally:
            asking.close()

    @staticmethod
    def _drop(pool: Pool) -> None:
        while pool.idle:
            pool.idle.pop()[1].close()

    async def _attempt(self, attempt: Attempt) -> Response:
        pool = self._pools[attempt.node]
        try:
            if pool.slots.locked():
                await asyncio.wait_for(pool.slots.acquire(), attempt.slot)
            else:
                await pool.slots.acquire()
        except asyncio.TimeoutError:
            raise NoSlot("no free connection in time") from None
        try:
            deadline = self.caller.clock() + attempt.wait
            connection = self._kept(pool) or await self._connect(attempt.node, deadline)
            # One that was made too late, while the loop was blocked, is waited for as well.
            return await self._exchange(pool, connection, attempt.data, max(deadline, self.caller.clock() + LEAST))
        except (Unreached, Broken, TimeoutError):
            self._drop(pool)  # the others are no better
            raise
        finally:
            pool.slots.release()

    def _kept(self, pool: Pool) -> Connection | None:
        oldest = self.caller.clock() - self.caller.idle
        while pool.idle and (pool.idle[0][0] <= oldest or pool.idle[0][1].ended):
            pool.idle.pop(0)[1].close()
        while pool.idle:
            connection = pool.idle.pop()[1]
            if connection.usable():
                return connection
            connection.close()
        return None

    def _timely(self, deadline: float) -> None:
        """Is called when time has run out. Raises Late if it has long since: what was due may be there, unread."""
        if self.caller.clock() > deadline + PUNCTUAL:
            raise Late("the event loop was blocked when the answer was due: let no task keep it so long")

    async def _connect(self, node: Node, deadline: float) -> Connection:
        tls = (self._tls or ssl.create_default_context()) if node.secure else None
        loop = asyncio.get_running_loop()
        try:
            _, connection = await asyncio.wait_for(
                loop.create_connection(Connection, node.host, node.port, ssl=tls), deadline - self.caller.clock())
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            if isinstance(error, asyncio.TimeoutError):
                self._timely(deadline)
            raise Unreached(f"cannot connect: {error or 'no connection in time'}") from error
        return connection

    async def _exchange(self, pool: Pool, connection: Connection, data: bytes, deadline: float) -> Response:
        try:
            response = await connection.exchange(data, deadline - self.caller.clock())
        except TimeoutError:
            self._timely(deadline)
            raise
        except BaseException:  # such as a cancellation after the answer
            connection.close()
            raise
        if not connection.ended:
            pool.idle.append((self.caller.clock(), connection))
        return response
