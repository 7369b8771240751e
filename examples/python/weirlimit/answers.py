"""What nodes answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping

from .errors import Busy, Conflict, Invalid, NotPermitted, Unavailable, WeirError
from .wire import Broken, Response

# The headers that tell a caller about limits.
PASSED_ON = (
    "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After",
)


@dataclass(frozen=True)
class LimitAnswer:
    """One limit of an answer. remaining is the largest cost that would be admitted now; times are in seconds."""

    name: str
    key: str
    algorithm: str
    limit: int
    remaining: int
    reset_after: float
    retry_after: float | None
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """A decision.

    never: no wait helps. retry_after: seconds after which the same request would be allowed, None if it was allowed or
    no wait helps. rule: the rule that decided. blocked_by: the limit that denied. source: who decided, such as "owner".
    deny: of a rule that denies, the status and the reason for the caller. repeated: the id was known, and nothing was
    charged. receipt: for a refund, if one was asked for.
    headers: names and values that tell a caller about limits, to be passed on.
    undecided: no node has decided, and this answer is what fail= says: why is the reason.
    raw: all of it, as it came.
    """

    allowed: bool
    never: bool = False
    retry_after: float | None = None
    rule: str = ""
    blocked_by: str = ""
    source: str = ""
    deny: Mapping[str, Any] | None = None
    repeated: bool = False
    receipt: str = field(default="", repr=False)
    limits: tuple[LimitAnswer, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    undecided: WeirError | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Amended:
    """What a settlement, a cancellation or an extension did.

    state: "done"; "repeated": it was settled with the same number before; "charged": the id was not known, and what was
    used is charged; "unknown": it was not known, and nothing was done; "denied": a limit has no room for the higher
    estimate. estimate: what was reserved until then, or is after an extension. over: units beyond a limit.
    """

    state: str
    estimate: int = 0
    over: int = 0
    retry_after: float | None = None


def seconds(text: str | None) -> float | None:
    """Returns Retry-After, None if there is none."""
    return float(text) if text and text.isascii() and text.isdigit() else None


def passed_on(response: Response) -> tuple[tuple[str, str], ...]:
    """Returns the headers for the caller."""
    return tuple((name, value) for name in PASSED_ON if (value := response.get(name.lower())) is not None)


def refusal(status: int, detail: str, retry_after: float | None = None) -> WeirError | None:
    """Returns the error for a status that is not an answer, None if it is not known what became of the call."""
    if status in (401, 403):
        return NotPermitted(detail)
    if status == 409:
        return Conflict(detail)
    if status == 429 or status == 503 and retry_after is not None:
        return Busy(detail, retry_after)
    if status == 503:
        return Unavailable(detail)
    if 300 <= status < 500:
        return Invalid(detail)
    return None


def problem(response: Response) -> WeirError | None:
    """Returns the error that a node has answered."""
    detail = response.body[:1000].decode("utf-8", "replace").strip()
    try:
        detail = str(json.loads(response.body)["detail"])
    except (ValueError, TypeError, KeyError):
        pass
    return refusal(response.status, f"status {response.status}: {detail}", seconds(response.get("retry-after")))


def read(response: Response, *statuses: int) -> dict[str, Any]:
    """Returns the object of an answer that has one of some statuses. An error that was answered is raised, and Broken
    if it is not known what became of the call."""
    media = (response.get("content-type") or "").partition(";")[0].strip().lower()
    if response.status not in statuses or media != "application/json":
        raise problem(response) or Broken(f"status {response.status}")
    try:
        out = json.loads(response.body)
    except ValueError as error:
        raise Broken(f"the answer is not JSON: {error}") from error
    if not isinstance(out, dict):
        raise Broken("the answer is not an object of JSON")
    return out


def wait(raw: Mapping[str, Any]) -> float | None:
    ms = raw.get("retry_after_ms")
    return None if ms is None else ms / 1000


def answer(raw: Mapping[str, Any], headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Returns the answer that an object holds, or raises Broken."""
    if not isinstance(raw.get("allowed"), bool):
        raise Broken("the answer does not say whether the request is allowed")
    try:
        limits = tuple(
            LimitAnswer(limit["name"], limit["key"], limit["algorithm"], limit["limit"], limit["remaining"],
                        limit["reset_after_ms"] / 1000, wait(limit), limit)
            for limit in raw.get("limits", ()))
    except (KeyError, TypeError) as error:
        raise Broken(f"the answer has a limit that cannot be read: {error!r}") from error
    return Answer(raw["allowed"], raw.get("never", False), wait(raw), raw.get("rule", ""), raw.get("blocked_by", ""),
                  raw.get("source", ""), raw.get("deny"), raw.get("repeated", False), raw.get("receipt", ""), limits,
                  headers, None, raw)
