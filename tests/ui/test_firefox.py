"""test_firefox.py: the page in Debian's Firefox: the first screen, a file, values, looks."""
import json
import re
import unittest

import inputs
from case import QUICK, TOP, Case, directory, start
from firefox import Firefox, program
from fixture import HEADS, LAYERS, MODEL, WIDTH
from test_looks import CUT, MISPLACED
from view import PAINTED

FACTS = json.loads((TOP / "server" / "ui" / "demo.json").read_text("utf-8"))
TOKENS = inputs.SENTENCE
MAP = f"""(() => {{
    const map = document.querySelector("[data-testid=map]");
    return map?.ariaBusy === "false" && ({PAINTED})(map);
}})()"""


def shown(testid, pattern):
    """An expression: the text of an element, where it matches."""
    return f"""(() => {{
        const text = document.querySelector("[data-testid={testid}]")?.textContent ?? "";
        return {pattern}.test(text) && text;
    }})()"""


@unittest.skipIf(QUICK, "part of the whole form")
@unittest.skipUnless(program(), "Firefox is not here: tests/tools/deps.sh firefox installs Debian's")
class InFirefox(Case):
    """One window for all tests."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = start([{"name": "demo", "path": str(TOP / "examples" / "demo")},
                            {"name": MODEL, "path": str(TOP / "tests" / "golden" / MODEL / "model")}])
        cls.firefox = Firefox()
        cls.addClassCleanup(cls.firefox.close)

    def opened(self, fragment=""):
        """The window at the page, whose messages are looked at when the test ends."""
        self.firefox.open("about:blank")
        self.firefox.messages(self.daemon.url)  # of scripts that ended with the page before
        self.firefox.open(f"{self.daemon.url}/{fragment}")
        self.addCleanup(lambda: self.assertEqual(self.firefox.messages(self.daemon.url), []))
        return self.firefox

    def settled(self, page):
        """Waits until all heads are painted and nothing is computed."""
        page.wait("document.querySelector('#progress').hidden"
                  " && document.querySelector('.all-heads')?.ariaBusy === 'false'")

    def test_first_screen_says_what_is_seen_and_follows_what_is_typed(self):
        page = self.opened()
        story = page.wait(shown("story", "/ringed cell/"))
        self.assertIn(FACTS["heads"][0]["text"], story)
        self.assertRegex(page.wait(shown("next", "/%/")), "expected next: lamp")
        self.settled(page)
        self.assertEqual(page.evaluate(f"return ({MISPLACED})()"), [])
        self.assertEqual(page.evaluate(f"return ({CUT})()"), [])
        field = "document.querySelector('[data-testid=input-sentence]')"
        self.assertTrue(page.evaluate(f"return {field}.scrollHeight <= {field}.clientHeight + 1"))
        page.type("input-sentence", " lamp and a")
        page.wait(shown("next", "/%/") + " && /lamp\\+and\\+a|lamp%20and%20a/.test(location.hash)")
        page.click("head-2-3")
        page.wait(shown("head-title", "/Layer 2, head 3: previous/"))

    def test_a_capture_of_the_disk_shows_the_numbers_of_the_api(self):
        path = directory() / "capture.safetensors"
        rows = inputs.capture(path, MODEL, LAYERS, WIDTH)
        page = self.opened(f"#model={MODEL}&text=a&layer=1&head=2")
        page.wait(MAP)
        self.settled(page)
        page.evaluate("document.querySelector('[data-testid=input-panel]').open = true")
        page.click("input-kind-capture")
        page.type("input-capture", str(path))
        page.wait("document.querySelector('#overview h2').textContent.includes('capture.safetensors')")
        self.settled(page)
        page.wait(MAP)
        expected = self.client(self.daemon).attend(rows[1], model=MODEL, layer=1, heads=[2],
                                                   outputs=["attention_weights"])["attention_weights"][0]
        for row, column in ((20, 6), (13, 1)):
            page.evaluate("""const given = new URLSearchParams(location.hash.slice(1));
                given.set("cell", arguments[0]);
                location.hash = given;""", f"{row},{column}")
            text = page.wait(shown("cell", f"/^query {row} .*key {column} /"))
            self.assertAlmostEqual(float(re.search(r": ([\d.e-]+)$", text)[1]), expected[row, column], 5)
        count = "document.querySelectorAll('button[data-testid^=head-] canvas').length"
        self.assertEqual(page.evaluate(f"return {count}"), LAYERS * HEADS)

    def test_views_keys_and_what_if(self):
        page = self.opened("#sentence=the+cat+and+the+cat+and+the+cat&layer=3&head=2")
        page.wait(MAP)
        for view, there in (("lines", ".lines-sides"), ("neurons", ".neuron-table"),
                            ("compare", ".compare-maps canvas")):
            page.click(f"view-{view}")
            page.wait(f"document.querySelector('{there}')?.checkVisibility()")
            self.settled(page)
            self.assertEqual(page.evaluate(f"return ({MISPLACED})()"), [], view)
        page.click("view-map")
        page.click("off-this")
        page.wait(shown("change", r"/\d %/"))
        page.click("off-this")
        page.type("map", "++")
        page.wait("/area=/.test(location.hash)")
        page.type("map", "]")
        page.wait(shown("head-title", "/Layer 3, head 3/"))
