"""A node that answers as a test says."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading

JSON = (b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        b"RateLimit: \"towns\";r=1;t=60\r\nRetry-After: 7\r\n\r\n%s")


def says(body: bytes = b'{"allowed": true, "source": "owner", "limits": []}', status: int = 200) -> bytes:
    return JSON % (status, len(body), body)


def problem(status: int, more: bytes = b"") -> bytes:
    body = b'{"type": "about:blank", "title": "X", "status": %d, "detail": "so it is"}' % status
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/problem+json\r\n%sContent-Length: %d\r\n\r\n"
    return head % (status, more, len(body)) + body


class Scripted:
    """Answers requests with the given bytes in turn, the last ones for ever. Empty ones are silence, and None closes
    the connection instead. asked has what was asked."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers: queue.Queue[bytes | None] = queue.Queue()
        for answer in answers[:-1]:
            self.answers.put(answer)
        self.last = answers[-1]
        self.asked: list[bytes] = []
        self.connections = 0
        self.ended = threading.Semaphore(0)  # for each connection that the client has closed
        self.open: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                try:
                    got = connection.recv(65536)
                except OSError:
                    return
                if not got:
                    self.ended.release()
                    return
                data += got
            head, _, data = data.partition(b"\r\n\r\n")
            size = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0)
            while len(data) < size:
                data += connection.recv(65536)
            self.asked.append(head + b"\r\n\r\n" + data[:size])
            data = data[size:]
            try:
                answer = self.answers.get_nowait()
            except queue.Empty:
                answer = self.last
            if answer is None:
                connection.shutdown(socket.SHUT_RDWR)
                return
            try:
                connection.sendall(answer)
            except OSError:
                return

    def hang_up(self) -> None:
        """Closes all connections, as a node does with those that nobody uses."""
        for each in self.open:
            each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in (self.listener, *self.open):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()


class Blocking:
    """An AsyncClient whose methods wait, on one event loop."""

    def __init__(self, client):
        self.client, self.loop = client, asyncio.new_event_loop()

    def __getattr__(self, name):
        attribute = getattr(self.client, name)
        if name == "caller":
            return attribute
        return lambda *args, **named: self.loop.run_until_complete(attribute(*args, **named))
