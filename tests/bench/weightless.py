#!/usr/bin/env python3
"""weightless.py: the W shapes over HTTP: decodes of sessions without weights, in binary form.

    tests/bench/weightless.py [ATTND]

Starts build/attnd, or the program given, with nothing but the cache that 32 sessions need.  For 1,
8 and 32 sessions of 32/8 heads of 128 with 4,096 tokens each it sends one /decode with a step of
every session, which is not committed, and prints the median of the round trip and of what attnd
computed (Server-Timing), in milliseconds.  `build/bench --shape W` has the library's times and the
floor of the same decodes.
"""
import json
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
from attn_client import Client, _body_of  # noqa: E402

HEADS, KV_HEADS, WIDTH, TOKENS = 32, 8, 128, 4096
PIECE = 512  # tokens of a prefill
CALLS = 30


def floats(*shape):
    """A tensor of bytes that every shape shares: numbers do not change how long a step takes."""
    count = 1
    for size in shape:
        count *= size
    values = memoryview(bytes(range(1, 64)) * (count * 4 // 63 + 1))[:count * 4]
    data = bytearray(values)
    data[3::4] = b"\x3e" * count  # between 0.12 and 0.5
    return memoryview(data).cast("f").cast("B").cast("f", shape)


def rows(count):
    """Query, key and value of so many rows."""
    return {"query": floats(HEADS, count, WIDTH), "key": floats(KV_HEADS, count, WIDTH),
            "value": floats(KV_HEADS, count, WIDTH)}


def fill(client):
    """A session with all tokens."""
    session = client.session(num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
                             head_dim=WIDTH)
    for _ in range(TOKENS // PIECE):
        session.prefill(**rows(PIECE), outputs=["lse"], scale=0.01)
    return session


def measure(client, sessions):
    """(round trip, computing) of one step of each, medians in milliseconds."""
    step = rows(1)
    items = [{"session_id": session.session_id, **step, "commit": False} for session in sessions]
    body, length = _body_of({"sequences": items, "binary_output": True}, True)
    headers = {"Content-Type": "application/octet-stream",
               "Inference-Header-Content-Length": str(length)}
    times, computed = [], []
    for _ in range(CALLS):
        begin = time.perf_counter()
        reply_headers, _ = client.request("POST", "/decode", body, headers)
        times.append(1e3 * (time.perf_counter() - begin))
        computed.append(float(re.search(r"compute;dur=([\d.]+)",
                                        dict(reply_headers)["Server-Timing"])[1]))
    return statistics.median(times), statistics.median(computed)


def main():
    """Starts attnd, fills the sessions, and measures."""
    program = sys.argv[1] if len(sys.argv) > 1 else str(TOP / "build" / "attnd")
    with tempfile.TemporaryDirectory() as directory:
        config = pathlib.Path(directory) / "attnd.json"
        config.write_text(json.dumps({"port": 0, "cache_bytes": "2GiB", "log": "error"}), "utf-8")
        with subprocess.Popen([program, "--config", str(config)], stdout=subprocess.PIPE,
                              text=True) as attnd:
            url = re.search(r"http://\S+", attnd.stdout.readline())[0].rstrip("/")
            with Client(url) as client:
                sessions = []
                print("sessions  round trip ms  computing ms  bytes sent")
                for count in (1, 8, 32):
                    sessions += [fill(client) for _ in range(count - len(sessions))]
                    trip, computed = measure(client, sessions)
                    sent = count * 4 * WIDTH * (HEADS + 2 * KV_HEADS)
                    print(f"{count:8}  {trip:13.2f}  {computed:12.2f}  {sent:10}")
            attnd.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
