"""What a node is asked."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from .errors import Invalid

# A node refuses larger messages. It may close while they are sent, so they are refused here.
MOST_MESSAGE = 1 << 20
# A node refuses longer strings, and more attributes.
MOST_STRING = 8 << 10
MOST_ATTRIBUTES = 16


@dataclass(frozen=True)
class Request:
    """A request that is to be limited. Its fields are those of the HTTP API, and None leaves one out.

    The same request settles, extends, cancels, refunds or resets what its check has charged, by the fields that
    name its keys and by its id. dataclasses.replace changes one field of it.

    path: without the query. user, ip, group, method: who asks, and how.
    rule: the rule that decides, so that none is matched.
    key: with limits, a key of any form in place of path and user.
    attributes: names and values, which rules can match and count by.
    limits: objects as in a rules file, in place of its rules. They need --allow-request-limits.
    cost: units; 0 peeks. None leaves it to the rule.
    peek: asks what the answer would be, and charges nothing.
    receipt: wants a receipt, for a refund.
    id: the check counts once however often it is sent. id_ttl: seconds for which the id is remembered.
    hold: makes it a reservation that lasts so many seconds. It needs an id.
    Both are above 0. Less than a millisecond is one.
    tenant: whose counters, for administrators.
    """

    path: str | None = None
    user: str | None = None
    ip: str | None = None
    group: str | None = None
    method: str | None = None
    rule: str | None = None
    key: str | None = None
    attributes: Mapping[str, str] | None = None
    limits: Sequence[Mapping[str, Any]] | None = None
    cost: int | None = None
    peek: bool = False
    receipt: bool = False
    id: str | None = None
    id_ttl: float | None = None
    hold: float | None = None
    tenant: str | None = None

    def fields(self, *more: str) -> dict[str, Any]:
        """Returns the fields that name the keys, and those of more that are given, as the API spells them."""
        out: dict[str, Any] = {}
        for name in ("path", "user", "ip", "group", "method", "rule", "key", "attributes", "limits", *more):
            value = getattr(self, name)
            if value is None or value is False:
                continue
            try:
                if name in ("hold", "id_ttl"):
                    name, value = name + "_ms", milliseconds(name, value)
                elif name == "attributes":
                    value = dict(value)
                elif name == "limits":
                    value = [dict(limit) for limit in value]
            except (TypeError, ValueError, OverflowError) as error:
                raise Invalid(f"{name} is not valid: {error}") from error
            out[name] = value
        self._bounded(out)
        return out

    @staticmethod
    def _bounded(fields: dict[str, Any]) -> None:
        attributes = fields.get("attributes", {})
        if len(attributes) > MOST_ATTRIBUTES:
            raise Invalid(f"the request has {len(attributes)} attributes: a node takes {MOST_ATTRIBUTES}")
        strings = [*fields.items(), *attributes.items(), *((name, name) for name in attributes)]
        for name, value in strings:
            if not isinstance(name, str):
                raise Invalid(f"the name of attribute {name!r:.40} is no string")
            if isinstance(value, str) and len(encoded(name, value)) > MOST_STRING:
                raise Invalid(f"{name[:40]} is longer than {MOST_STRING} bytes")


CHECK = ("cost", "peek", "receipt", "id", "id_ttl", "hold", "tenant")
AMEND = ("id", "id_ttl")


def milliseconds(name: str, seconds: float) -> int:
    """Returns a time in milliseconds. The API takes 0 for no time given, so one that is not above 0 is refused."""
    if isinstance(seconds, bool) or not math.isfinite(seconds) or seconds <= 0:
        raise Invalid(f"{name} is {seconds!r}: give seconds, above 0")
    return max(1, round(seconds * 1000))


def encoded(name: str, value: str) -> bytes:
    """Returns a string as UTF-8. What cannot be encoded would become another user's name at the node."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"{name[:40]!a} cannot be written as UTF-8") from error


def message(fields: Mapping[str, Any]) -> bytes:
    """Returns a message as JSON."""
    try:
        body = json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError) as error:
        raise Invalid(f"the request cannot be written as JSON: {error}") from error
    if len(body) > MOST_MESSAGE:
        raise Invalid(f"the message has {len(body)} bytes: a node takes {MOST_MESSAGE}")
    return body
