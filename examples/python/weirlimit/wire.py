"""HTTP/1.1 as far as nodes speak it: what is sent, and the parts of an answer as they arrive. It does no input or
output, so both clients share it."""

from __future__ import annotations

from typing import Iterable

MOST_HEAD = 64 << 10
MOST_BODY = 4 << 20


class TooLarge(Exception):
    """The answer is larger than this client reads. An answer repeats what was asked, so its sender can cause this."""


class Broken(Exception):
    """The connection ended before the answer, or what came is not HTTP. The call may have been carried out."""


class Response:
    """What a node has answered. The names of headers are in lower case."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def get(self, name: str) -> str | None:
        """Returns the first value of a header."""
        return next((value for n, value in self.headers if n == name), None)


def request(method: str, target: str, headers: Iterable[tuple[str, bytes]], body: bytes = b"") -> bytes:
    """Returns the bytes of a request. The caller has made sure that no header has a line break."""
    lines = [f"{method} {target} HTTP/1.1".encode("ascii")]
    lines += [name.encode("ascii") + b": " + value for name, value in headers]
    if method == "POST":
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Parser:
    """Reads one response. feed and end return it once it is complete.

    begun: whether any of it has arrived. reusable: it is complete, and the connection may be used for another request.
    """

    def __init__(self) -> None:
        self.begun = self.reusable = self._keep = False
        self._data = bytearray()
        self._head: tuple[int, list[tuple[str, str]]] | None = None
        self._size: int | None = None  # None: chunked, or until the end
        self._chunked = False
        self._body = bytearray()

    def feed(self, data: bytes) -> Response | None:
        self.begun = True
        self._data += data
        try:
            while self._head is None:
                if not self._read_head():
                    return None
            return self._read_chunks() if self._chunked else self._read_body()
        except (ValueError, IndexError) as error:
            raise Broken(f"the answer is not HTTP: {error}") from error

    def end(self) -> Response:
        """Is called when the connection has ended."""
        if self._head is not None and self._size is None and not self._chunked:
            return self._done(bytes(self._data))
        raise Broken("the connection ended before the answer")

    def _read_head(self) -> bool:
        at = self._data.find(b"\r\n\r\n")
        if at > MOST_HEAD or at < 0 and len(self._data) > MOST_HEAD:
            raise TooLarge(f"the headers of the answer are larger than {MOST_HEAD} bytes")
        if at < 0:
            return False
        first, *lines = self._data[:at].decode("latin-1").split("\r\n")
        del self._data[:at + 4]
        protocol, status = first.split()[:2]
        if not protocol.startswith("HTTP/1."):
            raise ValueError("it does not begin with HTTP/1.")
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        if not status.startswith("1"):  # such as 100 Continue, which another head follows
            self._begin(protocol, int(status), headers)
        return True

    def _begin(self, protocol: str, status: int, headers: list[tuple[str, str]]) -> None:
        named = dict(headers)
        self._head = status, headers
        self._chunked = named.get("transfer-encoding", "").lower() == "chunked"
        self._keep = protocol == "HTTP/1.1" and named.get("connection", "").lower() != "close"
        if status in (204, 304):
            self._size = 0
        elif not self._chunked and "content-length" in named:
            self._size = int(named["content-length"])
            self._bounded(self._size)
        elif not self._chunked:
            self._keep = False

    def _read_body(self) -> Response | None:
        if self._size is None:
            self._bounded(len(self._data))
            return None
        if len(self._data) < self._size:
            return None
        if len(self._data) > self._size:
            self._keep = False
        return self._done(bytes(self._data[:self._size]))

    def _read_chunks(self) -> Response | None:
        while True:
            at = self._data.find(b"\r\n")
            if at < 0:
                self._bounded(len(self._data))
                return None
            size = int(self._data[:at].split(b";")[0], 16)
            self._bounded(len(self._body) + size)
            end = at + 2 + size + 2
            if size == 0:
                end = self._data.find(b"\r\n\r\n", at) + 4  # behind trailers
                if end < 4:
                    return None
                self._keep = self._keep and end == len(self._data)
                return self._done(bytes(self._body))
            if len(self._data) < end:
                return None
            self._body += self._data[at + 2:end - 2]
            del self._data[:end]

    @staticmethod
    def _bounded(size: int) -> None:
        if size > MOST_BODY:
            raise TooLarge(f"the answer is larger than {MOST_BODY} bytes")
        if size < 0:
            raise ValueError("it has a negative length")

    def _done(self, body: bytes) -> Response:
        assert self._head is not None
        self.reusable = self._keep
        return Response(*self._head, body)
