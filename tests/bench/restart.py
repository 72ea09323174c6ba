#!/usr/bin/env python3
"""restart.py: what a store does for a daemon with many sessions; make bench-restart.

Makes SESSIONS sessions of GIB of caches in all, one of them of 32,768 tokens, or as many layers
times fewer, with `durability` `journal`.  A session has LAYERS layers, whose keys and values have
WIDTH numbers each.  Printed are

- after SIGTERM, after SIGKILL, and after SIGKILL with no file in the page cache: the time from exec
  to ready and the memory then; the first step of the long session, which waits until that is read;
  beside it the p99 of steps of a small session, while the others are being read and afterwards;
- first touch: by turns, the first step of the long session after a cold start, beside as many bytes
  of the file of blocks in random reads past the page cache, of the size and at the depth of the
  store's (fio, which Debian has); and the first write to as much new memory;
- flushes: by turns, the p99 of steps of the small session alone, and while a snapshot writes a
  block of each layer of up to 10,000 sessions;
- rows: bytes that the daemon writes, by /proc, for a byte of the rows that 64 sessions append while
  `journal_bytes` has room for 64 of each layer, and the disk that they take.

usage: restart.py ATTND [SESSIONS [GIB [LAYERS [WIDTH]]]]      in TMPDIR or /tmp
QUICK=1: 500 sessions, 1/16 GiB.  TURNS=9.  DIR=path: the sessions are kept there, and taken from
there where an earlier run has made them.  ONLY=starts,touch,flushes,rows: of these parts
"""
import functools
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
HIDDEN, BLOCK = 512, 64
STEPS = 300
RUN = 256 << 10  # bytes that one read of the store has at least
ARGUMENTS = sys.argv[2:] + [""] * 4
SESSIONS = int(ARGUMENTS[0] or (500 if QUICK else 10000))
GIB = float(ARGUMENTS[1] or (1 / 16 if QUICK else 1))
LAYERS, WIDTH = int(ARGUMENTS[2] or 1), int(ARGUMENTS[3] or 256)
LONG = 32768 // LAYERS
TURNS = int(os.environ.get("TURNS", "1" if QUICK else "9"))
LAYER_BYTES = WIDTH * 2 * 4  # of a row
ROW_BYTES = LAYERS * LAYER_BYTES
FLUSHED = min(10000, SESSIONS - 2)


class Daemon:
    def __init__(self, attnd, config, log):
        self.start = time.monotonic()
        self.process = subprocess.Popen([attnd, "--config", config],
                                        stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()  # printed when it is ready
        self.ready_s = time.monotonic() - self.start
        self.memory = self.figure("status", "VmRSS") * 1024
        self.client = Client(re.search(r"http://[^ ]*[0-9]", line).group(), timeout=300)

    def figure(self, file, name):
        """Of the process."""
        with open(f"/proc/{self.process.pid}/{file}", encoding="utf-8") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

    def metric(self, name):
        text = self.client.request("GET", "/metrics")[1].decode()
        return next(int(line.split()[1]) for line in text.splitlines()
                    if line.startswith(name + " "))

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


@functools.lru_cache(maxsize=4)
def rows(count, seed):
    return [[((seed * 7 + i * 31 + j * 17) % 97) / 97 - 0.5 for j in range(HIDDEN)]
            for i in range(count)]


def prefill(session, count, seed):
    for layer in range(LAYERS):
        session.prefill(rows(count, seed), layer)


def fill(daemon, tokens):
    with daemon.client.session("first") as first:
        for _ in range(0, tokens, BLOCK):
            prefill(first, BLOCK, 1)
        state = first.export()
        for i in range(SESSIONS - 2):
            daemon.client.restore(f"s{i}", state)
    long = daemon.client.session("long")
    for _ in range(0, LONG, 1024):
        prefill(long, 1024, 2)
    prefill(daemon.client.session("small"), 1, 3)
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
    while daemon.metric("attnd_sessions_restoring") > 0:
        time.sleep(0.5)  # a scrape looks at the whole heap
    read = time.monotonic() - begin
    stop.set()
    watcher.join()
    after = step_times(daemon, "small", STEPS)
    print(f"{how}: ready after {daemon.ready_s * 1000:.0f} ms with "
          f"{daemon.memory / 2**20:.0f} MiB; first step of {LONG} tokens "
          f"{touch * 1000:.0f} ms ({LONG * ROW_BYTES / touch / 1e6:.0f} MB/s); all read after "
          f"{read:.2f} s; p99 of others {p99(others):.2f} ms meanwhile ({len(others)} steps), "
          f"{p99(after):.2f} ms afterwards", flush=True)


def forget(state):
    """Takes the state directory out of the page cache; returns its largest file of blocks."""
    paths = [entry.path for entry in os.scandir(state)]
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    return max((path for path in paths if path.endswith(".blocks")), key=os.path.getsize)


def random_reads(path, size):
    """Bytes a second of reads as the store makes them."""
    piece = BLOCK * LAYER_BYTES * (RUN // (BLOCK * LAYER_BYTES) + 1)
    out = subprocess.run(
        ["fio", "--name=reads", "--filename=" + path, "--rw=randread", "--direct=1", "--readonly",
         f"--bs={piece}", f"--io_size={size}", "--ioengine=psync", "--output-format=json"],
        check=True, capture_output=True).stdout
    return json.loads(out)["jobs"][0]["read"]["bw_bytes"]


def new_memory(size):
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_HUGEPAGE)
    begin = time.monotonic()
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return size / (time.monotonic() - begin)


def print_touches(start, state):
    size, own, bare, memory = LONG * ROW_BYTES, [], [], []
    for _ in range(TURNS):
        path = forget(state)
        memory.append(new_memory(size))
        bare.append(random_reads(path, size))
        forget(state)
        daemon = start()
        begin = time.monotonic()
        step_times(daemon, "long", 1)
        own.append(size / (time.monotonic() - begin))
        daemon.end(signal.SIGKILL)
    ratio = statistics.median(a / b for a, b in zip(own, bare))
    print(f"first touch of {size / 2**20:.0f} MiB: {statistics.median(own) / 1e6:.0f} MB/s; random "
          f"reads {statistics.median(bare) / 1e6:.0f}; first write to new memory "
          f"{statistics.median(memory) / 1e6:.0f}; touch to reads {ratio:.2f} ({len(own)} turns)",
          flush=True)


def print_flushes(daemon):
    sessions = [daemon.client.open(f"s{i}") for i in range(FLUSHED)]
    one, alone, beside, spent = rows(1, 5)[0], [], [], []
    for _ in range(TURNS):
        for layer in range(LAYERS):
            for at in range(0, FLUSHED, 256):
                some = sessions[at:at + 256]
                daemon.client.step_many([(session, one) for session in some], layer)
        alone.append(p99(step_times(daemon, "small", STEPS)))
        times, stop = [], threading.Event()
        watcher = threading.Thread(target=lambda: times.extend(
            step_times(daemon, "small", 1000000, stop)))
        watcher.start()
        begin = time.monotonic()
        daemon.snapshot()
        spent.append(time.monotonic() - begin)
        stop.set()
        watcher.join()
        beside.append(p99(times))
    ratio = statistics.median(b / a for a, b in zip(alone, beside))
    print(f"flushes of {FLUSHED} sessions, {statistics.median(spent):.2f} s: p99 of others "
          f"{statistics.median(beside):.2f} ms, alone {statistics.median(alone):.2f}, ratio "
          f"{ratio:.2f} ({len(alone)} turns)", flush=True)


def print_rows(start, config, state):
    count, appended = 64, 8 * BLOCK
    daemon = start(config)
    sessions = [daemon.client.session(f"r{i}") for i in range(count)]
    one = rows(1, 6)[0]
    for i, session in enumerate(sessions):
        prefill(session, i + 1, 7)  # each at another place of its block
    daemon.snapshot()
    before, made = daemon.figure("io", "write_bytes"), daemon.metric("attnd_snapshots_total")
    for _ in range(appended):
        for layer in range(LAYERS):
            daemon.client.step_many([(session, one) for session in sessions], layer)
    written = daemon.figure("io", "write_bytes") - before
    snapshots = daemon.metric("attnd_snapshots_total") - made
    daemon.snapshot()
    cache = daemon.metric("attnd_cache_used_bytes")
    disk = sum(entry.stat().st_blocks * 512 for entry in os.scandir(state)
               if entry.name.endswith(".blocks"))
    daemon.end(signal.SIGTERM)
    written /= count * appended * ROW_BYTES
    print(f"rows in {LAYERS} layers of {LAYER_BYTES} bytes: {written:.2f} bytes written a byte of "
          f"row ({snapshots} snapshots); blocks on the disk {disk / cache:.3f} of the cache",
          flush=True)


def configure(directory, name, **options):
    """Makes a configuration, and returns what starts a daemon with it, and its state directory."""
    path, state = f"{directory}/{name}.json", f"{directory}/{name}"
    with open(path, "w", encoding="utf-8") as file:
        json.dump({
            "port": 0, "durability": "journal", "state_dir": state, "lame_duck_s": 0,
            "max_sessions": SESSIONS + 80, "cache_bytes": int((2 * GIB + 1) * 2**30), "log": "info",
            "max_session_length": LONG + BLOCK, "session_ttl_s": 86400, "instance": "bench",
            "models": [{"name": "m", "random": {
                "hidden_size": HIDDEN, "num_attention_heads": 8, "head_dim": min(64, WIDTH),
                "num_key_value_heads": max(1, WIDTH // 64), "num_hidden_layers": LAYERS,
                "seed": 1}}], **options}, file)
    return path, state


def print_starts(start, state, daemon):
    for how in ("SIGTERM", "SIGKILL", "SIGKILL, cold"):
        daemon.end(getattr(signal, how.split(",")[0]))
        if how.endswith("cold"):
            forget(state)
        daemon = start()
        measure(daemon, how)
    return daemon


def print_sessions(start, directory, state, parts):
    tokens = max(BLOCK, int(GIB * 2**30 / SESSIONS / ROW_BYTES) // BLOCK * BLOCK)
    daemon = start()
    print(f"{SESSIONS} sessions of {tokens} tokens, one of {LONG}, in {LAYERS} layers", flush=True)
    if not os.path.exists(directory + "/made"):
        fill(daemon, tokens)
        open(directory + "/made", "w", encoding="utf-8").close()
    if "starts" in parts:
        daemon = print_starts(start, state, daemon)
    if "flushes" in parts:
        print_flushes(daemon)
    daemon.end(signal.SIGKILL)
    if "touch" in parts:
        print_touches(start, state)


def main():
    attnd = os.path.abspath(sys.argv[1])
    parts = os.environ.get("ONLY", "starts,touch,flushes,rows").split(",")
    kept = os.environ.get("DIR")
    directory = kept or tempfile.mkdtemp(prefix="attnd-restart-")
    os.makedirs(directory, exist_ok=True)
    config, state = configure(directory, "state")
    try:
        with open(directory + "/log", "w", encoding="utf-8") as log:
            def start(path=config):
                return Daemon(attnd, path, log)
            if parts != ["rows"]:
                print_sessions(start, directory, state, parts)
            if "rows" in parts:
                print_rows(start, *configure(
                    directory, "rows", journal_bytes=64 * BLOCK * (ROW_BYTES + LAYERS * 160)))
    finally:
        if kept is None:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
