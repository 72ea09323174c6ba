"""cluster.py: shards, which are attnd on a directory each, and the real HAProxy before them."""
import asyncio
import json
import os
import pathlib
import re
import signal
import socket
import subprocess

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
ATTND = os.path.abspath(os.environ.get("ATTND", TOP / "build" / "attnd"))
HAPROXY = "/usr/sbin/haproxy"
WIDTH, LAYERS = 32, 2
MODEL = {"name": "tiny", "random": {"hidden_size": WIDTH, "num_attention_heads": 4, "seed": 7,
                                    "num_key_value_heads": 2, "num_hidden_layers": LAYERS,
                                    "rope_theta": 10000}}
# Nobody asks for it; a start without `weights_cache` takes half a second for it.
LARGE = {"name": "large", "random": {"hidden_size": 1024, "num_attention_heads": 16, "seed": 8,
                                     "num_hidden_layers": 4}}
BIND = 'bind "${HAPROXY_ADDRESS}:8080"\n'
USER = "    user haproxy\n    group haproxy\n"
LAME_DUCK_S = 1
START_S = 60


def environment(**more):
    """The environment of a program under test: none of attnd's variables of the caller."""
    return {**{name: value for name, value in os.environ.items()
               if not name.startswith(("ATTN_", "OPENBLAS_"))}, **more}


def may_change_user():
    """Whether this process is root, and not only of a namespace with no other user."""
    mapped = pathlib.Path("/proc/self/uid_map").read_text("ascii").split()
    return os.getuid() == 0 and int(mapped[2]) > 1


class Shard:
    """attnd under one name on one directory, on some machine.

    address, port  where it was last started; process  the daemon, or None
    """

    def __init__(self, name, directory, machine, **options):
        self.name, self.directory, self.machine, self.port = name, directory, machine, 0
        self.config = directory.parent / f"{name}.json"
        self.config.write_text(json.dumps({
            "models": [MODEL, LARGE], "weights_cache": str(directory.parent.parent / "weights"),
            "instance": name, "sharded": "on", "durability": "journal",
            "allow_unauthenticated": True, "threads": 1, "max_connections": 1024,
            "lame_duck_s": LAME_DUCK_S, **options}), "utf-8")
        self.log = directory.parent / f"{name}.log"
        self.process, self.adopted = None, []  # `adopted`: shards whose directories it has too

    @property
    def address(self):
        """ADDRESS:PORT."""
        return f"{self.machine.address}:{self.port}"

    def command(self):
        """attnd as it is started on the shard's machine."""
        return [*self.machine.command, ATTND, "--config", str(self.config),
                "--state-dir", str(self.directory), "--host", self.machine.address,
                "--port", str(self.port), "--log", "info",
                *(word for other in self.adopted for word in ("--adopt", str(other.directory)))]

    async def start(self):
        """Starts attnd; returns when it is ready."""
        self.begin()
        await self.ready()

    def begin(self):
        """Starts attnd, and does not wait."""
        with self.log.open("ab") as log:
            # pylint: disable-next=consider-using-with
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log,
                                            env=environment())

    async def ready(self):
        """Waits until attnd is ready, and notes its port."""
        loop = asyncio.get_running_loop()
        line = await asyncio.wait_for(
            loop.run_in_executor(None, self.process.stdout.readline), START_S)
        found = re.search(rb" on http://[^ ]*:([0-9]+)", line)
        if not found:
            raise RuntimeError(f"shard {self.name} did not start: see {self.log}")
        self.port = int(found.group(1))

    def signal(self, number):
        """Sends a signal."""
        self.process.send_signal(number)

    async def ended(self):
        """The exit status; the daemon must end within START_S."""
        loop = asyncio.get_running_loop()
        status = await asyncio.wait_for(loop.run_in_executor(None, self.process.wait), START_S)
        self.process.stdout.close()
        self.process = None
        return status

    async def stop(self):
        """SIGTERM, and its end; raises where the status is not 0."""
        self.signal(signal.SIGTERM)
        status = await self.ended()
        if status != 0:
            raise RuntimeError(f"shard {self.name} ended with {status}: see {self.log}")

    async def kill(self):
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        await self.ended()

    def close(self):
        """Ends the daemon where it still runs."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None


class Proxy:
    """HAProxy with config/haproxy/haproxy.cfg, of which only addresses, names of sockets and what `edits`
    says are replaced; and its user, where there is no other."""

    def __init__(self, directory, edits=()):
        self.directory, self.edits, self.process = directory, edits, None
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.listener.set_inheritable(True)
        self.port = self.listener.getsockname()[1]
        self.config = directory / "haproxy.cfg"
        self.master = directory / "master.sock"
        (directory / "haproxy.lua").write_bytes((TOP / "config" / "haproxy" / "haproxy.lua").read_bytes())

    def write(self, shards):
        """Writes the configuration: a line for each shard in place of the shipped ones."""
        text = (TOP / "config" / "haproxy" / "haproxy.cfg").read_text("utf-8")
        shipped = re.findall(r"^    server [a-z] attnd-[a-z]:8080(.*\n)", text, flags=re.M)
        if len(shipped) != 3 or len(set(shipped)) != 1:
            raise RuntimeError(f"config/haproxy/haproxy.cfg has the shards {shipped}, expected 3 alike")
        text = re.sub(r"^    server [a-z] attnd-[a-z]:8080.*\n", "", text, flags=re.M)
        hold = f"attnd-hold-{os.getpid()}-{self.port}"
        edits = [(BIND, f"bind fd@{self.listener.fileno()}\n"), ("abns@attnd-hold", f"abns@{hold}")]
        if not may_change_user():
            edits.append((USER, ""))
        for old, new in (*edits, *self.edits):
            if old not in text:
                raise RuntimeError(f"config/haproxy/haproxy.cfg has no {old!r}")
            text = text.replace(old, new)
        text += "".join(f"    server {shard.name} {shard.address}{shipped[0]}" for shard in shards)
        self.config.write_text(text, "utf-8")

    async def start(self):
        """Starts HAProxy; returns when it listens."""
        with (self.directory / "haproxy.log").open("ab") as log:
            # pylint: disable-next=consider-using-with
            self.process = subprocess.Popen(
                [HAPROXY, "-W", "-S", f"unix@{self.master}", "-f", str(self.config)],
                stdout=log, stderr=log, pass_fds=[self.listener.fileno()], env=environment())
        await self.answers()

    async def answers(self):
        """Waits until the newest worker answers."""
        for _ in range(START_S * 50):
            if self.process.poll() is not None:
                break
            try:
                if self.tell("@1 show info").startswith("Name"):
                    return
            except OSError:
                pass
            await asyncio.sleep(0.02)
        raise RuntimeError(f"HAProxy did not start: see {self.directory}/haproxy.log")

    def tell(self, command):
        """The reply of the master's command line to one command."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(str(self.master))
            connection.sendall(command.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            reply = b""
            while piece := connection.recv(65536):
                reply += piece
        return reply.decode()

    async def reload(self, shards):
        """Writes the configuration anew and has it taken without an interruption."""
        self.write(shards)
        self.process.send_signal(signal.SIGUSR2)
        await asyncio.sleep(0.3)
        await self.answers()

    def readdress(self, shard, place=None):
        """Tells the running HAProxy where a shard is now: with `place`, where that shard is."""
        place = place or shard
        reply = self.tell(f"@1 set server shards/{shard.name} addr {place.machine.address} "
                          f"port {place.port}")
        if "changed" not in reply and "no need" not in reply:
            raise RuntimeError(f"HAProxy refused the address: {reply!r}")

    def states(self):
        """The state of each server of `shards`, by name."""
        lines = [line.split(",") for line in self.tell("@1 show stat").splitlines()]
        return {line[1]: line[17] for line in lines if line[0] == "shards"}

    def close(self):
        """Ends HAProxy."""
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.listener.close()
