"""machines.py: network namespaces as machines, each on a link of its own to this process."""
import ctypes
import os
import pathlib
import subprocess
import sys

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_REC, MS_PRIVATE, MNT_DETACH = 0x4000, 1 << 18, 2
LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command):
    """Runs a program; raises where it fails."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def call(name, *arguments):
    """A system call of libc; raises OSError."""
    if getattr(LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def isolate():
    """Puts this process into namespaces of its own: (whether network, whether mounts are its own).

    What the test does to them is gone with its last process.  Called before any thread is started.
    """
    user, group = os.getuid(), os.getgid()
    try:
        call("unshare", CLONE_NEWNET | (CLONE_NEWUSER if user else 0))
    except OSError as error:
        print(f"check-cluster: no namespaces here ({error}): machines are loopback addresses, "
              "the network is not cut and no volume fills", file=sys.stderr)
        return False, False
    if user:
        pathlib.Path("/proc/self/setgroups").write_text("deny", "ascii")
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {user} 1", "ascii")
        pathlib.Path("/proc/self/gid_map").write_text(f"0 {group} 1", "ascii")
    run("ip", "link", "set", "lo", "up")
    try:
        call("unshare", CLONE_NEWNS)
        call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)  # refused in a chroot
    except OSError as error:
        print(f"check-cluster: no mounts here ({error}): no volume fills", file=sys.stderr)
        return True, False
    return True, True


class Machine:
    """A place where shards run: a namespace behind a link, or only an address.

    address  where its shards are reached; command  what stands before a program that runs there
    """

    def __init__(self, number, isolated):
        self.address, self.command, self.holder = f"127.0.{number}.1", [], None
        self.link = f"m{number}"
        if isolated:
            self._connect(number)

    def _connect(self, number):
        self.address = f"10.77.{number}.2"
        # The namespace lives as long as this process, which ends with the pipe.
        # pylint: disable-next=consider-using-with
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        pid = str(self.holder.pid)
        self.command = ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0",
            "netns", pid)
        run("ip", "address", "add", f"10.77.{number}.1/24", "dev", self.link)
        run("ip", "link", "set", self.link, "up")
        run(*self.command, "ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        run(*self.command, "ip", "link", "set", "lo", "up")
        self.heal()

    def cut(self):
        """Nothing gets in or out any more, and nobody is told."""
        run(*self.command, "ip", "link", "set", "eth0", "down")

    def heal(self):
        """The link is there again."""
        run(*self.command, "ip", "link", "set", "eth0", "up")

    def vanish(self):
        """What is sent to the machine, and what the machine sends, is lost; its link stays up."""
        for place, device in (([], self.link), (self.command, "eth0")):
            run(*place, "nft", f"add table netdev {self.link}; add chain netdev {self.link} lost "
                f"{{ type filter hook ingress device {device} priority 0; policy drop; }}")

    def appear(self):
        """Packets arrive again."""
        for place in ([], self.command):
            run(*place, "nft", f"delete table netdev {self.link}")

    def close(self):
        """Ends the namespace, once no program runs in it."""
        if self.holder:
            self.holder.stdin.close()
            self.holder.wait()
            self.holder.stdout.close()


def small_volume(path, size):
    """Mounts a file system of `size` bytes at `path`, a new directory."""
    path.mkdir()
    call("mount", b"none", os.fsencode(path), b"tmpfs", 0, f"size={size},mode=700".encode())


def remove_volume(path):
    """Takes it away again, and all that is on it."""
    call("umount2", os.fsencode(path), MNT_DETACH)
