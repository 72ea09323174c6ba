#!/usr/bin/env python3
"""weights.py: what weights_cache gains and costs: start to ready, memory, speed of decodes.

    tests/bench/weights.py [--program ATTND] [--directory DIR] [--layers N] [--dtype TYPE]
                           [--shards N] [--tokens N] [--small-pages]

Starts a daemon with private weights (random ones of 4,096 x 32/8 heads of 128), then `shards` that
share packed weights in a directory of its own below DIR (by default the system's for temporary
files), one after another, and prints for each the milliseconds from exec to the ready line and the
memory of /proc/PID/smaps_rollup: of its own (private) while all run, its share (Pss), and what is
mapped in huge pages.  Then one row goes through all layers of the private daemon and of the last
shard in turn, `tokens` times each: the medians of computing (Server-Timing) and of the ratio within
a pair.  With --small-pages the shards have no huge pages (PR_SET_THP_DISABLE).
"""
import argparse
import ctypes
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(1, str(TOP / "clients" / "python"))
from attn_client import Client, _body_of  # noqa: E402

WIDTH, HEADS, KV_HEADS = 4096, 32, 8
PR_SET_THP_DISABLE = 41


def no_huge_pages():
    """Of this process and those that it becomes."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


class Daemon:
    """A daemon that is ready."""

    def __init__(self, options, directory, more, small_pages):
        model = {"hidden_size": WIDTH, "num_attention_heads": HEADS,
                 "num_key_value_heads": KV_HEADS, "num_hidden_layers": options.layers,
                 "rope_theta": 10000}
        config = directory / "attnd.json"
        config.write_text(json.dumps(
            {"port": 0, "log": "error", "cache_bytes": "64MiB", "max_in_flight_bytes": "64MiB",
             "models": [{"name": "m", "dtype": options.dtype, "random": model}], **more}), "utf-8")
        begin = time.perf_counter()
        self.process = subprocess.Popen([options.program, "--config", str(config)],
                                        stdout=subprocess.PIPE, text=True,
                                        preexec_fn=no_huge_pages if small_pages else None)
        line = self.process.stdout.readline()
        self.ready_ms = 1e3 * (time.perf_counter() - begin)
        self.url = re.search(r"http://\S+", line)[0].rstrip("/")

    def memory(self):
        """MiB by the names of smaps_rollup."""
        text = pathlib.Path(f"/proc/{self.process.pid}/smaps_rollup").read_text("utf-8")
        return {name: int(kib) / 1024 for name, kib in re.findall(r"(\w+): +(\d+) kB", text)}

    def stop(self):
        """Ends it."""
        self.process.terminate()
        self.process.wait()


def print_daemon(name, daemon):
    """A line of the first table."""
    m = daemon.memory()
    own = m["Private_Clean"] + m["Private_Dirty"]
    huge = m["AnonHugePages"] + m["FilePmdMapped"] + m["ShmemPmdMapped"]
    print(f"{name:14} {daemon.ready_ms:9.0f} {own:9.1f} {m['Pss']:9.1f} {m['Rss']:9.1f} "
          f"{huge:9.1f}", flush=True)


class Caller:
    """A connection over which one row goes through all layers."""

    def __init__(self, daemon, layers):
        self.client = Client(daemon.url)
        session = self.client.session("m").session_id
        row = memoryview(bytes(range(1, 64)) * 261)[:4 * WIDTH]
        data = bytearray(row)
        data[3::4] = b"\x3e" * WIDTH  # between 0.12 and 0.5
        values = memoryview(data).cast("f").cast("B").cast("f", (1, WIDTH))
        self.bodies = [_body_of({"session_id": session, "layer": layer, "hidden_states": values,
                                 "commit": False, "binary_output": True}, True)
                       for layer in range(layers)]

    def token_ms(self):
        """Milliseconds of computing."""
        total = 0
        for body, length in self.bodies:
            headers, _ = self.client.request(
                "POST", "/decode", body, {"Content-Type": "application/octet-stream",
                                          "Inference-Header-Content-Length": str(length)})
            total += float(re.search(r"compute;dur=([\d.]+)", dict(headers)["Server-Timing"])[1])
        return total


def compare(private, mapped, options):
    """Decodes of both in turn, the order exchanged in every other pair."""
    callers = [Caller(private, options.layers), Caller(mapped, options.layers)]
    for caller in callers:
        caller.token_ms()
    pairs = []
    for i in range(options.tokens):
        times = [0, 0]
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            times[which] = callers[which].token_ms()
        pairs.append(times)
    ratios = sorted(mapped / private for private, mapped in pairs)
    print(f"\na row through {options.layers} layers, ms: private "
          f"{statistics.median(p for p, _ in pairs):.2f}, mapped "
          f"{statistics.median(m for _, m in pairs):.2f}; mapped / private in {len(pairs)} pairs: "
          f"median {statistics.median(ratios):.4f}, quartiles {ratios[len(ratios) // 4]:.4f} to "
          f"{ratios[3 * len(ratios) // 4]:.4f}")


def main():
    """Starts the daemons and measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(TOP / "build" / "attnd"))
    parser.add_argument("--directory")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--small-pages", action="store_true")
    options = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(dir=options.directory))
    daemons = []
    try:
        daemons.append(Daemon(options, directory, {}, False))
        for _ in range(options.shards):
            daemons.append(Daemon(options, directory, {"weights_cache": str(directory / "w")},
                                  options.small_pages))
        print("MiB             ready ms   private       Pss       Rss      huge")
        print_daemon("private", daemons[0])
        for i, daemon in enumerate(daemons[1:]):
            print_daemon(f"shard {i + 1}", daemon)
        for daemon in daemons[1:-1]:
            daemon.stop()
        compare(daemons[0], daemons[-1], options)
    finally:
        for daemon in daemons:
            daemon.stop()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
