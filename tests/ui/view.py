"""view.py: the page in the words of a test: what it is given, what is open, what a cell says."""
import collections
import re
import urllib.parse

import numpy

Cell = collections.namedtuple("Cell", "row column value text")

# A canvas is read through a copy: Chromium warns where the page's own is read often.
PIXELS = """(canvas) => {
    const { width, height } = canvas;
    const copy = new OffscreenCanvas(Math.max(1, width), Math.max(1, height));
    const context = copy.getContext("2d", { willReadFrequently: true });
    if (width > 0 && height > 0) context.drawImage(canvas, 0, 0);
    return context.getImageData(0, 0, copy.width, copy.height);
}"""
PAINTED = f"(canvas) => ({PIXELS})(canvas).data.some((part) => part !== 0)"


class View:
    """The attention tab in a page of a test."""

    def __init__(self, page, url):
        self.page, self.url = page, url

    def open(self, **settings):
        """Loads the page with settings of its address."""
        self.page.open(f"{self.url}/#{urllib.parse.urlencode(settings)}")
        return self

    def settings(self):
        """The settings that the address has."""
        text = urllib.parse.urlsplit(self.page.evaluate("location.href")).fragment
        return dict(urllib.parse.parse_qsl(text))

    def text_rows(self, text, **settings):
        """Random rows for a text, through the address alone."""
        return self.open(text=text, **settings)

    def capture(self, path, model=None):
        """Chooses a capture file as a user does."""
        if model:
            self.page.choose("input-model", model)
        self.way("capture").page.files("input-capture", path)
        return self

    def way(self, name):
        """Chooses a way of input: text, capture, rows, session, live."""
        self.page.click(f"input-kind-{name}")
        return self

    def wait_source(self, title):
        """Waits until the page looks at the input of that title."""
        self.page.wait_for("#overview h2", f"(element) => element.textContent.includes({title!r})")
        return self

    # ---- Overview ----

    def heads(self):
        """(layer, head) of the thumbnails, in their order."""
        names = self.page.evaluate(r"""[...document.querySelectorAll("[data-testid^=head-]")]
            .map((element) => element.dataset.testid)
            .filter((name) => /^head-\d+-\d+$/.test(name))""")
        return [tuple(map(int, name.split("-")[1:])) for name in names]

    def name(self, layer, head):
        """What assistive software is told of a thumbnail."""
        return self.page.ax(f"head-{layer}-{head}")["name"]

    def wait_overview(self, count):
        """Waits until that many thumbnails are there, and each is painted."""
        self.page.wait(rf"""(() => {{
            const found = [...document.querySelectorAll("button[data-testid^=head-] canvas")];
            return found.length === {count} && found.every({PAINTED});
        }})()""", f"{count} painted thumbnails")
        return self

    def open_head(self, layer, head):
        """Clicks a thumbnail, and waits for its map."""
        self.page.click(f"head-{layer}-{head}")
        return self.wait_map(layer, head)

    def wait_map(self, layer, head):
        """Waits until the head's map is there with its numbers."""
        self.page.wait_for("head-title", f"""(element) =>
            /\\b[Ll]ayer {layer}\\b.*\\b[Hh]ead {head}\\b/.test(element.textContent)""")
        self.page.wait_for("map", "(canvas) => canvas.ariaBusy !== 'true'")
        self.page.wait_for("map", f"(canvas) => !canvas.checkVisibility() || ({PAINTED})(canvas)")
        return self

    # ---- One head ----

    def cell(self):
        """What `cell` says: row, column, value (float32) and text; None where it has no number."""
        text, value = self.page.on("cell", """({ textContent, dataset }) =>
            [textContent, dataset.value ?? null]""")
        found = re.search(r"^query (\d+) .*?→ (?:key|appended column) ([^\s:]+)", text, re.S)
        if not found or value is None:
            return None
        column = int(found[2]) if found[2].isdecimal() else None
        return Cell(int(found[1]), column, number(value), text)

    def select(self, row, column):
        """Selects a cell by the address, as a link does; returns what `cell` says."""
        self.page.mouse("mouseMoved", 1, 1)  # what is pointed at would be said instead
        self.set(cell=f"{row},{column}")
        return self.cell_at(row, column)

    def set(self, **settings):
        """Changes settings in the address, as a link within the page does."""
        self.page.evaluate("""(settings) => {
            const given = new URLSearchParams(location.hash.slice(1));
            for (const [name, value] of Object.entries(settings)) given.set(name, value);
            location.hash = given;
        }""", settings)
        return self

    def cell_at(self, row, column):
        """Waits until `cell` has that cell's number."""
        begin = f"query {row} "
        self.page.wait_for("cell", f"""({{ textContent, dataset }}) => dataset.value !== undefined
            && textContent.startsWith({begin!r}) && /→ key {column}[ :]/.test(textContent)""")
        return self.cell()

    def point(self, x, y):
        """Moves the mouse to a share of the map's canvas."""
        box = self.page.on("map", """(element) => {
            element.scrollIntoView({ block: "nearest", behavior: "instant" });
            const { x, y, width, height } = element.getBoundingClientRect();
            return [x, y, width, height];
        }""")
        self.page.mouse("mouseMoved", box[0] + x * box[2], box[1] + y * box[3])


def number(text):
    """The float32 that a text of the page stands for."""
    return numpy.float32(-numpy.inf if text in ("-Infinity", "null") else float(text))
