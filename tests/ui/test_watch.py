"""test_watch.py: each kind of fault, planted in a page of the test's own, is found by the watch."""
import http.server
import threading
import unittest

import axe
from case import Case

POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src data:"
TYPES = {"js": "text/javascript", "html": "text/html"}
DOCUMENT = '<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,">'
PLANTED = {
    "clean.html": DOCUMENT + "<title>clean</title><script src='/clean.js'></script>",
    "clean.js": "fetch('/clean.html').then((reply) => reply.text())",
    "script.html": DOCUMENT + "<script src='http://192.0.2.1/foreign.js'></script>",
    "fetch.html": DOCUMENT + "<script src='/fetch.js'></script>",
    "fetch.js": "fetch('http://foreign.example/').catch(() => null)",
    "worker.html": DOCUMENT + "<script src='/worker.js'></script>",
    "worker.js": "self.document ? new Worker('/worker.js') : fetch('//foreign.example/w')",
    "socket.html": DOCUMENT + "<script>new WebSocket('ws://foreign.example/')</script>",
    "error.html": DOCUMENT + "<script>console.error('planted')</script>",
    "throw.html": DOCUMENT + "<script>throw new Error('planted')</script>",
    "reject.html": DOCUMENT + "<script>Promise.reject(new Error('planted'))</script>",
    "missing.html": DOCUMENT + "<script src='/missing.js'></script>",
    "object.html": DOCUMENT + "<p>[object HTMLSpanElement]</p><p>NaN of undefined</p>",
    "style.html": DOCUMENT + "<body style='color: red'>",
    "inline.html": DOCUMENT + "<script>window.inline = 1</script>",
    "unnamed.html": DOCUMENT + "<title>unnamed</title><main><h1>h</h1><button></button></main>",
    "connect.html": DOCUMENT + "<script src='/fetch.js'></script>",
}
GUARDED = ("clean.html", "style.html", "inline.html", "connect.html")


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves PLANTED; the pages of GUARDED with a Content-Security-Policy."""

    def do_GET(self):
        name = self.path[1:]
        data = PLANTED.get(name, "").encode()
        self.send_response(200 if name in PLANTED else 404)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", TYPES[name.rpartition(".")[2]])
        if name in GUARDED:
            self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Watch(Case):
    """What Case.page asserts can fail."""

    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.url = f"http://127.0.0.1:{cls.server.server_port}/"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def found(self, name, pattern):
        """Opens a page with a planted fault, and waits until it is among the faults."""
        page = self.page(self.url + name, judged=False)
        for _ in range(500):
            faults = page.faults()
            if any(pattern in fault for fault in faults):
                return
            page.browser.receive(0.01)
        self.fail(f"{name}: no {pattern!r} among {faults}")

    def test_page_without_fault_has_none(self):
        page = self.page(self.url + "clean.html")
        page.wait("performance.getEntriesByName(location.href).length > 0", "its own request")

    def test_foreign_requests_are_found(self):
        self.found("script.html", "foreign: http://192.0.2.1/foreign.js")
        self.found("fetch.html", "foreign: http://foreign.example/")
        self.found("worker.html", "foreign: http://foreign.example/w")
        self.found("socket.html", "foreign: ws://foreign.example/")

    def test_console_errors_and_exceptions_are_found(self):
        self.found("error.html", "console: console.error: planted")
        self.found("throw.html", "console: exception: Uncaught Error: planted")
        self.found("reject.html", "console: exception: Uncaught (in promise) Error: planted")
        self.found("missing.html", "console: network error")
        self.found("object.html", "text: [object HTMLSpanElement]")
        self.found("object.html", "text: NaN of undefined")

    def test_violations_of_the_policy_are_found(self):
        self.found("style.html", "policy: style-src-attr")
        self.found("inline.html", "policy: script-src-elem")
        self.found("connect.html", "policy: connect-src")

    @unittest.skipUnless(axe.AXE, "axe-core is not here")
    def test_finding_of_axe_is_found(self):
        page = self.page(self.url + "unnamed.html")
        self.assertRegex(axe.findings(page)[0], "^button-name [(]critical[)]: button")

    def test_judged_page_with_a_fault_fails_its_test(self):
        case = Case()
        page = case.page(self.url + "error.html")
        self.assertTrue(page.faults())
        with self.assertRaises(AssertionError):
            case._leave(page, True)
        case._cleanups.clear()
