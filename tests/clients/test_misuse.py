"""test_misuse.py: attn_client.py in programs that fork, pickle, cancel, log, and ask the wrong server.

Where ATTN_NO_NUMPY is set, numpy cannot be imported, and the client does without it.
"""
import asyncio
import contextlib
import copy
import json
import logging
import multiprocessing
import os
import pathlib
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from daemon import TINY, TOP, Relay, Scripted, ask, wait_for
from test_client import ROWS, Case, attn_client, lists
from attn_client import (AsyncClient, Client, Conflict, ConnectionLost, InvalidArgument,
                         InvalidRequest, NotFound, Session)

FORK = multiprocessing.get_context("fork")
FACTS = {"session_id": "a.1", "model": "m", "epoch": 5, "lengths": [{"layer": 0, "length": 3}]}


def raises(url):
    """In another process: an error of attnd."""
    with Client(url, retry_s=0) as client:
        client.attend([[1.0] * 7])


def fork(work):
    """The process of a fork, whose exit status is 0 where `work()` is true."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 1
        with contextlib.suppress(BaseException):
            status = 0 if work() else 1
        os._exit(status)
    return child


def status_of(child):
    """The exit status of a process, once it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Processes(Case):
    """Clients, sessions and errors in several processes."""

    def test_a_client_made_before_a_fork_has_connections_of_its_own(self):
        relay = Relay(lambda: self.daemon.url)
        self.addCleanup(relay.close)
        client = self.client(relay.url)
        expected = [lists(client.attend(ROWS[number:number + 2])["output"]) for number in range(4)]
        self.assertEqual(relay.connections, 1)  # kept, and open while the others are forked

        def same(number):
            return all(lists(client.attend(ROWS[number:number + 2])["output"]) == expected[number]
                       for _ in range(5))
        children = [fork(lambda number=number: same(number)) for number in range(4)]
        self.assertEqual([status_of(child) for child in children], [0] * 4)
        self.assertEqual(relay.connections, 5)
        client.attend(ROWS[:2])
        self.assertEqual(relay.connections, 5)  # the first process goes on with its own

    def test_a_fork_takes_no_lock_along_and_ends_no_session(self):
        client = self.client()
        with client.session() as session:
            held, release = threading.Event(), threading.Event()

            def hold():
                with session.lock, client._lock:
                    held.set()
                    release.wait()
            holder = threading.Thread(target=hold)
            holder.start()
            held.wait()
            child = fork(lambda: session.refresh()["session_id"] == session.session_id)
            self.assertEqual(status_of(child), 0)
            release.set()
            holder.join()
            self.assertEqual(status_of(fork(lambda: session.__exit__(None, None, None) is None)), 0)
            self.assertEqual(session.refresh()["session_id"], session.session_id)
        with self.assertRaises(NotFound):
            client.open(session.session_id)

    def test_an_error_of_a_pool_comes_to_its_parent(self):
        with FORK.Pool(1) as pool:
            with self.assertRaises(InvalidRequest) as caught:
                pool.map_async(raises, [self.daemon.url]).get(30)
        self.assertEqual((caught.exception.code, caught.exception.param, caught.exception.status),
                         ("shape_mismatch", "hidden_states", 422))
        lost = ConnectionLost(OSError("gone"), True)
        for error in (lost, InvalidArgument("rows", "no"), Conflict("c", "m", length=3),
                      attn_client._bad_reply("odd")):
            for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
                self.assertIs(type(again), type(error))
                self.assertEqual((vars(again), str(again)), (vars(error), str(error)))

    def test_a_client_pickles_or_says_why_not(self):
        client = self.client(binary=False, retry_s=3, timeout=7, deadline_ms=60000)
        again = pickle.loads(pickle.dumps(client))
        self.addCleanup(again.close)
        self.assertEqual((again.binary, again.retry_s, again.timeout, again._headers),
                         (False, 3, 7, client._headers))
        self.assertEqual(lists(again.attend(ROWS[:1])), lists(client.attend(ROWS[:1])))
        context = attn_client.ssl.create_default_context()
        with self.assertRaisesRegex(TypeError, "cafile"):
            pickle.dumps(Client("https://127.0.0.1:9", context=context))
        with client.session() as session, self.assertRaisesRegex(TypeError, "session_id"):
            pickle.dumps(session)
        with self.assertRaisesRegex(TypeError, "AsyncClient"):
            pickle.dumps(AsyncClient())

    def test_asyncio_after_a_fork(self):
        client = AsyncClient(self.daemon.url)

        async def models():
            return len(await client.models())
        self.assertEqual(asyncio.run(models()), 1)
        self.assertEqual(status_of(fork(lambda: asyncio.run(models()) == 1)), 0)
        client.inner.close()


class Foreign(unittest.TestCase):
    """Servers that are not attnd, and arguments that are none."""

    def setUp(self):
        self.server = Scripted()
        self.addCleanup(self.server.close)
        self.client = Client(self.server.url, retry_s=20)
        self.addCleanup(self.client.close)

    def calls(self):
        """Each kind of call, with a session that is known already."""
        session = Session(self.client, FACTS)
        client = self.client
        return [client.models, lambda: client.model("m"), lambda: list(client.sessions()),
                lambda: client.attend([[1.0]]), client.session, lambda: client.open("a"),
                lambda: client.restore("a", b"state"), session.refresh, session.fork,
                lambda: session.truncate(1), lambda: session.decode([1.0]),
                lambda: client.step_many([(session, [1.0])]),
                lambda: client.batch([session], [session])]

    def test_a_reply_of_another_service_is_an_error(self):
        pages = [b'{"data":[]}', b"[]", b"7", b'"x"', b"null", b"<html>", b'{"models":1}',
                 b'{"sequences":[1],"fork":[1],"delete":[1]}', b"[" * 9000, b"\xff",
                 b'{"output":{"binary_data_size":"x"},"session_id":7}']
        for page in pages:
            for number, call in enumerate(self.calls()):
                self.server.replies = [(200, {}, page)]
                with self.assertRaises(ConnectionLost, msg=(page[:60], number)) as caught:
                    call()
                self.assertEqual(caught.exception.code, "bad_reply")
                self.assertEqual(self.server.replies, [])
        self.server.replies = [(200, {"Server-Timing": "a;dur=x"}, b'{"models":[]}'),
                               (200, {"Inference-Header-Content-Length": "x"}, b'{"models":[]}')]
        for _ in range(2):
            with self.assertRaises(ConnectionLost):
                self.client.models()

    def test_an_error_of_another_service_is_told_by_its_status(self):
        for body in (b'{"error":{"code":404,"message":"m","status":"NOT_FOUND"}}', b'{"error":"x"}',
                     b'{"error":{"code":null}}', b"[]", b"<html>"):
            self.server.replies = [(404, {}, body)]
            with self.assertRaises(NotFound) as caught:
                self.client.models()
            self.assertEqual((caught.exception.code, caught.exception.status), ("http_404", 404))

    def test_a_redirect_is_an_error_and_not_followed(self):
        for status in (301, 302, 303, 307, 308, 304):
            for number, call in enumerate(self.calls()):
                self.server.replies = [(status, {"Location": "/login?secret=1"}, b"")]
                with self.assertRaises(InvalidRequest, msg=number) as caught:
                    call()
                self.assertEqual(caught.exception.code, f"http_{status}")
                self.assertRegex(str(caught.exception), "redirected to /login, ")

    def test_arguments_are_refused_by_name_and_without_secrets(self):
        secret = "s3cret"
        for name, options in (
                ("url", {"url": "127.0.0.1:8080"}), ("url", {"url": "http://"}),
                ("url", {"url": "http://a:99999"}), ("url", {"url": f"ftp://u:{secret}@a"}),
                ("url", {"url": f"http://u:{secret}@a:x"}), ("url", {"url": "http://[::1"}),
                ("url", {"url": f"http://u:{secret}@a", "api_key": "k"}),
                ("api_key", {"api_key": f"{secret}\r\nX: y"}), ("api_key", {"api_key": secret + "é"}),
                ("timeout", {"timeout": 0}), ("timeout", {"timeout": "5"}),
                ("retry_s", {"retry_s": -1}), ("retry_s", {"retry_s": float("nan")}),
                ("deadline_ms", {"deadline_ms": "5\r\n"}),
                ("cafile", {"url": "https://a", "cafile": "/no/such"})):
            with self.assertRaises(InvalidArgument, msg=options) as caught:
                Client(**options)
            self.assertEqual(caught.exception.param, name)
            self.assertNotIn(secret, str(caught.exception))
        for call in (lambda: self.client.get("/a b"), lambda: self.client.get("/é"),
                     lambda: self.client.open(5), lambda: self.client.model(None),
                     lambda: self.client.models(timeout=-1),
                     lambda: self.client.step_many([(Session(self.client, FACTS), [1.0])] * 2)):
            with self.assertRaises(InvalidArgument):
                call()
        self.assertEqual(self.server.seen, [])

    def test_keys_of_files_and_users_of_urls(self):
        login = self.server.url.replace("//", "//us%40er:p%3Ass@")
        for options, field in (({"api_key": "key\n"}, "Bearer key"), ({"api_key": ""}, None),
                               ({"url": login}, "Basic dXNAZXI6cDpzcw==")):
            self.server.replies = [(200, {}, b'{"models":[]}')]
            with Client(**{"url": self.server.url, **options}) as client:
                client.models()
            self.assertEqual(self.server.seen[-1]["Authorization"], field)

    def test_an_end_without_a_body_is_no_error(self):
        self.server.replies = [(204, {}, b"")]
        Session(self.client, FACTS).end()


class Time(Case):
    """timeout=, the log, and calls of asyncio that are cancelled."""

    def test_timeout_of_one_call(self):
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        client = self.client(f"http://127.0.0.1:{silent.getsockname()[1]}", retry_s=20)
        client._answered = True
        session = Session(client, FACTS)
        for call in (lambda: client.attend([[1.0]], timeout=0.2),
                     lambda: session.decode([1.0], timeout=0.2), lambda: session.end(timeout=0.2),
                     lambda: client.batch([session], timeout=0.2),
                     lambda: client.step_many([(session, [1.0])], timeout=0.2)):
            begin = time.monotonic()
            with self.assertRaises(ConnectionLost):
                call()
            self.assertLess(time.monotonic() - begin, 5)
        client = self.client()
        client.models(timeout=0.5)
        self.assertLessEqual(client._idle[0].sock.gettimeout(), 0.5)
        client.models()  # over the same connection
        self.assertEqual(client._idle[0].sock.gettimeout(), 60)

    def test_timeout_ends_retries(self):
        server = Scripted()
        self.addCleanup(server.close)
        busy = json.dumps({"error": {"code": "queue_full", "message": "m", "retryable": True}})
        server.replies = [(429, {}, busy.encode())] * 50
        with Client(server.url) as client, self.assertRaises(attn_client.Busy):
            client.attend([[1.0]], timeout=0.3)
        self.assertLess(len(server.seen), 9)

    def test_retries_are_logged(self):
        server = Scripted()
        self.addCleanup(server.close)
        busy = json.dumps({"error": {"code": "queue_full", "message": "m", "retryable": True}})
        server.replies = [(429, {}, busy.encode()), (200, {}, b'{"models":[]}')]
        with Client(server.url, api_key="s3cret") as client, \
                self.assertLogs("attn_client", logging.INFO) as logs:
            client.models()
        self.assertEqual(len(logs.output), 1)
        self.assertRegex(logs.output[0], r"INFO:attn_client:GET /models is sent again in 0\.0\d s: "
                                         "queue_full: m")
        self.assertNotIn("s3cret", logs.output[0])

    def test_cancelled_calls_free_their_threads(self):
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        async def work():
            async with AsyncClient(url, connections=2, retry_s=60) as client:
                client.inner._answered = True
                session = attn_client.AsyncSession(Session(client.inner, FACTS), client._threads)
                tasks = [asyncio.ensure_future(call) for call in (
                    client.attend([[1.0]]), session.decode([1.0]), session.decode([1.0]))]
                waiting = [await asyncio.to_thread(silent.accept) for _ in range(2)]
                for task in tasks:
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                # Both threads are there for others, which answer at once.
                await asyncio.wait_for(asyncio.gather(
                    *(asyncio.get_running_loop().run_in_executor(client._threads.pool, int)
                      for _ in range(2))), 20)
                for connection, _ in waiting:
                    connection.close()
        asyncio.run(work())

    def test_a_cancelled_call_that_waits_for_a_connection_ends(self):
        silent = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.addCleanup(silent.close)
        filling = []  # what the kernel accepts by itself; after that it drops what asks
        with contextlib.suppress(TimeoutError):
            while len(filling) < 64:
                filling.append(socket.create_connection(silent.getsockname(), 0.2))
        self.assertLess(len(filling), 64)

        async def work():
            async with AsyncClient(f"http://127.0.0.1:{silent.getsockname()[1]}", connections=1,
                                   timeout=600) as client:
                begun = threading.Event()
                connect = client.inner._connect

                def connected():
                    begun.set()
                    return connect()
                client.inner._connect = connected
                task = asyncio.ensure_future(client.models())
                await asyncio.to_thread(begun.wait)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(
                    client._threads.pool, int), 20)
        asyncio.run(work())
        for sock in filling:
            sock.close()

    def test_a_cancelled_call_that_waits_to_repeat_ends(self):
        server = Scripted()
        self.addCleanup(server.close)
        body = {"error": {"code": "loading", "message": "m", "retryable": True}}
        server.replies = [(503, {"Retry-After": "50"}, json.dumps(body).encode())]

        async def work():
            async with AsyncClient(server.url, connections=1, retry_s=60) as client:
                task = asyncio.ensure_future(client.models())
                await asyncio.to_thread(wait_for, lambda: server.seen)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                server.replies = [(200, {}, b'{"models":[]}')]
                self.assertEqual(await asyncio.wait_for(client.models(), 20), [])
        asyncio.run(work())


class Batches(unittest.TestCase):
    """Forks and ends in one request, as a server that is scripted answers them."""

    def setUp(self):
        self.server = Scripted()
        self.addCleanup(self.server.close)
        self.client = Client(self.server.url)
        self.addCleanup(self.client.close)

    def session(self, session_id, **facts):
        """A session that is known already."""
        return Session(self.client, {**FACTS, "session_id": session_id, **facts})

    def replies(self, *documents):
        """The next replies, of status 200."""
        self.server.replies = [(200, {}, json.dumps(document).encode())
                               for document in documents]

    def test_what_is_sent_and_what_comes_back(self):
        one, two = self.session("a.1", revision=7), self.session("a.2")
        full = {"error": {"code": "session_limit", "message": "m", "retryable": True}}
        gone = {"error": {"code": "session_not_found", "message": "m", "param": "session_id"}}
        busy = {"error": {"code": "internal", "message": "m"}}
        self.replies({"fork": [{**FACTS, "session_id": "b", "revision": 9}, full],
                      "delete": [{"session_id": "a.1"}, gone, busy]})
        forks, ends = self.client.batch([(one, {"session_id": "b", "length": 2}), two],
                                        [one, two, self.session("a.3")])
        self.assertEqual(json.loads(self.server.bodies[0]), {
            "fork": [{"from": "a.1", "session_id": "b", "length": 2, "epoch": 5, "revision": 7},
                     {"from": "a.2", "epoch": 5}],
            "delete": [{"session_id": "a.1", "epoch": 5}, {"session_id": "a.2", "epoch": 5},
                       {"session_id": "a.3", "epoch": 5}]})
        self.assertEqual(self.server.paths, ["/sessions/batch"])
        self.assertEqual(self.server.seen[0]["X-Session-Id"], "a.1")
        self.assertRegex(self.server.seen[0]["Idempotency-Key"], "^[0-9a-f]{32}$")
        self.assertEqual((forks[0].session_id, forks[0].revision, forks[0].lengths),
                         ("b", 9, {0: 3}))
        self.assertEqual((forks[1].code, forks[1].status), ("session_limit", 0))
        self.assertEqual([error and error.code for error in ends], [None, None, "internal"])
        self.assertEqual(self.client.batch(), ([], []))
        self.assertEqual(len(self.server.seen), 1)

    def test_each_shard_gets_its_items_once_one_was_elsewhere(self):
        wrong = {"error": {"code": "wrong_instance", "message": "m", "retryable": True}}
        one, two = self.session("a.1"), self.session("b.1")
        self.replies({"fork": [{**FACTS, "session_id": "a.7"}, wrong],
                      "delete": [{"session_id": "a.1"}, wrong]},
                     {"fork": [{**FACTS, "session_id": "b.7"}], "delete": [{"session_id": "b.1"}]})
        forks, ends = self.client.batch([one, two], [one, two])
        self.assertEqual([made.session_id for made in forks], ["a.7", "b.7"])
        self.assertEqual(ends, [None, None])
        self.assertEqual(json.loads(self.server.bodies[1]),
                         {"fork": [{"from": "b.1", "epoch": 5}],
                          "delete": [{"session_id": "b.1", "epoch": 5}]})
        keys = {head["Idempotency-Key"] for head in self.server.seen}
        self.assertEqual([head["X-Session-Id"] for head in self.server.seen], ["a.1", "b.1"])
        self.assertEqual(len(keys), 2)

    def test_asyncio(self):
        async def work():
            async with AsyncClient(self.server.url) as client:
                session = await client.open("a.1")
                return await client.batch([session, (session, {"length": 1})], [session])
        self.replies(FACTS, {"fork": [FACTS, FACTS], "delete": [{"session_id": "a.1"}]})
        forks, ends = asyncio.run(work())
        self.assertEqual([type(made).__name__ for made in forks], ["AsyncSession"] * 2)
        self.assertEqual(ends, [None])


class Revisions(unittest.TestCase):
    """What is sent of a session's revision, and what is made of the answers."""

    def setUp(self):
        self.server = Scripted()
        self.addCleanup(self.server.close)
        self.client = Client(self.server.url)
        self.addCleanup(self.client.close)

    def call(self, reply, call, status=200):
        """(what `call` returns, the JSON of the request, its path)."""
        self.server.replies = [(status, {}, json.dumps(reply).encode())]
        made = call()
        body = self.server.bodies[-1]
        length = self.server.seen[-1]["Inference-Header-Content-Length"]
        return made, json.loads(body[:int(length)] if length else body or "null"), \
            self.server.paths[-1]

    def test_it_goes_with_every_change_and_is_learned_from_every_answer(self):
        session = Session(self.client, {**FACTS, "revision": 11})
        _, sent, _ = self.call({"length": 4, "revision": 11}, lambda: session.decode([1.0]))
        self.assertEqual((sent["epoch"], sent["revision"], sent["position"]), (5, 11, 3))
        short = {**FACTS, "revision": 12, "lengths": [{"layer": 0, "length": 1}]}
        _, sent, _ = self.call(short, lambda: session.truncate(1))
        self.assertEqual(sent, {"length": 1, "epoch": 5, "revision": 11})
        self.assertEqual((session.revision, session.lengths), (12, {0: 1}))
        item = {"sequences": [{"length": 2, "revision": 13}]}
        _, sent, _ = self.call(item, lambda: self.client.step_many([(session, [1.0])]))
        self.assertEqual(sent["sequences"][0]["revision"], 12)
        _, sent, _ = self.call({**FACTS, "revision": 21}, session.fork)
        self.assertEqual(sent, {"epoch": 5, "revision": 13})
        self.call({**FACTS, "revision": 14}, session.refresh)
        self.assertEqual(session.revision, 14)
        _, _, path = self.call(None, session.end, 204)
        self.assertEqual(path, "/sessions/a.1?epoch=5")

    def test_an_attnd_without_revisions_is_sent_none(self):
        session = Session(self.client, FACTS)
        _, sent, _ = self.call({"length": 4}, lambda: session.decode([1.0]))
        self.assertNotIn("revision", sent)
        _, sent, _ = self.call(FACTS, lambda: session.truncate(3))
        self.assertEqual(sent, {"length": 3, "epoch": 5})
        _, _, path = self.call(None, session.end, 204)
        self.assertEqual(path, "/sessions/a.1")

    def test_answers_that_tell_of_others(self):
        session = Session(self.client, {**FACTS, "revision": 11})
        longer = {**FACTS, "revision": 12, "replayed": True,
                  "lengths": [{"layer": 0, "length": 9}]}
        with self.assertRaises(Conflict) as caught:
            self.call(longer, lambda: session.truncate(1))
        self.assertEqual(caught.exception.length, 9)
        self.assertEqual((session.revision, session.lengths), (12, {0: 9}))
        body = {"error": {"code": "revision_mismatch", "message": "m", "revision": 13, "epoch": 5,
                          "length": 8}}
        with self.assertRaises(Conflict) as caught:
            self.call(body, lambda: session.decode([1.0]), 409)
        self.assertEqual((caught.exception.revision, caught.exception.epoch,
                          caught.exception.length), (13, 5, 8))
        remade = {"error": {"code": "epoch_mismatch", "message": "m"}}
        self.call(remade, session.end, 409)  # which has ended: another has its id
        with self.assertRaises(Conflict):
            self.call(body, session.end, 409)


class Typed(Case):
    """mypy, and types beside what attnd replies."""

    def test_examples_and_documented_blocks_are_strictly_typed(self):
        page = (TOP / "docs" / "CLIENTS.md").read_text("utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
        self.assertGreater(len(blocks), 3)
        with tempfile.TemporaryDirectory() as directory:
            page = pathlib.Path(directory) / "page.py"
            page.write_text("\n".join(blocks), "utf-8")
            files = [*sorted((TOP / "examples").glob("*.py")), page,
                     TOP / "clients" / "python" / "attn_client.py"]
            self.assertGreater(len(files), 7)
            self.assert_typed(directory, "-m", "mypy", "--strict", *files)
            page.write_text("import attn_client\nattn_client.Client(timeout='5')\n", "utf-8")
            with self.assertRaisesRegex(AssertionError, "arg-type"):
                self.assert_typed(directory, "-m", "mypy", "--strict", page)

    def assert_typed(self, directory, *call):
        """mypy finds nothing wrong."""
        done = subprocess.run(
            ["/usr/bin/python3", *call, "--cache-dir", f"{directory}/cache"],
            env={**os.environ, "MYPYPATH": f"{TOP}/clients/python:{TOP}/examples"},
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(os.environ.get("TSC"), "the compiler is fetched for the whole form alone")
    def test_typescript_takes_the_documented_blocks(self):
        page = (TOP / "docs" / "CLIENTS.md").read_text("utf-8")
        blocks = re.findall(r"^```js\n(.*?)^```", page, re.M | re.S)
        self.assertGreater(len(blocks), 0)
        with tempfile.TemporaryDirectory() as directory:
            def compiled(*files):
                return subprocess.run(
                    ["node", os.environ["TSC"], "--strict", "--noEmit", "--target", "es2022",
                     "--module", "nodenext", "--lib", "es2022,dom", *files],
                    capture_output=True, text=True, check=False, cwd=directory)
            (pathlib.Path(directory) / "clients").symlink_to(TOP / "clients")
            made = [pathlib.Path(directory) / name for name in ("page.mts", "types.mts", "bad.mts")]
            made[0].write_text("\n".join(blocks), "utf-8")
            made[1].write_text((TOP / "tests/clients/types.mts").read_text("utf-8"), "utf-8")
            done = compiled(*made[:2])
            self.assertEqual(done.returncode, 0, done.stdout)
            made[2].write_text('import { Client } from "./clients/js/attn-client.mjs";\n'
                               'new Client("http://a", { timeoutMs: "5" });\n', "utf-8")
            self.assertIn("error TS2322", compiled(made[2]).stdout)

    def test_members_of_types_are_those_of_replies(self):
        _, model = ask(self.daemon.url + "/models/" + TINY["name"])
        self.assertLessEqual(attn_client.ModelInfo.__annotations__.keys(), model.keys())
        with self.client().session() as session:
            told = session.refresh().keys() | {"lowest_length", "revision"}
        self.assertEqual(attn_client.SessionInfo.__annotations__.keys(), told)


if __name__ == "__main__":
    unittest.main()
