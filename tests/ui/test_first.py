"""test_first.py: what a first visitor sees: a trained model over a sentence, which can be changed."""
import json
import re

import numpy

import axe
from case import TOP, Case, directory, start
from test_looks import MISPLACED, THEMES, WIDTHS
from view import View

DEMO = TOP / "examples" / "demo"
FACTS = json.loads((TOP / "server" / "ui" / "demo.json").read_text("utf-8"))
LAYERS, HEADS = 4, 4


class First(Case):
    """The page of a daemon that serves the demonstration model."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = start([{"name": "mha", "random": {"hidden_size": 8, "num_attention_heads": 2}},
                            {"name": "demo", "path": str(DEMO)}])

    def opened(self, **settings):
        """The page as it opens, with the first head of the model's list."""
        view = View(self.page(width=1280, height=800), self.daemon.url).open(**settings)
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
            r"\(row (\d+)\) gives (\d+) % .*\(column (\d+)\)", story).group(1, 3, 2))
        self.assertEqual(view.settings()["cell"], f"{row},{column}")
        self.assertAlmostEqual(100 * view.cell_at(row, column).value, share, delta=0.51)
        labels = self.source(view, "source.keyLabels")
        self.assertEqual(labels[column - 1], labels[row])  # what followed it the last time
        self.assertNotIn("random", view.page.text("#overview h2"))

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
        shares = [int(part) for part in re.findall(r"(\d+) %", view.page.text("next"))]
        self.assertEqual(len(shares), 5)
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

    def test_first_map_is_there_within_a_second(self):
        view = self.opened()
        view.page.evaluate("""void (sessionStorage.clear(), location.hash = "")""")
        view.page.reload()
        first = FACTS["heads"][0]
        view.wait_map(first["layer"], first["head"])
        took = view.page.evaluate("performance.now()")
        self.assertLess(took, 3000, "milliseconds from the request to the first map, beside tests")

    def test_first_screen_looks_right_at_every_width_in_both_themes(self):
        view = self.opened().wait_overview(LAYERS * HEADS)
        view.page.wait_for("story", "(story) => /ringed cell/.test(story.textContent)")
        for width in WIDTHS:
            view.page.size(width, 800)
            for theme in THEMES:
                view.page.theme(theme)
                view.page.evaluate("new Promise((done) => requestAnimationFrame(() =>"
                                   " requestAnimationFrame(done)))")
                self.assertEqual(view.page.evaluate(f"({MISPLACED})()"), [], (width, theme))
                if axe.AXE:
                    self.assertEqual(axe.findings(view.page), [], (width, theme))
