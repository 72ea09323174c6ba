"""test_head.py: one head: every number on the screen is the API's, every control does its work."""
import math
import re

import numpy

from case import whole
from fixture import TOKENS, CaptureCase


def shown(value, digits=6):
    """A number as the page writes it."""
    if value == -math.inf:
        return "−∞"
    if value == 0:
        return "0"
    value = float(value)
    if abs(value) < 1e-4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    magnitude = math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, digits - 1 - magnitude)}f}".replace("-", "−")


class Head(CaptureCase):
    """A head of a golden model over a capture."""

    def compare(self, view, expected, cells):
        """Selects cells; each must have the number of `expected`, to the bit, and its text."""
        for row, column in cells:
            cell = view.select(row, column)
            self.assertEqual(cell.value.tobytes(), expected[row, column].tobytes(), cell.text)
            self.assertIn(f": {shown(expected[row, column])}", cell.text)

    def test_values_on_hover_are_those_of_the_api(self):
        view = self.head()
        expected, seen = self.weights(1, 2), set()
        for x in range(3, 10):
            for y in range(3, 10):
                view.point(x / 12, y / 12)
                cell = view.page.wait_for("cell", "(element) => true") and view.cell()
                if cell and cell.column is not None:
                    self.assertEqual(cell.value.tobytes(),
                                     expected[cell.row, cell.column].tobytes(), cell.text)
                    self.assertIn(f"“{TOKENS[cell.row]}” → key", cell.text)
                    self.assertIn(f"“{TOKENS[cell.column]}”: "
                                  f"{shown(expected[cell.row, cell.column])}", cell.text)
                    seen.add((cell.row, cell.column))
        self.assertGreater(len(seen), 20)

    @whole
    def test_scores_of_every_stage_are_those_of_the_api(self):
        cells = [(0, 0), (9, 3), (17, 17), (3, 9)]
        view = self.head(kind="scores")
        self.compare(view, self.scores(1, 2), cells)
        for stage in ("softcap", "masked"):
            view.page.choose("stage", stage)
            view.wait_map(1, 2)
            self.compare(view, self.scores(1, 2, stage=stage), cells)

    def test_kind_scale_and_colors_change_the_picture_and_not_the_numbers(self):
        view = self.head()
        expected = self.weights(1, 2)
        cell = view.select(9, 3)
        self.settle(view)
        pictures = {self.picture(view)}
        for control, value in (("scale", "log"), ("scale", "rank"), ("scale", "linear"),
                               ("colors", "cividis")):
            view.page.choose(control, value)
            self.settle(view)
            self.assertEqual(view.cell().value.tobytes(), cell.value.tobytes())
            pictures.add(self.picture(view))
        self.assertEqual(len(pictures), 4)  # linear came twice
        view.page.choose("kind", "scores")
        view.wait_map(1, 2)
        self.compare(view, self.scores(1, 2), [(9, 3)])
        view.page.choose("kind", "weights")
        view.wait_map(1, 2)
        self.compare(view, expected, [(9, 3)])

    def test_zoom_and_pan_reach_single_cells_and_return(self):
        view = self.head()
        self.assertNotIn("area", view.settings())
        view.select(9, 3)
        self.settle(view)
        before = self.picture(view)
        for _ in range(12):
            view.page.click("zoom-in")
        self.settle(view)
        view.page.wait("""(() => {
            const area = new URLSearchParams(location.hash.slice(1)).get("area")?.split(",");
            return area && area[1] - area[0] < 2 && area[3] - area[2] < 2;
        })()""", "an area below two cells in the address")
        zoomed = self.picture(view)
        self.assertNotEqual(zoomed, before)
        view.select(9, 3)
        box = view.page.place("map")
        view.page.drag(box, [box[0] - 80, box[1] - 60])
        self.settle(view)
        self.assertNotEqual(self.picture(view), zoomed)
        view.page.click("zoom-out")
        view.page.click("zoom-all")
        view.page.wait("!/area=/.test(location.hash)", "the whole map")
        view.select(9, 3)
        self.settle(view)
        self.assertTrue(self.picture(view) == before)
        view.page.mouse("mouseWheel", *view.page.place("map"), deltaX=0, deltaY=-240)
        view.page.wait("/area=/.test(location.hash)", "the wheel's zoom")

    def test_heads_switched_off_change_the_output_as_the_api_says(self):
        view = self.head()
        view.page.click("off-2")
        view.page.wait_for("modified", "(element) => /head 2 off/.test(element.textContent)")
        text = view.page.wait_for("change", r"(element) => /\d/.test(element.textContent) && "
                                            "element.textContent")
        on = self.asked(1, outputs=["output"])["output"].astype(numpy.float64)
        off = self.asked(1, outputs=["output"], head_mask=[1, 1, 0, 1])["output"]
        change = numpy.linalg.norm(on - off) / numpy.linalg.norm(on)
        found = [float(part) for part in re.findall(r"\d+\.?\d*(?:e-?\d+)?", text)]
        self.assertTrue(any(abs(part / scale - change) < 0.006 * change
                            for part in found for scale in (1, 100)), (text, change))

    @whole
    def test_window_softcap_and_causal_differ_from_the_model_and_say_so(self):
        view = self.head()
        self.assertFalse(view.page.has("modified") and view.page.text("modified"))
        for settings, fields, told in (
                ({"window": "3,0"}, {"sliding_window": [3, 0]}, "window"),
                ({"softcap": "2"}, {"softcap": 2}, "cap"),
                ({"causal": "0"}, {"is_causal": False}, "causal")):
            view = self.head(**settings)
            text = view.page.wait_for("modified", "(element) => element.textContent")
            self.assertIn(told, text)
            self.compare(view, self.weights(1, 2, **fields), [(9, 9), (9, 7), (17, 2), (2, 9)])

    def test_controls_of_the_layer_write_the_settings(self):
        view = self.head()
        view.page.choose("window-left", "3")
        view.page.wait("/window=3/.test(location.hash)", "the window in the address")
        view.page.choose("softcap", "5")
        view.page.wait("/softcap=5/.test(location.hash)", "the softcap in the address")
        view.wait_map(1, 2)
        self.settle(view)
        view.page.click("causal")
        view.page.wait("/causal=0/.test(location.hash)", "causal in the address")
        view.wait_map(1, 2)
        self.compare(view, self.weights(1, 2, sliding_window=[3, -1], softcap=5, is_causal=False),
                     [(9, 9), (9, 7), (2, 9)])
