"""test_touch.py: fingers on a phone: a tap chooses a cell, one finger moves the map, two zoom it."""
from case import daemon
from fixture import CaptureCase, capture
from view import View


class Touch(CaptureCase):
    """A head on a screen of a phone that is touched."""

    def setUp(self):
        page = self.page(width=390, height=844)
        page.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
        self.view = View(page, daemon().url).open(layer=1, head=2).capture(capture()[0])
        self.view.wait_source("capture.safetensors").wait_map(1, 2)
        page.on("map", "(map) => map.scrollIntoView({ block: 'center', behavior: 'instant' })")

    def at(self, *shares):
        """Points of the map's canvas by shares of its width and height."""
        x, y, width, height = self.view.page.on("map", """(element) => {
            const { x, y, width, height } = element.getBoundingClientRect();
            return [x, y, width, height]; }""")
        return [(x + across * width, y + down * height) for across, down in shares]

    def fingers(self, *paths, steps=8):
        """Puts a finger on the begin of each path, moves all to their ends, and takes them away."""
        def touch(kind, points):
            self.view.page.call("Input.dispatchTouchEvent", type=kind, touchPoints=[
                {"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)])

        touch("touchStart", [path[0] for path in paths])
        for step in range(1, steps + 1) if paths[0][0] != paths[0][-1] else []:
            touch("touchMove", [[a + (b - a) * step / steps for a, b in zip(path[0], path[-1])]
                                for path in paths])
        touch("touchEnd", [])

    def setting(self, name, other=""):
        """Waits for a setting that is not `other`."""
        return self.view.page.wait(f"""(() => {{
            const value = new URLSearchParams(location.hash.slice(1)).get({name!r}) ?? "";
            return value !== {other!r} && value; }})()""", name)

    def area(self, other=""):
        """The area that the address names once it has another one: row0, row1, column0, column1."""
        return [float(edge) for edge in self.setting("area", other).split(",")]

    def test_tap_chooses_a_cell(self):
        [point] = self.at((0.4, 0.5))
        self.fingers([point, point])
        row, column = map(int, self.setting("cell").split(","))
        self.assertEqual(self.view.cell_at(row, column).value.tobytes(),
                         self.weights(1, 2)[row, column].tobytes())

    def test_two_fingers_zoom_in_and_one_moves_the_map(self):
        a, b, far_a, far_b = self.at((0.5, 0.5), (0.6, 0.5), (0.35, 0.5), (0.75, 0.5))
        self.fingers([a, far_a], [b, far_b])
        row0, row1, column0, column1 = self.area()
        rows = self.view.page.evaluate("import('/ui/source.js').then(({ current }) => current().queries)")
        self.assertLess(row1 - row0, 0.7 * rows)
        self.assertEqual(self.view.page.evaluate("visualViewport.scale"), 1)
        start, end = self.at((0.5, 0.5), (0.35, 0.4))
        self.fingers([start, end])
        moved = self.area(self.view.settings()["area"])
        self.assertGreater(moved[0], row0 + 0.5)
        self.assertGreater(moved[2], column0 + 0.5)
        self.assertAlmostEqual(moved[1] - moved[0], row1 - row0, delta=0.05)
        self.fingers([far_a, a], [far_b, b])
        self.fingers([far_a, a], [far_b, b])
        self.view.page.wait("!/area=/.test(location.hash)", "the whole map")

    def test_one_finger_on_the_whole_map_scrolls_the_page(self):
        before = self.view.page.evaluate("scrollY")
        start, end = self.at((0.5, 0.7), (0.5, 0.1))
        self.fingers([start, end])
        self.view.page.wait(f"scrollY > {before}", "the page to scroll")
        self.assertNotIn("area", self.view.settings())

    def test_tap_on_a_thumbnail_opens_the_head_without_a_preview(self):
        point = self.view.page.place("head-0-1")
        self.fingers([point, point])
        self.view.wait_map(0, 1)
        self.assertFalse(self.view.page.has("overview-preview"))
