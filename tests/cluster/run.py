#!/usr/bin/env python3
"""run.py: shards behind HAProxy under load, for `make check-cluster`.

    ATTND=build/attnd [QUICK=1] tests/cluster/run.py [--only EVENT,...] [--random N] [--seed N]
                                                     [--keep] [--cost]

Sessions decode through the proxy while shards are added, restarted, moved, killed, stopped, cut off
and run out of disk; then N moves and kills come at random.  Each reply is compared with that of a
single daemon, and each session's length with the rows that were acknowledged.  --cost measures
what the proxy costs instead (with wrk, of `tests/tools/deps.sh load`); --keep leaves the files.
"""
import argparse
import asyncio
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
# pylint: disable=wrong-import-position
import audit  # noqa: E402
import cost  # noqa: E402
import events  # noqa: E402
import machines  # noqa: E402
import shipped  # noqa: E402
from cluster import HAPROXY, TOP, Proxy, Shard  # noqa: E402
from load import Load  # noqa: E402
from rules import Rules  # noqa: E402

EVENTS = {"added": "a shard added", "restarted": "rolling restart of all",
          "moved": "a shard moved", "killed": "kill -9, started again",
          "adopted": "adopted, given back",
          "frozen": "SIGSTOP, SIGCONT", "twice": "a directory started twice",
          "cut": "network cut, healed", "vanished": "packets lost, healed",
          "gone": "a machine gone for good", "full": "volume full, then not"}
MOVE_GAP_S = 3 if os.environ.get("QUICK") else 1.5  # the quick form runs beside other checks
CHUNK = 100  # moves and kills between two judgements
VOLUME = 24 << 20
COLUMNS = "{:26} {:>8} {:>6} {:>5} {:>8} {:>10} {:>8} {:>8} {:>8}"


class Cluster:
    """Machines, shards, the proxy, the load and the single daemon that it is compared with."""

    def __init__(self, directory, options, network, mounts):
        self.directory, self.options, self.network, self.mounts = (directory, options, network,
                                                                   mounts)
        self.quick = bool(os.environ.get("QUICK"))
        self.machines, self.shards, self.single = [], [], None
        self.volume, self.volume_place = None, None  # the shard on it, and where it is
        self.sessions, self.freeze_s, self.cut_s = 200, *((6, 4) if self.quick else (15, 20))
        self.vanish_s = 15 if self.quick else 20  # TCP would send again after 25 s only
        self.proxy = Proxy(directory)
        self.load, self.audit, self.source = None, None, random.Random(options.seed)
        self.failed = []  # events, and what was wrong with each

    def connect(self):
        """Makes the machines."""
        for number in range(1, 6):
            self.machines.append(machines.Machine(number, self.network))

    async def add(self, name, machine):
        """Starts one more shard."""
        directory = self.directory / f"machine-{machine}"
        directory.mkdir(exist_ok=True)
        shard = Shard(name, directory / name, self.machines[machine - 1])
        if machine == 3 and self.mounts:
            self.volume_place = directory / "volume"
            machines.small_volume(self.volume_place, VOLUME)
            shard.directory = directory / "volume" / name
            self.volume = shard
        self.shards.append(shard)
        await shard.start()
        return shard

    async def begin(self):
        """Three shards behind the proxy, sessions under way."""
        (self.directory / "weights").mkdir()
        for machine, name in enumerate("abc", 1):
            await self.add(name, machine)
        (self.directory / "single").mkdir()
        self.single = Shard("single", self.directory / "single" / "state", self.machines[4],
                            sharded="off")
        await self.single.start()
        self.audit = audit.Audit(self.single.address)
        self.proxy.write(self.shards)
        await self.proxy.start()
        await self.wait_up()
        self.load = Load(f"127.0.0.1:{self.proxy.port}", 0.5)
        await self.load.add(self.sessions)

    async def wait_up(self):
        """Waits until HAProxy sees all shards up."""
        for _ in range(3000):
            states = self.proxy.states()
            if all(states.get(shard.name, "").startswith("UP") for shard in self.shards):
                return
            await asyncio.sleep(0.02)
        raise RuntimeError(f"HAProxy does not see all shards up: {self.proxy.states()}")

    async def move(self, shard):
        """Stops a shard and starts it with its directory on another machine."""
        others = [machine for machine in self.machines if machine is not shard.machine]
        await shard.stop()
        events.carry(shard, self.source.choice(others))
        await shard.start()
        self.proxy.readdress(shard)
        await self.wait_up()

    async def judge(self, name, begun):
        """Halts the load, prints the figures since the last call, and notes what is wrong."""
        await self.load.halt()
        tally, seconds = self.load.tally, time.monotonic() - begun
        wrong = tally.wrong + await self.audit.replies(self.load.sessions)
        lost, doubled = await audit.rows(self.load.sessions, self.load.address)
        _, twice, seen = await audit.places(self.shards)
        doubled += len(twice)
        lost += len({session.id for session in self.load.sessions} - seen)
        times = sorted(tally.times) or [0]
        print(COLUMNS.format(name, tally.requests, wrong, lost + doubled, tally.not_found,
                             f"{times[-1]:.3f}", f"{times[len(times) // 2] * 1e3:.1f}",
                             f"{times[len(times) * 99 // 100] * 1e3:.1f}", f"{seconds:.1f}"),
              flush=True)
        for complaint in tally.complaints:
            print("    " + complaint)
        late = name == EVENTS["moved"] and times[-1] > MOVE_GAP_S
        if late:
            print(f"    a move under load took a session more than {MOVE_GAP_S} s: "
                  f"{tally.slowest[1]}")
        self.load.resume()
        counts = {"wrong": wrong, "rows lost": lost, "rows doubled": doubled,
                  "sessions not found": tally.not_found, "gap too long": int(late),
                  "without requests": int(tally.requests == 0)}
        self.failed += [f"{name}: {count} {what}" for what, count in counts.items() if count]

    async def rules(self):
        """The shipped configuration is valid, and does with requests what it should."""
        subprocess.run([HAPROXY, "-c", "-q", "-f", str(TOP / "config" / "haproxy" / "haproxy.cfg")], check=True)
        rules = Rules(self.directory / "rules")
        for problem in await asyncio.to_thread(shipped.problems, self.directory / "shipped"):
            rules.hold(problem, False)
        await rules.run()
        print(f"config/haproxy/haproxy.cfg: {rules.checked - len(rules.failed)} of {rules.checked} "
              "requests went as they should", flush=True)
        self.failed += rules.failed

    async def run(self):
        """Rules and all events."""
        rules = asyncio.create_task(self.rules())  # it waits more than it computes
        await self.begin()
        print(COLUMNS.format("event", "requests", "wrong", "rows", "unfound", "gap s", "p50 ms",
                             "p99 ms", "s"))
        await self.event("steady load", lambda _: asyncio.sleep(1))
        for name, title in EVENTS.items():
            if self.options.only and name not in self.options.only.split(","):
                continue
            if name in ("cut", "vanished", "gone") and not self.network or name == "full" and not self.mounts:
                continue
            await self.event(title, getattr(events, name))
        for left in range(self.options.random, 0, -CHUNK):
            count = min(left, CHUNK)
            await self.event(f"{count} moves, kills at random",
                             lambda _, count=count: self.at_random(count))
        await self.load.stop()
        await rules

    async def event(self, title, action):
        """One event under load, judged."""
        begun = time.monotonic()
        await action(self)
        await asyncio.sleep(0.5 if self.quick else 2)
        await self.judge(title, begun)

    async def at_random(self, count):
        """Moves and kills at random moments, of all shards at once."""
        left = iter(range(count))

        async def disturb(shard):
            for _ in left:
                await asyncio.sleep(self.source.uniform(0, 1))
                if self.source.random() < 0.5:
                    await shard.kill()
                    if self.source.random() < 0.5:
                        events.carry(shard, self.source.choice(self.machines))
                    await shard.start()
                else:
                    await shard.stop()
                    events.carry(shard, self.source.choice(self.machines))
                    await shard.start()
                self.proxy.readdress(shard)
        await asyncio.gather(*(disturb(shard) for shard in self.shards))
        await self.wait_up()

    def close(self):
        """Ends all processes."""
        self.proxy.close()
        for shard in [*self.shards, self.single]:
            if shard:
                shard.close()
        for machine in self.machines:
            machine.close()
        if self.volume_place:
            machines.remove_volume(self.volume_place)


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--random", type=int, default=10 if os.environ.get("QUICK") else 500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--cost", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that all is ended, as by SIGINT
    network, mounts = machines.isolate()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="cluster-"))
    if options.cost:
        try:
            asyncio.run(cost.measure(directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return 0
    cluster = Cluster(directory, options, network, mounts)
    begun = time.monotonic()
    try:
        cluster.connect()
        asyncio.run(cluster.run())
    finally:
        cluster.close()
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"check-cluster: {len(cluster.load.sessions)} sessions on {len(cluster.shards)} shards, "
          f"seed {options.seed}, in {time.monotonic() - begun:.0f} s: "
          f"{'FAILED: ' + '; '.join(cluster.failed) if cluster.failed else 'ok'}")
    return 1 if cluster.failed else 0


if __name__ == "__main__":
    sys.exit(main())
