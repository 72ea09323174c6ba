"""load.py: sessions that decode through the proxy, and what is wrong with what they get."""
import asyncio
import collections
import hashlib
import json
import random
import time

from cluster import LAYERS, WIDTH

CLIENT_TIMEOUT_S = 4  # of one request; a step is sent again until it is answered
GIVE_UP_S = 60  # for one step
RETRIED = (429, 502, 503, 504, 507)


class Broken(Exception):
    """A connection that ended, or stayed silent, before the reply was whole."""


class Connection:
    """Requests over one connection at a time, without any retry."""

    def __init__(self, address, timeout=CLIENT_TIMEOUT_S):
        self.host, port = address.rsplit(":", 1)
        self.port, self.timeout, self.streams = int(port), timeout, None

    def close(self):
        """Ends the connection; the next request opens another."""
        if self.streams:
            self.streams[1].transport.abort()
            self.streams = None

    async def request(self, method, path, body=b"", **headers):
        """(status, headers, body) of a reply; raises Broken."""
        try:
            return await asyncio.wait_for(self._request(method, path, body, headers), self.timeout)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            self.close()
            raise Broken(repr(error)) from error

    async def _request(self, method, path, body, headers):
        if not self.streams:
            self.streams = await asyncio.open_connection(self.host, self.port, limit=1 << 20)
        reader, writer = self.streams
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}"]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = {}
        for line in head[1:-2]:
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        content = await reader.readexactly(int(fields.get("content-length", 0)))
        if fields.get("connection", "").lower() == "close":
            self.close()
        return int(head[0].split()[1]), fields, content


def make_rows(number=997):
    """Rows as JSON text, the same in every run."""
    source = random.Random(7)
    return ["[" + ",".join(f"{source.uniform(-1, 1):.6f}" for _ in range(WIDTH)) + "]"
            for _ in range(number)]


ROWS = make_rows()


def row(number, layer, position):
    """The row of session `number` at that place."""
    return ROWS[(number * 37 + position * 5 + layer * 11) % len(ROWS)]


def output_of(content):
    """The text of a step's numbers, as a digest."""
    begin = content.index(b'"output":')
    return hashlib.blake2b(content[begin:content.index(b"]", begin)], digest_size=8).digest()


class Tally:
    """What has happened since the last event began."""

    def __init__(self):
        self.requests, self.wrong, self.not_found, self.complaints = 0, 0, 0, []
        self.replies, self.times, self.replayed = collections.Counter(), [], 0
        self.slowest = (0, "")  # seconds of a step, and what its requests got and when

    def complain(self, text):
        """Counts something wrong."""
        self.wrong += 1
        if len(self.complaints) < 5:
            self.complaints.append(text)


class Load:
    """Sessions that step, each on a connection of its own, until they are told to stop."""

    def __init__(self, address, pause):
        self.address, self.pause, self.tally = address, pause, Tally()
        self.sessions, self.tasks, self.stopping = [], [], False
        self.going, self.waiting = asyncio.Event(), 0
        self.going.set()

    async def add(self, count):
        """Makes sessions and has them step."""
        fresh = [Session(self, len(self.sessions) + i) for i in range(count)]
        self.sessions += fresh
        await asyncio.gather(*(session.create() for session in fresh))
        self.tasks += [asyncio.create_task(session.run()) for session in fresh]

    async def halt(self):
        """Returns once every session waits, between two tokens."""
        self.going.clear()
        while self.waiting < len(self.tasks):
            await asyncio.sleep(0.01)

    def resume(self):
        """Lets the sessions go on; what happens from here on is counted anew."""
        self.tally = Tally()
        self.going.set()

    async def stop(self):
        """Ends the load."""
        self.stopping = True
        self.going.set()
        await asyncio.gather(*self.tasks)


class Session:
    """One session: it takes each token through the layers, and keeps what was answered."""

    def __init__(self, load, number):
        self.load, self.number, self.id = load, number, None
        self.connection = Connection(load.address)
        self.outputs, self.audited = [[] for _ in range(LAYERS)], [0] * LAYERS
        self.source, self.history = random.Random(number), []

    async def send(self, method, path, body=b"", **headers):
        """The reply to a request that may be repeated, sent until it is answered."""
        tally, begun, self.history = self.load.tally, time.monotonic(), []
        while time.monotonic() - begun < GIVE_UP_S:
            tally.requests += 1
            try:
                status, fields, content = await self.connection.request(method, path, body,
                                                                        **headers)
            except Broken as error:
                tally.replies["broken"] += 1
                self.history.append((round(time.monotonic() - begun, 3), str(error)))
                await asyncio.sleep(0.02)
                continue
            tally.replies[status] += 1
            self.history.append((round(time.monotonic() - begun, 3), status, content[:60]))
            if status not in RETRIED:
                return status, content
            await asyncio.sleep(min(float(fields.get("retry-after", 0.05)), 2))
        raise RuntimeError(f"session {self.id}: no answer for {GIVE_UP_S} s: {self.history}")

    async def create(self):
        """Makes the session on the shard that the proxy chooses."""
        status, content = await self.send("POST", "/sessions", b'{"model":"tiny"}',
                                          Idempotency_Key=f"s{self.number}")
        if status != 201:
            raise RuntimeError(f"a session was not made: {status} {content[:300]!r}")
        self.id = json.loads(content)["session_id"]

    async def run(self):
        """Steps until the load stops, or something is wrong."""
        await asyncio.sleep(self.source.uniform(0, self.load.pause))
        try:
            while not self.load.stopping:
                for layer in range(LAYERS):
                    await self.step(layer)
                await asyncio.sleep(self.source.uniform(0.5, 1.5) * self.load.pause)
                self.load.waiting += 1
                await self.load.going.wait()
                self.load.waiting -= 1
        except RuntimeError as error:
            self.load.tally.complain(str(error))
            self.load.waiting += 1
        self.connection.close()

    async def step(self, layer):
        """One row of one layer, and what is wrong with its reply."""
        tally, position, begun = self.load.tally, len(self.outputs[layer]), time.monotonic()
        body = (f'{{"session_id":"{self.id}","layer":{layer},"position":{position},'
                f'"hidden_states":{row(self.number, layer, position)}}}').encode()
        status, content = await self.send("POST", "/decode", body, X_Session_Id=self.id)
        tally, seconds = self.load.tally, time.monotonic() - begun
        tally.times.append(seconds)
        if seconds > tally.slowest[0]:
            tally.slowest = (seconds, f"{self.id}: {self.history}")
        if status == 200:
            where = f'"layer":{layer},"position":{position},"length":{position + 1},'
            if where.encode() not in content or self.id.encode() not in content:
                tally.complain(f"{self.id} expected {where}: {content[:200]!r}")
            tally.replayed += b'"replayed":true' in content
            self.outputs[layer].append(output_of(content))
            return
        tally.not_found += b"session_not_found" in content or b"session_lost" in content
        raise RuntimeError(f"{self.id} at {position} of layer {layer}: {status} {content[:300]!r}")
