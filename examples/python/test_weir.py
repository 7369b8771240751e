"""Tests of both middlewares against the node at WEIR_NODE, host:port, which lets a path that
begins with /limited pass twice a day. The node of port 1 is none."""

import asyncio
import os
import unittest
import uuid
import wsgiref.util

import weir_asgi
import weir_wsgi

NODE = os.environ["WEIR_NODE"]
HOST, PORT = NODE.rsplit(":", 1)


def wsgi_app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"served"]


async def asgi_app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"served"})


def ask_wsgi(app, path, **more):
    environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET", "REMOTE_ADDR": "192.0.2.1", **more}
    wsgiref.util.setup_testing_defaults(environ)
    got = {}

    def start_response(status, headers, exc_info=None):
        got["status"], got["headers"] = int(status.split()[0]), dict(headers)

    body = b"".join(app(environ, start_response))
    return got["status"], {k.lower(): v for k, v in got["headers"].items()}, body


def ask_asgi(app, path, kind="http", client=("192.0.2.2", 1)):
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": kind, "method": "GET", "path": path, "raw_path": path.encode(), "client": client, "headers": []}
    asyncio.run(app(scope, None, send))
    if sent[0]["type"] == "websocket.close":
        return sent[0]["code"], {}, b""
    return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, sent[1]["body"]


class Middlewares(unittest.TestCase):
    def limits(self, ask):
        path = "/limited/" + uuid.uuid4().hex
        for left in (1, 0):
            status, fields, body = ask(path)
            self.assertEqual((status, body), (200, b"served"))
            self.assertIn(f"r={left}", fields["ratelimit"])
            self.assertEqual(fields["x-ratelimit-remaining"], str(left))
            self.assertEqual(fields["content-type"], "text/plain")
        status, fields, body = ask(path)
        self.assertEqual(status, 429)
        self.assertIn("retry-after", fields)
        self.assertIn(b"quota-exceeded", body)
        self.assertEqual(ask("/free")[::2], (200, b"served"))
        self.assertEqual(ask("/free/..;/limited")[0], 400)

    def test_wsgi(self):
        app = weir_wsgi.Limit(wsgi_app, NODE)
        self.limits(lambda path: ask_wsgi(app, path))

    def test_asgi(self):
        app = weir_asgi.Limit(asgi_app, HOST, int(PORT))
        self.limits(lambda path: ask_asgi(weir_asgi.Limit(asgi_app, HOST, int(PORT)), path))

    def test_what_cannot_be_asked(self):
        """A client cannot make a request pass by what cannot be written into a question, also where no node is."""
        for port in (int(PORT), 1):
            for fail_open in (False, True):
                for path in ("/free\r\nX-Original-Method: POST", "/free\n"):
                    app = weir_asgi.Limit(asgi_app, HOST, port, fail_open=fail_open)
                    self.assertEqual(ask_asgi(app, path)[0], 400)
                for user in ("a\nb", "a\r\nX-Original-Method: POST", "\udcff"):
                    app = weir_asgi.Limit(asgi_app, HOST, port, fail_open=fail_open, user=lambda scope: user)
                    self.assertEqual(ask_asgi(app, "/free")[0], 400)
                    app = weir_wsgi.Limit(wsgi_app, f"{HOST}:{port}", fail_open=fail_open, user=lambda environ: user)
                    if port != 1:
                        self.assertEqual(ask_wsgi(app, "/free")[0], 400)
        app = weir_asgi.Limit(asgi_app, HOST, int(PORT), fail_open=True)
        for path, status in (("/limited/%0A", 400), ("/free\x01", 400), ("/caf\xe9", 200), ("/" + "x" * 30000, 431)):
            self.assertEqual(ask_asgi(app, path)[0], status, path)
            app = weir_asgi.Limit(asgi_app, HOST, int(PORT), fail_open=True)

        app = weir_wsgi.Limit(wsgi_app, NODE, fail_open=True, user=lambda environ: environ["HTTP_USER"])
        for path, user, status in (("/free", "x" * 30000, 400), ("/" + "x" * 30000, "", 400), ("/" + "\xe9" * 9000, "", 400), ("/free", "x" * 8000, 200)):
            answer = app({"REQUEST_METHOD": "GET", "PATH_INFO": path, "HTTP_USER": user}, lambda text, *_: self.assertEqual(int(text.split()[0]), status))
            self.assertEqual(b"".join(answer) == b"served", status == 200, (path[:9], user[:9]))

    def test_connections_are_used_again(self):
        async def several():
            app = weir_asgi.Limit(asgi_app, HOST, int(PORT))

            async def nothing(message):
                pass

            scope = {"type": "http", "method": "GET", "path": "/free", "raw_path": b"/free", "client": ("192.0.2.3", 1)}
            for _ in range(5):
                await app(scope, None, nothing)
            for _, writer in app.idle:
                writer.close()
            await app(scope, None, nothing)  # what was closed is replaced
            return len(app.idle)

        self.assertEqual(asyncio.run(several()), 1)

    def test_websocket(self):
        path = "/limited/" + uuid.uuid4().hex
        app = weir_asgi.Limit(asgi_app, HOST, int(PORT))
        self.assertEqual([ask_asgi(weir_asgi.Limit(asgi_app, HOST, int(PORT)), path, "websocket")[0] for _ in range(3)], [200, 200, 1013])
        self.assertTrue(app)

    def test_no_node(self):
        self.assertEqual(ask_wsgi(weir_wsgi.Limit(wsgi_app, "127.0.0.1:1"), "/")[0], 503)
        self.assertEqual(ask_wsgi(weir_wsgi.Limit(wsgi_app, "127.0.0.1:1", fail_open=True), "/")[::2], (200, b"served"))
        self.assertEqual(ask_asgi(weir_asgi.Limit(asgi_app, "127.0.0.1", 1), "/")[0], 503)
        self.assertEqual(ask_asgi(weir_asgi.Limit(asgi_app, "127.0.0.1", 1, fail_open=True), "/")[::2], (200, b"served"))


if __name__ == "__main__":
    unittest.main()
