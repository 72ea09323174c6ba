"""test_once.py: large rows go to the daemon once, and calls name them."""
import numpy

import inputs
from case import Case, daemon, directory, golden, start
from fixture import HEADS, LAYERS, MODEL, WIDTH
from view import View

TOKENS = 600
BYTES = 4 * TOKENS * WIDTH
# Notes method, path and bytes of each request.  What becomes of the first inputs: "lost" ones are
# taken and thrown away, for "refused" ones there is no memory.
WATCH = """(answers) => {
    const refusal = JSON.stringify({ error: { code: "out_of_memory", message: "", retryable: true } });
    const plain = window.fetch;
    window.attndSent = [];
    window.fetch = (url, init = {}) => {
        const { pathname } = new URL(url, location.href);
        const bytes = init.body?.byteLength ?? init.body?.length ?? 0;
        window.attndSent.push([init.method ?? "GET", pathname, bytes]);
        const answer = init.method === "PUT" ? answers.shift() : undefined;
        if (answer === "lost") return plain("models"); // as if it had come
        if (answer === "refused") return Promise.resolve(new Response(refusal, { status: 503 }));
        return plain(url, init);
    };
}"""


class Once(Case):
    """A page with rows of 150 kB."""

    def sent(self, *answers, served=None):
        """A page with a head of the rows open, and its requests; `answers` are those of WATCH."""
        served = served or daemon()
        path = directory() / "rows.npy"
        rows = inputs.rows_of([f"t{i}" for i in range(TOKENS)], WIDTH, len(answers)).astype(numpy.float32)
        numpy.save(path, rows)
        view = View(self.page(), served.url)
        if "lost" in answers:
            view.page.expect("404")
        if served is not daemon():
            view.page.expect("413")
        view.open(model=MODEL, text="a b")
        view.wait_source("random").wait_overview(LAYERS * HEADS)
        view.page.evaluate(WATCH, list(answers))
        view.page.files("input-rows", path)
        view.wait_source("rows.npy").wait_overview(LAYERS * HEADS).open_head(1, 2)
        expected = self.client(served).attend(rows, model=MODEL, layer=1, heads=[2],
                                        outputs=["attention_weights"])["attention_weights"][0]
        self.assertEqual(view.select(500, 17).value.tobytes(), expected[500, 17].tobytes())
        self.assertEqual(view.page.error_texts(), [])
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
        _, sent = self.sent("lost")
        self.assertEqual(self.puts(sent), 2, sent)

    def test_rows_that_are_lost_twice_go_with_the_call(self):
        _, sent = self.sent("lost", "lost")
        self.assertEqual(self.puts(sent), 3, sent)  # later calls ask anew
        with_rows = [path == "/attend" and bytes >= BYTES for _, path, bytes in sent]
        self.assertGreaterEqual(sum(with_rows), 1, sent)

    def test_rows_that_there_is_no_memory_for_go_with_each_call(self):
        _, sent = self.sent(*["refused"] * 100)
        self.assertGreaterEqual(self.puts(sent), 2, sent)  # later calls ask anew
        self.assertGreaterEqual(min(bytes for _, path, bytes in sent if path == "/attend"), BYTES)

    def test_rows_that_are_too_large_to_be_kept_are_offered_once(self):
        served = start([golden(MODEL)], inputs_bytes=BYTES // 2)
        _, sent = self.sent(served=served)
        self.assertEqual(self.puts(sent), 1, sent)
        self.assertGreaterEqual(min(bytes for _, path, bytes in sent if path == "/attend"), BYTES)

    def puts(self, sent):
        """How many inputs were sent."""
        return [method for method, _, _ in sent].count("PUT")
