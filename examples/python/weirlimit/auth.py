"""What both middlewares have in common: the question at /v1/auth, which a node answers as it does to a web proxy."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from http import HTTPStatus

from .answers import passed_on, problem
from .calls import Caller
from .errors import Busy, Invalid, NotPermitted, Undecided, WeirError
from .nodes import Call
from .requests import MOST_STRING
from .wire import Broken, Response

log = logging.getLogger("weirlimit")

# A node refuses larger headers before it counts.
MOST_FIELDS = 15 << 10


@dataclass(frozen=True)
class Verdict:
    """Whether a request passes, with headers for its answer; if it does not, the answer's status and body."""

    passes: bool
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def reason(self) -> str:
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return "Refused"


def question(caller: Caller, uri: bytes, method: str, address: str, user: str | None) -> Call[Verdict]:
    """Returns what a node is asked about a request, or raises Invalid for one that cannot be asked about."""
    try:
        fields = [("X-Original-URI", uri), ("X-Original-Method", method.encode("ascii")),
                  ("X-Forwarded-For", address.encode("ascii")), ("X-Weir-User", (user or "").encode())]
    except UnicodeEncodeError as error:
        raise Invalid("the request has characters that cannot be asked about") from error
    if any(byte < 0x20 or byte == 0x7F for _, value in fields for byte in value):
        raise Invalid("the request has control characters")
    if any(value != value.strip(b" ") for _, value in fields):  # a node takes "ada " for "ada"
        raise Invalid("the request has a field with spaces around it")
    if len(uri) > MOST_STRING or sum(len(value) for _, value in fields) > MOST_FIELDS:
        raise Invalid("the request is too large to be counted")
    headers = (*((name, value) for name, value in fields if value), *caller.headers())
    return Call("GET", "/v1/auth", headers, b"", verdict)


def verdict(response: Response) -> Verdict:
    """Returns what a node says. It marks what it says of the request, as against of who asks."""
    if response.status == 200:
        return Verdict(True, 200, passed_on(response))
    if response.get("x-weir-status") is None:
        raise problem(response) or Broken(f"status {response.status}")
    media = response.get("content-type") or "text/plain"
    return Verdict(False, response.status, (("Content-Type", media), *passed_on(response)), response.body)


def instead(error: WeirError, fail_open: bool) -> Verdict:
    """Returns the verdict on a request that no node has decided. Only Undecided, which no client can cause, passes."""
    if isinstance(error, Undecided) and fail_open:
        log.warning("a request passes uncounted: %s", error)
        return Verdict(True, 200)
    if isinstance(error, Invalid):
        return plain(400, "the request cannot be counted against its limits")
    if isinstance(error, Busy):
        wait = max(1, int(error.retry_after or 1))
        return plain(503, "there are too many requests", ("Retry-After", str(wait)))
    if isinstance(error, NotPermitted):
        log.error("the node does not permit this service to ask: see --auth-proxy and --permissions: %s", error)
    else:
        log.error("a request is denied uncounted: %s", error)
    return plain(503, "the limits cannot be looked up")


def plain(status: int, text: str, *headers: tuple[str, str]) -> Verdict:
    return Verdict(False, status, (("Content-Type", "text/plain; charset=utf-8"), *headers), text.encode() + b"\n")
