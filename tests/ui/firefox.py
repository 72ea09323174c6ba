"""firefox.py: Debian's Firefox without a display, driven over its own protocol, Marionette.

Messages travel over a TCP connection on this machine, as `LENGTH:JSON`, so that no geckodriver is
needed, which Debian 12 does not have.  A Firefox is one process with a profile that is thrown away.
"""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

TIMEOUT_S = 60
POLL_S = 0.02
PREFERENCES = {
    "marionette.port": 0,  # one that the kernel gives
    "network.proxy.type": 0, "network.dns.disabled": True, "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False, "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.enabled": False, "extensions.enabled": False, "dom.ipc.processCount": 1,
    "remote.prefs.recommended": True, "browser.startup.page": 0,
}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# Takes errors and warnings of the pages of an origin out of the browser's console.
MESSAGES = """const found = Services.console.getMessageArray()
    .filter((message) => message instanceof Ci.nsIScriptError && message.sourceName?.startsWith(arguments[0]))
    .map((message) => `${message.errorMessage} ${message.sourceName}:${message.lineNumber}`);
Services.console.reset();
return found;"""


def program():
    """The command of Firefox; None where it is not installed."""
    return shutil.which("firefox-esr") or shutil.which("firefox")


class Failure(Exception):
    """Firefox refuses a command, or does not answer."""


class Firefox:
    """One Firefox process with one window."""

    def __init__(self, width=1280, height=800):
        self.directory = tempfile.mkdtemp(prefix="attn-ui-")
        profile = pathlib.Path(self.directory, "profile")
        profile.mkdir()
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
        (profile / "user.js").write_text("\n".join(lines), "utf-8")
        with open(os.path.join(self.directory, "log"), "wb") as log:
            self.process = subprocess.Popen(
                [program(), "--headless", "--no-remote", "--marionette",
                 "--remote-allow-system-access", "--profile", str(profile),
                 "--width", str(width), "--height", str(height)],
                env={**os.environ, "HOME": self.directory, "MOZ_HEADLESS": "1"},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.number, self.buffer = 0, b""
        self.socket = socket.create_connection(("127.0.0.1", self._port(profile)), TIMEOUT_S)
        self._message()  # its greeting
        self.call("WebDriver:NewSession")

    def _port(self, profile):
        """The port that Firefox writes once it listens."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until and self.process.poll() is None:
            path = profile / "MarionetteActivePort"
            if path.exists() and path.read_text("ascii"):
                return int(path.read_text("ascii"))
            time.sleep(POLL_S)
        raise Failure(pathlib.Path(self.directory, "log").read_text("utf-8", "replace")[-2000:])

    def close(self):
        """Ends Firefox and removes what it wrote."""
        try:
            self.call("Marionette:Quit", flags=["eForceQuit"])
            self.process.wait(10)
        except (Failure, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.socket.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _message(self):
        while b":" not in self.buffer or len(self.buffer) < self._length()[1]:
            data = self.socket.recv(1 << 16)
            if not data:
                raise Failure("Firefox has closed the connection")
            self.buffer += data
        begin, end = self._length()
        message, self.buffer = json.loads(self.buffer[begin:end]), self.buffer[end:]
        return message

    def _length(self):
        digits = self.buffer.index(b":")
        return digits + 1, digits + 1 + int(self.buffer[:digits])

    def call(self, name, **parameters):
        """The result of a command."""
        self.number += 1
        data = json.dumps([0, self.number, name, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(data), data))
        _, _, error, result = self._message()
        if error:
            raise Failure(f"{name}: {error['error']}: {error['message']}")
        return result["value"] if isinstance(result, dict) and set(result) == {"value"} else result

    # ---- What a user does ------------------------------------------------------------------

    def open(self, url):
        """Loads a page."""
        self.call("WebDriver:Navigate", url=url)

    def evaluate(self, body, *arguments):
        """What the body of a function returns in the page."""
        return self.call("WebDriver:ExecuteScript", script=body, args=list(arguments))

    def wait(self, expression, seconds=TIMEOUT_S):
        """Waits until the expression is true, and returns its value."""
        until = time.monotonic() + seconds
        while not (value := self.evaluate(f"return {expression}")):
            if time.monotonic() > until:
                raise AssertionError(f"waited {seconds} s for {expression}")
            time.sleep(POLL_S)
        return value

    def find(self, testid):
        """The id of the element with that data-testid, once it is there."""
        self.wait(f"document.querySelector('[data-testid={testid}]')")
        found = self.call("WebDriver:FindElement", using="css selector", value=f"[data-testid={testid}]")
        return found[ELEMENT]

    def click(self, testid):
        """Clicks an element, scrolled into view."""
        self.call("WebDriver:ElementClick", id=self.find(testid))

    def type(self, testid, text):
        """Types into an element, or gives a file input a path."""
        self.call("WebDriver:ElementSendKeys", id=self.find(testid), text=text)

    def messages(self, origin):
        """Errors and warnings of the pages of an origin, since they were asked for last."""
        self.call("Marionette:SetContext", value="chrome")
        found = self.evaluate(MESSAGES, origin)
        self.call("Marionette:SetContext", value="content")
        return found
