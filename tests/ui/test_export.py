"""test_export.py: what leaves the page is exactly what the API says."""
import csv
import io
import json
import os
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree

import numpy

from case import TOP, daemon, directory, whole
from fixture import TOKENS, CaptureCase
from view import View

SVG = "{http://www.w3.org/2000/svg}"


class Export(CaptureCase):
    """The exports of one head."""

    def exported(self, view, name):
        """The bytes of the file that a button offers."""
        into = directory()
        return view.page.downloaded(lambda: view.page.click(f"export-{name}"), into).read_bytes()

    def bits(self, found, expected):
        """Asserts that numbers are the same to the bit."""
        found = numpy.asarray(found, numpy.float32)
        self.assertEqual(found.shape, expected.shape)
        self.assertEqual(found.tobytes(), expected.tobytes())

    def test_npy_and_csv_hold_the_numbers_of_the_api(self):
        view, expected = self.head(), self.weights(1, 2)
        self.bits(numpy.load(io.BytesIO(self.exported(view, "npy"))), expected)
        table = list(csv.reader(io.StringIO(self.exported(view, "csv").decode("utf-8"))))
        self.assertEqual(table[0][1:], TOKENS)
        self.assertEqual([row[0] for row in table[1:]], TOKENS)
        self.bits([[float(text) for text in row[1:]] for row in table[1:]], expected)

    @whole
    def test_scores_and_an_area_are_exported_as_they_are_shown(self):
        view = self.head(kind="scores", stage="masked").set(area="4,10,2,9")
        expected = self.scores(1, 2, stage="masked")[4:10, 2:9]
        self.bits(numpy.load(io.BytesIO(self.exported(view, "npy"))), expected)
        table = list(csv.reader(io.StringIO(self.exported(view, "csv").decode("utf-8"))))
        self.assertEqual(table[0][1:], TOKENS[2:9])
        self.bits([[float(text) for text in row[1:]] for row in table[1:]], expected)

    def test_svg_has_the_cells_in_their_colours_and_the_labels(self):
        view, expected = self.head(), self.weights(1, 2)
        text = self.exported(view, "svg").decode("utf-8")
        tree = xml.etree.ElementTree.fromstring(text)
        self.assertEqual(tree.tag, SVG + "svg")
        self.assertNotIn("script", text.lower())
        texts = ["".join(element.itertext()) for element in tree.iter(SVG + "text")]
        for token in set(TOKENS):
            self.assertGreaterEqual(texts.count(token), TOKENS.count(token), token)
        colours = view.page.evaluate("""async (values) => {
            const colors = await import("/ui/colors.js");
            const numbers = Float32Array.from(values);
            const scale = colors.scaleOf("linear", numbers);
            return values.map((value) => colors.hexOf(colors.mapNamed("", false), scale.unit(value)));
        }""", expected.reshape(-1).tolist())
        fills = [element.get("fill") for element in tree.iter(SVG + "rect")]
        for (row, column) in ((0, 0), (9, 3), (17, 17), (12, 0)):
            self.assertIn(colours[row * len(TOKENS) + column], fills, (row, column))

    def test_svg_is_ready_for_a_paper(self):
        view = self.head(theme="dark", off="1")
        view.page.wait_for("statistics")
        for width, units in (("one", "85mm"), ("two", "178mm")):
            view.page.choose("paper", width)
            tree = xml.etree.ElementTree.fromstring(self.exported(view, "svg").decode("utf-8"))
            self.assertEqual(tree.get("width"), units)
            texts = [element.text for element in tree.iter(SVG + "text")]
            for title in ("key", "query"):
                self.assertIn(title, texts)
            caption = " ".join(texts)
            for part in ("llama_gqa layer 1, head 2", "head 1 off", "Colours: linear to",
                         "Tokens: " + " ".join(TOKENS[:3])):
                self.assertIn(part, caption)
            self.assertEqual(next(tree.iter(SVG + "rect")).get("fill"), "#ffffff")

    def test_figure_is_copied_with_its_numbers_and_the_address(self):
        view, expected = self.head(), self.weights(1, 2)
        text = view.page.copied(lambda: view.page.click("export-bundle"))
        tree = xml.etree.ElementTree.fromstring(text)
        address, _, table = next(tree.iter(SVG + "metadata")).text.partition("\n\n")
        self.assertEqual(address, view.page.evaluate("location.href"))
        rows = list(csv.reader(io.StringIO(table)))
        self.bits([[float(number) for number in row[1:]] for row in rows[1:]], expected)

    def test_pictures_are_light_in_every_theme(self):
        light, dark = (self.exported(self.head(theme=theme), "png") for theme in ("light", "dark"))
        self.assertEqual(light, dark)

    @whole
    def test_png_is_a_picture_twice_as_large(self):
        view = self.head()
        data = self.exported(view, "png")
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        width = view.page.on("map", "(canvas) => canvas.getBoundingClientRect().width")
        self.assertEqual(int.from_bytes(data[16:20], "big"), round(2 * width))

    def test_curl_command_runs_and_gives_the_numbers(self):
        view, into = self.head(), directory()
        command = self.command(view, "curl", into)
        done = subprocess.run(["/bin/bash", "-c", command], cwd=into, check=True,
                              capture_output=True, timeout=60)
        self.bits(json.loads(done.stdout)["attention_weights"][0], self.weights(1, 2))

    @whole
    def test_python_program_runs_and_gives_the_numbers(self):
        view, into = self.head(), directory()
        (into / "program.py").write_text(self.command(view, "python", into), "utf-8")
        done = subprocess.run([sys.executable, "program.py"], cwd=into, check=True, timeout=60,
                              capture_output=True, env={
                                  **os.environ, "PYTHONPATH": str(TOP / "clients" / "python")})
        self.bits(json.loads(done.stdout)[0], self.weights(1, 2))

    def command(self, view, name, into):
        """The text that a button copies; a file that goes with it is in `into`."""
        view.page.browser.call("Browser.setDownloadBehavior", {
            "behavior": "allow", "browserContextId": view.page.context, "downloadPath": str(into)})
        text = view.page.copied(lambda: view.page.click(f"export-{name}"))
        if "attnd-request.json" in text:
            self.wait_file(view, into / "attnd-request.json")
        return text

    def wait_file(self, view, path):
        """Waits until a download is whole."""
        for _ in range(500):
            if path.exists():
                return
            view.page.browser.receive(0.01)
        self.fail(f"{path} was not downloaded")

    @whole
    def test_link_has_all_settings(self):
        view = self.head(scale="log")
        view.select(3, 1)
        link = view.page.copied(lambda: view.page.click("export-link"))
        given = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(link).fragment))
        self.assertEqual({name: given.get(name) for name in ("layer", "head", "scale", "cell")},
                         {"layer": "1", "head": "2", "scale": "log", "cell": "3,1"})


class Address(CaptureCase):
    """All settings are in the address: a link shows the same picture."""

    def shot(self, view):
        """What is seen of map and overview, as pixels."""
        self.settle(view)
        return [self.picture(view)] + [
            self.picture(view, f"[data-testid=head-{layer}-{head}] canvas")
            for layer, head in view.heads()]

    @whole
    def test_what_controls_change_is_in_the_address(self):
        settings = {"model": "llama_gqa", "text": "the cat sat on the mat . the cat sat",
                    "seed": "11"}
        chosen = {"scale": "rank", "colors": "cividis", "kind": "scores", "stage": "masked"}
        view = View(self.page(), daemon().url).open(**settings).wait_overview(8)
        view.open_head(1, 0).page.click("off-1")
        for name, value in chosen.items():
            view.page.choose(name, value)
        for name, value in (("overview-sort", "entropy"), ("overview-color", "self"),
                            ("overview-pool", "mean"), ("theme", "dark")):
            view.page.choose(name, value)
        view.wait_map(1, 0)
        view.page.click("map")
        view.page.press("+", times=2)
        view.page.wait("/area=/.test(location.hash)", "the area in the address")
        self.settle(view)
        given = view.settings()
        self.assertRegex(given.pop("cell"), r"^\d,\d$")
        self.assertEqual(len(given.pop("area").split(",")), 4)
        self.assertEqual(given, {**settings, **chosen, "layer": "1", "head": "0", "off": "1",
                                 "sort": "entropy", "color_by": "self", "pool": "mean",
                                 "theme": "dark"})

    def test_reload_and_another_tab_show_the_same_picture(self):
        settings = {"model": "llama_gqa", "text": "the cat sat on the mat . the cat sat",
                    "seed": "11", "layer": "1", "head": "0", "scale": "rank", "colors": "cividis",
                    "cell": "7,4", "area": "2,9,1,8", "sort": "entropy", "off": "1",
                    "theme": "dark"}
        view = View(self.page(), daemon().url).open(**settings)
        view.wait_overview(8).wait_map(1, 0)
        first, cell = self.shot(view), view.cell_at(7, 4)
        self.assertEqual(view.settings(), settings)
        view.page.reload()
        view.wait_overview(8).wait_map(1, 0)
        self.assertEqual(view.cell_at(7, 4), cell)
        self.assertTrue(self.shot(view) == first)
        other = View(self.page(), daemon().url).open(**view.settings())
        other.wait_overview(8).wait_map(1, 0)
        self.assertEqual(other.cell_at(7, 4), cell)
        self.assertTrue(self.shot(other) == first)

    @whole
    def test_back_undoes_a_step(self):
        view = self.overview().open_head(0, 1)
        view.page.evaluate("history.back()")
        view.wait_map(0, 0)  # the example's, which was open before
        view.page.evaluate("history.forward()")
        view.wait_map(0, 1)
