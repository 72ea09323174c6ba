"""page.py: a tab of the browser: what a user does in it, and everything that goes wrong there.

A Page watches from before its first document on: console messages, exceptions, violations of the
Content-Security-Policy (as the browser reports them and as the document's own event), and every
request with its origin.  `faults()` lists what must not have been.
"""
import json
import os
import pathlib
import re
import time
import urllib.parse

from devtools import ProtocolError, decoded

WAIT_S = 20
# Each reply comes so much later, as from a daemon far away: tests that do not wait fail with it.
LATE = {"offline": False, "latency": int(os.environ.get("LATENCY_MS", "0")),
        "downloadThroughput": -1, "uploadThroughput": -1}
POLL_S = 0.01
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "ArrowLeft": (37, ""),
        "ArrowUp": (38, ""), "ArrowRight": (39, ""), "ArrowDown": (40, ""), "PageUp": (33, ""),
        "PageDown": (34, ""), "End": (35, ""), "Home": (36, ""), "Space": (32, " ")}
SHIFTED = "?+_~!@#$%^&*()"
WATCH = """document.addEventListener("securitypolicyviolation", (event) =>
    attndWatch(`${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}`), true);"""
FIND = """(where) => {
    const at = where.startsWith("/") || /[[ #.:>]/.test(where) ? where : `[data-testid="${where}"]`;
    return document.querySelector(at);
}"""


HIT = """(element, x, y) => {
    const hit = document.elementFromPoint(x, y);
    return Boolean(hit) && (element.contains(hit) || hit.contains(element)
        || Boolean(hit.closest("label")?.contains(element)));
}"""


class Page:
    """One tab in a browser context of its own, so that no storage is shared with another."""

    def __init__(self, browser, context=None, width=1440, height=900, theme="light"):
        self.browser, self.owns = browser, context is None
        self.context = context or browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", {
            "url": "about:blank", "browserContextId": self.context})["targetId"]
        self.session = browser.call("Target.attachToTarget", {
            "targetId": self.target, "flatten": True})["sessionId"]
        self.sessions = {self.session}
        self.requests, self.console, self.violations = [], [], []
        self.replies = {}  # request -> {url, method, status, bytes}
        self.origin, self.expected = None, []
        self._watch()
        self.size(width, height)
        self.theme(theme)

    def close(self):
        """Closes the tab, and its context where it is its own."""
        for session in self.sessions:
            self.browser.handlers.pop(session, None)
        self.browser.call("Target.closeTarget", {"targetId": self.target})
        if self.owns:
            self.browser.call("Target.disposeBrowserContext", {"browserContextId": self.context})

    def call(self, method, **params):
        """A command to this tab."""
        return self.browser.call(method, params, self.session)

    # ---- What is watched -------------------------------------------------------------------

    def _watch(self):
        self._adopt(self.session)
        for domain in ("Page", "Log", "Audits", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Runtime.addBinding", name="attndWatch", executionContextName="watch")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH, worldName="watch")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call("Network.setCacheDisabled", cacheDisabled=True)

    def _adopt(self, session):
        """Watches the tab, or a worker or frame in a process of its own, of that session."""
        self.sessions.add(session)
        self.browser.handlers[session] = self._event
        for method, params in (
                ("Runtime.enable", {}), ("Network.enable", {}),
                ("Network.emulateNetworkConditions", LATE),
                ("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": True,
                                          "flatten": True}),
                ("Runtime.runIfWaitingForDebugger", {})):
            self.browser.post(method, params, session)

    def _event(self, method, params):
        handler = {
            "Target.attachedToTarget": lambda: self._adopt(params["sessionId"]),
            "Network.requestWillBeSent": self._request,
            "Network.webSocketCreated": lambda p: self.requests.append(p["url"]),
            "Network.responseReceived": self._response,
            "Network.loadingFinished": self._finished,
            "Runtime.consoleAPICalled": self._console,
            "Runtime.exceptionThrown": self._exception,
            "Runtime.bindingCalled": lambda p: self.violations.append(p["payload"]),
            "Log.entryAdded": self._log,
            "Audits.issueAdded": self._issue,
        }.get(method)
        if handler:
            handler() if method == "Target.attachedToTarget" else handler(params)

    def _request(self, params):
        request = params["request"]
        self.requests.append(request["url"])
        self.replies[params["requestId"]] = {
            "url": request["url"], "method": request["method"], "status": 0, "bytes": 0}

    def _response(self, params):
        if params["requestId"] in self.replies:
            self.replies[params["requestId"]]["status"] = params["response"]["status"]

    def _finished(self, params):
        if params["requestId"] in self.replies:
            self.replies[params["requestId"]]["bytes"] = params["encodedDataLength"]

    def _console(self, params):
        if params["type"] in ("error", "warning", "assert"):
            texts = [str(part.get("value", part.get("description", ""))) for part in params["args"]]
            self.console.append(f"console.{params['type']}: {' '.join(texts)}")

    def _exception(self, params):
        details = params["exceptionDetails"]
        thrown = details.get("exception", {}).get("description", "")
        self.console.append(f"exception: {details['text']} {thrown}")

    def _log(self, params):
        entry = params["entry"]
        if entry["level"] in ("error", "warning"):
            self.console.append(f"{entry['source']} {entry['level']}: {entry['text']} "
                                f"{entry.get('url', '')}")

    def _issue(self, params):
        details = params["issue"]["details"].get("contentSecurityPolicyIssueDetails")
        if details:
            self.violations.append(f"{details['violatedDirective']} "
                                   f"{details.get('blockedURL', '')}")

    def expect(self, pattern):
        """Console messages that match `pattern` are part of what is tested."""
        self.expected.append(re.compile(pattern))

    def foreign(self):
        """Requests that went, or were to go, to another origin than the page's."""
        def own(url):
            parts = urllib.parse.urlsplit(url.removeprefix("blob:"))
            return parts.scheme in ("data", "about") or f"{parts.scheme}://{parts.netloc}" == self.origin
        return [url for url in self.requests if not own(url)]

    def faults(self):
        """All that must not have been: messages not expected, values that are no text, violations,
        foreign requests."""
        shown = self.evaluate("document.body?.innerText ?? ''")  # what was under way has come
        messages = [text for text in self.console
                    if not any(pattern.search(text) for pattern in self.expected)]
        odd = re.findall(r".{0,30}(?:\[object |undefined|\bNaN\b).{0,30}", shown)
        return ([f"console: {text}" for text in messages] + [f"text: {text}" for text in odd] +
                [f"policy: {text}" for text in self.violations] +
                [f"foreign: {url}" for url in self.foreign()])

    # ---- Where the tab is ------------------------------------------------------------------

    def open(self, url, wait=True):
        """Loads `url`, whose origin is from now on the page's own."""
        parts = urllib.parse.urlsplit(url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.call("Page.navigate", url=url)
        if wait:
            self.wait("document.readyState === 'complete'", f"{url} to load")

    def reload(self):
        """Loads the document again."""
        self.evaluate("window.attndBefore = true")
        self.call("Page.reload")
        self.wait("!window.attndBefore && document.readyState === 'complete'", "the reload")

    def size(self, width, height=900, ratio=1):
        """The width and height of the window, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=ratio, mobile=False)

    def theme(self, name):
        """What the system prefers: "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, path, whole=False):
        """Writes what is seen as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(decoded(shot["data"]))

    # ---- What the document says ------------------------------------------------------------

    def evaluate(self, expression, *arguments):
        """The value of an expression; with arguments, of the function called with them."""
        if arguments:
            expression = f"({expression})({', '.join(map(json.dumps, arguments))})"
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                          awaitPromise=True, userGesture=True)
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description", details["text"]))
        return reply["result"].get("value")

    def on(self, where, function, *arguments):
        """The value of function(element, ...arguments); `where` is a data-testid or a selector."""
        return self.evaluate(
            f"(where, ...more) => {{ const found = ({FIND})(where);"
            f" if (!found) throw new Error(`nothing is ${{where}}`);"
            f" return ({function})(found, ...more); }}", where, *arguments)

    def wait(self, expression, what, seconds=WAIT_S):
        """Waits until the expression is true, and returns its value."""
        until = time.monotonic() + seconds
        while True:
            try:
                value = self.evaluate(expression)
            except ProtocolError as error:
                if "context" not in str(error).lower():  # a navigation is under way
                    raise
                value = None
            if value:
                return value
            if time.monotonic() > until:
                raise AssertionError(f"waited {seconds} s for {what}; the page says: "
                                     f"{self.error_texts()} {self.console[-3:]}")
            time.sleep(POLL_S)

    def wait_for(self, where, condition="element => true", seconds=WAIT_S):
        """Waits until the element is there, and condition(element) true; returns its value."""
        return self.wait(f"(() => {{ const found = ({FIND})({json.dumps(where)});"
                         f" return found && ({condition})(found); }})()",
                         f"{where}: {condition}", seconds)

    def has(self, where):
        """Whether the element is there, and shown."""
        return self.evaluate(f"(where) => {{ const found = ({FIND})(where);"
                             " return Boolean(found?.checkVisibility({ visibilityProperty: true })); }", where)

    def text(self, where):
        """The text of an element."""
        return self.on(where, "element => element.textContent")

    def ax(self, where):
        """What assistive software is told of an element: role, name; scrolled into view for it."""
        self.place(where)
        found = self.call("Runtime.evaluate", expression=f"({FIND})({json.dumps(where)})")
        for _ in range(200):
            node = self.call("Accessibility.getPartialAXTree", fetchRelatives=False,
                             objectId=found["result"]["objectId"])["nodes"][0]
            if not node["ignored"]:
                return {name: node.get(name, {}).get("value") for name in ("role", "name")}
            self.browser.receive(POLL_S)  # what was out of sight is laid out with the next frame
        raise AssertionError(f"{where} is not told to assistive software")

    def error_texts(self):
        """All errors that the page shows."""
        return self.evaluate("""[...document.querySelectorAll("[data-testid=error]")]
            .map((element) => element.textContent)""")

    # ---- What a user does ------------------------------------------------------------------

    def reveal(self, where):
        """Waits for an element, and opens what is folded around it."""
        self.wait_for(where)
        self.on(where, """(element) => {
            for (let at = element; at; at = at.parentElement?.closest("details:not([open])"))
                if (at !== element) at.open = true;
        }""")

    def place(self, where):
        """The middle of an element, scrolled into view: [x, y]."""
        self.reveal(where)
        return self.on(where, """(element) => {
            element.scrollIntoView({ block: "center", inline: "nearest", behavior: "instant" });
            const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }""")

    def mouse(self, kind, x, y, **more):
        """An event of the mouse: mouseMoved, mousePressed, mouseReleased, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, where):
        """Moves the mouse to the middle of an element."""
        self.mouse("mouseMoved", *self.place(where))

    def click(self, where):
        """Clicks in the middle of an element, which must be what is hit there."""
        until = time.monotonic() + WAIT_S
        while True:  # what was computed meanwhile may have moved it
            x, y = self.place(where)
            if self.on(where, HIT, x, y):
                break
            if time.monotonic() > until:
                raise AssertionError(f"{where} is hidden or covered at {x:.0f}, {y:.0f}")
            self.browser.receive(0.02)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1, buttons=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def drag(self, start, end, steps=4):
        """Presses at `start`, moves to `end`, releases."""
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", clickCount=1, buttons=1)
        for i in range(1, steps + 1):
            self.mouse("mouseMoved", *[a + (b - a) * i / steps for a, b in zip(start, end)],
                       button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)

    def press(self, key, shift=False, times=1):
        """Presses a key: a name of KEYS or a character."""
        code, text = KEYS.get(key, (ord(key[0].upper()), key))
        name = " " if key == "Space" else key
        event = {"key": name, "code": key if key in KEYS else "", "windowsVirtualKeyCode": code,
                 "modifiers": 8 if shift or key in SHIFTED else 0}
        for _ in range(times):
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown",
                      **event, **({"text": text} if text else {}))
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        """Types into what has the focus."""
        self.call("Input.insertText", text=text)

    def fill(self, where, text):
        """Replaces the text of a field, as by typing, and leaves the field."""
        self.reveal(where)
        self.wait_for(where, "(element) => element.checkVisibility()")  # none else takes the focus
        self.on(where, "(element) => { element.focus(); element.select?.(); }")
        self.type(text)
        self.on(where, "(element) => element.dispatchEvent(new Event('change', {bubbles: true}))")

    def choose(self, where, value):
        """Sets a <select>, range or number field to `value`, as its user would."""
        self.reveal(where)
        found = self.on(where, """(element, value) => {
            element.value = value;
            element.dispatchEvent(new Event("input", { bubbles: true }));
            element.dispatchEvent(new Event("change", { bubbles: true }));
            return element.value;
        }""", str(value))
        if found != str(value):
            raise AssertionError(f"{where} cannot be {value}")

    def files(self, where, *paths):
        """Chooses files in a file input."""
        self.wait_for(where)
        found = self.call("Runtime.evaluate", expression=f"({FIND})({json.dumps(where)})")
        self.call("DOM.setFileInputFiles", objectId=found["result"]["objectId"],
                  files=[str(path) for path in paths])

    # ---- What leaves the page --------------------------------------------------------------

    def downloaded(self, action, directory):
        """The path of the file that `action()` makes the page offer."""
        directory = pathlib.Path(directory)
        before = set(directory.iterdir())
        self.browser.call("Browser.setDownloadBehavior", {
            "behavior": "allow", "browserContextId": self.context, "downloadPath": str(directory)})
        action()
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            new = [path for path in set(directory.iterdir()) - before
                   if path.suffix != ".crdownload" and not path.name.startswith(".")
                   and path.stat().st_size > 0]  # the name is there before the content
            if new:
                return new[0]
            self.browser.receive(0.02)
        raise AssertionError(f"nothing was downloaded; the page says: {self.error_texts()}")

    def copied(self, action):
        """The text that `action()` puts on the clipboard."""
        self.browser.call("Browser.grantPermissions", {
            "browserContextId": self.context, "origin": self.origin,
            "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        self.evaluate("navigator.clipboard.writeText('nothing was copied')")
        action()
        return self.wait("""navigator.clipboard.readText().then((text) =>
            text !== "nothing was copied" && text)""", "the clipboard")
