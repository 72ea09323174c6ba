#!/usr/bin/env python3
"""coding.py: what compressing replies costs a client that did not ask for it; make bench-coding.

Two parts.  `client`: python3-requests, which sends `Accept-Encoding: gzip, deflate` unasked, against
the same client with `identity` and against one that asks for compression in the body; the time is
from connecting to the body read and decoded, on a connection of its own.  `coders`: zlib at levels
1 to 6 and libdeflate at the same on the bodies of those replies, both as attnd would send them.

Alternatives take turns, each as often first, and the best time of each counts: the machine's other
work only adds time.  The status is 1 where the first client takes more than
1.1 times as long as the second.

usage: coding.py ATTND [ROUNDS]      QUICK=1 for a short run
"""
import ctypes
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import requests

GOAL = 1.1
LEVELS = range(1, 7)
MODELS = {
    "port": 0,
    "models": [
        {"name": "w512", "random": {"hidden_size": 512, "num_attention_heads": 8, "seed": 1}},
        {"name": "gpt2", "random": {"hidden_size": 768, "num_attention_heads": 12, "seed": 2}},
    ],
}


def call(model, width, rows, **members):
    """A body of /attend in binary form: its head, and its bytes."""
    source = random.Random(rows)
    data = struct.pack(f"<{rows * width}f", *(source.gauss(0, 1) for _ in range(rows * width)))
    tensor = {"shape": [rows, width], "datatype": "FP32", "binary_data_size": len(data)}
    text = {"model": model, "hidden_states": tensor, **members}
    return text, data


REPLIES = [
    ("819 kB, binary", call("w512", 512, 400, binary_output=True)),
    ("12 maps of 1024^2, binary",
     call("gpt2", 768, 1024, binary_output=True, outputs=["attention_weights"])),
    ("800,000 numbers, JSON", call("w512", 512, 1600)),
]
CLIENTS = [
    ("identity", {}, {"Accept-Encoding": "identity"}),
    ("default", {}, {}),
    ("asked", {"compressed_output": True}, {}),
]


def post(url, body, members, headers):
    """The reply's body, and the seconds from connecting to having it."""
    text, data = body
    head = json.dumps({**text, **members}).encode()
    fields = {"Content-Type": "application/octet-stream",
              "Inference-Header-Content-Length": str(len(head)), **headers}
    begin = time.perf_counter()
    reply = requests.post(url + "/attend", data=head + data, headers=fields, timeout=120)
    content = reply.content
    seconds = time.perf_counter() - begin
    reply.raise_for_status()
    return content, seconds


def measure_clients(url, rounds):
    """Prints a line for each reply; returns the reply's bodies and the worst ratio."""
    bodies, worst = [], 0
    for name, body in REPLIES:
        times = {client: [] for client, _, _ in CLIENTS}
        for turn in range(rounds):
            first = turn % len(CLIENTS)
            for client, members, headers in CLIENTS[first:] + CLIENTS[:first]:
                content, seconds = post(url, body, members, headers)
                times[client].append(seconds)
        best = {client: min(values) for client, values in times.items()}
        ratio = best["default"] / best["identity"]
        worst = max(worst, ratio)
        bodies.append((name, content))
        print(f"{name:<26} {len(content):>10} bytes"
              + "".join(f"  {client} {1000 * seconds:7.1f} ms" for client, seconds in best.items())
              + f"  default/identity {ratio:.2f}")
    return bodies, worst


class Libdeflate:
    def __init__(self):
        self.library = ctypes.CDLL("libdeflate.so.0")
        self.library.libdeflate_alloc_compressor.restype = ctypes.c_void_p
        self.library.libdeflate_gzip_compress.restype = ctypes.c_size_t
        self.library.libdeflate_gzip_compress.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
        self.library.libdeflate_free_compressor.argtypes = [ctypes.c_void_p]

    def __call__(self, body, level):
        compressor = self.library.libdeflate_alloc_compressor(level)
        out = ctypes.create_string_buffer(len(body) + 4096)
        length = self.library.libdeflate_gzip_compress(compressor, body, len(body), out, len(out))
        self.library.libdeflate_free_compressor(compressor)
        return length or len(body)


def by_zlib(body, level):
    coder = zlib.compressobj(level, zlib.DEFLATED, 31)
    return len(coder.compress(body)) + len(coder.flush())


def measure_coders(bodies, rounds):
    """Prints a line for each body and library: MB/s and the share that is left, by level."""
    for name, body in bodies:
        for library, code in [("zlib", by_zlib), ("libdeflate", Libdeflate())]:
            line = ""
            for level in LEVELS:
                times = []
                for _ in range(rounds):
                    begin = time.perf_counter()
                    length = code(body, level)
                    times.append(time.perf_counter() - begin)
                rate = len(body) / min(times) / 1e6
                line += f"  {level}: {rate:4.0f} MB/s {100 * length / len(body):3.0f} %"
            print(f"{name:<26} {library:<10}{line}")


def main():
    attnd = sys.argv[1] if len(sys.argv) > 1 else "build/attnd"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3 if os.environ.get("QUICK") else 21
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump(MODELS, config)
        config.flush()
        daemon = subprocess.Popen([attnd, "--config", config.name, "--log", "error"],
                                  stdout=subprocess.PIPE, text=True)
        try:
            ready = daemon.stdout.readline()
            url = re.search(r"http://\S+", ready)[0]
            bodies, worst = measure_clients(url, rounds)
        finally:
            daemon.send_signal(signal.SIGINT)
            daemon.wait()
    measure_coders(bodies, min(rounds, 5))
    verdict = "met" if worst <= GOAL else "unmet"
    print(f"bench-coding: default at most {worst:.2f} times identity, goal {GOAL}: {verdict}")
    return 0 if worst <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
