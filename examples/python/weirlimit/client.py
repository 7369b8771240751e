"""A client for threads."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from typing import Any, Callable, Literal, Mapping, Sequence, TypeVar

from .answers import Amended, Answer
from .calls import Caller
from .errors import Undecided, WeirError
from .nodes import LEAST, OUTCOMES, Attempt, Call, Node, NoSlot, Unreached
from .requests import Request
from .wire import Broken, Parser, Response

T = TypeVar("T")
READ = 64 << 10


def readable(connection: int) -> bool:
    """Whether there is something to read, such as the end. Nothing is, on a connection that can be used again."""
    if not hasattr(select, "poll"):  # on Windows
        return bool(select.select([connection], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


class Pool:
    """The connections to one node. Those that are not in use are kept for a while, the last one first."""

    def __init__(self, connections: int) -> None:
        self.slots = threading.BoundedSemaphore(connections)
        self.idle: list[tuple[float, socket.socket]] = []
        self.lock = threading.Lock()


class Client:
    """Asks nodes of Weir over HTTP. It is safe for use by several threads, and a process that forks may use it on both
    sides.

    nodes: their HTTP addresses, "host:port" or "https://host:port". One is asked as long as it answers; if it does not,
        another one is asked, and it is left alone for a while. A call that was sent and not answered may count twice
        then, which denies too much rather than too little; with an id it counts once.
    timeout: seconds for a call, further nodes included. One node is waited for 2/5 of it, the only one 3/5. A node
        answers within its own --deadline, 0.3 s, so give more than 0.75. Looking up a name is not bounded by it.
        Where this process does not run in time, a step gets 0.1 s more, or the call is Busy.
    fail: what check and check_many do when no node has decided: "raise" Undecided, "open": the answer is allowed,
        "closed": it is denied. Errors that the sender of a request can cause are raised in any case.
    token: the bearer token, or a function that returns it. Without TLS it is sent to loopback addresses only.
    tls: for nodes of https; None: the authorities of the system.
    avoid: seconds for which a node that did not answer is not asked.
    first: the index of the node to begin with; None: a random one, so that clients are spread over the nodes.
    connections: the most connections to one node. A call waits a fifth of the timeout for a free one, and then is Busy.
    idle: seconds for which a connection that is not in use is kept; nodes keep it for 120.

    Each method may raise Invalid, NotPermitted, Busy, and Undecided: Unavailable or Unanswered.
    """

    def __init__(self, nodes: str | Sequence[str], *, timeout: float = 1.0,
                 fail: Literal["raise", "open", "closed"] = "raise", token: str | Callable[[], str] | None = None,
                 tls: ssl.SSLContext | None = None, avoid: float = 5.0, first: int | None = None,
                 connections: int = 64, idle: float = 60.0) -> None:
        self.caller = Caller(nodes, timeout, fail, token, avoid, first, connections, idle)
        self._tls = tls
        self._lock = threading.Lock()
        self._reset()

    def check(self, r: Request) -> Answer:
        """Decides a request, and charges it if it is allowed."""
        try:
            return self.call(self.caller.check(r))
        except Undecided as error:
            return self.caller.instead(error)

    def check_many(self, requests: Sequence[Request]) -> list[Answer | WeirError]:
        """Decides up to 1000 requests in turn. One that cannot be decided has an error in its place."""
        try:
            return self.call(self.caller.check_many(requests))
        except Undecided as error:
            return [self.caller.instead(error) for _ in requests]

    def explain(self, r: Request) -> dict[str, Any]:
        """Tells what a check would be answered, and why."""
        return self.call(self.caller.explain(r))

    def settle(self, r: Request, actual: int | Mapping[str, int], *, ignore_unknown: bool = False) -> Amended:
        """Settles a reservation with what was used: a number, or one for each attribute from which a rule takes its
        cost. May raise Conflict. To settle again with the same number does no harm."""
        return self.call(self.caller.settle(r, actual, ignore_unknown))

    def cancel(self, r: Request) -> Amended:
        """Takes back all that a reservation has charged. May raise Conflict."""
        return self.call(self.caller.amend("cancel", r, {}))

    def extend(self, r: Request) -> Amended:
        """Lets a reservation last r.hold from now on, and raises its estimate to r.cost. May raise Conflict."""
        return self.call(self.caller.amend("extend", r, {}, "hold", "cost"))

    def refund(self, r: Request, receipt: str) -> None:
        """Takes back what a check has charged, unless the receipt is void. It may be repeated."""
        self.call(self.caller.refund(r, receipt))

    def reset(self, r: Request) -> int:
        """Forgets what was counted for the keys of a request, and returns how many counters there were."""
        return self.call(self.caller.reset(r))

    def close(self) -> None:
        """Closes what is not in use. The client may be used further."""
        self._close(self._pools)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, call: Call[T]) -> T:
        """Makes a call at one node after the other."""
        if self._process != os.getpid():
            self._forked()
        asking = self.caller.nodes.ask(call)
        try:
            attempt = next(asking)
            while True:
                outcome: Response | Exception
                try:
                    outcome = self._attempt(attempt)
                except OUTCOMES as error:
                    outcome = error
                attempt = asking.send(outcome)
        except StopIteration as done:
            out: T = done.value
            return out
        finally:
            asking.close()

    def _reset(self) -> None:
        self._pools = {node: Pool(self.caller.connections) for node in self.caller.nodes.all}
        self._process = os.getpid()

    def _forked(self) -> None:
        with self._lock:
            if self._process != os.getpid():  # the connections are the parent's
                before = self._pools
                self.caller.nodes.alone()
                self._reset()
                for pool in before.values():  # without its lock, which a thread of the parent may have held
                    for _, connection in pool.idle:
                        connection.close()

    @staticmethod
    def _close(pools: dict[Node, Pool]) -> None:
        for pool in pools.values():
            Client._drop(pool)

    @staticmethod
    def _drop(pool: Pool) -> None:
        with pool.lock:
            idle, pool.idle = pool.idle, []
        for _, connection in idle:
            connection.close()

    def _attempt(self, attempt: Attempt) -> Response:
        pool = self._pools[attempt.node]
        if not pool.slots.acquire(timeout=attempt.slot):
            raise NoSlot("no free connection in time")
        try:
            deadline = self.caller.clock() + attempt.wait
            try:
                connection = self._kept(pool) or self._connect(attempt.node, deadline)
            except (OSError, ValueError) as error:
                raise Unreached(f"cannot connect: {error}") from error
            return self._exchange(pool, connection, attempt.data, max(deadline, self.caller.clock() + LEAST))
        except (Unreached, Broken, TimeoutError):
            self._drop(pool)  # the others are no better
            raise
        finally:
            pool.slots.release()

    def _kept(self, pool: Pool) -> socket.socket | None:
        oldest = self.caller.clock() - self.caller.idle
        with pool.lock:
            at = next((i for i, (since, _) in enumerate(pool.idle) if since > oldest), len(pool.idle))
            old, pool.idle = pool.idle[:at], pool.idle[at:]
            kept = pool.idle.pop()[1] if pool.idle else None
            while kept is not None and readable(kept.fileno()):  # the node has closed it since it was used
                old.append((0, kept))
                kept = pool.idle.pop()[1] if pool.idle else None
        for _, connection in old:
            connection.close()
        return kept

    def _left(self, deadline: float) -> float:
        return max(LEAST, deadline - self.caller.clock())

    def _connect(self, node: Node, deadline: float) -> socket.socket:
        connection = self._reach(node, deadline)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if node.secure:
                tls = self._tls or ssl.create_default_context()
                connection.settimeout(self._left(deadline))
                connection = tls.wrap_socket(connection, server_hostname=node.host)
            return connection
        except BaseException:
            connection.close()
            raise

    def _reach(self, node: Node, deadline: float) -> socket.socket:
        """Connects to one of the addresses of a name. They share the time."""
        failure = OSError("the name has no address")
        found = socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
        for i, (family, kind, protocol, _, address) in enumerate(found):
            if i > 0 and self.caller.clock() >= deadline:
                break
            try:
                connection = socket.socket(family, kind, protocol)
            except OSError as error:  # such as an address of IPv6 where there is none
                failure = error
                continue
            try:
                connection.settimeout(self._left(deadline) / (len(found) - i))
                connection.connect(address)
                return connection
            except BaseException as error:
                connection.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
        raise failure

    def _receive(self, connection: socket.socket, deadline: float) -> bytes:
        """Returns what arrives in time, or has arrived by now: a thread that did not run looks once more."""
        left = deadline - self.caller.clock()
        if left > 0:
            connection.settimeout(left)
            try:
                return connection.recv(READ)
            except TimeoutError:
                pass
        connection.settimeout(0)
        try:
            return connection.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise TimeoutError("no answer in time") from None

    def _exchange(self, pool: Pool, connection: socket.socket, data: bytes, deadline: float) -> Response:
        """Sends a request and returns its response."""
        parser = Parser()
        kept = False
        try:
            connection.settimeout(self._left(deadline))
            connection.sendall(data)
            response = None
            while response is None:
                got = self._receive(connection, deadline)
                response = parser.feed(got) if got else parser.end()
            if parser.reusable:
                with pool.lock:
                    pool.idle.append((self.caller.clock(), connection))
                    kept = True
            return response
        except TimeoutError:
            raise
        except OSError as error:
            raise Broken(f"the connection broke: {error}") from error
        finally:
            if not kept:
                connection.close()
