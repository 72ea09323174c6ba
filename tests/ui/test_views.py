"""test_views.py: lines, neurons and comparisons of a head: their numbers are the API's."""
import re

import numpy

import inputs
from case import directory, whole
from fixture import MODEL, TOKENS, WIDTH, CaptureCase

NUMBER = r"−?\d+(?:\.\d+)?(?:e[-+−]?\d+)?"


def number(text):
    """The number that a text of the page says, up to its digits."""
    return float(text.replace("−", "-"))


class Views(CaptureCase):
    """The other views of one head."""

    @whole
    def test_lines_are_as_opaque_as_the_weights(self):
        view, expected = self.head(view="lines"), self.weights(1, 2)
        lines = view.page.wait_for("lines", """(element) => {
            const found = [...element.querySelectorAll("line")].map((line) =>
                [line.getAttribute("class"), Number(line.getAttribute("stroke-opacity"))]);
            return found.length > 0 && found;
        }""")
        places = {}
        for name, opacity in lines:
            row, column = map(int, re.search(r"q(\d+) k(\d+)", name).groups())
            places[row, column] = opacity
            self.assertAlmostEqual(opacity, expected[row, column] / expected.max(), delta=0.0051)
        strong = {(row, column) for row, column in numpy.argwhere(expected > 0.03 * expected.max())}
        self.assertLessEqual(strong, set(places))

    @whole
    def test_lines_name_the_strongest_key_of_a_token(self):
        view, expected = self.head(view="lines"), self.weights(1, 2)
        for row in (3, 9, 17):
            text = view.page.wait_for(f"[data-side=q][data-place='{row}']",
                                      "(element) => element.getAttribute('aria-label')")
            key = int(expected[row, :row + 1].argmax())
            self.assertIn(f"query {row} {TOKENS[row]}: most with key {key} {TOKENS[key]}, ", text)
            self.assertAlmostEqual(number(re.search(NUMBER + "$", text)[0]), expected[row, key],
                                   delta=1e-3 * expected[row, key])

    def test_neurons_sum_to_the_raw_score(self):
        view, expected = self.head(view="neurons"), self.scores(1, 2)
        view.select(9, 3)
        view.page.wait_for("neurons", "(element) => element.textContent.includes('Query 9 ')")
        rows = view.page.wait_for("neurons", """(element) => {
            const rows = [...element.querySelectorAll("tbody tr")].map((row) =>
                [...row.querySelectorAll("[data-value]")].map((cell) => Number(cell.dataset.value)));
            return rows.length > 0 && rows;
        }""")
        self.assertEqual(len(rows), len(TOKENS))
        for key, (total, score) in enumerate(rows):
            self.assertEqual(numpy.float32(score), expected[9, key])
            self.assertAlmostEqual(total, expected[9, key], delta=1e-5)
        self.assertNotIn("differ", view.page.text("neurons"))
        query = self.asked(1, outputs=["query"], heads=[2], rows=[9])["query"].reshape(-1)
        key = self.asked(1, outputs=["key"])["key"][1]  # of the group of head 2
        box = view.page.on("[data-testid=neurons] tbody tr:nth-child(4) canvas", """(element) => {
            element.scrollIntoView({ block: "center", behavior: "instant" });
            const { x, y, width, height } = element.getBoundingClientRect();
            return [x, y, width, height];
        }""")
        at = len(query) // 3
        view.page.mouse("mouseMoved", box[0] + (at + 0.5) * box[2] / len(query),
                        box[1] + box[3] / 2)
        text = view.page.wait_for("component", f"""({{ textContent }}) =>
            textContent.startsWith("component {at}:") && textContent""")
        said = [number(part) for part in re.findall(NUMBER, text)[1:]]
        for found, wanted in zip(said, (query[at], 3, key[3, at], query[at] * key[3, at])):
            self.assertAlmostEqual(found, wanted, delta=6e-4 * abs(wanted) + 1e-6)

    def compared(self, view, *expected):
        """Waits until the note has these numbers of cell 9, 3 and their difference; its text."""
        expected = [*map(float, expected), float(expected[0]) - float(expected[1])]
        pattern = f"Query 9, key 3: ({NUMBER}) and ({NUMBER}), difference ({NUMBER})"
        for _ in range(1000):
            text = view.page.text("compare-note")
            found = re.search(pattern, text)
            said = [number(part) for part in found.groups()] if found else []
            if found and all(abs(a - b) <= 6e-5 * abs(b) + 1e-9 for a, b in zip(said, expected)):
                return text
            view.page.browser.receive(0.01)
        return self.fail(f"{text}: not {expected}")

    def test_comparison_of_two_heads_names_their_difference(self):
        view = self.head(view="compare", **{"with": "0,1"})
        view.select(9, 3)
        one, two = self.weights(1, 2), self.weights(0, 1)
        text = self.compared(view, one[9, 3], two[9, 3])
        most, row, column = re.search(
            f"Largest difference ({NUMBER}) at query (\\d+) .*?, key (\\d+)", text).groups()
        gap = numpy.abs(one.astype(float) - two)
        self.assertEqual((int(row), int(column)), numpy.unravel_index(gap.argmax(), gap.shape))
        self.assertAlmostEqual(abs(number(most)), gap.max(), delta=6e-4)
        view.page.choose("compare-with", "1,0")
        view.page.wait_for("compare-note", f"({{ textContent }}) => textContent !== {text!r}")
        self.assertEqual(view.settings()["with"], "1,0")

    @whole
    def test_comparison_of_two_inputs(self):
        path = directory() / "other.safetensors"
        other = inputs.capture(path, MODEL, 2, WIDTH, TOKENS[::-1])
        view = self.head(view="compare")
        view.select(9, 3)
        view.page.wait_for("compare-file")
        view.page.files("compare-file", path)
        one = self.weights(1, 2)[9, 3]
        two = self.client().attend(other[1], model=MODEL, layer=1, heads=[2],
                                   outputs=["attention_weights"])["attention_weights"][0][9, 3]
        self.compared(view, one, two)
