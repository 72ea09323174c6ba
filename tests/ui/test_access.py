"""test_access.py: the page behind API keys and TLS, and beside daemons that stop or refuse."""
import http.server
import json
import signal
import subprocess
import threading

from case import Case, TINY, directory, golden, start, whole
from view import View

KEY = "k" * 40
ADMIN = "a" * 40
METRICS = "m" * 40


def keys_file():
    """The options of a daemon with three API keys."""
    path = directory() / "keys.json"
    path.write_text(json.dumps({"keys": [
        {"name": "user", "key": KEY, "scopes": ["infer"]},
        {"name": "ops", "key": ADMIN, "scopes": ["infer", "admin"]},
        {"name": "prometheus", "key": METRICS, "scopes": ["metrics"]}],
        "metrics_keys": True}), "utf-8")
    path.chmod(0o600)
    return {"api_keys": str(path)}


def certificate():
    """The options of a daemon with a certificate that nobody has signed."""
    path = directory()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", path / "key.pem", "-out", path / "cert.pem"],
        check=True, capture_output=True)
    return {"tls_cert": str(path / "cert.pem"), "tls_key": str(path / "key.pem")}


class Keys(Case):
    """A daemon with API keys: the page asks once, and keeps the key for its tab."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = start([TINY], **keys_file())

    def enter(self, page, key):
        """Types a key into the dialog."""
        page.wait_for("dialog[open] [data-testid=key-input]")
        page.fill("key-input", key)
        page.click("key-save")

    def test_key_is_asked_once_kept_for_the_tab_and_gone_in_another(self):
        page = self.page(self.daemon.url + "/")
        page.expect("401|403.*sessions")
        self.enter(page, KEY)
        View(page, self.daemon.url).page.wait_for("input-model", "(list) => list.options.length > 0")
        page.reload()
        page.wait_for("input-model", "(list) => list.options.length > 0")
        self.assertFalse(page.has("dialog[open] [data-testid=key-input]"))
        self.assertNotIn(KEY, page.evaluate("location.href"))
        self.assertNotIn(KEY, page.evaluate("document.documentElement.outerHTML"))
        self.assertEqual(page.evaluate("localStorage.length"), 0)
        self.assertEqual(page.evaluate("document.cookie"), "")
        other = self.page(self.daemon.url + "/", context=page.context)
        other.expect("401|403.*sessions")
        other.wait_for("dialog[open] [data-testid=key-input]")

    @whole
    def test_wrong_key_is_told_and_asked_again(self):
        page = self.page(self.daemon.url + "/")
        page.expect("401|403.*sessions")
        self.enter(page, "w" * 40)
        page.wait_for("dialog[open]", "(element) => /does not know this key/.test("
                                      "element.textContent)")
        self.enter(page, KEY)
        page.wait_for("input-model", "(list) => list.options.length > 0")

    @whole
    def test_key_without_a_scope_is_told_so(self):
        page = self.page(self.daemon.url + "/#tab=sessions")
        page.expect("401|403")
        self.enter(page, KEY)
        page.wait("/admin|scope/.test(document.querySelector('#sessions').textContent + "
                  "document.querySelector('#errors').textContent)", "what the key lacks")


class Tls(Case):
    """A daemon over TLS."""

    @whole
    def test_page_computes_over_tls(self):
        daemon = start([golden("llama_gqa")], **certificate())
        self.assertTrue(daemon.url.startswith("https://"))
        view = View(self.page(), daemon.url).text_rows("a b c d", model="llama_gqa")
        view.wait_overview(8)


class Failures(Case):
    """What the daemon refuses, or no longer answers, stands in the page as text with its hint."""

    def test_daemon_that_stops_in_the_middle_is_told_and_may_come_back(self):
        daemon = start([golden("llama_gqa")])
        view = View(self.page(), daemon.url).text_rows("a b c d", model="llama_gqa")
        view.wait_overview(8)
        view.page.expect("ERR_CONNECTION|Failed to load|Failed to fetch")
        daemon.kill()
        view.page.click("head-0-1")
        text = view.page.wait_for("error", "(element) => element.textContent")
        self.assertRegex(text, "running")

    def test_work_is_named_and_can_be_cancelled(self):
        daemon = start([golden("llama_gqa")])
        view = View(self.page(), daemon.url).text_rows("a b c d", model="llama_gqa")
        view.wait_overview(8).open_head(0, 0)
        daemon.process.send_signal(signal.SIGSTOP)  # computes for as long as this test wants
        try:
            view.page.click("head-1-3")
            view.page.wait_for("#progress", """(line) => !line.hidden
                && line.textContent.includes("Layer 1, head 3")""")
            view.page.click("cancel")
            view.page.wait_for("#progress", "(line) => line.hidden")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        view.open_head(1, 2)
        self.assertEqual(view.page.error_texts(), [])

    def test_refusal_413_is_text_with_its_hint(self):
        daemon = start([golden("llama_gqa")], max_body_bytes=2048)
        page = self.page()
        page.expect("413|ERR_CONNECTION|Failed to load")
        View(page, daemon.url).text_rows(" ".join(f"t{n}" for n in range(64)), model="llama_gqa")
        text = page.wait_for("error", "(element) => element.textContent")
        self.assertRegex(text, "max_body_bytes")

    @whole
    def test_refusal_422_is_text_with_its_hint(self):
        daemon = start([golden("llama_gqa")], max_tokens=8)
        page = self.page()
        page.expect("422|Failed to load")
        View(page, daemon.url).text_rows(" ".join(f"t{n}" for n in range(64)), model="llama_gqa")
        text = page.wait_for("error", "(element) => element.textContent")
        self.assertRegex(text, "max_tokens")

    @whole
    def test_wrong_model_in_the_address_is_told(self):
        daemon = start([golden("llama_gqa")])
        page = self.page()
        page.expect("404")
        View(page, daemon.url).text_rows("a b", model="<b>absent</b>")
        page.wait("document.body.textContent.includes('<b>absent</b>')", "the name as text")


class Notebook(http.server.BaseHTTPRequestHandler):
    """A page of another origin with the viewer in a frame, as a notebook shows it."""

    framed = None

    def do_GET(self):  # noqa: N802
        """The page, whatever its path."""
        body = (f'<link rel="icon" href="data:,"><iframe width="900" height="700" '
                f'src="{self.framed}/#text=a+b+c&amp;layer=0&amp;head=0"></iframe>').encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Says nothing."""


class Frames(Case):
    """Which pages may have the viewer in a frame."""

    def asked(self, url, daemon):
        """What a page with that daemon's viewer in a frame has loaded of it, once it is loaded."""
        Notebook.framed = daemon.url
        page = self.page(judged=False)  # two origins are meant
        page.open(url)
        page.wait("document.readyState === 'complete'", "the frame's load")
        return {one["url"].removeprefix(daemon.url) for one in page.replies.values()
                if one["url"].startswith(daemon.url) and one["status"] == 200}

    def test_pages_of_listed_origins_alone_may_frame_the_viewer(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Notebook)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}"
        self.assertIn("/ui/app.js", self.asked(url, start([TINY], allow_origins=[url])))
        others = self.asked(url, start([TINY], allow_origins=["https://app.example"]))
        self.assertNotIn("/ui/app.js", others)
