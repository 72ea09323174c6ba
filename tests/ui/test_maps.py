"""test_maps.py: maps of a head: numbers in cells, linked maps, pooled maps with exact rows."""
import inputs
from case import daemon, directory, whole
from fixture import HEADS, MODEL, WIDTH, CaptureCase
from view import View

LONG = 1500  # tokens: 9 MB as FP32, more than a page fetches at once
# The colours of a cell of a map whose area is 4 rows and 4 columns, and the ink on it.
COLOURS = """(canvas) => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height);
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    const found = new Map();
    for (let i = 0; i < data.length; i += 4) {
        const colour = data.slice(i, i + 3).join();
        found.set(colour, (found.get(colour) ?? 0) + 1);
    }
    return Object.fromEntries(found);
}"""
TABLE = """(element) => Object.fromEntries([...element.querySelectorAll("tr")].map((row) =>
    [row.querySelector("th").textContent, row.querySelector("td").textContent]))"""


def number(text):
    """The number that a text of the page says, up to its digits."""
    return float(text.replace("−", "-").replace(" %", ""))


class Maps(CaptureCase):
    """The maps of one head."""

    @whole
    def test_cells_show_their_numbers_once_there_is_room(self):
        view = self.head(area="9,13,0,4", colors="paper")
        view.page.size(1000, 420)  # all of the map has cells of 12 pixels there
        self.settle(view)
        near = view.page.on("map", COLOURS)
        view.page.click("zoom-all")
        view.page.wait("!/area=/.test(location.hash)", "the whole map")
        self.settle(view)
        far = view.page.on("map", COLOURS)
        # Numbers on pale cells are black, which nothing else on the page is.
        self.assertGreater(near.get("0,0,0", 0), 20)
        self.assertEqual(far.get("0,0,0", 0), 0)

    def test_padding_is_not_attended_and_said_to_be(self):
        view = View(self.page(), daemon().url).open(
            model=MODEL, text="a b [PAD] c", layer=0, head=1, cell="3,2")
        view.wait_map(0, 1)
        padded = view.cell_at(3, 2)
        self.assertEqual(padded.value, 0)
        self.assertIn("cannot be attended", padded.text)
        view.page.evaluate("document.querySelector('[data-testid=map]').focus()")
        view.page.press("ArrowLeft")
        real = view.cell_at(3, 1)
        self.assertGreater(real.value, 0)
        self.assertNotIn("cannot", real.text)

    def test_a_map_is_never_shown_under_the_name_of_another_head(self):
        view = self.head()
        self.settle(view)
        view.page.evaluate("""(window.fetch = (_, { signal }) => new Promise((_, refuse) =>
            signal.addEventListener("abort", () => refuse(signal.reason))), 0)""")
        view.page.click("head-next")
        host = "document.querySelector('.map-host')"
        view.page.wait(f"getComputedStyle({host}).opacity === '0'", "no map of the head before")
        view.page.wait_for("cancel", "(button) => button.checkVisibility()")
        view.page.click("cancel")
        view.page.wait(f"!{host}.checkVisibility()", "no map after cancelling")

    @whole
    def test_compared_maps_show_one_area_and_one_cell(self):
        view = self.head(**{"with": "0,1"})
        view.page.click("view-compare")
        names = ["map-first", "map-second", "map-difference"]
        for name in names:
            view.page.wait_for(name, "(canvas) => canvas.width > 100")
        self.settle(view)
        before = [self.picture(view, name) for name in names]
        box = view.page.place("map-second")
        view.page.mouse("mouseWheel", *box, deltaX=0, deltaY=-240)
        view.page.wait("/area=/.test(location.hash)", "the area in the address")
        view.page.mouse("mouseMoved", 1, 1)
        self.settle(view)
        zoomed = [self.picture(view, name) for name in names]
        for one, other in zip(before, zoomed):
            self.assertNotEqual(one, other)
        view.page.click("map-difference")
        view.page.wait("/cell=/.test(location.hash)", "the cell in the address")
        view.page.mouse("mouseMoved", 1, 1)
        self.settle(view)
        for name, one in zip(names, zoomed):
            self.assertNotEqual(one, self.picture(view, name))

    @whole
    def test_statistics_and_importance_are_of_the_layer_as_it_is_changed(self):
        view = self.head(window="2,0")
        stats = self.asked(1, outputs=["head_stats"], sliding_window=[2, 0], ablate=True)
        expected = stats["head_stats"][2]
        shown = view.page.wait_for("statistics", TABLE)
        for name, text in (("entropy", "entropy (nats)"), ("previous", "on the one before"),
                           ("largest", "largest weight")):
            self.assertAlmostEqual(number(shown[text]), expected[name], delta=1e-3 * expected[name])
        view.page.evaluate("""document.querySelector("#view details").open = true""")
        view.page.click("importance")
        shown = view.page.wait_for("importance-list", f"""(element) =>
            element.querySelector("tr") && ({TABLE})(element)""")
        for head in range(HEADS):
            change = 100 * stats["head_stats"][head]["ablation"]
            self.assertAlmostEqual(number(shown[f"head {head}"]), change, delta=6e-3 * change)

    def test_large_map_is_pooled_and_its_rows_are_exact(self):
        path = directory() / "long.safetensors"
        tokens = [f"t{position}" for position in range(LONG)]
        rows = inputs.capture(path, MODEL, 1, WIDTH, tokens)[0]
        expected = self.client().attend(rows, model=MODEL, layer=0, heads=[1], rows=[700, 1321],
                                        outputs=["attention_weights"])["attention_weights"][0]
        view = View(self.page(), daemon().url).open(layer=0, head=1, colors="paper")
        view.capture(path)
        view.wait_source("long.safetensors").wait_map(0, 1)
        self.assertIn("largest of", view.page.text("#view .legend"))
        for at, (row, column) in enumerate(((700, 13), (1321, 1300))):
            cell = view.select(row, column)
            self.assertEqual(cell.value.tobytes(), expected[at, column].tobytes(), cell.text)
        self.assertEqual(view.page.on("map", COLOURS).get("0,0,0", 0), 0)
        view.page.evaluate("""(() => {
            const given = new URLSearchParams(location.hash.slice(1));
            given.set("area", "1000,1004,990,994");
            location.hash = given;
        })()""")  # exact rows are fetched for what is in view, and then cells have numbers
        view.page.wait_for("map", f"(canvas) => ({COLOURS})(canvas)['0,0,0'] > 20")
        large = [reply for reply in view.page.replies.values() if reply["bytes"] > 8e6]
        self.assertEqual(large, [])
