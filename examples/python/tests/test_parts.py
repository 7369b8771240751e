"""The parts that do no input or output: messages, answers, and which node is asked."""

import unittest

from weirlimit import Busy, Conflict, Invalid, NotPermitted, Request, Unanswered, Unavailable, wsgi
from weirlimit.answers import answer, problem, read
from weirlimit.auth import instead, question, verdict
from weirlimit.calls import Caller
from weirlimit.nodes import Call, Late, Node, Nodes, NoSlot, Unreached
from weirlimit.requests import message
from weirlimit.wire import Broken, Parser, Response, TooLarge


def response(status, body=b"", **headers):
    return Response(status, [(name.replace("_", "-"), value) for name, value in headers.items()], body)


class Requests(unittest.TestCase):
    def test_fields(self):
        r = Request(path="/p", user="\u00e9", cost=0, hold=0.0001, id="i", attributes={"a": "b"}, peek=True)
        self.assertEqual(r.fields("cost", "hold", "id", "peek", "receipt"), {
            "path": "/p", "user": "\u00e9", "cost": 0, "hold_ms": 1, "id": "i", "attributes": {"a": "b"}, "peek": True})
        self.assertEqual(message({"user": "\u00e9"}), '{"user": "\u00e9"}'.encode())

    def test_what_is_refused_here(self):
        """What a node would refuse, or take for something else, is refused before it is sent."""
        for r in (Request(path="x" * 8193), Request(user="\udcff"), Request(attributes={"\udcff": ""}),
                  Request(attributes={"a": "\u00e9" * 4097}), Request(attributes={str(i): "" for i in range(17)})):
            with self.assertRaises(Invalid):
                r.fields()
        times = (0, 0.0, -1, -0.0001, float("nan"), float("inf"), 1e308, "5", [], True, 1j)
        for r in (*(Request(id="i", hold=t) for t in times), *(Request(id="i", id_ttl=t) for t in times),
                  Request(attributes=5), Request(attributes=["abc"]), Request(attributes={1: "x" * 9000}),
                  Request(limits=[5]), Request(limits=7)):
            with self.subTest(r=r), self.assertRaises(Invalid):
                r.fields("id", "hold", "id_ttl")
        with self.assertRaises(Invalid):
            message({"limits": ["x" * (1 << 20)]})
        with self.assertRaises(Invalid):
            message({"cost": float("nan")})


class Parsing(unittest.TestCase):
    def one(self, data, step):
        parser = Parser()
        out = None
        for i in range(0, len(data), step):
            self.assertIsNone(out)
            out = parser.feed(data[i:i + step])
        return parser, out

    def test_lengths(self):
        head = b"HTTP/1.1 429 No\r\nX-A: 1\r\n"
        chunks = b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: 1\r\n\r\n"
        for data, body in ((head + b"Content-Length: 5\r\n\r\nhello", b"hello"), (head + chunks, b"hello"),
                           (head + b"Content-Length: 0\r\n\r\n", b""),
                           (b"HTTP/1.1 100 Continue\r\n\r\n" + head + b"Content-Length: 1\r\n\r\n.", b".")):
            for step in (1, 7, len(data)):
                parser, out = self.one(data, step)
                self.assertEqual((out.status, out.get("x-a"), out.body), (429, "1", body))
                self.assertTrue(parser.reusable)

    def test_until_the_end(self):
        parser, out = self.one(b"HTTP/1.0 200 OK\r\n\r\nhel", 5)
        self.assertIsNone(out)
        self.assertEqual(parser.end().body, b"hel")
        self.assertFalse(parser.reusable)
        for end in (b"Connection: close\r\nContent-Length: 0\r\n\r\n", b"Content-Length: 1\r\n\r\nab"):
            self.assertFalse(self.one(b"HTTP/1.1 200 OK\r\n" + end, 999)[0].reusable)

    def test_what_is_not_http(self):
        ok, chunked = b"HTTP/1.1 200 K\r\n", b"HTTP/1.1 200 K\r\nTransfer-Encoding: chunked\r\n\r\n"
        for data in (b"SSH-2.0\r\n\r\n", b"HTTP/1.1 x\r\n\r\n", b"HTTP/1.1\r\n\r\n", ok + b"Content-Length: x\r\n\r\n",
                     ok + b"Content-Length: -1\r\n\r\n", chunked + b"x\r\n"):
            with self.assertRaises(Broken):
                Parser().feed(data)
        for data in (ok + b"x" * 70000, ok + b"Content-Length: 9999999\r\n\r\n", chunked + b"ffffff\r\n",
                     ok + b"\r\n" + b"x" * 5000000):
            with self.assertRaises(TooLarge):
                Parser().feed(data)
        parser = Parser()
        parser.feed(ok + b"Content-Length: 3\r\n\r\nab")
        with self.assertRaises(Broken):
            parser.end()


class Answers(unittest.TestCase):
    def test_statuses(self):
        """Each status is an error that says what may be done, and only 5xx may be one that passes."""
        later = {"retry_after": "3"}
        for status, headers, kind in ((400, {}, Invalid), (404, {}, Invalid), (413, {}, Invalid), (415, {}, Invalid),
                                      (431, {}, Invalid), (302, {}, Invalid), (401, {}, NotPermitted),
                                      (403, {}, NotPermitted), (409, {}, Conflict), (429, {}, Busy), (503, later, Busy),
                                      (503, {}, Unavailable)):
            error = problem(response(status, b'{"detail": "why"}', **headers))
            self.assertIs(type(error), kind, status)
            self.assertIn("why", str(error))
        self.assertEqual(problem(response(503, **later)).retry_after, 3)
        for status in (200, 500, 502, 504):
            self.assertIsNone(problem(response(status)))

    def test_what_is_no_answer(self):
        json = {"content_type": "application/json"}
        for r in (response(200, b"{}"), response(200, b"[]", **json), response(200, b"{", **json),
                  response(504, b"{}", **json)):
            with self.assertRaises(Broken):
                read(r, 200)
        for raw in ({}, {"allowed": 1}, {"allowed": True, "limits": [{}]}, {"allowed": True, "limits": [1]}):
            with self.assertRaises(Broken):
                answer(raw)

    def test_a_denial_is_never_allowed(self):
        call = Caller("127.0.0.1:1", 1, "open", None, 1, 0, 1, 1).check(Request(path="/"))
        body = b'{"allowed": true, "limits": []}'
        self.assertTrue(call.read(response(200, body, content_type="application/json")).allowed)
        for status in (429, 503):
            self.assertFalse(call.read(response(status, body, content_type="application/json")).allowed)

    def test_tokens(self):
        for token in ("a\r\nb", "\u00e9"):
            with self.assertRaises(ValueError):
                Caller("127.0.0.1:1", 1, "raise", token, 1, 0, 1, 1).headers()
        self.assertEqual(Caller("https://a.test:1", 1, "raise", lambda: "t", 1, 0, 1, 1).headers(),
                         (("Authorization", b"Bearer t"),))
        with self.assertRaises(ValueError):
            Caller("a.test:1", 1, "raise", "t", 1, 0, 1, 1)


class Verdicts(unittest.TestCase):
    def test_what_a_node_says_of_the_request(self):
        """The node marks what it says of the request. Without the mark it speaks of this service."""
        self.assertTrue(verdict(response(200, ratelimit="x")).passes)
        for status in (400, 403, 409, 429, 451, 503):
            v = verdict(response(status, b"no", x_weir_status=str(status), retry_after="4"))
            self.assertEqual((v.passes, v.status, dict(v.headers)["Retry-After"], v.body), (False, status, "4", b"no"))
        for status, kind in ((400, Invalid), (403, NotPermitted), (429, Busy), (503, Unavailable), (502, Broken)):
            with self.assertRaises(kind):
                verdict(response(status))

    def test_only_what_nobody_causes_passes(self):
        for error, status in ((Invalid(""), 400), (NotPermitted(""), 503), (Busy("", 9), 503), (Conflict(""), 503),
                              (Unavailable(""), 200), (Unanswered(""), 200)):
            with self.assertLogs("weirlimit") if status != 400 and not isinstance(error, Busy) else self.subTest():
                v = instead(error, True)
            self.assertEqual((v.passes, v.status), (status == 200, status))
            if not isinstance(error, (Invalid, Busy)):
                with self.assertLogs("weirlimit"):
                    self.assertEqual(instead(error, False).status, 503)
        self.assertIn(("Retry-After", "9"), instead(Busy("", 9), True).headers)

    def test_a_head_is_refused_without_a_body(self):
        app = wsgi.Limit(None, "127.0.0.1:1")
        refused = []
        for method in ("GET", "HEAD"):
            with self.assertLogs("weirlimit"):
                refused.append(app({"PATH_INFO": "/", "REQUEST_METHOD": method}, lambda *said: refused.append(said)))
        self.assertEqual(refused[0], refused[2])
        self.assertEqual((len(refused[1]), refused[3]), (1, []))

    def test_what_cannot_be_asked(self):
        caller = Caller("127.0.0.1:1", 1, "raise", None, 1, 0, 1, 1)
        for uri, method, address, user in (
                (b"/a\r\nX-Original-Method: POST", "GET", "", None), (b"/\x01", "GET", "", None),
                (b"/", "G\xe9T", "", None), (b"/", "GET", "\u0661", None), (b"/", "GET", "", "a\nb"),
                (b"/", "GET", "", "\udcff"), (b"/", "GET", "", "ada "), (b"/", "GET", "", " "),
                (b"/ ", "GET", "", None),
                (b"/" + b"x" * 8192, "GET", "", None), (b"/", "GET", "", "\u00e9" * 8000)):
            with self.assertRaises(Invalid):
                question(caller, uri, method, address, user)
        call = question(caller, b"/caf\xe9", "GET", "192.0.2.1", "\u00e9")
        self.assertIn(b"X-Original-URI: /caf\xe9\r\n", call.to(Node.parse("127.0.0.1:1")))
        self.assertIn(b"X-Weir-User: \xc3\xa9\r\n", call.to(Node.parse("127.0.0.1:1")))


class Asking(unittest.TestCase):
    """Which node is asked, with a clock that the test moves."""

    def setUp(self):
        self.now = 0.0

    def nodes(self, n=3):
        return Nodes([f"n{i}:80" for i in range(n)], 1.0, 5.0, 0, lambda: self.now)

    def run_call(self, nodes, *outcomes, of=lambda response: response.status):
        """Makes a call, with what comes of its attempts, and returns which nodes were asked, and what it ended with."""
        asked = []
        asking = nodes.ask(Call("GET", "/", (), b"", of))
        try:
            attempt = next(asking)
            for outcome in outcomes:
                asked.append(attempt.node.host)
                if isinstance(outcome, TimeoutError):
                    self.now += attempt.wait
                attempt = asking.send(outcome)
        except StopIteration as done:
            return asked, done.value
        except Exception as error:
            return asked, error
        self.fail(f"it asks {attempt.node.name}, after {asked}")

    def test_one_is_asked_as_long_as_it_answers(self):
        nodes = self.nodes()
        for _ in range(3):
            self.assertEqual(self.run_call(nodes, response(200)), (["n0"], 200))

    def test_a_dead_one_costs_one_timeout(self):
        nodes = self.nodes()
        self.assertEqual(self.run_call(nodes, TimeoutError(), response(200)), (["n0", "n1"], 200))
        self.assertEqual(self.now, 0.4)
        for _ in range(3):
            self.assertEqual(self.run_call(nodes, response(200)), (["n1"], 200))
        self.now += 5
        # One call tries it again; the others do not wait for that.
        trying = nodes.ask(Call("GET", "/", (), b"", lambda r: r.status))
        self.assertEqual(next(trying).node.host, "n0")
        self.assertEqual(self.run_call(nodes, response(200)), (["n1"], 200))
        trying.close()  # such as by a cancelled task
        self.assertEqual(self.run_call(nodes, TimeoutError(), response(200)), (["n0", "n1"], 200))
        self.now += 5
        self.assertEqual(self.run_call(nodes, response(200)), (["n0"], 200))
        asking = [nodes.ask(Call("GET", "/", (), b"", lambda r: r.status)) for _ in range(3)]
        self.assertEqual([next(a).node.host for a in asking], ["n0"] * 3)

    def test_all_dead(self):
        nodes = self.nodes()
        asked, error = self.run_call(nodes, *[Unreached("refused")] * 3)
        self.assertEqual((asked, type(error)), (["n0", "n1", "n2"], Unavailable))
        self.assertIn("n2:80: refused", str(error))
        # One call at a time tries each of them; further ones do not wait.
        trying = [nodes.ask(Call("GET", "/", (), b"", lambda r: r.status)) for _ in range(3)]
        self.assertEqual([next(t).node.host for t in trying], ["n0", "n1", "n2"])
        self.assertEqual(self.run_call(nodes)[0], [])
        self.assertIs(type(self.run_call(nodes)[1]), Unavailable)
        for t in trying:
            t.close()
        self.assertEqual(self.run_call(nodes, response(200)), (["n0"], 200))

    def test_what_may_have_counted_is_sent_once_more(self):
        for first in (TimeoutError(), Broken("reset")):
            for second in (TimeoutError(), Broken("reset")):
                asked, error = self.run_call(self.nodes(), first, second)
                self.assertEqual((asked, type(error)), (["n0", "n1"], Unanswered))
        asked, error = self.run_call(self.nodes(), Unreached("x"), Broken("y"), Unreached("z"))
        self.assertEqual((asked, type(error)), (["n0", "n1", "n2"], Unanswered))

    def test_the_time_of_a_call(self):
        """Further nodes share what is left."""
        nodes = self.nodes()
        asking = nodes.ask(Call("GET", "/", (), b"", lambda r: r.status))
        first = next(asking)
        self.assertEqual((first.slot, first.wait), (0.2, 0.4))
        self.now += 0.9
        second = asking.send(Unreached("slow"))
        self.assertEqual(second.slot, 0)
        self.assertAlmostEqual(second.wait, 0.1)
        self.now += 0.1
        with self.assertRaises(Unavailable):
            asking.send(Unreached("slow"))
        late = iter((0.0, 9.0, 9.0, 9.0))  # this process did not run: one node is asked all the same
        nodes._clock = lambda: next(late)
        self.assertGreater(next(nodes.ask(Call("GET", "/", (), b"", lambda r: r.status))).wait, 0)
        self.assertEqual(next(self.nodes(1).ask(Call("GET", "/", (), b"", lambda r: r.status))).wait, 0.6)

    def test_errors_that_a_node_answers(self):
        def of(r):
            raise problem(r) or Broken("?")

        later = {"retry_after": "1"}
        for outcomes, kind, nodes in (
                ([response(400)], Invalid, 1), ([response(403)], NotPermitted, 1), ([response(409)], Conflict, 1),
                ([response(503)] * 3, Unavailable, 3), ([response(429)] * 3, Busy, 3),
                # What the sender can cause is not hidden by what it cannot.
                ([response(429), Unreached("x"), Unreached("y")], Busy, 3),
                ([response(503, **later), response(504), response(504)], Busy, 3),
                ([response(504), response(500)], Unanswered, 2), ([TooLarge("x")], Invalid, 1),
                ([Late("x")], Busy, 1)):
            asked, error = self.run_call(self.nodes(), *outcomes, of=of)
            self.assertEqual((len(asked), type(error)), (nodes, kind), (outcomes, error))
        # What is an error at the second node may have been counted at the first.
        for second, kind in (([response(429)] * 2, Busy), ([response(400)], Invalid), ([response(403)], NotPermitted),
                             ([response(409)], Conflict), ([NoSlot("x")], Busy)):
            for first, doubted in ((TimeoutError(), True), (Unreached("x"), False)):
                error = self.run_call(self.nodes(), first, *second, of=of)[1]
                self.assertEqual((type(error), "may have been carried out" in str(error)), (kind, doubted), error)
        # A node that answers is not left alone for what it answers.
        nodes = self.nodes()
        self.run_call(nodes, *[response(503)] * 3, of=of)
        self.assertEqual(self.run_call(nodes, response(200))[0], ["n0"])

    def test_no_free_connection(self):
        """Whoever sends many requests at a time must not have one pass for want of a connection."""
        nodes = self.nodes()
        self.assertIs(type(self.run_call(nodes, NoSlot("x"))[1]), Busy)
        nodes.failed(nodes.all[0])  # since then: the node is the reason
        waiting = nodes.ask(Call("GET", "/", (), b"", lambda r: r.status))
        self.assertEqual(next(waiting).node.host, "n1")
        nodes.failed(nodes.all[1])
        self.assertEqual(waiting.send(NoSlot("x")).node.host, "n2")

    def test_addresses(self):
        for bad in ("", "a", "a:", "a:x", "\u00e9:1", "ftp://a:1", "a:1/path"):
            with self.assertRaises(ValueError):
                Nodes([bad], 1, 1, 0, lambda: 0)
        with self.assertRaises(ValueError):
            Nodes([], 1, 1, 0, lambda: 0)
        self.assertEqual([n.name for n in Nodes(["a:1", "[::1]:2"], 1, 1, 1, lambda: 0).all], ["[::1]:2", "a:1"])


if __name__ == "__main__":
    unittest.main()
