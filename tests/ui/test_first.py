"""test_first.py: what a first visitor sees: a trained model over a sentence, which can be changed."""
import json
import re

import numpy

import axe
from case import TOP, Case, directory, start
from test_looks import CUT, MISPLACED, THEMES, WIDTHS
from view import View

DEMO = TOP / "examples" / "demo"
FACTS = json.loads((TOP / "server" / "ui" / "demo.json").read_text("utf-8"))
LAYERS, HEADS = 4, 4
# Notes what the map writes; a frame begins with the ground, and so does its list.
WRITTEN = """(() => {
    const { fillText, setTransform } = CanvasRenderingContext2D.prototype;
    window.attndWritten = [];
    CanvasRenderingContext2D.prototype.setTransform = function (...given) {
        window.attndWritten = [];
        return setTransform.apply(this, given);
    };
    CanvasRenderingContext2D.prototype.fillText = function (text, ...given) {
        window.attndWritten.push(text);
        return fillText.call(this, text, ...given);
    };
})()"""


class First(Case):
    """The page of a daemon that serves the demonstration model."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = start([{"name": "mha", "random": {"hidden_size": 8, "num_attention_heads": 2}},
                            {"name": "demo", "path": str(DEMO)}])

    def opened(self, url=None, **settings):
        """The page as it opens, with the first head of the model's list."""
        view = View(self.page(width=1280, height=800), url or self.daemon.url).open(**settings)
        first = FACTS["heads"][0]
        return view.wait_map(first["layer"], first["head"])

    def source(self, view, what):
        """A value of the page's source."""
        return view.page.evaluate(f"import('/ui/source.js').then(({{ current }}) => {{"
                                  f" const source = current(); return {what}; }})")

    def test_it_opens_on_an_induction_head_over_a_sentence_and_says_what_is_seen(self):
        view = self.opened().wait_overview(LAYERS * HEADS)
        self.assertEqual(view.settings()["sentence"], FACTS["examples"][0])
        story = view.page.wait_for("story", "(story) => /ringed cell/.test(story.textContent)"
                                            " && !story.hidden && story.textContent")
        self.assertIn(FACTS["heads"][0]["text"], story)
        self.assertIn("induction", view.page.text("head-title"))
        row, column, share = map(int, re.search(
            r"\(row (\d+)\) gives (\d+)\s% .*\(column (\d+)\)", story).group(1, 3, 2))
        self.assertEqual(view.settings()["cell"], f"{row},{column}")
        self.assertAlmostEqual(100 * view.cell_at(row, column).value, share, delta=0.51)
        labels = self.source(view, "source.keyLabels")
        self.assertEqual(labels[column - 1], labels[row])  # what followed it the last time
        self.assertNotIn("random", view.page.text("#overview h2"))
        self.assertIn("layers down, heads across: click one", view.page.text("#overview h2"))
        self.assertIn("attention viewer", view.page.text("header h1"))

    def test_the_page_knows_the_model_of_its_files_whatever_it_is_kept_as(self):
        kept = [(dtype, kv_dtype) for dtype in ("f32", "bf16", "int8", "w8a16")
                for kv_dtype in ("f32", "bf16", "f16", "int8")]
        found = start([{"name": "-".join(both), "path": str(DEMO), "dtype": both[0],
                        "kv_dtype": both[1]} for both in kept])
        served = self.client(found).get("/models")["models"]
        told = self.page(self.daemon.url).evaluate(
            "import('/ui/demo.js').then(({ FINGERPRINTS }) => FINGERPRINTS)")
        self.assertEqual(told, [model["fingerprint"] for model in served])
        found = start([{"name": "demo", "path": str(DEMO)}], dtype="int8", kv_dtype="bf16")
        self.assertEqual(self.opened(url=found.url).settings()["sentence"], FACTS["examples"][0])

    def test_another_model_named_demo_is_shown_as_any_other(self):
        sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "num_hidden_layers": 4}
        for dtype in ("f32", "int8", "bf16"):
            with self.subTest(dtype=dtype):
                other = start([{"name": "demo", "random": sizes}], dtype=dtype)
                view = View(self.page(), other.url).open().wait_source("random")
                view.wait_overview(LAYERS * HEADS)
                self.assertNotIn("sentence", view.settings())
                self.assertFalse(view.page.has("input-kind-sentence"))
                self.assertEqual(view.page.error_texts(), [])

    def test_files_that_did_not_come_are_asked_for_anew(self):
        view = View(self.page(), self.daemon.url)
        view.page.call("Network.setBlockedURLs", urls=["*demo_tokenizer.json"])
        view.page.expect("demo_tokenizer.json")
        view.open().wait_source("random")  # the ordinary example
        view.way("sentence").page.click("another")
        view.page.wait_for("error", "(error) => /demo_tokenizer.json: no answer/"
                                    ".test(error.textContent)")
        view.page.call("Network.setBlockedURLs", urls=[])
        view.page.click("another")
        first = FACTS["heads"][0]
        view.wait_source(FACTS["examples"][0][:20]).wait_map(first["layer"], first["head"])
        self.assertEqual(view.page.error_texts(), [])

    def test_the_ringed_cell_is_what_the_model_expects_next(self):
        view = self.opened()
        story = view.page.wait_for("story", "(story) => /ringed cell/.test(story.textContent)"
                                            " && story.textContent")
        label, share = re.search(r"weight to “(.+?)”.* expects it next \((\d+)\s%\)", story).groups()
        self.assertTrue(view.page.text("next").startswith(f"expected next: {label} {share}\u00a0%"))
        self.assertEqual(view.cell().row, len(self.source(view, "source.queryLabels")) - 1)

    def test_heads_that_look_alike_are_told_apart(self):
        view = self.opened().wait_overview(LAYERS * HEADS)
        for name, pattern in (("own token", "self"), ("previous token", "previous")):
            told = next(head for head in FACTS["heads"] if head["name"] == name)
            view.page.wait_for(f"head-{told['layer']}-{told['head']}",
                               f"(button) => button.dataset.pattern === {pattern!r}")
        table = view.page.wait_for("statistics", "(table) => table.textContent")
        tokens = len(self.source(view, "source.queryLabels"))
        self.assertIn(f"means over {tokens} queries", table)
        self.assertIn("largest of a row", table)

    def test_each_token_is_named_on_both_axes_and_the_legend_is_above_the_fold(self):
        for width, height in ((360, 740), (1280, 800), (1920, 1000)):
            page = self.page(width=width, height=height)
            page.call("Page.addScriptToEvaluateOnNewDocument", source=WRITTEN)
            view = View(page, self.daemon.url).open()
            page.wait_for("story", "(story) => /ringed cell/.test(story.textContent)")
            labels = self.source(view, "source.keyLabels")
            count = "(label) => window.attndWritten.filter((text) => text === label).length"
            for label in set(labels):
                self.assertGreaterEqual(page.evaluate(count, label), 2 * labels.count(label),
                                        (width, label))
            bottom = page.on("#view .legend", "(legend) => legend.getBoundingClientRect().bottom")
            if width > 360:
                self.assertLessEqual(bottom, height, width)

    def test_on_a_phone_the_map_comes_first_and_the_sentence_is_whole(self):
        view = self.opened()
        view.page.wait_for("story", "(story) => /ringed cell/.test(story.textContent)")
        tops = "(names) => names.map((name) => document.querySelector(name).getBoundingClientRect().top)"
        names = ["[data-testid=map]", "[data-testid=story]", "[data-testid=head-0-0]"]
        for width in WIDTHS:
            view.page.size(width, 740)
            self.assertTrue(view.page.on("input-sentence", "(field) =>"
                                         " field.scrollHeight <= field.clientHeight + 1"), width)
        view.page.size(360, 740)
        map_, story, heads = view.page.evaluate(tops, names)
        self.assertLess(map_, story)
        self.assertLess(story, heads)
        self.assertLess(map_, 0.7 * 740)

    def test_its_maps_are_those_of_the_rows_that_the_layers_take(self):
        view = self.opened()
        rows = numpy.array(self.source(
            view, "source.inputs(2).then(({ hidden_states: { data } }) => [...data])"), numpy.float32)
        rows = rows.reshape(len(self.source(view, "source.keyLabels")), -1)
        expected = self.client(self.daemon).attend(rows, model="demo", layer=2, heads=[1],
                                                   outputs=["attention_weights"])
        view.set(layer=2, head=1).wait_map(2, 1)
        cell = view.select(7, 5)
        self.assertEqual(cell.value.tobytes(), expected["attention_weights"][0][7, 5].tobytes())

    def test_ones_own_sentence_is_typed_and_the_next_tokens_follow(self):
        view = self.opened()
        view.page.click("input-sentence")
        view.page.on("input-sentence", "(field) => field.select()")
        for text in ("the cat", " and the"):
            before = view.page.text("next")
            view.page.type(text)
            view.page.wait_for("next", f"(next) => next.textContent !== {before!r}")
        view.wait_source("the cat and the")
        labels = self.source(view, "source.keyLabels")
        self.assertEqual("".join(labels[1:]), "thecatandthe")
        shares = [int(part) for part in re.findall(r"(\d+)\s%", view.page.text("next"))]
        self.assertTrue(1 <= len(shares) <= 5 and min(shares) >= 1)
        self.assertEqual(shares, sorted(shares, reverse=True))
        self.assertTrue(0 < sum(shares) <= 101)
        self.assertEqual(view.settings()["sentence"], "the cat and the")
        view.page.click("another")
        view.page.wait_for("#overview h2", f"(h) => !h.textContent.includes('the cat and the')")
        self.assertIn(view.settings()["sentence"], FACTS["examples"])

    def test_a_link_opens_the_same_picture_elsewhere(self):
        view = self.opened()
        view.page.wait_for("story", "(story) => /ringed cell/.test(story.textContent)")
        link = view.page.copied(lambda: view.page.click("export-link"))
        other = View(self.page(width=1280, height=800), self.daemon.url)
        other.page.open(link)
        first = FACTS["heads"][0]
        other.wait_map(first["layer"], first["head"])
        row, column = map(int, view.settings()["cell"].split(","))
        self.assertEqual(other.cell_at(row, column), view.cell_at(row, column))

    def test_tasks_take_few_clicks(self):
        view = self.opened()  # the induction head: none
        sink = next(head for head in FACTS["heads"] if head["name"] == "sink")
        view.open_head(sink["layer"], sink["head"])  # one click
        view.page.wait_for("story", f"(story) => story.textContent.includes({sink['text']!r})")
        path = view.page.downloaded(lambda: view.page.click("export-svg"), directory())  # one
        self.assertIn(f"demo layer {sink['layer']}, head {sink['head']}", path.read_text("utf-8"))
        view.page.click("off-this")  # one, without scrolling
        view.page.wait_for("change", r"(text) => /\d %/.test(text.textContent)")
        self.assertEqual(view.page.evaluate("scrollY"), 0)
        view.page.click("before-compare")  # two
        view.page.wait_for("compare-note", "(note) => /Largest difference/.test(note.textContent)")

    def test_own_model_and_own_numbers_are_one_click_away(self):
        view = self.opened()
        view.page.click("own-model")
        port = self.daemon.url.rsplit(":", 1)[1]
        self.assertIn(f"--port {port}", view.page.text("command-start"))
        self.assertIn(self.daemon.url, view.page.text("command-capture"))
        said = view.page.copied(lambda: view.page.click("command-view-copy"))
        self.assertIn("capture.py", said)
        view.page.press("Escape")
        view.page.click("own-numbers")
        view.page.wait_for("input-weights", "(field) => field.checkVisibility()")

    def test_first_screen_looks_right_at_every_width_in_both_themes(self):
        view = self.opened().wait_overview(LAYERS * HEADS)
        view.page.wait_for("story", "(story) => /ringed cell/.test(story.textContent)")
        for width, height, ratio in [*((width, 800, 1) for width in WIDTHS), (640, 400, 2)]:
            view.page.size(width, height, ratio)  # the last: 1280 x 800 at 200 %
            for theme in THEMES:
                view.page.theme(theme)
                view.page.evaluate("new Promise((done) => requestAnimationFrame(() =>"
                                   " requestAnimationFrame(done)))")
                self.assertEqual(view.page.evaluate(f"({MISPLACED})()"), [], (width, theme))
                self.assertEqual(view.page.evaluate(f"({CUT})()"), [], (width, theme))
                if axe.AXE:
                    self.assertEqual(axe.findings(view.page), [], (width, theme))
