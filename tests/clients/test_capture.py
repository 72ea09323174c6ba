"""test_capture.py: examples/capture.py and its proxy against daemons of attnd, and the checkpoint
with patterns, tests/golden/patterns, through them."""
import contextlib
import http.client
import io
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

import numpy

from daemon import ATTND, TOP, Daemon, wait_for
from test_generate import GOLDEN, TOLERANCE, folder

sys.path.insert(1, str(TOP / "examples"))
import bpe  # noqa: E402
import capture  # noqa: E402
import generate  # noqa: E402
import stored  # noqa: E402
from page_proxy import PageProxy  # noqa: E402

PATTERNS = TOP / "tests" / "golden" / "patterns"
MODELS = {"gpt2": GOLDEN / "gpt2_lm" / "model", "llama": GOLDEN / "llama_lm" / "model",
          "patterns": PATTERNS}


def read_capture(path):
    """(metadata, {name: float32 array}, {name: dtype}) of a file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__")
    assert (8 + size) % 64 == 0
    return metadata, stored.read_safetensors(path), {name: header[name]["dtype"]
                                                       for name in header}


class Case(unittest.TestCase):
    """A directory and one daemon with three models."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
        cls.daemon = Daemon(directory.name, [{"name": name, "path": str(path)}
                                             for name, path in MODELS.items()],
                            max_body_bytes=1 << 20)
        cls.addClassCleanup(cls.daemon.stop)
        cls.client = generate.Client(cls.daemon.url)
        cls.addClassCleanup(cls.client.close)
        cls.client.wait_until_ready()

    def run_main(self, *arguments):
        """(exit status, what was printed) of the program within this process."""
        printed, signals = io.StringIO(), [signal.SIGINT, signal.SIGTERM]
        for number, handler in zip(signals, map(signal.getsignal, signals)):
            self.addCleanup(signal.signal, number, handler)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = capture.main([str(argument) for argument in arguments])
        return status, printed.getvalue()

    def captured(self, model, *arguments):
        """read_capture() of what the program writes."""
        path = self.directory / f"{self.id()}-{model}.safetensors"
        status, printed = self.run_main("--model", MODELS[model], "--name", model, "--url",
                                        self.daemon.url, "-o", path, *arguments)
        self.assertEqual(status, 0, printed)
        self.assertFalse(list(self.directory.glob("*.part")))
        return read_capture(path)


class Rows(Case):
    """Whole models: what is captured is what attention took on the way to golden logits."""

    def attention(self, decoder, family, ids):
        """[(rows, output)] by layer of a pass over a session, and the logits."""
        passed = []
        with self.client.session(model=family) as session:
            made = generate.Generator(decoder, session)
            step = made._attend

            def attend(rows, layer):
                passed.append((rows, step(rows, layer)))
                return passed[-1][1]

            made._attend = attend
            logits = made.feed(ids)
        return passed, logits

    def test_rows_are_those_of_a_pass_to_the_golden_logits(self):
        for family in ("gpt2", "llama"):
            tensors = folder(family)[1]
            ids = tensors["logits.input_ids"][0].tolist()
            numbers = ",".join(map(str, ids))
            metadata, rows, kinds = self.captured(family, "--ids", numbers)
            decoder = generate.read_decoder(MODELS[family])
            self.assertEqual(metadata, {"format": "attn-capture-1", "model": family,
                                        "tokens": json.dumps([str(number) for number in ids])})
            self.assertEqual(list(kinds), [f"layer.{layer}" for layer in range(decoder.layers)])
            self.assertEqual(set(kinds.values()), {"F32"})
            passed, logits = self.attention(decoder, family, ids)
            self.assertLessEqual(numpy.abs(logits - tensors["logits.logits"][0]).max(), TOLERANCE)
            for layer, (taken, output) in enumerate(passed):
                made = rows[f"layer.{layer}"]
                self.assertEqual(made.shape, taken.shape)
                self.assertLessEqual(numpy.abs(made - taken).max(), 1e-5)
                reply = self.client.attend(made, model=family, layer=layer)
                self.assertLessEqual(numpy.abs(reply["output"] - output).max(), 1e-5)

    def test_rows_of_half_width_and_first_tokens(self):
        numbers = ",".join(map(str, range(20)))
        _, whole, _ = self.captured("llama", "--ids", numbers)
        metadata, half, kinds = self.captured("llama", "--ids", numbers, "--dtype", "f16",
                                              "--tokens", "13")
        self.assertEqual(set(kinds.values()), {"F16"})
        self.assertEqual(json.loads(metadata["tokens"]), [str(place) for place in range(13)])
        for name, rows in whole.items():
            self.assertTrue((half[name] == rows[:13].astype("f2")).all(), name)

    def test_a_long_text_goes_in_steps(self):
        text = (TOP / "docs" / "STYLE.md").read_text("utf-8")[:600]
        (self.directory / "text").write_text(text, "utf-8")
        whole = self.captured("patterns", "--file", self.directory / "text")
        steps = []
        self.addCleanup(setattr, capture, "CHUNK", capture.CHUNK)
        capture.CHUNK = 100
        with self.client.session(model="patterns") as session:
            ids = bpe.read_tokenizer(PATTERNS).encode(text)
            layers = capture.capture(generate.read_decoder(PATTERNS), session, ids, steps.append)
        self.assertEqual(steps, [100 * place for place in range(1, len(steps))] + [len(ids)])
        self.assertGreater(len(steps), 2)
        for layer, rows in layers.items():
            self.assertLessEqual(numpy.abs(rows - whole[1][f"layer.{layer}"]).max(), 1e-4)
        self.assertEqual("".join(json.loads(whole[0]["tokens"])[1:]), text)
        numbers = ",".join(map(str, range(40)))
        capture.CHUNK = 7
        _, steps, _ = self.captured("gpt2", "--ids", numbers)
        capture.CHUNK = 40
        for name, rows in self.captured("gpt2", "--ids", numbers)[1].items():
            self.assertLessEqual(numpy.abs(rows - steps[name]).max(), 1e-5)

    def test_tokens_have_labels(self):
        tokenizer = bpe.read_tokenizer(PATTERNS)
        ids = tokenizer.encode("x\u20ac<|begin|>")
        labels = [tokenizer.label(number) for number in ids]
        self.assertEqual((labels[0], labels[-1]), ("<|begin|>", "<|begin|>"))
        self.assertEqual("".join(labels[1:-1]), "x<0xE2><0x82><0xAC>")

    def test_the_path_of_a_capture_may_be_a_text(self):
        path = self.directory / "by-text.safetensors"
        capture.write_capture(str(path), {0: numpy.ones((2, 3))}, ["a", "b"])
        metadata, rows, _ = read_capture(path)
        self.assertEqual((json.loads(metadata["tokens"]), rows["layer.0"].shape), (["a", "b"], (2, 3)))
        self.assertFalse(self.directory.joinpath(path.name + ".part").exists())

    def test_what_cannot_be_captured_is_said(self):
        long = ",".join("1" * 2000)
        for model, arguments, expected in (
                ("gpt2", ["--name", "gpt2", "--ids", long], "positions: --tokens takes"),
                ("llama", ["--name", "llama", "--ids", "-1"], "tokens are 0 to"),
                ("llama", ["--name", "llama", "--ids", "99999"], "tokens are 0 to"),
                ("llama", ["--name", "llama", "--ids", "1", "--tokens", "0"], "no token"),
                ("llama", ["--name", "other", "--ids", "1"], "--name: which of the models"),
                ("llama", ["--ids", "1"], "gpt2, llama, patterns"),
                ("llama", ["text"], "merges.txt")):
            path = self.directory / "not.safetensors"
            status, printed = self.run_main("--model", MODELS[model], "--url", self.daemon.url,
                                            "-o", path, *arguments)
            self.assertEqual((status, expected in printed), (1, True), printed)
            self.assertFalse(path.exists())
        with self.assertRaisesRegex(ValueError, "finite"):
            capture.write_capture(path, {0: numpy.full((1, 2), 1e5)}, ["a"], dtype="f16")
        with self.assertRaisesRegex(ValueError, "3 tokens"):
            capture.write_capture(path, {0: numpy.ones((2, 2))}, ["a", "b", "c"])
        for given in (path, str(path)):
            capture.write_capture(given, {0: numpy.ones((2, 2))}, ["a", str(type(given))])
            self.assertEqual(json.loads(read_capture(path)[0]["tokens"])[1], str(type(given)))
        self.assertEqual(list(self.client.sessions()), [])


class Patterns(Case):
    """The checkpoint whose heads were trained, and its capture."""

    def setUp(self):
        self.metadata, self.rows, _ = read_capture(PATTERNS / "capture.safetensors")
        self.tokens = json.loads(self.metadata["tokens"])

    def heads(self, layer, output):
        """What an output of a layer is for the capture's rows."""
        return self.client.attend(self.rows[f"layer.{layer}"], model=self.metadata["model"],
                                  layer=layer, outputs=[output])[output]

    def test_heads_have_the_patterns_that_the_readme_names(self):
        found = {(layer, stats["head"]): stats["pattern"]
                 for layer in range(4) for stats in self.heads(layer, "head_stats")}
        readme = (PATTERNS / "README.md").read_text("utf-8")
        table = re.findall(r"^\| (\d)\.(\d) \| `(\w+)` \|", readme, re.M)
        self.assertEqual({(int(layer), int(head)): name for layer, head, name in table}, found)
        self.assertLessEqual({"previous", "sink", "local", "positional", "focused"},
                             set(found.values()))

    def test_a_layer_has_a_window(self):
        model, = (model for model in self.client.models() if model["name"] == "patterns")
        self.assertEqual((model["num_layers"], model["hidden_size"]), (4, 64))
        windows = [layer.get("sliding_window") for layer in model["differing_layers"]]
        self.assertEqual(windows, [12])
        self.assertEqual(model["differing_layers"][0]["layer"], 2)
        distance = numpy.subtract.outer(*[numpy.arange(len(self.tokens))] * 2)
        for layer in range(4):
            seen = self.heads(layer, "attention_weights").max(0) > 0
            self.assertEqual(seen[distance >= 12].any(), layer != 2)

    def test_a_head_attends_to_what_followed_the_last_time(self):
        weights, hits = self.heads(3, "attention_weights")[2], []
        for place, token in enumerate(self.tokens):
            after = [key + 1 for key in range(place) if self.tokens[key] == token]
            if after and place + 1 - after[-1] > 12:  # the second half, not a word that is frequent
                hits.append(weights[place].argmax() in after)
        self.assertGreaterEqual((len(hits), sum(hits)), (14, 13))

    def test_the_capture_is_made_anew_from_its_text(self):
        text = "".join(self.tokens[1:])
        metadata, rows, _ = self.captured("patterns", text)
        self.assertEqual(metadata, self.metadata)
        for name, made in rows.items():
            self.assertLessEqual(numpy.abs(made - self.rows[name]).max(), 1e-4, name)


class Proxy(Case):
    """The page's address: the file, and attnd behind it."""

    def setUp(self):
        self.file = self.directory / "file"
        self.file.write_bytes(bytes(range(256)) * 1000)
        self.proxy = self.proxied(self.daemon.url)

    def proxied(self, url):
        """A proxy that the test ends."""
        proxy = PageProxy(url, capture.PATH, self.file)
        self.addCleanup(proxy.server_close)
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(proxy.shutdown)
        return proxy

    @staticmethod
    def ask(url, method, path, body=None, headers=()):
        """(status, fields, body) of one request."""
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers))
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read()

    def raw(self, text):
        """The whole answer to bytes that are sent as they are."""
        with socket.create_connection(self.proxy.server_address, 60) as connection:
            connection.sendall(text)
            return connection.makefile("rb").read()

    def test_replies_come_bit_for_bit(self):
        rows = numpy.random.default_rng(1).standard_normal((300, 32)).astype("<f4")
        head = json.dumps({"model": "llama", "binary_output": True,
                           "outputs": ["output", "attention_weights"],
                           "hidden_states": {"shape": [300, 32], "datatype": "FP32",
                                             "binary_data_size": rows.nbytes}}).encode()
        field = "Inference-Header-Content-Length"
        fields = {"Content-Type": "application/octet-stream", field: str(len(head))}
        replies = [self.ask(url, "POST", "/attend", head + rows.tobytes(), fields)
                   for url in (self.daemon.url, self.proxy.url)]
        self.assertEqual([reply[0] for reply in replies], [200, 200])
        self.assertGreater(len(replies[0][2]), 300 * 300 * 4)
        self.assertEqual(replies[0][2], replies[1][2])
        self.assertEqual(replies[0][1][field], replies[1][1][field])
        self.assertIsNotNone(replies[1][1]["X-Request-Id"])
        for path in ("/models", "/openapi.json", "/nothing", "/sessions?limit=1"):
            direct, behind = (self.ask(url, "GET", path) for url in (self.daemon.url,
                                                                     self.proxy.url))
            self.assertEqual(direct[0], behind[0])
            self.assertEqual(len(direct[2]), len(behind[2]))
        self.assertEqual(self.ask(self.proxy.url, "HEAD", "/models")[2], b"")

    def test_one_connection_takes_several_requests(self):
        connection = http.client.HTTPConnection(*self.proxy.server_address, timeout=60)
        with contextlib.closing(connection):
            for path in ("/models", capture.PATH, "/models", "/nothing", "/livez"):
                connection.request("GET", path)
                reply = connection.getresponse()
                self.assertEqual(reply.status, 404 if path == "/nothing" else 200)
                reply.read()
                ours = connection.sock.getsockname() if path == "/models" else ours
                self.assertEqual(connection.sock.getsockname(), ours)

    def test_the_file_and_no_other(self):
        whole = self.file.read_bytes()
        self.assertEqual(self.ask(self.proxy.url, "GET", capture.PATH)[2], whole)
        self.assertEqual(self.ask(self.proxy.url, "GET", capture.PATH + "?again")[2], whole)
        status, fields, body = self.ask(self.proxy.url, "HEAD", capture.PATH)
        self.assertEqual((status, fields["Content-Length"], body), (200, str(len(whole)), b""))
        self.assertEqual(self.ask(self.proxy.url, "POST", capture.PATH, b"x")[0], 405)
        for path in ("/file", "/../file", capture.PATH + "/../file", "/etc/passwd",
                     "/..%2ffile", "//etc/passwd", capture.PATH + "x", str(self.file)):
            status, _, body = self.ask(self.proxy.url, "GET", path)
            self.assertIn(status, (400, 404), path)
            self.assertIn("error", json.loads(body), path)
        self.file.unlink()
        self.assertEqual(self.ask(self.proxy.url, "GET", capture.PATH)[0], 404)

    def test_only_this_machine_is_answered(self):
        own = self.proxy.url[len("http://"):]
        for host, status in ((own, 200), ("localhost:1", 200), ("[::1]:1", 200),
                             ("evil.example", 403), ("127.0.0.1.evil.example", 403),
                             ("10.0.0.1", 403), ("[", 403), ("", 403)):
            for path in (capture.PATH, "/models"):
                answer = self.ask(self.proxy.url, "GET", path, headers={"Host": host})
                self.assertEqual(answer[0], status, (host, path))
        for origin, status in ((f"http://{own}", 200), (f"https://{own}", 403),
                               ("http://127.0.0.1:1", 403), ("http://evil.example", 403),
                               (self.daemon.url, 200), ("null", 403)):
            answer = self.ask(self.proxy.url, "POST", "/attend",
                              b'{"model":"nothing","hidden_states":[[1]]}',
                              {"Origin": origin, "Content-Type": "application/json"})
            self.assertEqual(answer[0], 404 if status == 200 else 403, (origin, answer[2]))
        self.assertEqual(self.proxy.server_address[0], "127.0.0.1")

    def test_heads_of_two_meanings_are_refused(self):
        for head, status in ((b"GET / HTTP/1.1\r\n", b"403"),
                             (b"GET http://a.example/ HTTP/1.1\r\nHost: localhost\r\n", b"400"),
                             (b"POST /attend HTTP/1.1\r\nHost: localhost\r\n"
                              b"Transfer-Encoding: chunked\r\n", b"411"),
                             (b"POST /attend HTTP/1.1\r\nHost: localhost\r\n"
                              b"Content-Length: 1\r\nContent-Length: 2\r\n", b"411"),
                             (b"POST /attend HTTP/1.1\r\nHost: localhost\r\n"
                              b"Content-Length: +1\r\n", b"400"),
                             (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n", b"403"),
                             (b"GET /\xff\x01 HTTP/1.1\r\nHost: localhost\r\n", b"400")):
            answer = self.raw(head + b"\r\n")
            self.assertEqual(answer.split()[1:2], [status], (head, answer))
            self.assertEqual(answer.count(b"HTTP/1."), 1)

    def test_a_body_that_is_refused_is_answered(self):
        answer = self.ask(self.proxy.url, "POST", "/attend", bytes(8 << 20),
                          {"Content-Type": "application/json"})
        self.assertEqual(answer[0], 413, answer[2])

    @contextlib.contextmanager
    def stand_in(self, request):
        """(browser's connection, the proxy's to what stands in for attnd, what came there)."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(60)
            proxy = self.proxied(f"http://127.0.0.1:{listener.getsockname()[1]}/below")
            with socket.create_connection(proxy.server_address, 60) as browser:
                browser.sendall(request.replace(b"OWN", proxy.url.encode()))
                connection, _ = listener.accept()
                connection.settimeout(60)
                with connection:
                    yield browser, connection, connection.recv(65536)

    def test_fields_of_the_connection_end_here(self):
        request = (b"GET /models HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, X-Own\r\n"
                   b"X-Own: 1\r\nTE: trailers\r\nAuthorization: Bearer k\r\nOrigin: null\r\n\r\n")
        with self.stand_in(request) as (browser, connection, head):
            port = connection.getsockname()[1]
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Both: 1\r\nKeep-Alive: 1\r\n"
                               b"Transfer-Encoding: chunked\r\n\r\n"
                               b"3\r\nthe\r\n4\r\n end\r\n0\r\n\r\n")
            reply = browser.makefile("rb").read()
        self.assertEqual(head.decode().split("\r\n"), [
            "GET /below/models HTTP/1.1", f"Host: 127.0.0.1:{port}", "Origin: null",
            "Authorization: Bearer k", "", ""])
        self.assertEqual(reply.split(b"\r\n"), [b"HTTP/1.1 200 OK", b"X-Both: 1",
                                                b"Connection: close", b"", b"the end"])

    def test_a_browser_that_leaves_is_seen_by_attnd(self):
        request = b"GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with self.stand_in(request) as (browser, connection, _):
            browser.close()
            self.assertEqual(connection.recv(1), b"")  # it was still waited for

    def test_a_reply_that_ends_early_is_not_whole(self):
        request = b"GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with self.stand_in(request) as (browser, connection, _):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
            connection.shutdown(socket.SHUT_RDWR)
            self.assertTrue(browser.makefile("rb").read().endswith(b"\r\n\r\nhalf"))

    def test_a_refusal_ends_a_body_that_is_not_read(self):
        request = b"POST /attend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67108864\r\n\r\n"
        with self.stand_in(request) as (browser, connection, _):
            connection.sendall(b"HTTP/1.1 413 Much\r\nContent-Length: 0\r\n\r\n")
            for _ in range(1024):
                browser.sendall(bytes(65536))
            self.assertTrue(browser.makefile("rb").read().startswith(b"HTTP/1.1 413 Much\r\n"))

    def test_a_daemon_that_is_gone_is_an_error_of_json(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        status, _, body = self.ask(self.proxied(url).url, "GET", "/models")
        error = json.loads(body)["error"]
        self.assertEqual((status, error["code"], error["retryable"]), (502, "bad_gateway", True))


class Program(unittest.TestCase):
    """The program with an attnd of its own."""

    def start(self, directory, *arguments):
        """The process, and the first two lines that it prints."""
        process = subprocess.Popen(
            [sys.executable, TOP / "examples" / "capture.py", "--model", PATTERNS, "--view",
             "--no-browser", "-o", "out.safetensors", *arguments, "The cat sat on the mat"],
            stdout=subprocess.PIPE, text=True, cwd=directory, env={**os.environ, "ATTND": ATTND})
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process, process.stdout.readline(), process.stdout.readline()

    def children(self, process):
        """Its daemons."""
        path = f"/proc/{process.pid}/task/{process.pid}/children"
        return [int(number) for number in pathlib.Path(path).read_text("ascii").split()]

    def test_it_views_and_ends_with_its_daemon(self):
        for number, status in ((signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -9)):
            with tempfile.TemporaryDirectory() as directory:
                with socket.create_server(("127.0.0.1", 0)) as listener:
                    port = listener.getsockname()[1]
                process, made, address = self.start(directory, "--port", str(port))
                self.assertRegex(made, r"^out.safetensors: 4 layers, \d+ tokens, width 64, f32\n$")
                url, _, place = address.split()[0].partition("/#")
                self.assertEqual(place, "capture=capture.safetensors")
                self.assertEqual(url, f"http://127.0.0.1:{port}")
                whole = (pathlib.Path(directory) / "out.safetensors").read_bytes()
                self.assertEqual(Proxy.ask(url, "GET", "/capture.safetensors")[2], whole)
                models = json.loads(Proxy.ask(url, "GET", "/models")[2])["models"]
                self.assertEqual([model["name"] for model in models], ["patterns"])
                daemon, = self.children(process)
                process.send_signal(number)
                self.assertEqual(process.wait(60), status)
                self.assert_ends(daemon)

    def assert_ends(self, daemon):
        """The process ends; one that nobody waits for may stay listed."""
        try:
            wait_for(lambda: not os.path.exists(f"/proc/{daemon}/exe"), 45)
        except RuntimeError:
            os.kill(daemon, signal.SIGKILL)
            raise


if __name__ == "__main__":
    unittest.main()
