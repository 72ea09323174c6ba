"""test_proxies.py: the page behind a proxy: logins, a path, files that are kept or do not arrive.

Gate stands before attnd.  Below /open/ all requests pass, below /cookie/ those with the cookie that
/login gives, below /basic/ those with a user and password; /lost/ passes all but `lost`.
"""
import base64
import json
import threading
import urllib.parse

from case import Case, TINY, directory, start
import page_proxy
from view import View

USER = "me:secret"
ALLOWED = "Basic " + base64.b64encode(USER.encode()).decode()


class Gate(page_proxy.Handler):
    """One connection of a browser to the proxy."""

    lost = "mask.js"

    def _relay(self):
        prefix, _, rest = self.path[1:].partition("/")
        if self.path == "/login":
            self._say(200, ("Set-Cookie", "session=good; Path=/; HttpOnly"))
        elif prefix == "cookie" and self.headers["Cookie"] != "session=good":
            self._say(302, ("Location", "/login"))
        elif prefix == "basic" and self.headers["Authorization"] != ALLOWED:
            self._say(401, ("WWW-Authenticate", 'Basic realm="gate"'))
        elif prefix == "lost" and rest == f"ui/{self.lost}":
            self._say(502)
        else:
            self.path = "/" + rest
            super()._relay()

    def _say(self, status, *fields):
        self._send_head(status, [("Content-Type", "text/html"), ("Content-Length", "0"), *fields])


class Proxies(Case):
    """A daemon behind Gate."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = start([TINY])
        cls.proxy = page_proxy.PageProxy(cls.daemon.url, "/capture", directory() / "none")
        cls.proxy.RequestHandlerClass = Gate
        threading.Thread(target=cls.proxy.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.proxy.shutdown()
        cls.proxy.server_close()

    def shown(self, page, path, base=None):
        """The first head over a text, below `path`."""
        view = View(page, (base or self.proxy.url) + path)
        return view.open(text="a b c", layer=0, head=0).wait_map(0, 0)

    def test_login_by_cookie_counts_for_the_calls_of_the_page(self):
        page = self.page(self.proxy.url + "/login")
        self.shown(page, "/cookie")

    def test_login_that_has_ended_is_told(self):
        page = self.page(self.proxy.url + "/login")
        view = self.shown(page, "/cookie")
        page.call("Network.clearBrowserCookies")
        view.set(text="d e f")
        page.wait_for("error", "({ textContent }) => /login .* reload/.test(textContent)")

    def test_user_and_password_in_the_address_count_and_are_not_copied(self):
        url = self.proxy.url.replace("//", f"//{USER}@")
        page = self.page(judged=False)
        self.shown(page, "/basic", url)
        self.assertEqual([text for text in page.console if "401" not in text], [])
        self.assertEqual(page.violations, [])
        page.origin = self.proxy.url
        command = page.copied(lambda: page.click("export-curl"))
        self.assertIn(f"'{self.proxy.url}/basic/attend'", command)
        page.reload()
        page.wait_for("map", "(canvas) => canvas.ariaBusy !== 'true'")

    def test_commands_and_description_name_the_path_that_a_proxy_has_put_before(self):
        page = self.page()
        self.shown(page, "/open")
        for name in ("curl", "python", "link"):
            text = page.copied(lambda name=name: page.click(f"export-{name}"))
            self.assertIn(f"{self.proxy.url}/open", text)
        document = json.loads(page.evaluate("fetch('openapi.json').then((reply) => reply.text())"))
        [server] = document["servers"]
        there = urllib.parse.urljoin(f"{self.proxy.url}/open/openapi.json", server["url"])
        self.assertEqual(there, f"{self.proxy.url}/open/")

    def test_script_that_does_not_arrive_is_named(self):
        for name in ("mask.js", "app.js", "attn-client.mjs"):
            Gate.lost = name
            page = self.page(self.proxy.url + "/lost/#text=a", judged=False)
            page.wait_for("not-loaded")
            self.assertIn(f"{name} did not arrive whole", page.text("not-loaded"))
            self.assertIn("Reload", page.text("not-loaded"))
            self.assertEqual(page.violations, [])
        Gate.lost = "none"
        page.reload()
        page.wait_for("input-model")
        self.assertFalse(page.has("not-loaded"))

    def test_second_visit_fetches_no_file_again(self):
        page = self.page()
        page.call("Network.setCacheDisabled", cacheDisabled=False)
        self.shown(page, "", self.daemon.url)
        first = len(page.replies)
        page.reload()
        page.wait_for("map", "(canvas) => canvas.ariaBusy !== 'true'")
        again = [reply for reply in list(page.replies.values())[first:] if "/ui/" in reply["url"]]
        self.assertGreater(len(again), 30)
        self.assertEqual({reply["status"] for reply in again}, {304})
        self.assertLess(sum(reply["bytes"] for reply in again), 300 * len(again))  # headers alone
