"""audit.py: what sessions were answered, compared with one attnd that saw the same steps."""
import asyncio
import json

from cluster import LAYERS
from load import Connection, output_of, row

AT_ONCE = 250  # items of a list


class Audit:
    """A single daemon, and how far it has followed the sessions."""

    def __init__(self, address):
        self.connection, self.done = Connection(address, 60), [0] * LAYERS
        self.known = set()

    async def replies(self, sessions):
        """Replies that differ from the single daemon's, of what came since the last call."""
        wrong = 0
        self.connection.close()  # it may have been idle for too long
        for session in sessions:
            if session.number not in self.known:
                self.known.add(session.number)
                await self._ask("/sessions", {"session_id": f"s{session.number}",
                                              "model": "tiny"}, 201)
        for layer in range(LAYERS):
            while any(len(session.outputs[layer]) > session.audited[layer]
                      for session in sessions):
                behind = [session for session in sessions
                          if len(session.outputs[layer]) > session.audited[layer]][:AT_ONCE]
                wrong += await self._step(layer, behind)
        return wrong

    async def _step(self, layer, sessions):
        """One step of each session, compared."""
        items = ",".join(
            f'{{"session_id":"s{session.number}","position":{session.audited[layer]},'
            f'"hidden_states":{row(session.number, layer, session.audited[layer])}}}'
            for session in sessions)
        content = await self._ask("/decode", f'{{"layer":{layer},"sequences":[{items}]}}', 200)
        wrong = 0
        for session, item in zip(sessions, content.split(b'{"session_id":')[1:]):
            at = session.audited[layer]
            wrong += output_of(item) != session.outputs[layer][at]
            session.audited[layer] += 1
        return wrong

    async def _ask(self, path, body, expected):
        body = body if isinstance(body, str) else json.dumps(body)
        status, _, content = await self.connection.request("POST", path, body.encode())
        if status != expected:
            raise RuntimeError(f"the single daemon: {status} {content[:300]!r}")
        return content


async def rows(sessions, address):
    """(rows lost, rows doubled): lengths of the sessions against what was acknowledged."""
    connection, lost, doubled = Connection(address, 60), 0, 0
    for session in sessions:
        status, _, content = await connection.request("GET", f"/sessions/{session.id}")
        lengths = json.loads(content)["lengths"] if status == 200 else []
        lengths = {entry["layer"]: entry["length"] for entry in lengths}
        for layer in range(LAYERS):
            more = lengths.get(layer, 0) - len(session.outputs[layer])
            lost, doubled = lost - min(more, 0), doubled + max(more, 0)
    connection.close()
    return lost, doubled


async def places(shards):
    """How many sessions each shard has, and the ids that stand on more than one."""
    counts, seen, twice = {}, set(), set()
    for shard in shards:
        connection, after, counts[shard.name] = Connection(shard.address, 60), "", 0
        while after is not None:
            path = "/sessions?limit=100" + (f"&after={after}" if after else "")
            _, _, content = await connection.request("GET", path)
            page = json.loads(content)
            ids = {session["session_id"] for session in page["sessions"]}
            twice |= ids & seen
            seen |= ids
            counts[shard.name] += len(ids)
            after = page["next"]
        connection.close()
    await asyncio.sleep(0)
    return counts, twice, seen
