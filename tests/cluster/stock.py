"""stock.py: sessions of clients/python as it is shipped, with its own timeouts and retries."""
import concurrent.futures
import sys
import threading
import time

from cluster import TOP, WIDTH

sys.path.insert(0, str(TOP / "clients" / "python"))
# pylint: disable-next=wrong-import-position
import attn_client  # noqa: E402

PAUSE_S = 0.05  # between two steps of a session


class Stock:
    """Sessions on one shard, each in a thread of its own, that step until `stop`."""

    def __init__(self, address, shard, count):
        self.address, self.shard, self.count = address, shard, count
        self.stopping, self.started = threading.Event(), threading.Semaphore(0)
        self.pool = concurrent.futures.ThreadPoolExecutor(count)
        self.running = [self.pool.submit(self._run, number) for number in range(count)]

    def begun(self):
        """Returns once each session has made a step, or failed."""
        for _ in range(self.count):
            self.started.acquire()  # pylint: disable=consider-using-with

    def stop(self):
        """(what each failed session met, the longest step in seconds, all steps)."""
        self.stopping.set()
        self.pool.shutdown()
        failed = [repr(one.exception()) for one in self.running if one.exception()]
        done = [one.result() for one in self.running if not one.exception()]
        return failed, max((longest for longest, _ in done), default=0), sum(n for _, n in done)

    def _run(self, number):
        """(longest step, steps) of one session; raises what its client raises."""
        longest, steps = 0, 0
        try:
            with attn_client.Client(f"http://{self.address}") as client, \
                    client.session(f"{self.shard}.stock-{number}", model="tiny") as session:
                while not self.stopping.wait(PAUSE_S) or steps == 0:
                    begun = time.monotonic()
                    session.decode([[0.25] * WIDTH])
                    longest, steps = max(longest, time.monotonic() - begun), steps + 1
                    if steps == 1:
                        self.started.release()
                session.refresh()
                if session.lengths[0] != steps:
                    raise RuntimeError(f"{session.lengths[0]} rows of {steps} steps")
        finally:
            if steps == 0:
                self.started.release()
        return longest, steps
