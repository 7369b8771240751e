"""The errors of calls. A denial is an answer and no error."""

from __future__ import annotations


class WeirError(Exception):
    """There is no answer. Unless it is Undecided, the sender of the request may have caused it, so such a
    request must not pass."""


class Invalid(WeirError):
    """The request is not valid, or too large: correct it. Nothing was counted, unless the text says so."""


class NotPermitted(WeirError):
    """The node does not permit the call: correct the token, the certificate, or the node's flags. Nothing was
    counted, unless the text says so."""


class Conflict(WeirError):
    """The id stands for something else: it was settled with another number, has other costs, or was raised too
    often. Nothing was changed, unless the text says so."""


class Busy(WeirError):
    """The caller's budget is used up, the node has no memory for so large a message, or all connections of this
    client are in use, or its event loop was blocked. Nothing was counted, unless the text says so.

    retry_after: seconds after which it may be asked again, None if the node does not say.
    """

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Undecided(WeirError):
    """No node has decided, for reasons that the sender of the request cannot cause. fail="open" lets such a
    request pass, and fail="closed" denies it."""


class Unavailable(Undecided):
    """No node could be reached, or none is ready. Nothing was counted."""


class Unanswered(Undecided):
    """A node was asked and has not answered in time, or the connection broke. The call may have been carried out.
    With an id it can be made again and counts once."""
