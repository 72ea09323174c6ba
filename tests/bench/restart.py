#!/usr/bin/env python3
"""restart.py: how soon a daemon with many sessions serves again; make bench-restart.

Makes SESSIONS sessions of GIB of caches in all, one of them of 32,768 tokens, with `durability`
`journal`.  Then after SIGTERM, after SIGKILL, and after SIGKILL with no file in the page cache: the
time from exec to ready, the first step of the long session (it waits until that is read) beside
steps of a small one, which give the p99 while the others are being read, and the same p99 when all
are in memory.  Before the last one, what bounds the first touch: a plain read of as many bytes of
the file of blocks as the long session takes, of which the page cache has nothing either, and the
first write to as many bytes of new memory.

usage: restart.py ATTND [SESSIONS [GIB]]      in TMPDIR or /tmp; QUICK=1: 500 sessions, 1/16 GiB
DIR=path: the sessions are kept there, and taken from there where an earlier run has made them
"""
import json
import mmap
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "clients", "python"))
from attn_client import Client  # noqa: E402

QUICK = os.environ.get("QUICK", "") not in ("", "0")
HIDDEN, KV_HEADS, LONG = 512, 4, 32768
PIECE = 1 << 20
ROW_BYTES = KV_HEADS * 64 * 2 * 4
STEPS = 300


class Daemon:
    def __init__(self, attnd, directory, log):
        self.start = time.monotonic()
        self.process = subprocess.Popen([attnd, "--config", directory + "/config.json"],
                                        stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()  # printed when it is ready
        self.ready_s = time.monotonic() - self.start
        self.client = Client(re.search(r"http://[^ ]*[0-9]", line).group(), timeout=300)

    def restoring(self):
        text = self.client.request("GET", "/metrics")[1].decode()
        return next(int(line.split()[1]) for line in text.splitlines()
                    if line.startswith("attnd_sessions_restoring "))

    def snapshot(self):
        """Waits for a snapshot that has all that is there now."""
        asked = json.loads(self.client.request("POST", "/snapshot")[1])
        while json.loads(self.client.request("GET", "/snapshot")[1])["base"] <= asked["generation"]:
            time.sleep(0.05)

    def end(self, how):
        self.client.close()
        self.process.send_signal(how)
        self.process.wait()
        self.process.stdout.close()


def rows(count, seed):
    return [[((seed * 7 + i * 31 + j * 17) % 97) / 97 - 0.5 for j in range(HIDDEN)]
            for i in range(count)]


def fill(daemon, sessions, tokens):
    with daemon.client.session("first") as first:
        for _ in range(0, tokens, 64):
            first.prefill(rows(64, 1))
        state = first.export()
        for i in range(sessions - 2):
            daemon.client.restore(f"s{i}", state)
    long = daemon.client.session("long")
    piece = rows(1024, 2)
    for _ in range(0, LONG, len(piece)):
        long.prefill(piece)
    small = daemon.client.session("small")
    small.prefill(rows(1, 3))
    daemon.snapshot()


def step_times(daemon, name, count, stop=None):
    session, times, one = daemon.client.open(name), [], rows(1, 4)[0]
    while len(times) < count and not (stop is not None and stop.is_set()):
        begin = time.monotonic()
        session.decode(one, commit=False)
        times.append(time.monotonic() - begin)
    return times


def p99(times):
    return statistics.quantiles(times, n=100)[98] * 1000 if len(times) > 2 else float("nan")


def measure(daemon, how):
    others, stop = [], threading.Event()
    step_times(daemon, "small", 1)  # in memory from here on
    watcher = threading.Thread(target=lambda: others.extend(
        step_times(daemon, "small", 1000000, stop)))
    begin = time.monotonic()
    watcher.start()
    step_times(daemon, "long", 1)
    touch = time.monotonic() - begin
    while daemon.restoring() > 0:
        time.sleep(0.05)
    read = time.monotonic() - begin
    stop.set()
    watcher.join()
    after = step_times(daemon, "small", STEPS)
    print(f"{how}: ready after {daemon.ready_s * 1000:.0f} ms; first step of {LONG} tokens "
          f"{touch * 1000:.0f} ms ({LONG * ROW_BYTES / touch / 1e6:.0f} MB/s); all read after "
          f"{read:.2f} s; p99 of others {p99(others):.2f} ms meanwhile ({len(others)} steps), "
          f"{p99(after):.2f} ms afterwards", flush=True)


def forget(state):
    """Takes the files of the state directory out of the page cache; returns the largest."""
    paths = [entry.path for entry in os.scandir(state)]
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    return max(paths, key=os.path.getsize)


def print_disk(path, size):
    begin, count = time.monotonic(), 0
    with open(path, "rb", buffering=0) as file:
        while count < size and (piece := file.read(PIECE)):
            count += len(piece)
    spent = time.monotonic() - begin
    print(f"the disk: a plain read of {count / 2**20:.0f} MiB, cold: {spent * 1000:.0f} ms "
          f"({count / spent / 1e6:.0f} MB/s)", flush=True)


def print_memory(size):
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_HUGEPAGE)
    begin = time.monotonic()
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    spent = time.monotonic() - begin
    print(f"memory: the first write to {size / 2**20:.0f} MiB: {spent * 1000:.0f} ms "
          f"({size / spent / 1e6:.0f} MB/s)", flush=True)


def main():
    attnd = os.path.abspath(sys.argv[1])
    sessions = int(sys.argv[2]) if len(sys.argv) > 2 else 500 if QUICK else 10000
    gib = float(sys.argv[3]) if len(sys.argv) > 3 else 1 / 16 if QUICK else 1
    tokens = max(64, int(gib * 2**30 / sessions / ROW_BYTES) // 64 * 64)
    kept = os.environ.get("DIR")
    directory = kept or tempfile.mkdtemp(prefix="attnd-restart-")
    made = os.path.exists(directory + "/made")
    os.makedirs(directory, exist_ok=True)
    config = {
        "port": 0, "durability": "journal", "state_dir": directory + "/state", "lame_duck_s": 0,
        "max_sessions": sessions + 8, "cache_bytes": int((gib + 1) * 2**30), "log": "info",
        "max_session_length": LONG + 64, "session_ttl_s": 86400, "instance": "bench",
        "models": [{"name": "m", "random": {"hidden_size": HIDDEN, "num_attention_heads": 8,
                                            "num_key_value_heads": KV_HEADS, "seed": 1}}]}
    with open(directory + "/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    try:
        with open(directory + "/log", "w", encoding="utf-8") as log:
            daemon = Daemon(attnd, directory, log)
            print(f"{sessions} sessions of {tokens} tokens, one of {LONG}", flush=True)
            if not made:
                fill(daemon, sessions, tokens)
                open(directory + "/made", "w", encoding="utf-8").close()
            for how in ("SIGTERM", "SIGKILL", "SIGKILL, cold"):
                daemon.end(getattr(signal, how.split(",")[0]))
                if how.endswith("cold"):
                    print_disk(forget(directory + "/state"), LONG * ROW_BYTES)
                    print_memory(LONG * ROW_BYTES)
                    forget(directory + "/state")
                daemon = Daemon(attnd, directory, log)
                measure(daemon, how)
            daemon.end(signal.SIGKILL)
    finally:
        if kept is None:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
