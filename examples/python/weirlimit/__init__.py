"""Asks nodes of Weir whether requests may pass, with the standard library alone.

    from weirlimit import Client, Request

    client = Client(["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"])
    answer = client.check(Request(path="/towns", user="ada"))
    if not answer.allowed:
        ...  # wait answer.retry_after seconds

AsyncClient is the same for asyncio. weirlimit.wsgi and weirlimit.asgi limit a whole application.
"""

from .aio import AsyncClient
from .answers import Amended, Answer, LimitAnswer
from .client import Client
from .errors import Busy, Conflict, Invalid, NotPermitted, Unanswered, Unavailable, Undecided, WeirError
from .requests import Request

__all__ = [
    "Amended", "Answer", "AsyncClient", "Busy", "Client", "Conflict", "Invalid", "LimitAnswer", "NotPermitted",
    "Request", "Unanswered", "Unavailable", "Undecided", "WeirError",
]
