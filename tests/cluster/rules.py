"""rules.py: what config/haproxy/haproxy.cfg does with each kind of request, before scripted shards."""
import asyncio
import json
import time

from cluster import Proxy
from load import Broken, Connection

HOLD_S, THINK_S = 4.0, 3.5  # HOLD_S stands in place of haproxy.lua's half minute
EDITS = (("timeout client 40s", "timeout client 3s"),)
STEP = b'{"session_id":"a.1","position":3,"hidden_states":[1]}'
FORK = ("POST", "/sessions/a.1/fork", b"{}")
BLIND = b'{"session_id":"a.1","hidden_states":[1]}'


class Fake:
    """A shard that keeps what it gets and replies as `does` says.

    does  a function of the number of the request, from 0: (status, code), None to end the
          connection without a reply, or a number of seconds to think before a 200
    """

    def __init__(self, name):
        self.name, self.address, self.server = name, None, None
        self.phase, self.does, self.got, self.writers = "ready", None, [], set()

    async def start(self):
        """Listens, on the port that it had before."""
        host, port = self.address.split(":") if self.address else ("127.0.0.1", 0)
        self.server = await asyncio.start_server(self._serve, host, int(port), limit=1 << 22)
        self.address = "{}:{}".format(*self.server.sockets[0].getsockname())

    def refuse(self):
        """Listens no more; what is under way goes on."""
        self.server.close()

    async def stop(self):
        """Listens no more, and ends its connections."""
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        await self.server.wait_closed()

    async def _serve(self, reader, writer):
        self.writers.add(writer)
        try:
            while await self._reply(reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        self.writers.discard(writer)
        writer.close()

    async def _reply(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split()
        fields = {line.split(":")[0].lower(): line.split(":", 1)[1].strip() for line in head[1:-2]}
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        status, code = 200, self.name
        if path == "/readyz":
            status, code = 200 if self.phase == "ready" else 503, self.phase
        else:
            self.got.append((method, path, len(body)))
            does = self.does(len(self.got) - 1) if self.does else (200, self.name)
            if does is None:
                return False
            if isinstance(does, float):
                await asyncio.sleep(does)
                does = (200, self.name)
            status, code = does
        content = json.dumps({"status": code}).encode()
        writer.write(f"HTTP/1.1 {status} S\r\nContent-Length: {len(content)}\r\n\r\n".encode()
                     + content)
        return True


class Rules:
    """The proxy, three such shards, and one rule after the other."""

    def __init__(self, directory):
        directory.mkdir()
        self.proxy, self.shards = Proxy(directory, EDITS), {name: Fake(name) for name in "abc"}
        script = directory / "haproxy.lua"
        text = script.read_text("utf-8")
        if "HOLD_MS = 30000 " not in text:
            raise RuntimeError("config/haproxy/haproxy.lua has no HOLD_MS of 30000")
        text = text.replace("HOLD_MS = 30000 ", f"HOLD_MS = {HOLD_S * 1e3:.0f} ")
        script.write_text(text, "utf-8")
        self.failed, self.checked = [], 0

    async def run(self, only=()):
        """All rules, or those of these numbers; prints what does not hold."""
        for shard in self.shards.values():
            await shard.start()
        self.proxy.write(self.shards.values())
        await self.proxy.start()
        try:
            await self._run(only)
        finally:
            self.proxy.close()

    async def _run(self, only):
        await self.states(a="UP", b="UP", c="UP")
        for name in sorted(dir(self)):
            if not name.startswith("rule_") or only and name.split("_")[1] not in only:
                continue
            for shard in self.shards.values():
                shard.does, shard.got = None, []
            try:
                await getattr(self, name)()
            except Broken as error:
                self.hold(f"{name}: {error!r}", False)
        for text in self.failed:
            print(f"    {text}")
        for shard in self.shards.values():
            await shard.stop()

    async def states(self, **wanted):
        """Waits until HAProxy sees the shards so."""
        for _ in range(500):
            states = self.proxy.states()
            if all(states[name].startswith(state) for name, state in wanted.items()):
                return
            await asyncio.sleep(0.02)
        raise RuntimeError(f"HAProxy sees {states}, not {wanted}")

    def hold(self, what, right):
        """One line that must hold."""
        self.checked += 1
        if not right:
            self.failed.append(what)

    async def ask(self, method, path, body=b"", timeout=30, **headers):
        """(status, who or what, headers) through the proxy."""
        connection = Connection(f"127.0.0.1:{self.proxy.port}", timeout)
        try:
            status, fields, content = await connection.request(method, path, body, **headers)
        finally:
            connection.close()
        content = json.loads(content) if content.startswith(b"{") else {}
        return status, content.get("status") or content.get("error", {}).get("code"), fields

    def got(self):
        """How many requests each shard has got."""
        return {name: len(shard.got) for name, shard in self.shards.items()}

    async def rule_1_the_owner_is_found_in_header_path_and_body(self):
        """The shard whose name begins the id."""
        for owner in "abc":
            for method, path, body, headers in (
                    ("POST", "/decode", b"{}", {"X-Session-Id": f"{owner}.1"}),
                    ("GET", f"/sessions/{owner}.1", b"", {}),
                    ("DELETE", f"/sessions/{owner}.1", b"", {}),
                    ("PUT", f"/sessions/{owner}.1/state", b"x" * 200000, {}),
                    ("POST", f"/sessions/{owner}.1/fork", b"{}", {}),
                    ("POST", "/decode", b'{"hidden_states":[1],"session_id":"%s.1"}', {}),
                    ("POST", "/sessions", b'{"session_id":"%s.1"}', {}),
                    ("POST", "/decode", b'{"layer":0,"sequences":[{"session_id":"%s.1"}]}', {}),
                    ("POST", "/v2/models/m/infer", b'{"parameters":{"sequence_id":"%s.1"}}', {})):
                body = body.replace(b"%s", owner.encode())
                _, who, _ = await self.ask(method, path, body, **headers)
                self.hold(f"{method} {path} {body[:60]} of {owner} went to {who}", who == owner)

    async def rule_2_new_sessions_are_spread_and_avoid_busy_shards_and_lame_ducks(self):
        """Of a lame duck nothing but new sessions is kept away."""
        self.shards["a"].does = lambda number: THINK_S
        busy = [asyncio.create_task(self.ask("POST", "/decode", BLIND)) for _ in range(9)]
        await asyncio.sleep(0.3)
        who = [(await self.ask("POST", "/sessions", b"{}"))[1] for _ in range(8)]
        self.hold(f"beside a busy shard 8 sessions went to {who}", set(who) == {"b", "c"})
        await asyncio.gather(*busy)
        self.shards["a"].does = None
        who = [(await self.ask("POST", "/sessions", b"{}"))[1] for _ in range(12)]
        self.hold(f"12 sessions went to {who}", all(who.count(name) >= 2 for name in "abc"))
        self.shards["b"].phase = "lame_duck"
        await self.states(b="NOLB")
        await asyncio.sleep(0.2)  # a choice may rest on a look that is a tenth of a second old
        who = {(await self.ask("POST", "/attend", b"{}"))[1] for _ in range(12)}
        self.hold(f"beside a lame duck requests went to {who}", who == {"a", "c"})
        _, name, _ = await self.ask("POST", "/decode", b"{}", X_Session_Id="b.1")
        self.hold(f"a step of a lame duck went to {name}", name == "b")
        self.shards["b"].phase = "ready"
        await self.states(b="UP")

    async def rule_3_an_id_without_a_shard_is_refused(self):
        """No shard is guessed: it would be another one once a shard is added."""
        for name in ("chat-1", "7", "z.1", "hold:1.x", "a\r\nX-Planted: 1.2", "-a.1", "a."):
            expected = (421, "wrong_instance") if name == "z.1" else (400, "invalid_value")
            for method, path, body, headers in (
                    ("POST", "/decode", b"{}", {"X-Session-Id": name}),
                    ("GET", f"/sessions/{name}", b"", {}),
                    ("POST", "/sessions", json.dumps({"session_id": name}).encode(), {})):
                if "\r" in name and method + path != "POST/sessions":
                    continue
                said = await self.ask(method, path, body, **headers)
                self.hold(f"{method} {path} of {name}: {said}",
                          said[:2] == expected and "x-planted" not in said[2])
        self.hold(f"shards were asked: {self.got()}", sum(self.got().values()) == 0)
        _, _, fields = await self.ask("GET", "/sessions/z.1")
        self.hold(f"the owner of z.1 is {fields}", fields.get("x-attn-owner") == "z")
        for method, path in (("OPTIONS", "/sessions"), ("DELETE", "/sessions")):
            said, _, _ = await self.ask(method, path)
            self.hold(f"{method} {path}: {said}", said == 200)  # whatever a shard says to it

    async def rule_4_a_lost_reply_is_asked_for_again_only_where_that_is_safe(self):
        """By position, and by Idempotency-Key; nothing else is sent twice."""
        shard = self.shards["a"]
        safe = ((("POST", "/decode", STEP), {}), (("GET", "/sessions/a.1"), {}),
                (FORK, {"Idempotency-Key": "k"}))
        unsafe = (("POST", "/decode", BLIND), ("DELETE", "/sessions/a.1"),
                  ("POST", "/decode", STEP[:-1] + b',"start":true}'),
                  ("POST", "/decode", STEP.replace(b"3", b"null")),
                  ("POST", "/decode", b'{"sequences":[' + STEP + b"," + BLIND + b"]}"),
                  FORK,
                  ("POST", "/sessions/a.1/truncate", b'{"length":1}'),
                  ("PUT", "/sessions/a.1/state", b'{"position":3}'),
                  ("POST", "/sessions/a.1/truncate", STEP),
                  ("POST", "/decode", STEP[:-1] + b',"\\u0073tart":true}'),
                  ("POST", "/sessions", b'{"session_id":"a.1"}'))
        for refusal, status in ((None, 502), ((503, "draining"), 503)):
            for request, headers in safe:
                shard.got, shard.does = [], lambda number: refusal if number == 0 else (200, "a")
                said, _, _ = await self.ask(*request, **headers)
                self.hold(f"{request}: {said}, sent {shard.got}",
                          said == 200 and len(shard.got) == 2)
            for request in unsafe:
                shard.got, shard.does = [], lambda number: refusal
                keyed = {} if request[1] in ("/sessions", FORK[1]) else {"Idempotency-Key": "k"}
                said, _, _ = await self.ask(*request, **keyed)
                self.hold(f"{request}: {said}, sent {shard.got}",
                          said == status and len(shard.got) == 1)
        shard.got, shard.does = [], lambda number: (503, "pool_full")
        said, code, _ = await self.ask("POST", "/decode", STEP)
        self.hold(f"a full pool: {said} {code} of {shard.got}",
                  (said, code) == (503, "pool_full") and len(shard.got) == 2)
        for shard in self.shards.values():
            shard.got, shard.does = [], lambda number: None
        said, _, _ = await self.ask("POST", "/sessions", b"{}", Idempotency_Key="k")
        self.hold(f"a session without an id: {said}, sent {self.got()}",
                  said == 502 and sum(self.got().values()) == 1)

    async def rule_5_requests_wait_for_a_shard_that_is_away(self):
        """Of any method and size, and nobody else waits."""
        await self.shards["a"].stop()
        asked = [asyncio.create_task(self.ask("POST", "/decode", BLIND)),
                 asyncio.create_task(self.ask("PUT", "/sessions/a.1/state", b"x" * 3000000))]
        await asyncio.sleep(1.2)  # beyond HAProxy's own pause before it asks the same shard again
        begun = time.monotonic()
        for _ in range(20):
            _, who, _ = await self.ask("POST", "/decode", b"{}", X_Session_Id="b.1")
            self.hold(f"beside it b's step went to {who}", who == "b")
            _, who, _ = await self.ask("POST", "/attend", b"{}")
            self.hold(f"beside it an /attend went to {who}", who in ("b", "c"))
        self.hold("others had to wait too", time.monotonic() - begun < 1)
        self.shards["a"].got = []
        await self.shards["a"].start()
        said = [(await one)[:2] for one in asked]
        self.hold(f"those that waited: {said}", said == [(200, "a")] * 2)
        sizes = sorted(size for _, _, size in self.shards["a"].got)
        self.hold(f"bodies of those that waited: {sizes}", sizes == [len(BLIND), 3000000])

    async def rule_6_not_forever_and_not_for_a_client_that_has_left(self):
        """503 after HOLD_S; what nobody waits for is not sent."""
        await self.shards["a"].stop()
        await self.states(a="DOWN")
        begun = time.monotonic()
        said, code, fields = await self.ask("POST", "/decode", STEP)
        waited = time.monotonic() - begun
        self.hold(f"{said} {code} after {waited:.1f} s", (said, code) == (503, "shard_away")
                  and HOLD_S <= waited < 2 * HOLD_S and fields.get("retry-after") == "1")
        self.shards["a"].got = []
        for body in (BLIND, STEP):
            try:
                await self.ask("POST", "/decode", body, timeout=0.3)
                self.hold("a shard that is away has answered", False)
            except Broken:
                pass
        await self.shards["a"].start()
        await self.states(a="UP")
        await asyncio.sleep(0.3)
        self.hold(f"sent for clients that had left: {self.shards['a'].got}",
                  not self.shards["a"].got)

    async def rule_7_a_computation_may_take_longer_than_a_silent_client(self):
        """`timeout client` does not run while the shard computes."""
        self.shards["a"].does = lambda number: THINK_S
        said, _, _ = await self.ask("POST", "/decode", BLIND)
        self.hold(f"after {THINK_S} s: {said}", said == 200)

    async def rule_8_what_is_of_one_shard_is_not_of_the_cluster(self):
        """Probes are the proxy's own; administration and metrics are asked of the shard."""
        for method, path, status in (("GET", "/livez", 200), ("GET", "/readyz", 200),
                                     ("GET", "/metrics", 404), ("GET", "/snapshot", 404),
                                     ("POST", "/snapshot", 404), ("GET", "/sessions", 404),
                                     ("POST", "/admin/drain", 404)):
            said, _, _ = await self.ask(method, path)
            self.hold(f"{method} {path}: {said}, not {status}", said == status)
        self.hold(f"shards were asked: {self.got()}", sum(self.got().values()) == 0)

    async def rule_9_a_step_whose_session_is_not_found_goes_nowhere(self):
        """A shard that is not the session's own would begin it there."""
        body = json.dumps({"hidden_states": [0.25] * 20000, "session_id": "b.1", "start": True})
        for body in (body.encode(), b"\x1f\x8b\x08", b'{"session\\u005fid":"b.1","start":true}'):
            said = await self.ask("POST", "/decode", body)
            self.hold(f"a step without an id: {said}", said[:2] == (400, "missing_field"))
        self.hold(f"shards were asked: {self.got()}", sum(self.got().values()) == 0)

    async def rule_10_a_reload_keeps_no_request_waiting(self):
        """The process that is replaced does not learn that a shard is back."""
        await self.shards["a"].stop()
        await self.states(a="DOWN")
        asked = asyncio.create_task(self.ask("POST", "/decode", STEP))
        await asyncio.sleep(0.2)
        await self.proxy.reload(self.shards.values())
        begun = time.monotonic()
        said, code, _ = await asked
        waited = time.monotonic() - begun
        self.hold(f"{said} {code} after {waited:.1f} s",
                  (said, code) == (503, "shard_away") and waited < HOLD_S / 2)
        await self.shards["a"].start()
        await self.states(a="UP")

    async def rule_11_what_a_draining_shard_still_computes_is_answered(self):
        """It is down for the checks, and ends when its requests have."""
        self.shards["a"].does = lambda number: THINK_S
        asked = asyncio.create_task(self.ask("POST", "/decode", BLIND))
        await asyncio.sleep(0.2)
        self.shards["a"].refuse()
        await self.states(a="DOWN")
        said = (await asked)[:2]
        self.hold(f"of a shard that drains: {said}", said == (200, "a"))
        await self.shards["a"].start()
        await self.states(a="UP")
