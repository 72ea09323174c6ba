#!/usr/bin/env python3
"""shard.py: what one shard holds and does, for the arithmetic of docs/SCALE.md.

    tests/bench/shard.py [ATTND]

Starts build/attnd, or the program given, with one layer of Mistral 7B (4096 wide, 32/8 heads of 128) in
bf16, weights and caches, first with one thread, then with two; in each without a journal, and with one
on the disk of $TMPDIR.  1, 8 and 32 sessions of 512 tokens then take a step each in one /decode in
binary form, for two seconds.  A line has the rows a second, the median of the round trip, the memory
of the process, and with a journal its bytes a row, and the milliseconds of a start over all sessions.
"""
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(1, str(TOP / "clients" / "python"))
sys.path.insert(2, str(TOP / "tests" / "bench"))
from attn_client import Client, _body_of  # noqa: E402
from weightless import floats  # noqa: E402

MODEL, WIDTH, TOKENS, PIECE, SECONDS = "mistral-7b-layer", 4096, 512, 256, 2
PRESET = json.loads((TOP / "config" / "presets" / f"{MODEL}.json").read_text("utf-8"))


def start(program, threads, state):
    """(process, client, seconds until it was ready)."""
    config = state / "attnd.json"
    config.write_text(json.dumps({**PRESET, "port": 0, "cache_bytes": "1GiB", "log": "error",
                                  "dtype": "bf16", "kv_dtype": "bf16", "lame_duck_s": 0}), "utf-8")
    flags = ["--config", str(config), "--threads", str(threads)]
    if (state / "sessions").exists():
        flags += ["--durability", "journal", "--state-dir", str(state / "sessions")]
    begin = time.perf_counter()
    attnd = subprocess.Popen([program, *flags], stdout=subprocess.PIPE, text=True)
    url = re.search(r"http://\S+", attnd.stdout.readline())[0].rstrip("/")
    return attnd, Client(url), time.perf_counter() - begin


def stop(attnd, client):
    client.close()
    attnd.send_signal(signal.SIGINT)
    attnd.wait(60)
    attnd.stdout.close()


def memory(attnd):
    """MiB of the process that are its own."""
    text = pathlib.Path(f"/proc/{attnd.pid}/smaps_rollup").read_text("ascii")
    return sum(int(size) for size in re.findall(r"Private_\w+: +(\d+) kB", text)) >> 10


def fill(client):
    session = client.session(model=MODEL, max_length=8 * TOKENS)
    for _ in range(TOKENS // PIECE):
        session.prefill(floats(PIECE, WIDTH))
    return session


def measure(client, sessions):
    """(rows, rows a second, median of the round trip in ms) of steps of all sessions."""
    row, times, tokens, begin = floats(1, WIDTH), [], TOKENS, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        sent = time.perf_counter()
        items = [{"session_id": session.session_id, "position": tokens, "hidden_states": row}
                 for session in sessions]
        body, length = _body_of({"sequences": items, "binary_output": True}, True)
        client.request("POST", "/decode", body, {"Content-Type": "application/octet-stream",
                                                 "Inference-Header-Content-Length": str(length)})
        times.append(time.perf_counter() - sent)
        tokens += 1
    rows = len(sessions) * len(times)
    return rows, rows / sum(times), 1e3 * statistics.median(times)


def size_of(directory):
    return sum(file.stat().st_size for file in directory.iterdir()) if directory.exists() else 0


def run(program, threads, state):
    directory = state / "sessions"
    attnd, client, _ = start(program, threads, state)
    idle, sessions, kept = memory(attnd), [], "journal" if directory.exists() else "none"
    for count in (1, 8, 32):
        before, made = memory(attnd), count - len(sessions)
        sessions += [fill(client) for _ in range(made)]
        grown, on_disk = (memory(attnd) - before) / made, size_of(directory)
        rows, rate, trip = measure(client, sessions)
        journal = (size_of(directory) - on_disk) / rows
        for session in sessions:
            session.truncate(TOKENS)
        print(f"{threads:7}  {kept:10}  {count:8}  {rate:6.0f}  {trip:13.2f}  {idle:8}  {grown:11.1f}  "
              f"{journal:13.0f}", flush=True)
    stop(attnd, client)
    if kept == "journal":
        on_disk = size_of(directory)
        attnd, client, seconds = start(program, threads, state)
        print(f"a start over {len(sessions)} sessions, {on_disk >> 20} MiB: {1e3 * seconds:.0f} ms")
        stop(attnd, client)


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else str(TOP / "build" / "attnd")
    print("threads  durability  sessions  rows/s  round trip ms  idle MiB  MiB/session  journal B/row")
    for threads in (1, 2):
        for durable in (False, True):
            with tempfile.TemporaryDirectory() as directory:
                state = pathlib.Path(directory)
                if durable:
                    os.mkdir(state / "sessions", 0o700)
                run(program, threads, state)


if __name__ == "__main__":
    main()
