"""test_overview.py: thumbnails and statistics of all heads are what the API says."""
import re

import numpy

import inputs
from case import Case, QUICK, daemon, golden, start, whole
from fixture import HEADS, LAYERS, MODEL, CaptureCase, capture
from view import PIXELS, View

STATISTICS = {"entropy": "entropy", "mean_distance": "mean distance", "self": "weight on itself",
              "previous": "weight on the previous token", "first": "weight on the first token",
              "local": "weight near by", "largest": "largest weight"}


def as_bytes(values):
    """Numbers as UINT8 carries them (docs/API.md): 256 steps from minimum to maximum."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    steps = numpy.rint((values.astype(numpy.float64) - low) * (255 / (high - low)))
    return (low + (high - low) * steps / 255).astype(numpy.float32)


def half(values):
    """Numbers as FP16 carries them."""
    return values.astype(numpy.float16).astype(numpy.float32)


class Overview(CaptureCase):
    """All heads of a capture."""

    def statistics(self, **fields):
        """head_stats by (layer, head)."""
        return {(layer, stats["head"]): stats for layer in range(LAYERS)
                for stats in self.asked(layer, outputs=["head_stats"], **fields)["head_stats"]}

    def test_every_head_of_every_layer_is_there_with_its_pattern(self):
        view = self.overview()
        self.assertEqual(view.heads(), [(layer, head) for layer in range(LAYERS)
                                        for head in range(HEADS)])
        for place, stats in self.statistics().items():
            name = view.name(*place)
            self.assertIn(f"layer {place[0]} head {place[1]}", name)
            self.assertIn(stats["pattern"], name)

    def test_pixels_are_the_pooled_reply_in_the_colours_of_the_scale(self):
        view = self.overview()
        for scale in ("linear",) if QUICK else ("linear", "log", "rank"):
            for layer, head in ((0, 1), (1, 3)):
                pooled = self.asked(layer, outputs=["attention_weights"], heads=[head],
                                    pool=[96, 96])["attention_weights"]
                sent = as_bytes(pooled) if scale == "linear" else half(pooled)
                view.set(scale=scale)
                view.page.wait("document.querySelector('.all-heads').ariaBusy === 'false'", "maps")
                self.settle(view)
                wrong = view.page.on(f"head-{layer}-{head}", f"""async (button, values, scale) => {{
                    const colors = await import("/ui/colors.js");
                    const {{ data, width, height }} = ({PIXELS})(button.querySelector("canvas"));
                    const numbers = Float32Array.from(values);
                    const ranked = scale === "rank" ? numbers.filter((value) => value > 0) : numbers;
                    const painted = colors.paint(numbers, colors.scaleOf(scale, ranked),
                        colors.mapNamed("", false));
                    if (width * height !== values.length) return `${{width}} x ${{height}}`;
                    return data.findIndex((part, i) => part !== painted[i]);
                }}""", sent.reshape(-1).tolist(), scale)
                self.assertEqual(wrong, -1, (scale, layer, head))

    def test_sorting_and_colouring_follow_the_statistic(self):
        expected = self.statistics()
        view = self.overview()
        for name in ("entropy", "self") if QUICK else STATISTICS:
            view.page.choose("overview-sort", name)
            places = sorted(expected, key=lambda place: -expected[place][name])
            self.assertEqual(view.heads(), places, name)
            view.page.choose("overview-color", name)
            value = float(re.search(r"(-?[\d.]+(?:e-?\d+)?)$", view.name(1, 2))[1])
            self.assertAlmostEqual(value, expected[1, 2][name],
                                   delta=6e-3 * abs(expected[1, 2][name]) + 1e-9)
            colours = view.page.evaluate("""[...document.querySelectorAll(
                "[data-testid^=head-] .caption")].map((each) => each.style.background)""")
            self.assertTrue(all(colours), colours)
            self.assertGreater(len(set(colours)), 1)
        view.page.choose("overview-sort", "layer")
        self.assertEqual(view.heads(), sorted(expected))

    @whole
    def test_preview_has_the_statistics_of_head_stats(self):
        view = self.overview()
        view.page.hover("head-1-1")
        rows = view.page.wait_for("overview-preview", """(element) => !element.hidden &&
            [...element.querySelectorAll("tr")].map((row) =>
                [...row.children].map((cell) => cell.textContent))""")
        table = {row[0]: row[1] for row in rows}
        stats = self.statistics()[1, 1]
        self.assertEqual(table["pattern"], stats["pattern"])
        for name, title in STATISTICS.items():
            self.assertAlmostEqual(float(table[title].replace("−", "-")), stats[name],
                                   delta=6e-4 * abs(stats[name]) + 1e-9, msg=name)
        view.page.mouse("mouseMoved", 2, 2)
        view.page.wait_for("overview-preview", "(element) => element.hidden")

    @whole
    def test_click_opens_the_head(self):
        view = self.overview().open_head(0, 3)
        self.assertEqual((view.settings()["layer"], view.settings()["head"]), ("0", "3"))
        self.assertEqual(view.page.on("head-0-3", "(element) => element.ariaCurrent"), "true")

    def test_click_is_not_lost_where_maps_arrive_between_press_and_release(self):
        view = self.overview()
        view.page.reveal("overview-pool")
        x, y = view.page.place("head-0-3")
        view.page.mouse("mouseMoved", x, y)
        view.page.mouse("mousePressed", x, y, button="left", clickCount=1, buttons=1)
        view.page.choose("overview-pool", "mean")
        view.page.wait("document.querySelector('#overview [role=grid]').ariaBusy === 'false'", "all maps")
        view.page.mouse("mouseReleased", x, y, button="left", clickCount=1)
        view.wait_map(0, 3)

    @whole
    def test_targets_and_importance_are_those_of_the_api(self):
        view = self.overview()
        view.page.choose("overview-targets", "delimiters")
        places = [at for at, token in enumerate(inputs.SENTENCE) if token in ".,;:"]
        self.compare_sorted(view, "group_share", lambda stats: stats["groups"][0]["share"],
                            target_groups=[places])
        view.page.choose("overview-targets", "")
        view.page.click("overview-ablate")
        self.compare_sorted(view, "ablation", lambda stats: stats["ablation"], ablate=True)

    def compare_sorted(self, view, name, value, **fields):
        """Sorts by a statistic that is asked for; order and numbers must be the API's."""
        expected = self.statistics(**fields)
        view.page.wait_for("overview-sort", f"(list) => [...list.options].some((option) => "
                                            f"option.value === {name!r})")
        view.page.choose("overview-sort", name)
        order = sorted(expected, key=lambda place: -value(expected[place]))
        for _ in range(500):
            if view.heads() == order:
                break
            view.page.browser.receive(0.01)
        self.assertEqual(view.heads(), order)


class Layers(Case):
    """Models of more than one kind."""

    @whole
    def test_mean_pooling_asks_for_it_and_paints_it(self):
        path, _ = capture()
        view = View(self.page(), daemon().url).open(pool="mean")
        view.capture(path).wait_source("capture.safetensors").wait_overview(LAYERS * HEADS)
        self.assertEqual(view.page.on("overview-pool", "(list) => list.value"), "mean")

    @whole
    def test_chosen_layers_alone_are_shown(self):
        view = View(self.page(), daemon().url).text_rows("a b c", model=MODEL, layers="1")
        view.wait_overview(HEADS)
        self.assertEqual({layer for layer, _ in view.heads()}, {1})
