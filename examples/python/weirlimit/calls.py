"""What both clients can be asked, as calls that know nothing of threads or asyncio."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable, Mapping, Sequence

from .answers import Amended, Answer, answer, passed_on, read, refusal, wait
from .errors import Invalid, Unanswered, Undecided, WeirError
from .nodes import Call, Nodes
from .requests import AMEND, CHECK, Request, message
from .wire import Response

FAILS = ("raise", "open", "closed")


class Caller:
    """What clients have in common: their nodes, their token, and what they say when no node has decided."""

    def __init__(self, nodes: str | Sequence[str], timeout: float, fail: str, token: str | Callable[[], str] | None,
                 avoid: float, first: int | None, connections: int, idle: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        if fail not in FAILS:
            raise ValueError(f"fail is {fail!r}: give one of {', '.join(FAILS)}")
        if connections < 1 or idle < 0:
            raise ValueError("connections must be above 0, and idle not below")
        self.nodes = Nodes(nodes, timeout, avoid, first, clock)
        self.fail, self._token, self.connections, self.idle, self.clock = fail, token, connections, idle, clock
        if token is not None:
            for node in self.nodes.all:
                if not node.secure and not node.loopback():
                    raise ValueError(f"a token is not sent to {node.name} in clear text: give https://{node.name}")

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        if self._token is None:
            return ()
        token = self._token if isinstance(self._token, str) else self._token()
        if not token.isascii() or not token.isprintable():
            raise ValueError("the token has characters that no token has")
        return (("Authorization", b"Bearer " + token.encode()),)

    def post(self, target: str, fields: Mapping[str, Any], of: Callable[[Response], Any]) -> Call[Any]:
        headers = (("Content-Type", b"application/json"), *self.headers())
        return Call("POST", target, headers, message(fields), of)

    def check(self, r: Request) -> Call[Answer]:
        def of(response: Response) -> Answer:
            raw = read(response, 200, 429, 503)
            out = answer(raw, passed_on(response))
            return out if response.status == 200 else replace(out, allowed=False)

        return self.post("/v1/check", r.fields(*CHECK), of)

    def check_many(self, requests: Sequence[Request]) -> Call[list[Answer | WeirError]]:
        def of(response: Response) -> list[Answer | WeirError]:
            return [self._one(one) for one in read(response, 200)["results"]]

        return self.post("/v1/check/batch", {"checks": [r.fields(*CHECK) for r in requests]}, of)

    def _one(self, one: Mapping[str, Any]) -> Answer | WeirError:
        if "answer" in one:
            return answer(one["answer"])
        detail = str(one["error"]["detail"])
        error = refusal(one["error"]["status"], detail) or Unanswered(detail)
        return self.instead(error) if isinstance(error, Undecided) and self.fail != "raise" else error

    def instead(self, error: Undecided) -> Answer:
        """Returns the answer in place of one that no node has given, or raises the error."""
        if self.fail == "raise":
            raise error
        return Answer(self.fail == "open", source="undecided", undecided=error)

    def explain(self, r: Request) -> Call[dict[str, Any]]:
        return self.post("/v1/explain", r.fields("cost", "tenant"), lambda response: read(response, 200))

    def amend(self, what: str, r: Request, more: Mapping[str, Any], *fields: str) -> Call[Amended]:
        if r.id is None:
            raise Invalid("the request has no id: give that of the reservation")

        def of(response: Response) -> Amended:
            raw = read(response, 200, 429)
            return Amended(raw["state"], raw.get("estimate", 0), raw.get("over", 0), wait(raw))

        return self.post("/v1/" + what, {**r.fields(*AMEND, *fields), **more}, of)

    def settle(self, r: Request, actual: int | Mapping[str, int], ignore_unknown: bool) -> Call[Amended]:
        used = actual if isinstance(actual, int) else dict(actual)
        return self.amend("settle", r, {"actual": used, **({"if_unknown": "ignore"} if ignore_unknown else {})})

    def refund(self, r: Request, receipt: str) -> Call[None]:
        fields = {**r.fields("cost", "id"), "receipt": receipt}
        return self.post("/v1/refund", fields, lambda response: read(response, 200) and None)

    def reset(self, r: Request) -> Call[int]:
        return self.post("/v1/reset", r.fields("tenant"), lambda response: int(read(response, 200)["counters"]))
