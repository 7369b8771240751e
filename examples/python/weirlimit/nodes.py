"""Which node is asked, and what happens when it does not answer. It does no input or output: a client, of threads or
of asyncio, does what an Attempt says and reports what came of it."""

from __future__ import annotations

import ipaddress
import random
import threading
from dataclasses import dataclass
from typing import Callable, Generator, Generic, Sequence, TypeVar
from urllib.parse import urlsplit

from .errors import Busy, Conflict, Invalid, NotPermitted, Unanswered, Unavailable, WeirError
from .wire import Broken, Response, TooLarge, request

T = TypeVar("T")
E = TypeVar("E", bound=WeirError)

# Seconds that each step of an attempt gets, also one that begins too late because this process did not run.
LEAST = 0.1


class Unreached(Exception):
    """The node could not be connected to: nothing was sent."""


class NoSlot(Exception):
    """All connections to the node were in use for too long: nothing was sent."""


class Late(Exception):
    """This process did not run when the answer was due. That says nothing of the node."""


# What may come of an attempt, apart from a Response.
OUTCOMES = (Unreached, NoSlot, Late, Broken, TooLarge, TimeoutError)


@dataclass(eq=False)
class Node:
    """A node and what is known of it.

    until: when it may be asked again, None unless it failed. trying: the call that tries whether it answers again.
    """

    name: str
    host: str
    port: int
    secure: bool
    until: float | None = None
    trying: object | None = None

    @staticmethod
    def parse(address: str) -> Node:
        parts = urlsplit(address if "://" in address else "http://" + address)
        if (not address.isascii() or parts.scheme not in ("http", "https") or not parts.hostname or not parts.port
                or parts.path not in ("", "/")):
            raise ValueError(f"node {address!r} is not valid: give HOST:PORT or https://HOST:PORT of its HTTP address")
        return Node(parts.netloc, parts.hostname, parts.port, parts.scheme == "https")

    def loopback(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call. read returns what a response means, or raises an error of this package, or Broken if it is not known
    what became of the call."""

    method: str
    target: str
    headers: tuple[tuple[str, bytes], ...]
    body: bytes
    read: Callable[[Response], T]

    def to(self, node: Node) -> bytes:
        return request(self.method, self.target, (("Host", node.name.encode("ascii")), *self.headers), self.body)


@dataclass(frozen=True)
class Attempt:
    """Asks a client to send data to a node, and to wait at most so many seconds for its answer: for a free connection
    at most slot of them, and then, for the answer, wait."""

    node: Node
    data: bytes
    slot: float
    wait: float


class Nodes:
    """The nodes of a client. The one that answers is asked as long as it does; one that does not answer is not asked
    for a while, and then by one call at a time until it answers. It is safe for use by several threads."""

    def __init__(self, addresses: Sequence[str], timeout: float, avoid: float, first: int | None,
                 clock: Callable[[], float]) -> None:
        self.all = [Node.parse(a) for a in ([addresses] if isinstance(addresses, str) else addresses)]
        if not self.all:
            raise ValueError("there are no nodes: give the HTTP addresses of some")
        if timeout <= 0 or avoid < 0:
            raise ValueError("timeout must be above 0, and avoid not below")
        first = random.randrange(len(self.all)) if first is None else first % len(self.all)
        self.all = self.all[first:] + self.all[:first]
        self._timeout, self._avoid, self._clock = timeout, avoid, clock
        self._lock = threading.Lock()

    def alone(self) -> None:
        """Forgets the calls under way: they are those of another process, or of an event loop that has ended."""
        self._lock = threading.Lock()  # a thread of the other process may hold the one before
        for node in self.all:
            node.trying = None

    def pick(self, tried: Sequence[Node]) -> Node | None:
        """Returns the next node to ask, None if there is none. released must be called with the same list."""
        now = self._clock()
        with self._lock:
            left = [n for n in self.all if n not in tried and n.trying is None]
            # If all have failed, one call at a time asks the one that did so first.
            up = next((n for n in left if n.until is None or n.until <= now), None)
            node = up or (min(left, key=lambda n: n.until or now) if left else None)
            if node is not None and node.until is not None:
                node.trying = tried
            return node

    def released(self, node: Node, tried: Sequence[Node]) -> None:
        """Lets other calls ask a node that this one has tried."""
        with self._lock:
            if node.trying is tried:
                node.trying = None

    def answered(self, node: Node) -> None:
        with self._lock:
            node.until = None

    def failed(self, node: Node) -> None:
        with self._lock:
            node.until = self._clock() + self._avoid

    def down(self, node: Node) -> bool:
        return node.until is not None

    def ask(self, call: Call[T]) -> Generator[Attempt, Response | Exception, T]:
        """Makes a call at one node after the other, and returns what it has answered. It yields attempts, and wants to
        be sent a Response or one of OUTCOMES.

        A call that may have been carried out is sent to one other node, and no further.
        """
        deadline = self._clock() + self._timeout
        # As in Weir's client in Go: a node is waited for 2/5 of the time, and the only one 3/5.
        share = self._timeout * (0.4 if len(self.all) > 1 else 0.6)
        tried: list[Node] = []
        reasons: list[str] = []
        unknown = 0
        busy: Busy | None = None
        while unknown < 2:
            node = self.pick(tried)
            left = deadline - self._clock()
            if node is None:
                break
            try:
                if left <= 0 and tried:
                    break
                tried.append(node)
                outcome = yield Attempt(node, call.to(node), max(0.0, min(self._timeout * 0.2, left - share)),
                                        min(share, left if left > 0 else LEAST))
                if isinstance(outcome, NoSlot):
                    if not self.down(node):
                        raise doubted(unknown, Busy(
                            f"all connections to {node.name} are in use: give the client more, or ask less"))
                    reasons.append(f"{node.name}: {outcome}")
                    continue
                if isinstance(outcome, TooLarge):
                    raise doubted(1, Invalid(str(outcome)))
                if isinstance(outcome, Late):
                    raise doubted(1, Busy(str(outcome)))
                if isinstance(outcome, Response):
                    self.answered(node)
                    try:
                        return call.read(outcome)
                    except (Invalid, NotPermitted, Conflict) as error:
                        raise doubted(unknown, error)
                    except Busy as error:  # another node may have room
                        busy, outcome = error, error
                    except Unavailable as error:  # such as one that is joining or stopping
                        outcome = error
                    except Broken as error:  # such as 504
                        unknown, outcome = unknown + 1, error
                else:
                    self.failed(node)
                    unknown += not isinstance(outcome, Unreached)
                reasons.append(f"{node.name}: {outcome or 'no answer in time'}")
            finally:
                self.released(node, tried)
        if busy is not None:
            raise doubted(unknown, busy)
        why = "; ".join(reasons) or "all nodes have failed a moment ago"
        failure: WeirError = Unanswered(why) if unknown else Unavailable(why)
        raise failure


def doubted(unknown: int, error: E) -> E:
    """Says in an error that the call may have been carried out, if that is not known of some nodes."""
    if unknown:
        error.args = (f"{error}. The call may have been carried out",)
    return error
