"""test_demo.py: what examples/demo/README.md says of the demonstration model, measured anew through a
daemon that serves config/attnd.json's: how well it predicts, what its heads look at and what each
is worth."""
import json
import re
import sys
import tempfile
import unittest

import numpy

from daemon import TOP, Daemon

DEMO = TOP / "examples" / "demo"
sys.path.insert(1, str(DEMO))
sys.path.insert(1, str(TOP / "examples"))
import heads  # noqa: E402

README = (DEMO / "README.md").read_text("utf-8")
NOTES = json.loads((DEMO / "demo.json").read_text("utf-8"))

# By a head's name in demo.json: its pattern, and what columns of its row are at least.  Of the first
# of these no head without a name has as much.
CLAIMS = {
    "induction": ("`focused`", {"induction": 0.8, "keyword": 0.5, "+keyword": 0.1}),
    "previous token": ("`previous`", {"previous": 0.9, "+all": 0.3, "+subject": 0.2, "+bracket": 0.5}),
    "bracket": ("`local`", {"bracket": 0.5, "+bracket": 1}),
    "rare token": ("`focused`", {"keyword": 0.5, "induction": 0.7}),
    "sink": ("`global`", {"first": 0.35}),
    "positional": ("`positional`", {"+all": 4, "+induction": 6}),
}


def numbers(line):
    """The cells of a row of Markdown, numbers where they are."""
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return [float(cell.rstrip("%")) if re.fullmatch(r"-?[\d.]+%?", cell) else cell
            for cell in cells]


class Demonstration(unittest.TestCase):
    """The model as `make run` serves it."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        daemon = Daemon(directory.name, [{"name": "demo", "path": str(TOP / "config" / "demo")}])
        cls.addClassCleanup(daemon.stop)
        cls.client = heads.Client(daemon.url)
        cls.addClassCleanup(cls.client.close)
        cls.client.wait_until_ready()
        cls.model = heads.Model(cls.client)

    def test_heads_do_what_their_names_say(self):
        """By the README's table, which the test before holds."""
        rows = [numbers(line) for line in README.splitlines() if re.match(r"\| (\d\.\d|head) \|", line)]
        told = {row[0]: dict(zip(rows[0], row)) for row in rows[1:]}
        named = {note["name"]: told[float(f"{note['layer']}.{note['head']}")] for note in NOTES["heads"]}
        self.assertEqual(set(named), set(CLAIMS))
        for name, (pattern, least) in CLAIMS.items():
            self.assertEqual(named[name]["pattern"], pattern, name)
            for column, number in least.items():
                self.assertGreaterEqual(named[name][column], number, (name, column))
            first = next(iter(least))
            others = [row[first] for row in told.values() if row not in named.values()]
            self.assertGreater(named[name][first], max(others), name)
        self.assertLess(named["previous token"]["entropy"], 0.1)
        self.assertLess(named["positional"]["entropy"], 0.3)
        wide = [row["entropy"] for row in told.values() if row["pattern"] == "`global`"]
        self.assertGreater(min(wide), 2)

    def test_the_request_is_of_the_first_sentence(self):
        there = json.loads((DEMO / "sentence.json").read_text("utf-8"))
        made = heads.request(self.model)
        off = numpy.abs(numpy.subtract(there.pop("hidden_states"), made.pop("hidden_states")))
        self.assertLess(off.max(), 3e-4)
        self.assertEqual(there, made)

    def test_tables_are_those_of_the_readme(self):
        made = "\n".join(heads.tables(self.model)).splitlines()
        there = [line for line in README.splitlines() if line.startswith("|")]
        self.assertEqual(len([line for line in made if line]), len(there))
        for line, told in zip(filter(None, made), there):
            for cell, wanted in zip(numbers(line), numbers(told), strict=True):
                if isinstance(wanted, float):
                    self.assertAlmostEqual(cell, wanted, delta=0.02 + 0.02 * abs(wanted), msg=told)
                else:
                    self.assertEqual(cell, wanted, told)
