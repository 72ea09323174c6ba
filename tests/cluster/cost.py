"""cost.py: what the proxy costs: wrk's decodes with it and without it."""
import json
import os
import statistics
import subprocess

from cluster import TOP, Proxy, Shard
from machines import Machine

WIDTH, SECONDS, TIMES = 256, 3, 3
MODEL = {"name": "small", "random": {"hidden_size": WIDTH, "num_attention_heads": 8, "seed": 1,
                                     "num_hidden_layers": 1, "rope_theta": 10000}}


class Runs:
    """wrk, on one or several ports at once."""

    def __init__(self):
        self.number = 0

    def decodes(self, targets, connections):
        """(rows a second, p50 in ms) of wrk on each (ADDRESS, shards) at the same time."""
        running = []
        for address, shards in targets:
            self.number += 1
            each = str(max(connections // len(targets), 1))
            # pylint: disable-next=consider-using-with
            running.append(subprocess.Popen(
                ["wrk", "-t1", f"-c{each}", f"-d{SECONDS}s", "-s",
                 str(TOP / "tests" / "load" / "decode.lua"), f"http://{address}", "--",
                 str(WIDTH), each, f"r{self.number}", "", *shards],
                stdout=subprocess.PIPE, text=True))
        results = []
        for wrk in running:
            said, _ = wrk.communicate(timeout=60)
            result = [line.split()[1:] for line in said.splitlines() if line.startswith("RESULT")]
            if not result or int(result[0][3]) + int(result[0][4]) != 0:
                raise RuntimeError(f"wrk failed: {said}")
            results.append(result[0])
        return (sum(float(result[0]) for result in results),
                statistics.mean(float(result[1]) for result in results) / 1e3)


def cpu_seconds(proxy):
    """What HAProxy's worker has computed so far."""
    worker = proxy.tell("show proc").split("# workers\n")[1].split()[0]
    with open(f"/proc/{worker}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(directory):
    """Prints rows a second and p50, directly and through HAProxy in turn, and its time a row."""
    shards, runs, proxy = [], Runs(), Proxy(directory)
    try:
        for name in "abc":
            shard = Shard(name, directory / name, Machine(1, False))
            options = json.loads(shard.config.read_text("utf-8"))
            del options["weights_cache"]
            shard.config.write_text(json.dumps({**options, "models": [MODEL], "log": "error"}))
            shards.append(shard)
            await shard.start()
        proxy.write(shards)
        await proxy.start()
        print("shards  connections  rows/s: direct  proxy  ratio   p50 ms: direct  proxy"
              "   us of HAProxy")
        for number, connections in ((1, 1), (1, 32), (3, 3), (3, 96)):
            some = shards[:number]
            ways = ([(shard.address, [shard.name]) for shard in some],
                    [(f"127.0.0.1:{proxy.port}", [shard.name for shard in some])])
            begun = cpu_seconds(proxy)
            done = [[runs.decodes(way, connections) for way in ways] for _ in range(TIMES)]
            rate = [statistics.median(pair[way][0] for pair in done) for way in (0, 1)]
            p50 = [statistics.median(pair[way][1] for pair in done) for way in (0, 1)]
            spent = (cpu_seconds(proxy) - begun) / sum(pair[1][0] * SECONDS for pair in done)
            print(f"{number:6}{connections:13}{rate[0]:16.0f}{rate[1]:7.0f}{rate[1] / rate[0]:7.2f}"
                  f"{p50[0]:17.3f}{p50[1]:7.3f}{spent * 1e6:16.1f}", flush=True)
    finally:
        proxy.close()
        for shard in shards:
            shard.close()
