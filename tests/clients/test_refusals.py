"""test_refusals.py: why a large body is refused reaches clients that send all of it before they read.

urllib, Requests (where it is installed) and Node's fetch (likewise), 20 at once, for each status that
a head or the bytes of a body can have, with lengths and in chunks.  QUICK=1: 8 at once, bodies of
8 MB only.
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from daemon import Daemon

try:
    import requests
except ImportError:
    requests = None

CLIENTS = 8 if os.environ.get("QUICK") else 20
MB = 1000000
PIECE = bytes(64000)
SIZES = (8,) if os.environ.get("QUICK") else (1, 8, 32, 77)
KEY, NARROW = "infer-0123456789abcdef0123456789abcdef", "narrow-0123456789abcdef0123456789abcdef"
KEYS = {"keys": [{"name": "all", "key": KEY, "scopes": ["infer"]},
                 {"name": "narrow", "key": NARROW, "scopes": ["infer"], "max_in_flight_bytes": 65536}]}
JSON = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
CASES = {  # status: (code, path, fields)
    401: ("unauthorized", "/attend", {"Content-Type": "application/json"}),
    404: ("route_not_found", "/nowhere", JSON),
    413: ("body_too_large", "/attend", JSON),
    415: ("unsupported_media_type", "/attend", {**JSON, "Content-Type": "text/plain"}),
    421: ("host_not_allowed", "/attend", {**JSON, "Host": "evil.example"}),
    429: ("quota_exceeded", "/attend", {**JSON, "Authorization": f"Bearer {NARROW}"}),
    503: ("out_of_memory", "/attend", JSON),
}
NODE = """
const [url, fields, size, chunked, clients] = JSON.parse(process.argv[2]);
function body() {
  let left = size;
  return new ReadableStream({pull(controller) {
    const piece = new Uint8Array(Math.min(left, 64000));
    left -= piece.length;
    if (piece.length > 0) controller.enqueue(piece);
    if (left === 0) controller.close();
  }});
}
async function ask() {
  try {
    const reply = await fetch(url, {method: "POST", headers: fields, duplex: "half",
                                    body: chunked ? body() : new Uint8Array(size)});
    return [reply.status, (await reply.json()).error.code];
  } catch (error) {
    return [0, String(error.cause ?? error)];
  }
}
console.log(JSON.stringify(await Promise.all(Array.from({length: clients}, ask))));
"""


def pieces(size):
    """The body, as a client that does not know its length has it."""
    while size > 0:
        yield PIECE[:size]
        size -= len(PIECE)


def by_urllib(url, path, fields, size, chunked):
    """(status, code); http.client is what urllib sends with, and here Host can be another."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    body = pieces(size) if chunked else bytes(size)
    try:
        connection.request("POST", path, body, fields, encode_chunked=chunked)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())["error"]["code"]
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()


def by_requests(url, path, fields, size, chunked):
    """(status, code) by Requests."""
    try:
        reply = requests.post(url + path, pieces(size) if chunked else bytes(size), headers=fields,
                              timeout=60)
        return reply.status_code, reply.json()["error"]["code"]
    except requests.RequestException as error:
        return 0, repr(error)


def by_threads(one):
    """The answers to CLIENTS at once, each sent by `one`."""
    def ask(*args):
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            return list(pool.map(lambda _: one(*args), range(CLIENTS)))
    return ask


class Refusals(unittest.TestCase):
    """Each program reads the reason each time."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        keys = pathlib.Path(directory.name) / "keys.json"
        keys.touch(0o600)
        keys.write_text(json.dumps(KEYS), "utf-8")
        cls.node = pathlib.Path(directory.name) / "refusals.mjs"
        cls.node.write_text(NODE, "utf-8")
        options = {"api_keys": str(keys), "max_body_bytes": "128MiB", "allowed_hosts": "localhost"}
        cls.daemons = {413: Daemon(directory.name, **options | {"max_body_bytes": "256KiB"}),
                       503: Daemon(directory.name, **options, max_in_flight_bytes="600KiB"),
                       None: Daemon(directory.name, **options)}
        for daemon in cls.daemons.values():
            cls.addClassCleanup(daemon.stop)

    def check(self, ask, statuses=tuple(CASES)):
        """All answers of all cases."""
        for status in statuses:
            code, path, fields = CASES[status]
            url = self.daemons.get(status, self.daemons[None]).url
            for size in SIZES:
                for chunked in (False, True):
                    answers = ask(url, path, fields, size * MB, chunked)
                    with self.subTest(status=status, size=size, chunked=chunked):
                        self.assertEqual(answers, [(status, code)] * CLIENTS)

    def by_node(self, url, path, fields, size, chunked):
        """CLIENTS answers to Node's fetch."""
        given = json.dumps([url + path, fields, size, chunked, CLIENTS])
        done = subprocess.run(["node", self.node, given], capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [tuple(answer) for answer in json.loads(done.stdout)]

    def test_urllib(self):
        self.check(by_threads(by_urllib))

    @unittest.skipIf(requests is None, "Requests is not installed")
    def test_requests(self):
        self.check(by_threads(by_requests))

    @unittest.skipIf(shutil.which("node") is None, "Node is not installed")
    def test_node(self):
        self.check(self.by_node, [status for status in CASES if status != 421])  # no Host in fetch


if __name__ == "__main__":
    unittest.main()
