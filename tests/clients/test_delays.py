"""test_delays.py: stock clients through a relay that holds, doubles, reorders and drops requests.

Each operation on a session is done on a twin too, which is reached directly.  Every output must be
the twin's, bit for bit, and at the end so must every length: no row is lost or doubled, whatever
arrives late.  The counts are printed.  The whole form does 20,000 operations, QUICK 1,500.
"""
import collections
import contextlib
import os
import random
import re
import sys
import threading
import unittest

from daemon import Relay, ask
from test_client import ROWS, Case, lists
from attn_client import AttnError, Conflict, NotFound

OPERATIONS = 1500 if os.environ.get("QUICK") else 20000
WORKERS, SESSIONS, LAYERS = 8, 5, 2
LONGEST = 60  # tokens of a session
DELAYS = (2, 9, 40, 300)  # requests of anyone after which something held arrives
VERDICTS = {"pass": 60, "lose": 8, "twice": 6, "refuse": 6, "late": 10, "hold": 10}


class Delayer(Relay):
    """A Relay with two more verdicts.

    "late"  forwards, sends the reply, and forwards the same request once more some requests later
    "hold"  closes, and forwards the request some requests later, when it has been sent again

    A request that was held arrives before the one that is due, or at the same time.
    arrived  what was answered late, by method and status
    made     ids under which a late request may have made a session
    """

    def __init__(self, target, chance):
        names, weights = zip(*VERDICTS.items())
        super().__init__(target, lambda number, head: self.chance.choices(names, weights)[0])
        self.chance, self.held, self.threads = chance, [], []
        self.arrived, self.made = collections.Counter(), collections.Counter()
        self.counts = dict.fromkeys(VERDICTS, 0)

    def _answer(self, client, head, body, verdict):
        self.deliver(self.requests)
        if verdict not in ("late", "hold"):
            return super()._answer(client, head, body, verdict)
        with self.lock:
            due = self.requests + self.chance.choice(DELAYS)
            if verdict == "hold":
                self.held.append((due, head + body))
        if verdict == "hold":
            return False
        going_on = super()._answer(client, head, body, "pass")
        with self.lock:
            self.held.append((due, head + body))
        return going_on

    def deliver(self, until):
        """Forwards what is due, half of it beside what follows."""
        with self.lock:
            due = [request for number, request in self.held if number <= until]
            self.held = [item for item in self.held if item[0] > until]
            self.chance.shuffle(due)
            beside = [self.chance.random() < 0.5 for _ in due]
        for request, aside in zip(due, beside):
            if aside:
                thread = threading.Thread(target=self._late, args=(request,))
                thread.start()
                with self.lock:
                    self.threads.append(thread)
            else:
                self._late(request)

    def _late(self, request):
        line = request.split(b"\r\n", 1)[0]
        if re.match(rb"POST /sessions(/batch|/\w+/fork)? ", line):
            with self.lock:
                self.made.update(re.findall(rb'"session_id": "(\w+)"', request))
        head, _ = self._forward(request)
        with self.lock:
            self.arrived[f"{line.split()[0].decode()} {head.split()[1].decode()}"] += 1

    def flush(self):
        """Forwards all that is held."""
        self.deliver(1 << 60)
        for thread in self.threads:
            thread.join()


class Worker:
    """A caller with sessions of its own, under ids of its own choosing."""

    def __init__(self, case, number):
        self.case, self.number = case, number
        self.chance = random.Random(number)
        self.pairs = []  # of a session and its twin
        self.free = [f"w{number}_{place}" for place in range(SESSIONS)]
        self.counts, self.failure = collections.Counter(), None

    def run(self, operations):
        """Does its share; keeps what failed."""
        try:
            for _ in range(operations):
                kinds = ["make"] if not self.pairs else \
                    ["step"] * 12 + ["many"] * 4 + ["truncate"] * 4 + ["fork"] * 2 + ["end"] * 3 + \
                    ["make"] * 2 + ["batch"] * 2
                kind = self.chance.choice(kinds)
                if kind in ("make", "fork") and not self.free:
                    kind = "end"
                getattr(self, kind)()
                self.counts[kind] += 1
        except BaseException as error:  # pylint: disable=broad-except
            self.failure = error

    def fresh(self, call, session_id):
        """The new session of `call`; one of its id that a late request has made again is ended."""
        while True:
            try:
                return call()
            except Conflict as error:
                self.case.assertEqual(error.code, "session_exists")
                self.case.assertGreater(self.case.relay.made[session_id.encode()], 0)
                self.counts["explained"] += 1
                with contextlib.suppress(NotFound):  # another late request has ended that again
                    self.case.direct.open(session_id).end()

    def make(self):
        """A session and its twin."""
        session_id = self.free.pop()
        session = self.fresh(lambda: self.case.client_.session(session_id), session_id)
        self.pairs.append((session, self.case.direct.session()))

    def pair(self):
        """Any of its sessions."""
        return self.chance.choice(self.pairs)

    def rows(self, count):
        """Some rows, as a step has them."""
        begin = self.chance.randrange(len(ROWS) - 8)
        return ROWS[begin:begin + count] if count > 1 else ROWS[begin]

    def same(self, reply, expected):
        """A step of both, whose outputs are equal to the last bit."""
        self.case.assertNotIsInstance(reply, AttnError)
        self.case.assertEqual(lists(reply["output"]), lists(expected["output"]))
        self.case.assertEqual(reply["length"], expected["length"])
        self.counts["replayed"] += reply.get("replayed", False)

    def step(self):
        """A step of one session; a full one is rolled back."""
        session, twin = self.pair()
        layer, count = self.chance.randrange(LAYERS), self.chance.choice((1, 1, 1, 2, 8))
        if session.lengths[layer] + count > LONGEST:
            return self.truncate()
        rows, path = self.rows(count), "prefill" if count == 8 else "decode"
        self.same(getattr(session, path)(rows, layer), getattr(twin, path)(rows, layer))
        return None

    def many(self):
        """A step of all its sessions."""
        layer, row = self.chance.randrange(LAYERS), self.rows(1)
        pairs = [pair for pair in self.pairs if pair[0].lengths[layer] < LONGEST]
        if not pairs:
            self.truncate()
            return
        replies = self.case.client_.step_many([(session, row) for session, _ in pairs], layer)
        expected = self.case.direct.step_many([(twin, row) for _, twin in pairs], layer)
        for reply, other in zip(replies, expected):
            self.same(reply, other)

    def truncate(self):
        """A roll back of one session, often by a token or none."""
        session, twin = self.pair()
        longest = max(session.lengths.values())
        length = max(0, longest - self.chance.choice((0, 1, 1, 2, 5, longest)))
        session.truncate(length)
        twin.truncate(length)
        self.case.assertEqual(session.lengths, twin.lengths)

    def fork(self):
        """A fork of one session under an id of its own."""
        session, twin = self.pair()
        session_id, length = self.free.pop(), self.chance.choice((None, 0, 1))
        if length is not None:
            length = min(length, max(session.lengths.values()))
        made = self.fresh(lambda: session.fork(session_id, length), session_id)
        self.pairs.append((made, twin.fork(length=length)))
        self.case.assertEqual(made.lengths, self.pairs[-1][1].lengths)

    def end(self):
        """The end of one session, whose id is soon used again."""
        pair = self.pair()
        self.pairs.remove(pair)
        for session in pair:
            session.end()
        self.free.append(pair[0].session_id)

    def batch(self):
        """A fork under an id of its own, and the end of another session, in one request."""
        source, other = self.pair(), self.pair()
        if not self.case.has_batch or not self.free or source is other:
            self.step()
            return
        session_id = self.free.pop()
        (made,), ends = self.case.client_.batch([(source[0], {"session_id": session_id})],
                                                [other[0]])
        self.case.assertEqual(ends, [None])
        if isinstance(made, AttnError):
            self.case.assertEqual(made.code, "session_exists")
            made = self.fresh(lambda: source[0].fork(session_id), session_id)
        self.pairs.remove(other)
        other[1].end()
        self.pairs.append((made, source[1].fork()))
        self.case.assertEqual(made.lengths, self.pairs[-1][1].lengths)
        self.free.append(other[0].session_id)

    def finish(self):
        """Compares all its sessions with their twins, once nothing is on its way any more."""
        for session, twin in self.pairs:
            told = session.refresh()
            self.case.assertEqual(told["lengths"], twin.refresh()["lengths"])
            for layer in range(LAYERS):
                self.same(session.decode(ROWS[0], layer), twin.decode(ROWS[0], layer))
            session.end()
            twin.end()


class Delays(Case):
    """One daemon, and eight callers who share one client."""
    options = {"max_session_length": 4 * LONGEST, "durability": "none"}

    def test_nothing_is_lost_or_doubled_whatever_arrives_late(self):
        self.relay = Delayer(lambda: self.daemon.url, random.Random(7))
        self.addCleanup(self.relay.close)
        self.client_, self.direct = self.client(self.relay.url), self.client()
        self.client_.wait_until_ready()
        status, _ = ask(self.daemon.url + "/sessions/batch", {})
        self.has_batch = status not in (404, 405)
        workers = [Worker(self, number) for number in range(WORKERS)]
        threads = [threading.Thread(target=worker.run, args=(OPERATIONS // WORKERS,))
                   for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for worker in workers:
            if worker.failure is not None:
                raise worker.failure
        self.relay.flush()
        compared = sum(len(worker.pairs) for worker in workers)
        self.client_.close()
        self.relay.verdict = lambda number, head: "pass"
        for worker in workers:
            worker.finish()
        total = sum((worker.counts for worker in workers), collections.Counter())
        explained, replayed = total.pop("explained", 0), total.pop("replayed", 0)
        print(f"delays: {total.total()} operations ({self.listed(total)}), relay: "
              f"{self.listed(self.relay.counts)}; arrived late: {self.listed(self.relay.arrived)}; "
              f"{replayed} steps answered again, {explained} sessions made again by a late request "
              f"of their own, {compared} sessions as their twins at the end, 0 rows lost or "
              "doubled, 0 conflicts unexplained", file=sys.__stderr__, flush=True)
        self.assertGreaterEqual(total.total(), OPERATIONS // WORKERS * WORKERS)
        for verdict in VERDICTS:
            self.assertGreater(self.relay.counts[verdict], OPERATIONS // 50)
        self.assertGreater(replayed, OPERATIONS // 100)
        self.assertGreater(self.relay.arrived["POST 409"], OPERATIONS // 100)

    @staticmethod
    def listed(counts):
        """Counts in a line."""
        return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    unittest.main()
