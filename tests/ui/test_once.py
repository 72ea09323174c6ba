"""test_once.py: large rows go to the daemon once, and calls name them."""
import numpy

import inputs
from case import Case, daemon, directory
from fixture import HEADS, LAYERS, MODEL, WIDTH
from view import View

TOKENS = 600
BYTES = 4 * TOKENS * WIDTH
# Notes method, path and bytes of each request; the first `lost` inputs are taken and thrown away.
WATCH = """(lost) => {
    const plain = window.fetch;
    window.attndSent = [];
    window.fetch = (url, init = {}) => {
        const { pathname } = new URL(url, location.href);
        const bytes = init.body?.byteLength ?? init.body?.length ?? 0;
        window.attndSent.push([init.method ?? "GET", pathname, bytes]);
        if (init.method === "PUT" && lost-- > 0) return plain("models"); // as if it had come
        return plain(url, init);
    };
}"""


class Once(Case):
    """A page with rows of 150 kB."""

    def sent(self, lost=0):
        """A page with a head of the rows open, and its requests."""
        path = directory() / "rows.npy"
        rows = inputs.rows_of([f"t{i}" for i in range(TOKENS)], WIDTH, lost).astype(numpy.float32)
        numpy.save(path, rows)
        view = View(self.page(), daemon().url)
        if lost:
            view.page.expect("404")
        view.open(model=MODEL, text="a b")
        view.wait_source("random").wait_overview(LAYERS * HEADS)
        view.page.evaluate(WATCH, lost)
        view.page.files("input-rows", path)
        view.wait_source("rows.npy").wait_overview(LAYERS * HEADS).open_head(1, 2)
        expected = self.client().attend(rows, model=MODEL, layer=1, heads=[2],
                                        outputs=["attention_weights"])["attention_weights"][0]
        self.assertEqual(view.select(500, 17).value.tobytes(), expected[500, 17].tobytes())
        return view, view.page.evaluate("window.attndSent")

    def test_rows_of_all_layers_and_heads_go_up_once(self):
        _, sent = self.sent()
        puts = [bytes for method, path, bytes in sent if method == "PUT" and "/inputs/" in path]
        self.assertEqual(len(puts), 1)
        self.assertGreaterEqual(puts[0], BYTES)
        calls = [bytes for method, path, bytes in sent if path == "/attend"]
        self.assertGreaterEqual(len(calls), LAYERS + 1)
        self.assertLess(max(calls), 2000)

    def test_rows_that_attnd_keeps_no_longer_are_sent_again(self):
        view, sent = self.sent(lost=1)
        self.assertEqual([method for method, _, _ in sent].count("PUT"), 2, sent)
        self.assertEqual(view.page.error_texts(), [])
