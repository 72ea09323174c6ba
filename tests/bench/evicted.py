#!/usr/bin/env python3
"""evicted.py: sessions of ten times cache_bytes; make bench-evicted.

Makes SESSIONS sessions of TOKENS tokens in 4 layers, ten times as much as the daemon's cache_bytes,
and decodes over them at random, by Zipf's law with exponent 1.0, with 32 callers for SECONDS.
Printed are the steps a second and their p50 and p99, how many of them found their session in
memory, and how many were refused; then the p99 of steps over eight sessions alone, and beside the
32 callers.

usage: evicted.py ATTND [SESSIONS [TOKENS [SECONDS]]]      in TMPDIR or /tmp; QUICK=1 is short
"""
import bisect
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "clients", "python"))
from attn_client import AttnError, Client  # noqa: E402

QUICK = os.environ.get("QUICK", "") not in ("", "0")
HIDDEN, LAYERS, CALLERS, HOT = 256, 4, 32, 8
ARGUMENTS = sys.argv[2:] + [""] * 3
SESSIONS = int(ARGUMENTS[0] or (200 if QUICK else 2000))
TOKENS = int(ARGUMENTS[1] or 512)
SECONDS = float(ARGUMENTS[2] or (3 if QUICK else 20))
SESSION_BYTES = TOKENS * LAYERS * HIDDEN * 2 * 4
ROW = [((i * 17) % 97) / 97 - 0.5 for i in range(HIDDEN)]


def start(attnd, folder):
    config = os.path.join(folder, "attnd.json")
    model = {"hidden_size": HIDDEN, "num_attention_heads": 8, "num_hidden_layers": LAYERS, "seed": 1}
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"port": 0, "log": "error", "max_sessions": SESSIONS + HOT + 1, "max_queue": 256,
                   "cache_bytes": SESSIONS * SESSION_BYTES // 10, "durability": "journal",
                   "state_dir": os.path.join(folder, "state"),
                   "models": [{"name": "m", "random": model}]}, file)
    process = subprocess.Popen([attnd, "--config", config], stdout=subprocess.PIPE, text=True)
    return process, re.search(r"http://[^ ]*[0-9]", process.stdout.readline()).group()


def metric(client, name):
    text = client.request("GET", "/metrics")[1].decode()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))


def fill(url):
    client = Client(url, timeout=300)
    first = client.session("s0")
    for layer in range(LAYERS):
        first.prefill([ROW] * TOKENS, layer)
    state = first.export()
    names = [f"s{i}" for i in range(1, SESSIONS)] + [f"hot{i}" for i in range(HOT)]
    for name in names:
        client.restore(name, state)


def decode(url, draw, until, times, refused):
    """Steps over the sessions that draw() names; none is kept, so that all stay as long."""
    client = Client(url, timeout=60, retry_s=0)
    while time.monotonic() < until:
        name, layer = draw(), random.randrange(LAYERS)
        begin = time.monotonic()
        try:
            client.open(name).decode(ROW, layer, commit=False)
            times.append(time.monotonic() - begin)
        except AttnError as error:
            refused.append(error.code)


def run(url, callers, draw):
    times, refused, until = [], [], time.monotonic() + SECONDS
    threads = [threading.Thread(target=decode, args=(url, draw, until, times, refused))
               for _ in range(callers)]
    for thread in threads:
        thread.start()
    return threads, times, refused


def percentile(times, part):
    return 1000 * sorted(times)[min(len(times) - 1, int(part * len(times)))] if times else 0.0


def main():
    weights = list(itertools.accumulate(1 / (i + 1) for i in range(SESSIONS)))
    order = random.Random(7).sample(range(SESSIONS), SESSIONS)

    def zipf():
        return f"s{order[bisect.bisect_left(weights, random.random() * weights[-1])]}"

    def hot():
        return f"hot{random.randrange(HOT)}"

    with tempfile.TemporaryDirectory(prefix="attnd-evicted-") as folder:
        process, url = start(sys.argv[1], folder)
        try:
            fill(url)
            client = Client(url)
            for threads, _, _ in (run(url, 1, hot),):
                [thread.join() for thread in threads]
            threads, alone, _ = run(url, 1, hot)
            [thread.join() for thread in threads]
            read = metric(client, "attnd_sessions_read_total")
            threads, times, refused = run(url, CALLERS, zipf)
            more, beside, hot_refused = run(url, 1, hot)
            [thread.join() for thread in threads + more]
            read = metric(client, "attnd_sessions_read_total") - read
            steps = len(times) + len(beside)
            print(f"{SESSIONS} sessions of {SESSION_BYTES >> 10} KiB, cache_bytes a tenth: "
                  f"{len(times) / SECONDS:.0f} steps a second of {CALLERS} callers, p50 "
                  f"{percentile(times, .5):.1f} ms, p99 {percentile(times, .99):.1f} ms; "
                  f"{1 - read / max(steps, 1):.2f} found in memory; {len(refused)} refused "
                  f"{sorted(set(refused))}")
            print(f"{HOT} hot sessions: p99 alone {percentile(alone, .99):.1f} ms, beside "
                  f"{percentile(beside, .99):.1f} ms; {len(hot_refused)} refused")
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


main()
