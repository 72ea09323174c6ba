"""devtools.py: Debian's Chromium without a display, driven over its DevTools protocol.

The protocol travels over two pipes (--remote-debugging-pipe), so that neither a driver program nor
a port nor a library is needed.  A Browser is one Chromium process; its profile is thrown away with
it.  Whatever it asks for beyond this machine fails: names are not resolved.
"""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

TIMEOUT_S = 60
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
         "--mute-audio", "--no-first-run", "--disable-extensions", "--disable-component-update",
         "--disable-background-networking", "--disable-sync", "--disable-default-apps",
         "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider",
         "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
         "--disable-backgrounding-occluded-windows", "--force-color-profile=srgb",
         "--font-render-hinting=none", "--enable-precise-memory-info",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"]


class ProtocolError(Exception):
    """The browser refuses a command, does not answer in time, or has ended."""


def program():
    """The command of the browser: $CHROMIUM, Debian's headless shell, or its whole Chromium."""
    for name in (os.environ.get("CHROMIUM"), "chromium-headless-shell", "chromium"):
        if name and shutil.which(name):
            return [name] if "shell" in name else [name, "--headless=new"]
    raise ProtocolError("no Chromium here: tests/tools/deps.sh ui installs Debian's")


def above_ten(descriptor):
    """`descriptor` under a number from 10 on, clear of 3 and 4, which Chromium reads and writes."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Browser:
    """One Chromium process; `call` sends a command and returns the result."""

    def __init__(self, *flags):
        self.directory = tempfile.mkdtemp(prefix="attn-ui-")
        to_read, self.write_end = map(above_ten, os.pipe())
        self.read_end, to_write = map(above_ten, os.pipe())
        self.errors = open(os.path.join(self.directory, "stderr"), "w+b")
        command = program() + FLAGS + list(flags) + [
            "--remote-debugging-pipe", f"--user-data-dir={self.directory}/profile", "about:blank"]
        environment = {**os.environ, "HOME": self.directory, "XDG_RUNTIME_DIR": self.directory}
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}', *command],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=self.errors, env=environment, start_new_session=True)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.number, self.replies = b"", 0, {}
        self.handlers = {}  # session -> function(method, params)
        self.version = self.call("Browser.getVersion")["product"]

    def close(self):
        """Ends the browser and removes what it wrote."""
        try:
            self.call("Browser.close", timeout=10)
            self.process.wait(10)
        except (ProtocolError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        for descriptor in (self.read_end, self.write_end):
            os.close(descriptor)
        self.errors.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def post(self, method, params=None, session=None):
        """Sends a command; returns its number, for `reply_to`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        return self.number

    def reply_to(self, number, timeout=TIMEOUT_S, method=""):
        """The result of the command with that number; events that come meanwhile are handled."""
        until = time.monotonic() + timeout
        while number not in self.replies:
            if time.monotonic() > until:
                raise ProtocolError(f"no answer to {method} within {timeout} s")
            self.receive(until - time.monotonic())
        reply = self.replies.pop(number)
        if "error" in reply:
            raise ProtocolError(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def call(self, method, params=None, session=None, timeout=TIMEOUT_S):
        """The result of a command."""
        return self.reply_to(self.post(method, params, session), timeout, method)

    def receive(self, seconds):
        """Takes what has come, waiting at most `seconds` for the first of it."""
        if not select.select([self.read_end], [], [], max(0, seconds))[0]:
            return
        data = os.read(self.read_end, 1 << 20)
        if not data:
            self.errors.seek(0)
            tail = self.errors.read()[-2000:].decode(errors="replace")
            raise ProtocolError(f"Chromium has ended with {self.process.poll()}: {tail}")
        *messages, self.buffer = (self.buffer + data).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self.replies[message["id"]] = message
            else:
                handler = self.handlers.get(message.get("sessionId"))
                if handler:
                    handler(message["method"], message["params"])

    def processes(self):
        """(resident, own) memory in bytes of every process of this browser, by its type."""
        sizes = {}
        for entry in self.call("SystemInfo.getProcessInfo")["processInfo"]:
            try:
                with open(f"/proc/{entry['id']}/status", encoding="ascii") as file:
                    lines = dict(line.split(":", 1) for line in file)
            except OSError:
                continue
            resident, own = (1024 * int(lines[name].split()[0]) for name in ("VmRSS", "RssAnon"))
            sizes.setdefault(entry["type"], []).append((resident, own))
        return sizes


def decoded(text):
    """Bytes of the base64 that the protocol carries."""
    return base64.b64decode(text)
