"""daemon.py: starts attnd for a test, on a port of the kernel's, kills it and starts it again."""
import contextlib
import http.server
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
ATTND = os.environ.get("ATTND", str(TOP / "build" / "attnd"))
TINY = {"name": "tiny", "random": {"hidden_size": 8, "num_attention_heads": 4, "seed": 7,
                                   "num_key_value_heads": 2, "num_hidden_layers": 2,
                                   "rope_theta": 10000}}
CROSSED = {"name": "crossed", "random": {"hidden_size": 8, "num_attention_heads": 4, "seed": 9,
                                         "num_hidden_layers": 2, "is_cross": True}}
START_S = 120


class Daemon:
    """attnd on `models`; options are keys of its configuration file, written to `directory`."""

    def __init__(self, directory, models=(TINY,), **options):
        self.config = pathlib.Path(directory) / f"attnd-{id(self)}.json"
        self.config.write_text(json.dumps({"models": list(models), **options}), "utf-8")
        self.process, self.url = None, None
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Starts attnd; returns when the port that it names is open."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("ATTN_", "OPENBLAS_"))} | {"ATTN_LAME_DUCK_S": "0"}
        self.process = subprocess.Popen(
            [ATTND, "--config", str(self.config), "--port", "0", "--log", "error"],
            stdout=subprocess.PIPE, env=environment)
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline().decode() if ready else ""
        if " on http" not in line:
            self.kill()
            raise RuntimeError(f"attnd did not start: {line!r}")
        self.url = line.split(" on ")[1].split()[0]

    def kill(self):
        """SIGKILL, as by a failure."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        """SIGTERM; raises where attnd does not end, or not with 0."""
        self.process.terminate()
        try:
            status = self.process.wait(START_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
        if status != 0:
            raise RuntimeError(f"attnd ended with {status}")


def ask(url, body=None, method=None):
    """(status, JSON) of a request by no client of ours: what a client is compared with."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=START_S) as reply:
            return reply.status, json.loads(reply.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


class Relay:
    """A port that stays while the daemon behind it changes, and that loses what `verdict` says.

    verdict(number, head)  asked for each request, counted from 0; returns
        "pass"    forwards, and sends the reply
        "lose"    forwards, and closes without the reply
        "cut"     forwards, and closes after the reply's head
        "twice"   forwards the same request two times, and sends the second reply
        "refuse"  closes, nothing forwarded
        "drop"    forwards, sends the reply, and closes, as a server does with an idle connection
    counts  how often each was done; connections  how many were accepted
    """

    def __init__(self, target, verdict=lambda number, head: "pass"):
        self.target, self.verdict = target, verdict  # `target`: a function that returns the URL
        self.counts = {"pass": 0, "lose": 0, "twice": 0, "refuse": 0, "drop": 0,
                       "cut": 0}
        self.requests, self.connections, self.lock = 0, 0, threading.Lock()
        self.ended = 0  # connections that the relay has closed
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        """Takes no more connections."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._guard, args=(client,), daemon=True).start()

    def _guard(self, client):
        with client:
            try:
                self._relay(client)
            except OSError:
                pass  # either side is gone, which the other side sees
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        self.ended += 1

    def _relay(self, client):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = client.makefile("rb")
        while True:
            head, body = read_message(stream)
            if not head:
                return
            with self.lock:
                verdict = self.verdict(self.requests, head)
                self.requests += 1
                self.counts[verdict] += 1
            if not self._answer(client, head, body, verdict):
                return

    def _answer(self, client, head, body, verdict):
        """False where the connection ends."""
        if verdict == "refuse":
            return False
        reply = b"".join(self._forward(head + body))
        if verdict == "twice":
            reply = b"".join(self._forward(head + body))
        if verdict == "lose" or not reply:
            return False
        client.sendall(reply[:reply.index(b"\r\n\r\n") + 4] if verdict == "cut" else reply)
        return verdict not in ("drop", "cut")

    def _forward(self, request):
        host, port = self.target()[len("http://"):].split(":")
        with socket.create_connection((host, int(port))) as server:
            server.sendall(request)
            return read_message(server.makefile("rb"))


class Router(Relay):
    """A proxy of shards: {name: a function that returns the URL}.  X-Session-Id, or else the path,
    names the shard that a request goes to; others go to the first.  503 where a shard is away, as
    of HAProxy.  What `verdict` calls "astray" goes to the other shard.

    sent  for each request the shard that it went to, and how many sessions its body names
    """

    def __init__(self, shards, verdict=lambda number, head: "pass"):
        self.shards, self.sent = shards, []
        super().__init__(None, verdict)
        self.counts["astray"] = 0

    def _answer(self, client, head, body, verdict):
        named = re.search(rb"^X-Session-Id: (\w+)\.|^\S+ /sessions/(\w+)\.", head, re.M)
        name = (named[1] or named[2]).decode() if named else next(iter(self.shards))
        if verdict == "astray":
            name = next(other for other in self.shards if other != name)
        self.sent.append((name, body.count(b'"session_id"')))
        self.target = self.shards[name]
        try:
            reply = b"".join(self._forward(head + body))
        except OSError:
            reply = b""
        client.sendall(reply or b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        return True


class Scripted(http.server.ThreadingHTTPServer):
    """A server that answers with the next of `replies`: (status, headers, body).

    seen, paths, bodies  headers, path and body of each request, in turn
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        """Any request."""
        protocol_version = "HTTP/1.1"

        def do_POST(self):  # noqa: N802
            """The next reply."""
            server = self.server
            server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            server.paths.append(self.path)
            server.seen.append(self.headers)
            status, headers, body = server.replies.pop(0)
            self.send_response(status)
            told = {} if status in (204, 304) else {"Content-Length": str(len(body))}
            for name, value in {**headers, **told}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815

        def log_message(self, *_):
            """Nothing."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.seen, self.bodies, self.paths, self.replies = [], [], [], []
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        """Takes no more requests."""
        self.shutdown()
        self.server_close()


def read_message(stream):
    """(head, body) of a message with a Content-Length, or two empty strings at the end."""
    head, length = b"", 0
    while True:
        line = stream.readline(65536)
        if not line:
            return b"", b""
        head += line
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
        if line == b"\r\n":
            return head, stream.read(length) if length else b""


def wait_for(condition, seconds=START_S):
    """Returns once `condition()` holds; raises after `seconds`."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError("waited in vain")
        time.sleep(0.01)
