"""test_sessions.py: the second tab: sessions and load, compared with the daemon's own answers."""
import re

import numpy

import inputs
from attn_client import AttnError
from case import Case, TINY, directory, start, whole
from test_access import ADMIN, KEY, keys_file
from view import View

TOKENS = 6
WIDTH = 8


class Sessions(Case):
    """Sessions of a daemon without API keys."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = start([TINY])

    def setUp(self):
        self.api = self.client(self.daemon)
        for session in list(self.api.sessions()):
            self.api.open(session["session_id"]).end()

    def session(self, name):
        """A session with TOKENS tokens in both layers."""
        made = self.api.session(session_id=name, model="tiny")
        made.keep = True
        for layer in (0, 1):
            made.prefill(inputs.rows_of("abcdef"[:TOKENS], WIDTH, layer), layer=layer)
        return made

    def tab(self):
        """A page on the second tab, with its list."""
        page = self.page(self.daemon.url + "/#tab=sessions")
        page.wait_for("#session-list table", "(table) => table.ariaBusy === 'false'")
        return page

    def do(self, page, name, deed):
        """Presses a button in a session's row."""
        page.click(f"[data-testid='session-row-{name}'] [data-testid={deed}]")

    def lengths(self, name):
        """The tokens of each layer, as the daemon has them."""
        return {entry["length"] for entry in self.api.get(f"/sessions/{name}")["lengths"]}

    def test_list_shows_what_the_daemon_lists(self):
        self.session("alpha")
        self.session("beta")
        page = self.tab()
        for session in self.api.sessions():
            row = page.text(f"session-row-{session['session_id']}")
            self.assertIn("tiny", row)
            self.assertIn(f"{TOKENS} of {session['max_length']}", row)
            text = page.text(f"[data-testid='session-row-{session['session_id']}'] "
                             "[data-name=Bytes]")
            size, unit = re.fullmatch(r"([\d.]+) (k?)B", text).groups()
            self.assertAlmostEqual(float(size) * (1000 if unit else 1), session["bytes"],
                                   delta=0.006 * session["bytes"])
            self.assertRegex(row, r"\d+ s of ")

    def test_fork_truncate_and_delete_do_what_they_say(self):
        self.session("alpha")
        page = self.tab()
        self.do(page, "alpha", "fork")
        page.fill("ask-id", "branch")
        page.fill("ask-length", "4")
        page.click("ask-yes")
        page.wait_for("session-row-branch")
        self.assertEqual(self.lengths("branch"), {4})
        self.do(page, "branch", "truncate")
        page.fill("ask-length", "2")
        page.click("ask-yes")
        page.wait_for("session-row-branch", "(row) => /2 of/.test(row.textContent)")
        self.assertEqual(self.lengths("branch"), {2})
        self.assertEqual(self.lengths("alpha"), {TOKENS})
        self.do(page, "branch", "delete")
        page.click("ask-no")
        self.assertEqual(self.lengths("branch"), {2})
        self.do(page, "branch", "delete")
        page.click("ask-yes")
        page.wait("!document.querySelector('[data-testid=session-row-branch]')", "the row to go")
        with self.assertRaises(AttnError):
            self.lengths("branch")
        self.assertEqual(self.lengths("alpha"), {TOKENS})

    @whole
    def test_export_is_the_state_that_the_daemon_gives(self):
        session = self.session("alpha")
        page = self.tab()
        into = directory()
        path = page.downloaded(lambda: self.do(page, "alpha", "export"), into)
        self.assertEqual(path.name, "alpha.safetensors")
        self.api.restore("again", path.read_bytes())
        self.assertEqual(self.lengths("again"), {TOKENS})
        row = inputs.rows_of("z", WIDTH)[0]
        first = session.decode(row)["output"]
        second = self.api.open("again").decode(row)["output"]
        self.assertEqual(numpy.asarray(first).tobytes(), numpy.asarray(second).tobytes())

    @whole
    def test_look_opens_the_session_in_the_first_tab(self):
        self.session("alpha")
        page = self.tab()
        self.do(page, "alpha", "look")
        page.wait_for("#overview h2", "(element) => element.textContent.includes('session alpha')")
        page.wait("document.querySelectorAll('[data-testid^=head-] canvas').length === 8", "heads")
        self.assertTrue(page.has("#overview"))
        self.assertIn("session=alpha", page.evaluate("location.hash"))
        page.reload()
        page.wait_for("#overview h2", "(element) => element.textContent.includes('session alpha')")

    def test_look_shows_a_session_without_weights(self):
        made = self.api.session(session_id="bare", num_attention_heads=4, num_key_value_heads=2,
                                head_dim=WIDTH)
        made.keep = True
        rows = {name: inputs.rows_of("abcde", heads * WIDTH, heads).reshape(5, heads, WIDTH)
                .transpose(1, 0, 2) for name, heads in (("query", 4), ("key", 2), ("value", 2))}
        made.prefill(**rows)
        page = self.tab()
        self.assertIn("without weights", page.text("session-row-bare"))
        self.do(page, "bare", "look")
        key = rows["key"]
        page.wait_for("#overview h2", "(element) => element.textContent.includes('session bare')")
        page.wait("document.querySelectorAll('[data-testid^=head-] canvas').length === 4", "heads")
        view = View(page, self.daemon.url)
        view.set(layer=0, head=3).wait_map(0, 3)
        score = key[1] @ key[1][-1] / WIDTH ** 0.5
        weights = numpy.exp(score - score.max())
        weights /= weights.sum()
        for column in range(5):
            self.assertAlmostEqual(float(view.select(0, column).value), weights[column], places=5)

    @whole
    def test_pages_turn(self):
        for number in range(27):
            self.api.session(session_id=f"s{number:02}", model="tiny").keep = True
        page = self.tab()
        self.assertTrue(page.has("session-row-s00"))
        page.click("next-page")
        page.wait_for("session-row-s26")
        self.assertFalse(page.has("session-row-s00"))
        page.click("previous-page")
        page.wait_for("session-row-s00")

    @whole
    def test_load_is_shown_by_stage(self):
        session = self.session("alpha")
        page = self.tab()
        row = inputs.rows_of("z", WIDTH)[0]
        for _ in range(20):
            session.decode(row)
        page.wait_for("live-latency", r"(card) => /compute/.test(card.textContent) && "
                                      r"/\d ms/.test(card.textContent)")
        for name in ("live-batch", "live-queue", "live-pool"):
            self.assertTrue(page.has(name), name)
            self.assertRegex(page.text(name), r"\d")
        asked = len([url for url in page.requests if url.endswith("/metrics")])
        page.click("tab-attention")
        page.evaluate("new Promise((done) => setTimeout(done, 1500))")
        later = len([url for url in page.requests if url.endswith("/metrics")])
        self.assertLessEqual(later - asked, 1, "reads metrics though the tab is hidden")

    @whole
    def test_charts_take_the_colours_of_the_theme_at_once(self):
        page = self.tab()
        page.wait_for("live-queue", r"(card) => /\d/.test(card.querySelector('tbody').textContent)")
        pixel = """(card) => { const canvas = card.querySelector("canvas");
            const { height, width } = canvas;
            const copy = new OffscreenCanvas(width, height).getContext("2d");
            copy.drawImage(canvas, 0, 0);
            return [...copy.getImageData(width >> 1, 8, 1, 1).data]; }"""
        page.evaluate("Object.defineProperty(document, 'visibilityState', { value: 'hidden' });"
                      "document.dispatchEvent(new Event('visibilitychange'))")  # no reading comes
        light = ",".join(map(str, page.on("live-queue", pixel)))
        page.theme("dark")
        page.wait_for("live-queue", f"(card) => String(({pixel})(card)) !== '{light}'")
        page.choose("theme", "light")
        page.wait_for("live-queue", f"(card) => String(({pixel})(card)) === '{light}'")


class NoModel(Case):
    """A daemon that serves no model, as for an engine that keeps its own."""

    def test_page_says_so_and_shows_sessions_without_weights(self):
        daemon = start([])
        page = self.page(daemon.url + "/#text=a+b")
        page.wait("document.body.innerText.includes('serves no model')", "the sentence")
        made = self.client(daemon).session(session_id="bare", num_attention_heads=2, head_dim=4)
        made.keep = True
        rows = inputs.rows_of("abc", 8).reshape(3, 2, 4).transpose(1, 0, 2)
        made.prefill(query=rows, key=rows, value=rows)
        page.click("tab-sessions")
        page.click("[data-testid='session-row-bare'] [data-testid=look]")
        page.wait("document.querySelectorAll('[data-testid^=head-] canvas').length === 2", "heads")


class Owners(Case):
    """Sessions of a daemon with API keys."""

    @whole
    def test_admin_sees_owners_and_another_key_is_told_what_it_lacks(self):
        daemon = start([TINY], **keys_file())
        self.client(daemon, api_key=KEY).session(session_id="own", model="tiny").keep = True
        page = self.page(daemon.url + "/#tab=sessions")
        page.expect("401|403")
        page.wait_for("dialog[open] [data-testid=key-input]")
        page.fill("key-input", ADMIN)
        page.click("key-save")
        row = page.wait_for("session-row-own", "(row) => row.textContent")
        self.assertIn("user", row)

    @whole
    def test_a_key_that_may_not_list_is_told_of_an_id_that_is_none(self):
        daemon = start([TINY], **keys_file())
        self.client(daemon, api_key=KEY).session(session_id="own", model="tiny").keep = True
        page = self.page(daemon.url + "/#tab=sessions")
        page.expect("401|403|404")
        page.wait_for("dialog[open] [data-testid=key-input]")
        page.fill("key-input", KEY)
        page.click("key-save")
        page.fill("session-id", "nosuch")
        page.click("session-open")
        page.wait_for("error", "(box) => box.textContent.includes('sees no session nosuch')")
        page.fill("session-id", "own")
        page.click("session-open")
        page.wait_for("session-row-own")
        self.assertEqual(page.error_texts(), [])
