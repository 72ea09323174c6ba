"""events.py: what happens to a cluster under load, one event after the other."""
import asyncio
import errno
import os
import shutil
import signal
import subprocess

import audit
from cluster import ATTND, START_S, environment
from stock import Stock


async def added(cluster):
    """A fourth shard: a line more, a reload, and it gets new sessions."""
    shard = await cluster.add("d", 4)
    await cluster.proxy.reload(cluster.shards)
    await cluster.wait_up()
    await cluster.load.add(cluster.sessions // 5)
    counts, _, _ = await audit.places([shard])
    if counts["d"] == 0:
        raise RuntimeError("the added shard got no session")


async def restarted(cluster):
    """Each shard in turn: SIGTERM, and started again when it has ended."""
    for shard in cluster.shards:
        await shard.stop()
        await shard.start()
        await cluster.wait_up()


async def moved(cluster):
    """A shard stops, its directory comes to another machine, and it starts there."""
    await cluster.move(cluster.shards[0])


async def adopted(cluster):
    """A shard's directory is adopted by another shard, which gives it back later."""
    owner, other = cluster.shards[0], cluster.shards[1]
    await asyncio.gather(other.kill(), owner.stop())
    owner.adopted.append(other)
    await owner.start()
    cluster.proxy.readdress(other, owner)
    await cluster.wait_up()
    await asyncio.sleep(1)
    await owner.stop()
    owner.adopted.clear()
    cluster.proxy.readdress(other)  # before its adopter serves again, which no longer knows it
    await asyncio.gather(owner.start(), other.start())
    await cluster.wait_up()


async def killed(cluster):
    """kill -9, and started again."""
    await cluster.shards[1].kill()
    await cluster.shards[1].start()
    await cluster.wait_up()


async def frozen(cluster):
    """SIGSTOP for longer than clients, checks and the proxy wait, then SIGCONT."""
    cluster.shards[2].signal(signal.SIGSTOP)
    await asyncio.sleep(cluster.freeze_s)
    cluster.shards[2].signal(signal.SIGCONT)
    await cluster.wait_up()


async def twice(cluster):
    """A second attnd on a directory in use is refused, and the first goes on."""
    shard = cluster.shards[0]
    command = shard.command()
    command[command.index("--port") + 1] = "0"
    second = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
    _, said = await asyncio.wait_for(second.communicate(), START_S)
    if second.returncode != 1 or str(shard.directory).encode() not in said:
        raise RuntimeError(f"a second {ATTND} ended with {second.returncode}: {said!r}")
    await asyncio.sleep(0.5)


async def cut(cluster):
    """The link of a shard's machine is cut, and healed."""
    machine = cluster.shards[1].machine
    machine.cut()
    await asyncio.sleep(cluster.cut_s)
    machine.heal()
    await cluster.wait_up()


STOCK = 10  # sessions of the shipped client
AWAY_S = 2  # from a machine's end to the start of its shard elsewhere
NOTICED_S = 9  # until the proxy has asked anew: 5, where the CPUs are not busy


async def disturb(cluster, shard, event, bound_s):
    """`event`, under steps of the shipped client; none may fail, or take longer than `bound_s`."""
    stock = Stock(cluster.load.address, shard.name, STOCK)
    try:
        await asyncio.to_thread(stock.begun)
        await event()
        await asyncio.sleep(1)
    finally:
        failed, longest, steps = await asyncio.to_thread(stock.stop)
    print(f"    {STOCK - len(failed)} of {STOCK} sessions of clients/python went on, {steps} steps, "
          f"the longest {longest:.1f} s", flush=True)
    if failed or longest > bound_s:
        cluster.load.tally.complain(f"a step took more than {bound_s} s, or failed: {failed}")


async def vanished(cluster):
    """Packets to and from a shard's machine are lost, and later no more."""
    shard = cluster.shards[1]

    async def event():
        shard.machine.vanish()
        await asyncio.sleep(cluster.vanish_s)
        shard.machine.appear()
        await cluster.wait_up()
    await disturb(cluster, shard, event, cluster.vanish_s + 5)


async def gone(cluster):
    """A machine vanishes for good while its shard computes; the shard is started elsewhere over the
    same directory."""
    shard = cluster.shards[1]
    machine = shard.machine

    async def event():
        shard.signal(signal.SIGSTOP)  # all that is under way has arrived, and is not answered
        await asyncio.sleep(0.5)
        machine.vanish()
        await shard.kill()  # nobody is told
        await asyncio.sleep(AWAY_S)
        carry(shard, cluster.machines[3])
        await shard.start()
        cluster.proxy.readdress(shard)
        await cluster.wait_up()
    await disturb(cluster, shard, event, NOTICED_S)
    machine.appear()  # as a new one


async def full(cluster):
    """The volume of a shard fills up, and has room again."""
    directory = cluster.volume.directory
    with (directory.parent / "ballast").open("wb") as ballast:
        try:
            while True:
                os.write(ballast.fileno(), bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    await asyncio.sleep(2)
    refused = cluster.load.tally.replies[507]
    (directory.parent / "ballast").unlink()
    if refused == 0:
        raise RuntimeError("the full volume refused nothing")
    await asyncio.sleep(1)


def carry(shard, machine):
    """The directory of a shard that has stopped goes to another machine."""
    place = shard.directory.parent.parent / f"moved-{shard.name}-{id(machine)}"
    place.mkdir(exist_ok=True)
    shutil.move(shard.directory, place / shard.name)
    shard.directory, shard.machine = place / shard.name, machine
