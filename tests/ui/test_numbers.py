"""test_numbers.py: the numbers in a map's cells: on the screen, as PNG and as SVG, at every zoom."""
import json

from case import Case, daemon, directory
from view import View

COUNT = 90
LARGE = 1e-4  # from which on numbers have no exponent
# Notes the numbers that a frame draws: text, place and box of each, and the outline of the cells.
RECORD = """(() => {
    window.attndDrawn = [];
    const { fillText, strokeRect } = CanvasRenderingContext2D.prototype;
    let plot = null; // what a frame outlines first
    CanvasRenderingContext2D.prototype.fillRect = new Proxy(
        CanvasRenderingContext2D.prototype.fillRect, { apply(plain, context, given) {
            if (given[0] === 0 && given[1] === 0) plot = null; // the ground of the next frame
            return plain.apply(context, given);
        } });
    CanvasRenderingContext2D.prototype.strokeRect = function (x, y, width, height) {
        window.attndPlot = plot ??= [x + 0.5, y + 0.5, width - 1, height - 1];
        return strokeRect.call(this, x, y, width, height);
    };
    let frame = [];
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
        if (this.textAlign === "center" && this.textBaseline === "middle") {
            const { actualBoundingBoxLeft: left, actualBoundingBoxRight: right,
                actualBoundingBoxAscent: up, actualBoundingBoxDescent: down }
                = this.measureText(text);
            if (plot === null) frame.push([text, x, y, [x - left, y - up, x + right, y + down]]);
        } else if (plot !== null && frame.length > 0) {
            window.attndDrawn = { plot, numbers: frame };
            frame = [];
        }
        return fillText.call(this, text, x, y, ...more);
    };
})()"""
# The boxes of the numbers of an SVG file, and those of its cells, as the browser lays them out.
BOXES = """async (file) => {
    const host = document.createElement("div");
    host.append(document.adoptNode(new DOMParser().parseFromString(file, "image/svg+xml")
        .documentElement));
    document.body.append(host);
    const box = (node) => { const { x, y, width, height } = node.getBBox();
        return [x, y, x + width, y + height]; };
    const cells = host.querySelector("[shape-rendering=crispEdges]");
    const texts = [...cells.querySelectorAll("text")].map((node) => ({ text: node.textContent,
        box: box(node), cell: box(node.previousElementSibling) }));
    const size = texts[0]?.cell[2] - texts[0]?.cell[0];
    for (const one of texts) one.at = [1, 0].map((i) => Math.round(one.cell[i] / size));
    const legend = [...host.querySelector("svg > g").lastElementChild.querySelectorAll("text")]
        .map((node) => node.getBoundingClientRect()).map(({ x, right }) => [x, right]);
    const page = host.firstElementChild.getBoundingClientRect();
    host.remove();
    return { texts, legend, page: [page.x, page.right] };
}"""


def value(row, column):
    """The weight of a cell: 1e-30 to 1 and all between, with many digits."""
    return 1.2345678 * 10 ** -((row * 7 + column * 13) % 31)


class Numbers(Case):
    """A map of weights that differ by thirty orders of magnitude."""

    def opened(self):
        """A page with the map."""
        rows = [[value(row, column) for column in range(COUNT)] for row in range(COUNT)]
        path = directory() / "weights.json"
        path.write_text(json.dumps([rows]), "utf-8")
        view = View(self.page(width=1280), daemon().url).open()
        view.way("weights").page.files("input-weights", path)
        return view.wait_source("weights.json").set(layer=0, head=0).wait_map(0, 0)

    def apart(self, texts, size):
        """Asserts that each number is within its cell and is its value; returns how many."""
        for text, box, cell, wanted in texts:
            self.assertGreaterEqual(box[0], cell[0] - 0.01, (text, size))
            self.assertLessEqual(box[2], cell[2] + 0.01, (text, size))
            self.assertGreaterEqual(box[1], cell[1] - 0.01, (text, size))
            self.assertLessEqual(box[3], cell[3] + 0.01, (text, size))
            said = float(text.replace("−", "-"))
            self.assertLess(abs(said / wanted - 1), 0.5, f"{wanted} is said to be {text}")
        return len(texts)

    def drawn(self, view, count):
        """(text, box, cell, value) of each number of the last frame, of count x count cells."""
        found = view.page.evaluate("window.attndDrawn")
        if not found:
            return []
        left, top, width, height = found["plot"]
        across, down = width / count, height / count
        numbers = []
        for text, x, y, box in found["numbers"]:
            column, row = int((x - left) / across), int((y - top) / down)
            cell = [left + column * across, top + row * down,
                    left + (column + 1) * across, top + (row + 1) * down]
            numbers.append((text, box, cell, value(row, column)))
        return numbers

    def test_numbers_on_the_screen_stay_in_their_cells_at_every_zoom(self):
        view = self.opened()
        view.page.evaluate(RECORD)
        most, sizes = 0, set()
        for count in range(COUNT, 4, -1):
            view.page.evaluate("window.attndDrawn = null")
            view.set(area=f"0,{count},0,{count}")
            view.page.evaluate("new Promise((done) => requestAnimationFrame(() =>"
                               " requestAnimationFrame(done)))")
            most = max(most, self.apart(self.drawn(view, count), count) / count ** 2)
            sizes.add(view.page.evaluate("window.attndPlot[2]") / count)
        self.assertEqual(most, 1, "where there is room every cell has its number")
        self.assertTrue(min(sizes) <= 8 and max(sizes) >= 60, sizes)

    def test_numbers_in_files_stay_in_their_cells(self):
        paper, view = self.page(), self.opened()
        view.page.evaluate(RECORD)
        most = {"svg": 0, "png": 0}
        for count in (60, 24, 16, 8):  # a page may offer ten files
            view.set(area=f"0,{count},0,{count}")
            path = view.page.downloaded(lambda: view.page.click("export-svg"), directory())
            found = paper.evaluate(BOXES, path.read_text("utf-8"))
            texts = [(one["text"], one["box"], one["cell"], value(*one["at"]))
                     for one in found["texts"]]
            most["svg"] = max(most["svg"], self.apart(texts, count) / count ** 2)
            for left, right in found["legend"]:
                self.assertTrue(found["page"][0] <= left and right <= found["page"][1])
            view.page.evaluate("window.attndDrawn = null")
            view.page.downloaded(lambda: view.page.click("export-png"), directory())
            numbers = self.drawn(view, count)
            most["png"] = max(most["png"], self.apart(numbers, count) / count ** 2)
        self.assertGreater(min(most.values()), 0.25, most)
