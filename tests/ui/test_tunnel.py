"""test_tunnel.py: the page over a way of 20 Mbit/s: what it sends and gets, as seconds of that way.

Seconds are bytes by the way's rate: how long this machine computes beside that is not judged here.
"""
import numpy

from case import TOP, Case, directory, start
from tunnel import RATE, Tunnel
from view import View

TOKENS, HEADS, WIDTH = 2048, 12, 768
IDLE = """document.querySelector("#progress").hidden
    && document.querySelector(".all-heads").ariaBusy === "false" """
TOLD = "({ dataset }) => dataset.value !== undefined"


class Far(Case):
    """A daemon behind a Tunnel."""

    def setUp(self):
        random = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "is_causal": True}
        daemon = start([{"name": "demo", "path": str(TOP / "examples" / "demo")},
                        {"name": "wide", "random": random}])
        self.tunnel = Tunnel(daemon.url)
        self.addCleanup(self.tunnel.close)
        self.view = View(self.page(width=1280, height=800), self.tunnel.url)

    def seconds(self, action):
        """Seconds of the way, up and down, that an action takes."""
        lines = self.tunnel.up, self.tunnel.down
        before = [line.carried for line in lines]
        action()
        return [(line.carried - count) / RATE for line, count in zip(lines, before)]

    def test_first_visit_takes_a_third_of_a_second_and_a_sentence_a_thirtieth(self):
        page = self.view.page

        def visit():
            self.view.open()
            page.wait_for("story", "(story) => /ringed cell/.test(story.textContent)")
            page.wait(IDLE, "all heads")

        def another():
            page.click("another")
            page.wait_for("next", "(next) => !/lamp/.test(next.textContent)")
            page.wait(IDLE, "all heads")

        up, down = self.seconds(visit)
        self.assertLess(up, 0.1)
        self.assertLess(down, 0.33)
        up, down = self.seconds(another)
        self.assertLess(up, 0.04)
        self.assertLess(down, 0.033)

    def test_rows_go_up_once_and_a_number_takes_what_100_ms_carry(self):
        page, path = self.view.page, directory() / "rows.npy"
        rows = numpy.random.default_rng(1).standard_normal((TOKENS, WIDTH)).astype(numpy.float16)
        numpy.save(path, rows)
        self.view.open(text="a", model="wide").wait_source("random").way("rows")

        def look():
            page.files("input-rows", path)
            self.view.wait_source("rows.npy").wait_overview(HEADS)
            page.wait(IDLE, "all heads")

        up, down = self.seconds(look)
        self.assertLess(up, 1.05 * rows.nbytes / RATE)
        self.assertLess(down, 0.1)
        up, down = self.seconds(lambda: self.view.open_head(0, 3))
        self.assertLess(up, 0.01)
        self.assertLess(down, 0.5)
        page.wait_for("statistics")
        page.wait(IDLE, "what comes after")
        for share in (0.3, 0.6):
            def point(share=share):
                self.view.point(0.4, share)
                page.wait_for("cell", TOLD)
            up, down = self.seconds(point)
            self.assertLess(up, 0.01)
            self.assertLess(down, 0.25)
        self.assertEqual(page.error_texts(), [])
