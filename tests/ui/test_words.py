"""test_words.py: the page explains itself: sentences, the list of words, what is changed and shown."""
import numpy

import axe
from case import GOLDEN, Case, golden, start
from fixture import CaptureCase
from view import View

# Whether two boxes of the page lie over one another.
OVER = """(one, two) => {
    const [a, b] = [one, two].map((name) => document.querySelector(name).getBoundingClientRect());
    return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}"""
TWELVE = {"name": "twelve", "random": {"hidden_size": 96, "num_attention_heads": 12,
                                       "num_hidden_layers": 12, "seed": 7}}


class Words(CaptureCase):
    """What stands beside controls, statistics and maps."""

    def test_each_select_and_statistic_has_a_sentence_on_hover_and_focus(self):
        view = self.head()
        view.page.wait_for("statistics")
        view.page.evaluate("""document.querySelectorAll("details").forEach((element) =>
            { element.open = true; })""")
        names = view.page.evaluate("""[...document.querySelectorAll("main select, header select,"
            + " .term")].filter((element) => element.checkVisibility())
            .map((element) => element.dataset.term ? `[data-term=${element.dataset.term}].term`
                : `[data-testid=${element.dataset.testid}]`)""")
        self.assertGreater(len(names), 18)
        for name in names:
            view.page.on(name, "(element) => element.focus({ focusVisible: true })")
            view.page.wait_for(name, "(e) => e.getAttribute('aria-describedby') === 'hint'")
            said = view.page.wait_for("hint", "(hint) => !hint.hidden && hint.textContent")
            self.assertGreater(len(said.split()), 5, name)
        view.page.press("Escape")
        self.assertFalse(view.page.has("hint"))
        view.page.hover("scale")
        self.assertIn("colours", view.page.wait_for("hint", "(e) => !e.hidden && e.textContent"))

    def test_a_word_opens_the_list_which_has_pictures_of_the_patterns(self):
        view = self.head()
        view.page.wait_for("statistics")
        view.page.click(".term[data-term=entropy]")
        view.page.wait_for("#words-dialog", "(dialog) => dialog.open")
        pictures = view.page.evaluate("document.querySelectorAll('.pattern-picture').length")
        self.assertEqual(pictures, 9)
        if axe.AXE:
            self.assertEqual(axe.findings(view.page), [])
        text = view.page.text("#words-dialog")
        for word in ("induction", "bracket", "nats", "docs/NUMERICS.md"):
            self.assertIn(word, text)

    def test_raw_scores_of_pairs_that_cannot_be_attended_are_hatched(self):
        view = self.head(kind="scores", stage="raw", colors="bluered")
        self.settle(view)
        self.assertIn("cannot be attended", view.page.text("#view .legend"))
        shades = """(canvas, at) => {
            const { width, height } = canvas;
            const copy = new OffscreenCanvas(width, height).getContext("2d");
            copy.drawImage(canvas, 0, 0);
            const [x, y] = [at[0] * width, at[1] * height].map(Math.round);
            const data = new Uint32Array(copy.getImageData(x - 5, y - 5, 10, 10).data.buffer);
            return new Set(data).size; }"""
        self.assertGreater(view.page.on("map", shades, [0.75, 0.3]), 2)

    def test_a_head_that_is_off_is_shown_before_and_after(self):
        view = self.head()
        view.page.click("off-this")
        view.page.wait_for("before-1")
        self.assertEqual(view.page.evaluate(
            "[...document.querySelectorAll('.before figcaption')].map((e) => e.textContent)"),
            ["before", "after"])
        said = view.page.wait_for("change", r"(e) => /\d %/.test(e.textContent) && e.textContent")
        self.assertIn("Without head 2", said)
        self.assertIn("is off", view.page.text(".what-if label"))
        view.page.click("before-compare")
        view.page.wait_for("compare-note", "(note) => /Largest difference/.test(note.textContent)")
        self.assertIn("as the model has it", view.page.text(".compare-maps > div:nth-child(2) h3"))
        view.select(9, 3)
        weight = self.weights(1, 2)[9, 3]
        view.page.wait_for("compare-note", f"""(note) => {{
            const found = /Query 9, key 3: 0 and ([\\d.]+)/.exec(note.textContent);
            return found && Math.abs(found[1] - {weight}) < 1e-4; }}""")
        view.page.click("reset")
        view.page.wait_for("off-this", "(box) => !box.checked")

    def test_the_output_changes_with_the_window_as_the_api_says(self):
        view = self.head(window="2,0")
        on = self.asked(1, outputs=["output"])["output"].astype(numpy.float64)
        off = self.asked(1, outputs=["output"], sliding_window=[2, 0])["output"]
        change = numpy.linalg.norm(on - off) / numpy.linalg.norm(on)
        found = view.page.wait_for("change", "(e) => e.dataset.value")
        self.assertAlmostEqual(float(found), change, delta=1e-5)

    def test_keys_and_clicks_keep_window_and_softcap_alike(self):
        for move in (lambda page: page.click("head-0-3"),
                     lambda page: page.on("map", "(e) => e.focus()") or page.press("[")):
            view = self.head(layer=1, head=0, window="3,0", softcap="5", off="0")
            move(view.page)
            view.wait_map(0, 3)
            now = view.settings()
            self.assertEqual((now.get("window"), now.get("softcap"), now.get("off")),
                             ("3,0", "5", None))


class Places(Case):
    """What stands where, at the widths that pages have."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = start([TWELVE, golden("torch_mha_cross"),
                            {"name": "patterns", "path": str(GOLDEN / "patterns")}])

    def view(self, width, height, **settings):
        """A page of that size."""
        view = View(self.page(width=width, height=height), self.daemon.url)
        return view.open(**settings)

    def patterns(self, width, height, **settings):
        """A page of that size with an induction head open."""
        view = self.view(width, height, layer=3, head=2, **settings)
        view.capture(GOLDEN / "patterns" / "capture.safetensors").wait_map(3, 2).wait_overview(16)
        view.page.wait("document.querySelector('.all-heads').ariaBusy === 'false'", "all heads")
        view.page.wait_for("head-title", "(title) => title.textContent.includes('induction')")
        return view

    def test_twelve_by_twelve_heads_fit_at_1280_with_their_names(self):
        view = self.view(1280, 800, model="twelve", text="a b c a b c", layer=0, head=0)
        view.wait_overview(144)
        beyond = view.page.on(".all-heads", """(grid) => [grid.scrollWidth - grid.clientWidth,
            grid.scrollHeight - grid.clientHeight]""")
        self.assertEqual(beyond, [0, 0])
        cut = view.page.evaluate("""[...document.querySelectorAll(".caption .pattern")].filter(
            (name) => name.scrollWidth > name.clientWidth || !name.checkVisibility()).length""")
        self.assertEqual(cut, 0)
        for text in ("#input", "#overview", "#view"):
            self.assertIn("random weights", view.page.text(text))
        width = "document.querySelector('[data-testid=head-0-0]').clientWidth"
        before = view.page.evaluate(width)
        view.page.click("overview-larger")
        self.assertGreater(view.page.evaluate(width), before)
        view.page.click("overview-fit")
        self.assertEqual(view.page.evaluate(width), before)

    def test_map_export_and_what_if_are_above_the_fold_at_1280(self):
        view = self.patterns(1280, 800)
        view.page.wait_for("statistics")
        view.page.wait_for("input-panel", "(panel) => !panel.open")
        view.page.wait_for("map", "(map) => map.getBoundingClientRect().bottom < 800")
        for name in ("map", "statistics", "export-svg", "export-link", "off-this"):
            bottom = view.page.on(name, "(element) => element.getBoundingClientRect().bottom")
            self.assertLess(bottom, 800, name)
        map_, side = (view.page.on(name, "(element) => element.getBoundingClientRect().width")
                      for name in ("map", ".head-side"))
        self.assertGreater(map_, 2 * side)
        self.assertIn("induction", view.page.text("head-title"))
        self.assertIn("induction", view.name(3, 2))

    def test_comparison_fills_2560(self):
        view = self.patterns(2560, 1300, view="compare")
        view.page.wait_for("compare-note", "(note) => /Largest difference/.test(note.textContent)")
        widths = view.page.evaluate("""[...document.querySelectorAll(".compare-map canvas")]
            .map((canvas) => canvas.clientWidth)""")
        self.assertEqual(len(widths), 3)
        self.assertGreater(sum(widths), 0.6 * 2560)

    def test_preview_lies_beside_the_open_map(self):
        view = self.patterns(1280, 800)
        view.page.wait_for("statistics")
        for name in ("head-0-0", "head-0-3", "head-3-3"):
            view.page.hover(name)
            view.page.wait_for("overview-preview", "(element) => !element.hidden")
            self.assertFalse(view.page.evaluate(OVER, "#preview", "[data-testid=map]"), name)

    def test_itself_and_before_are_not_told_of_cross_attention(self):
        tokens = ["x", "y", "z"]
        view = self.view(1280, 800, model="torch_mha_cross", layer=0, head=0, text=" ".join(tokens),
                         encoder="a b")
        view.wait_map(0, 0)
        text = view.page.wait_for("statistics", "(table) => table.textContent")
        self.assertIn("on the first", text)
        self.assertNotIn("on itself", text)
        self.assertNotIn("on the one before", text)
