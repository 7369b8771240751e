"""Both clients against nodes that answer as the test says."""

import asyncio
import os
import signal
import socket
import unittest
from unittest import mock

from tests.scripted import Blocking, Scripted, problem, says
from weirlimit import AsyncClient, Busy, Client, Invalid, Request, Unanswered, Unavailable
from weirlimit.aio import Connection

ASKED = Request(path="/towns", user="ada")
NOTHING = "127.0.0.1:1"


class Both:
    """The tests of either client, which open makes."""

    def scripted(self, *answers):
        node = Scripted(*answers)
        self.addCleanup(node.close)
        return node

    def client(self, *nodes, **options):
        client = self.open([n if isinstance(n, str) else n.address for n in nodes], first=0, **options)
        self.addCleanup(client.close)
        client.caller.clock = lambda: 0.0  # so it never seems late, however slow the machine is
        client.pools = lambda: list(getattr(client, "client", client)._pools.values())
        return client

    def test_an_answer(self):
        node = self.scripted(says())
        answer = self.client(node, token="secret").check(ASKED)
        self.assertTrue(answer.allowed)
        self.assertEqual(dict(answer.headers), {"RateLimit": '"towns";r=1;t=60', "Retry-After": "7"})
        self.assertIn(b"Authorization: Bearer secret\r\n", node.asked[0])
        self.assertTrue(node.asked[0].endswith(b'\r\n\r\n{"path": "/towns", "user": "ada"}'))

    def test_connections_are_used_again(self):
        node = self.scripted(says())
        client = self.client(node)
        for _ in range(2):
            client.check(ASKED)
        self.assertEqual((node.connections, len(node.asked)), (1, 2))
        node.hang_up()
        client.check(ASKED)  # on another one: nothing is sent on one that has ended
        self.assertEqual((node.connections, len(node.asked)), (2, 3))
        client.caller.idle = -1  # all are too old
        client.check(ASKED)
        self.assertEqual(node.connections, 3)

    def test_a_call_is_sent_twice_at_most(self):
        """What breaks after it was sent may have been counted."""
        first, second, third = self.scripted(says(), None), self.scripted(None), self.scripted(says())
        client = self.client(first, second, third)
        client.check(ASKED)
        with self.assertRaises(Unanswered):
            client.check(ASKED)
        self.assertEqual([len(n.asked) for n in (first, second, third)], [2, 1, 0])
        node = self.scripted(says(), None, says())
        client = self.client(node)
        client.check(ASKED)
        with self.assertRaises(Unanswered):
            client.check(ASKED)
        self.assertEqual(len(node.asked), 2)

    def test_a_connection_that_is_made_too_late(self):
        """It is used all the same, for a moment: that it was made shows that the node is there."""
        node = self.scripted(says())
        client = self.client(node, fail="open")
        inner = getattr(client, "client", client)
        connect = inner._connect

        def late(*args):
            out = connect(*args)
            inner.caller.clock = lambda: 10.0
            return out

        async def late_too(*args):
            out = await connect(*args)
            inner.caller.clock = lambda: 10.0
            return out

        inner._connect = late if inner is client else late_too
        self.assertIsNone(client.check(ASKED).undecided)

    def test_a_silent_node_costs_one_timeout(self):
        now = [0.0]
        silent, node = self.scripted(b""), self.scripted(says())
        client = self.client(silent, node, timeout=1)
        client.caller.nodes._clock = lambda: now[0]
        for _ in range(5):
            self.assertTrue(client.check(ASKED).allowed)
        self.assertEqual((len(silent.asked), len(node.asked)), (1, 5))
        self.assertTrue(silent.ended.acquire(timeout=60), "the connection is not closed")
        now[0] += 5
        for _ in range(5):
            self.assertTrue(client.check(ASKED).allowed)
        self.assertEqual((len(silent.asked), len(node.asked)), (2, 10))

    def test_a_dead_node(self):
        node = self.scripted(says())
        client = self.client(NOTHING, node)
        for _ in range(3):
            client.check(ASKED)
        self.assertEqual(client.caller.nodes.all[0].until is None, False)
        self.assertEqual((node.connections, len(node.asked)), (1, 3))

    def test_connections_of_a_node_that_fell_silent_are_dropped(self):
        node = self.scripted(says(), says(), b"", says())
        client = self.client(node, timeout=0.5)
        client.check(ASKED)
        pool = client.pools()[0]
        one = pool.idle.pop()
        client.check(ASKED)
        pool.idle.insert(0, one)
        with self.assertRaises(Unanswered):
            client.check(ASKED)
        client.check(ASKED)
        self.assertEqual(node.connections, 3)

    def test_a_node_that_wants_no_more_on_a_connection(self):
        node = self.scripted(says().replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        client = self.client(node)
        for _ in range(2):
            client.check(ASKED)
        self.assertEqual((node.connections, len(node.asked)), (2, 2))

    def test_no_node(self):
        for fail, allowed in (("open", True), ("closed", False)):
            client = self.client(NOTHING, fail=fail)
            answer = client.check(ASKED)
            self.assertEqual((answer.allowed, type(answer.undecided)), (allowed, Unavailable))
            self.assertEqual([a.allowed for a in client.check_many([ASKED, ASKED])], [allowed, allowed])
            with self.assertRaises(Unavailable):
                client.settle(Request(path="/towns", id="1"), 1)
        with self.assertRaises(Unavailable):
            self.client(NOTHING).check(ASKED)
        for cut in (None, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{", b"SSH-2.0\r\n\r\n"):
            node = self.scripted(cut, None)
            if cut is not None:
                node.answers.put(None)
            with self.assertRaises(Unanswered):
                self.client(node, timeout=0.5).check(ASKED)

    def test_what_a_sender_can_cause_does_not_pass(self):
        many = b'{"allowed": true, "limits": [], "x": "' + b"x" * (5 << 20) + b'"}'
        for said, kind in ((problem(400), Invalid), (problem(413), Invalid), (problem(429), Busy),
                           (problem(503, b"Retry-After: 1\r\n"), Busy), (says(many), Invalid)):
            with self.assertRaises(kind):
                self.client(self.scripted(said), fail="open").check(ASKED)
        for r in (Request(user="\udcff"), Request(path="x" * 9000)):
            with self.assertRaises(Invalid):
                self.client(NOTHING, fail="open").check(r)

    def test_parts_of_a_batch(self):
        body = (b'{"results": [{"answer": {"allowed": true, "limits": []}}, {"error": {"status": 400, "detail": "a"}},'
                b'{"error": {"status": 503, "detail": "b"}}, {"error": {"status": 504, "detail": "c"}}]}')
        got = self.client(self.scripted(says(body)), fail="open").check_many([ASKED] * 4)
        self.assertEqual([getattr(a, "allowed", type(a)) for a in got], [True, Invalid, True, True])
        got = self.client(self.scripted(says(body))).check_many([ASKED] * 4)
        self.assertEqual([getattr(a, "allowed", type(a)) for a in got], [True, Invalid, Unavailable, Unanswered])

    def test_no_id(self):
        for method, more in (("settle", (1,)), ("cancel", ()), ("extend", ())):
            with self.assertRaises(Invalid):
                getattr(self.client(NOTHING), method)(ASKED, *more)


class Threads(Both, unittest.TestCase):
    open = Client

    def test_no_free_connection(self):
        """A call that waits too long for a connection does not pass: whoever sends many requests can cause it."""
        node = self.scripted(says())
        client = self.client(node, connections=1, timeout=0.5, fail="open")
        slots = client.pools()[0].slots
        slots.acquire()
        with self.assertRaises(Busy):
            client.check(ASKED)
        slots.release()
        self.assertTrue(client.check(ASKED).allowed)

    def test_an_answer_that_is_there_is_read_late(self):
        """A thread that did not run until its time was over looks before it gives up."""
        client = self.client(NOTHING)
        ours, theirs = socket.socketpair()
        self.addCleanup(theirs.close)
        pool, past = client.pools()[0], -1.0
        theirs.sendall(says())
        self.assertEqual(client._exchange(pool, ours, b"asked", past).status, 200)
        with self.assertRaises(TimeoutError):
            client._exchange(pool, ours, b"asked", past)

    def test_several_addresses_share_the_time(self):
        now, waits = [0.0], []

        class Silent:
            def settimeout(self, seconds):
                waits.append(seconds)

            def connect(self, _):
                now[0] += waits[-1]
                raise TimeoutError

            def close(self):
                pass

        client = self.client("name.test:1")
        client.caller.clock = lambda: now[0]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("192.0.2.1", 1))] * 3
        with mock.patch("socket.getaddrinfo", lambda *_, **__: found), mock.patch("socket.socket", lambda *_: Silent()):
            with self.assertRaises(Unavailable):
                client.check(ASKED)
        self.assertEqual([round(w, 6) for w in waits], [0.2, 0.2, 0.2])

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_child_has_connections_of_its_own(self):
        node = self.scripted(says())
        client = self.client(node)
        client.check(ASKED)
        nodes = client.caller.nodes
        nodes._lock.acquire()  # as another thread would have it, which is not in the child
        nodes.all[0].until, nodes.all[0].trying = 0.0, []
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                os._exit(0 if client.check(ASKED).allowed else 1)
            finally:
                os._exit(2)
        nodes._lock.release()
        nodes.all[0].trying = None
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        client.check(ASKED)
        self.assertEqual((node.connections, len(node.asked)), (2, 3))


class Asyncio(Both, unittest.TestCase):
    def open(self, *args, **options):
        client = Blocking(AsyncClient(*args, **options))
        self.addCleanup(client.loop.close)
        return client

    def test_no_free_connection(self):
        node = self.scripted(says())
        client = self.client(node, connections=1, timeout=0.5, fail="open")
        client.check(ASKED)
        slots = client.pools()[0].slots
        client.loop.run_until_complete(slots.acquire())
        with self.assertRaises(Busy):
            client.check(ASKED)
        slots.release()
        self.assertTrue(client.check(ASKED).allowed)

    def test_a_blocked_loop_says_nothing_of_the_node(self):
        """The timer of a call goes off late. Whoever sends many requests can cause that, so the call does not pass."""
        node = self.scripted(b"")
        client = self.client(node, timeout=0.5, fail="open")
        client.caller.clock = lambda: 10.0 if node.asked else 0.0
        with self.assertRaises(Busy) as caught:
            client.check(ASKED)
        self.assertIn("may have been carried out", str(caught.exception))
        self.assertIsNone(client.caller.nodes.all[0].until)

    def test_a_blocked_loop_does_not_connect(self):
        client = self.client(NOTHING, timeout=0.5, fail="open")

        async def never(*_, **__):
            client.caller.clock = lambda: 10.0
            await asyncio.get_running_loop().create_future()

        with mock.patch.object(client.loop, "create_connection", never), self.assertRaises(Busy):
            client.check(ASKED)
        self.assertIsNone(client.caller.nodes.all[0].until)

    def test_a_call_that_is_cancelled_after_the_answer(self):
        node = self.scripted(says())
        client = self.client(node)
        exchange = Connection.exchange

        async def cancelled(*args):
            await exchange(*args)
            raise asyncio.CancelledError

        async def check():
            with self.assertRaises(asyncio.CancelledError):
                await client.client.check(ASKED)
            await asyncio.sleep(0)  # the loop closes it

        with mock.patch.object(Connection, "exchange", cancelled):
            client.loop.run_until_complete(check())
        self.assertTrue(node.ended.acquire(timeout=60), "the connection is not closed")

    def test_another_event_loop(self):
        node = self.scripted(says())
        client = self.client(node)
        client.check(ASKED)
        nodes = client.caller.nodes
        nodes.all[0].until, nodes.all[0].trying = 0.0, []  # as a call that ended with its loop leaves it
        client.loop.close()
        client.loop = type(client)(None).loop
        client.check(ASKED)
        self.assertEqual(node.connections, 2)

    def test_a_cancelled_call(self):
        """Its connection is not used again: the answer is still to come."""
        node = self.scripted(b"", says())
        client = self.client(node)

        async def cancelled():
            task = asyncio.ensure_future(client.client.check(ASKED))
            while not node.asked:
                await asyncio.sleep(0.001)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        client.loop.run_until_complete(cancelled())
        self.assertTrue(client.check(ASKED).allowed)
        self.assertEqual(node.connections, 2)


if __name__ == "__main__":
    unittest.main()
