"""shipped.py: where config/haproxy/haproxy.cfg listens as it is shipped, and as which user."""
import os
import pathlib
import pwd
import socket
import subprocess
import time

from cluster import BIND, HAPROXY, START_S, TOP, USER, environment, may_change_user

# What HAPROXY_ADDRESS is, and the address of the listener as the kernel writes it.
ADDRESSES = ((None, "0100007F"), ("", "0100007F"), ("0.0.0.0", "00000000"))


def listeners(port):
    """Addresses on which this port is listened on, in hexadecimal digits."""
    lines = pathlib.Path("/proc/self/net/tcp").read_text("ascii").splitlines()[1:]
    fields = [line.split() for line in lines]
    return [field[1].split(":")[0] for field in fields
            if field[3] == "0A" and int(field[1].split(":")[1], 16) == port]


def started(command, port, **variables):
    """(addresses that it listens on, its user) of HAProxy, which is ended then."""
    with subprocess.Popen(command, env=environment(**variables), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(START_S * 50):
                user = pathlib.Path(f"/proc/{process.pid}").stat().st_uid
                if listeners(port) and (user != 0 or not may_change_user()):
                    break
                time.sleep(0.02)
            return listeners(port), user
        finally:
            process.kill()


def problems(directory):
    """What is not as it should be; only the port, which may be in use, is another than shipped."""
    directory.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    text = (TOP / "config" / "haproxy" / "haproxy.cfg").read_text("utf-8")
    text = text.replace(BIND, BIND.replace("8080", str(port)))
    text = text.replace("abns@attnd-hold", f"abns@attnd-hold-{os.getpid()}-{port}")
    (directory / "haproxy.cfg").write_text(
        text if may_change_user() else text.replace(USER, ""), "utf-8")
    (directory / "haproxy.lua").write_bytes((TOP / "config" / "haproxy" / "haproxy.lua").read_bytes())
    user, found = pwd.getpwnam("haproxy").pw_uid if may_change_user() else os.getuid(), []
    for address, expected in ADDRESSES:
        variables = {} if address is None else {"HAPROXY_ADDRESS": address}
        seen = started([HAPROXY, "-f", str(directory / "haproxy.cfg")], port, **variables)
        if seen != ([expected], user):
            found.append(f"config/haproxy/haproxy.cfg with HAPROXY_ADDRESS {address!r}: listens on and runs "
                         f"as {seen}, not {[expected], user}")
    return found
