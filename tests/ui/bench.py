#!/usr/bin/env python3
"""bench.py: how fast the page is in Chromium, for `make bench-ui`.

    ATTND=build/attnd tests/ui/bench.py [NAME...]

Random models of the sizes that the page is made for, rows from files as a user chooses them.  Times
are taken in the page: from the choice of the file (rows are there) to the frame in which all
thumbnails, or the map of one head, are painted; from a pointer's event to the text of its cell;
between frames while the map is zoomed and moved.  Chromium paints without a GPU here.
"""
import os
import pathlib
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
os.environ["ATTND"] = os.path.abspath(os.environ.get("ATTND", "build/attnd"))
sys.path.insert(0, str(HERE))

import numpy  # noqa: E402

import case  # noqa: E402
from page import Page  # noqa: E402
from view import PAINTED, View  # noqa: E402

# name: tokens, specification, whether a head is opened too
SIZES = {
    "12 heads x 1024": (1024, {"hidden_size": 768, "num_attention_heads": 12}, True),
    "12 heads x 4096": (4096, {"hidden_size": 768, "num_attention_heads": 12}, True),
    "32 heads x 8192": (8192, {"hidden_size": 2048, "num_attention_heads": 32,
                               "num_key_value_heads": 8, "rope_theta": 500000.0}, False),
    "12 x 12 heads x 1024": (1024, {"hidden_size": 768, "num_attention_heads": 12,
                                    "num_hidden_layers": 12}, False),
}
# Writes into window[name] the milliseconds from begin() to the first frame in which it holds.
WATCH = """window.attndMeasure = (name, holds, begin) => {
    window[name] = null;
    const look = () => {
        if (holds()) window[name] = performance.now() - begin();
        else requestAnimationFrame(look);
    };
    look();
}"""
THUMBNAILS = f"""(all) => {{
    const canvases = [...document.querySelectorAll("button[data-testid^=head-] canvas")];
    const title = document.querySelector("#overview h2")?.textContent ?? "";
    return title.includes("rows.npy") && canvases.length > 0
        && (all ? canvases.every({PAINTED}) : canvases.some({PAINTED}));
}}"""
# Bodies are counted in the page: the watch of Page would copy each of them more than once.
COUNT = """(() => {
    const plain = window.fetch;
    window.attndSent = [];
    window.fetch = (url, init) => {
        window.attndSent.push(init?.body?.byteLength ?? init?.body?.size ?? init?.body?.length ?? 0);
        return plain(url, init);
    };
    performance.clearResourceTimings();
})()"""
OVERVIEW = f"""(() => {{
    document.querySelector("[data-testid=input-rows]").addEventListener("change",
        () => {{ window.attndBegin = performance.now(); }}, true);
    attndMeasure("attndFirst", () => ({THUMBNAILS})(false), () => window.attndBegin);
    attndMeasure("attndOverview", () => ({THUMBNAILS})(true), () => window.attndBegin);
}})()"""
HEAD = f"""(() => {{
    window.attndClick = 0;
    document.querySelector("[data-testid=head-0-3]").addEventListener("click",
        () => {{ window.attndClick = performance.now(); }}, true);
    attndMeasure("attndHead", () => {{
        const map = document.querySelector("[data-testid=map]");
        return window.attndClick && map?.ariaBusy === "false" && map.checkVisibility()
            && ({PAINTED})(map);
    }}, () => window.attndClick);
}})()"""
HOVER = """(() => {
    window.attndHover = { moved: [], told: [] };
    let at = null;
    document.querySelector("[data-testid=map]").addEventListener("pointermove",
        (event) => { at = [event.timeStamp, performance.now()]; }, true);
    new MutationObserver(() => {
        if (at === null || document.querySelector("[data-testid=cell]").dataset.value === undefined)
            return; // "…" stands for a number that has not come yet
        window.attndHover.moved.push(performance.now() - at[0]);
        window.attndHover.told.push(performance.now() - at[1]);
        at = null;
    }).observe(document.querySelector("[data-testid=cell]"),
        { childList: true, characterData: true, subtree: true });
})()"""
FRAMES = """window.attndFrames = []; (() => {
    let before = null;
    const step = (now) => {
        if (!window.attndFrames) return;
        if (before !== null) window.attndFrames.push(now - before);
        before = now;
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
})()"""


def part(values, share):
    """The value below which `share` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def figures(values):
    """Middle, tail and largest of some milliseconds."""
    return (f"p50 {part(values, 0.5):.1f}, p95 {part(values, 0.95):.1f}, "
            f"p99 {part(values, 0.99):.1f} ms ({len(values)})")


class Bench:
    """One size: a daemon, a page, its figures."""

    def __init__(self, name):
        self.name = name
        self.tokens, spec, self.opens = SIZES[name]
        width = spec["hidden_size"]
        self.daemon = case.start([{"name": "m", "random": {"seed": 1, "is_causal": True, **spec}}],
                                 max_tokens=16384)
        self.rows = case.directory() / "rows.npy"
        rows = numpy.random.default_rng(1).standard_normal((self.tokens, width))
        numpy.save(self.rows, rows.astype(numpy.float16))
        self.page = Page(case.browser())
        self.view = View(self.page, self.daemon.url)

    def say(self, what, text):
        """Prints a figure."""
        print(f"{self.name}: {what}: {text}", flush=True)

    def overview(self):
        """Chooses the file; prints when the first and all thumbnails are painted."""
        self.view.open(text="a", model="m", scale="linear")
        self.view.wait_source("random")
        self.view.way("rows")
        self.page.evaluate(f"void ({WATCH})")
        self.page.evaluate(OVERVIEW)
        self.page.evaluate(COUNT)
        self.page.call("Network.disable")
        self.page.files("input-rows", self.rows)
        self.page.wait("(document.querySelector('#overview h2')?.textContent ?? '')"
                       ".includes('rows.npy')", "the rows", 60)
        first = self.page.wait("window.attndFirst", "the first thumbnail", 120)
        whole = self.page.wait("window.attndOverview", "all thumbnails", 120)
        self.say("overview", f"first thumbnail {first:.0f} ms, all {whole:.0f} ms after the file")

    def head(self):
        """Opens a head; prints when its map is painted."""
        self.page.evaluate(HEAD)
        self.page.click("head-0-3")
        took = self.page.wait("window.attndHead", "the map", 120)
        self.say("one head", f"painted {took:.0f} ms after the click")
        self.page.wait("document.querySelector('#progress').hidden", "what comes after", 60)

    def hover(self):
        """Moves the pointer over the map; prints from event to text."""
        self.page.evaluate(HOVER)
        x, y, width, height = self.page.on("map", """(element) => {
            element.scrollIntoView({ block: "center", behavior: "instant" });
            const { x, y, width, height } = element.getBoundingClientRect();
            return [x, y, width, height]; }""")
        for step in range(200):
            self.page.mouse("mouseMoved", x + width * (0.2 + 0.5 * (step * 37 % 200) / 200),
                            y + height * (0.25 + 0.5 * step / 200))
        time.sleep(0.3)
        took = self.page.evaluate("window.attndHover")
        self.say("hover to text", "from the page's event " + figures(took["told"]))
        self.say("hover to text", "from the pointer, which waits for a frame, " +
                 figures(took["moved"]))

    def frames(self):
        """Zooms and moves the map; prints the time between frames."""
        x, y = self.page.place("map")
        self.page.evaluate(FRAMES)
        begin = time.monotonic()
        while time.monotonic() - begin < 4:
            for turn in (-1, 1):
                for _ in range(20):
                    self.page.mouse("mouseWheel", x, y, deltaX=0, deltaY=60 * turn)
                self.page.drag([x, y], [x - 150, y - 90], 15)
        times = self.page.evaluate("(() => { const all = window.attndFrames;"
                                   " window.attndFrames = null; return all; })()")
        self.say("zoom and pan", f"{1000 * len(times) / sum(times):.0f} frames/s, {figures(times)}")
        self.page.click("zoom-all")

    def memory(self, when):
        """Prints the memory of the tab."""
        self.page.call("HeapProfiler.collectGarbage")
        heap = self.page.evaluate("performance.memory.usedJSHeapSize")
        resident, own = max(self.page.browser.processes().get("renderer", [(0, 0)]))
        self.say(f"memory {when}", f"tab {own / 1e6:.0f} MB of its own, {resident / 1e6:.0f} MB "
                                   f"resident, {heap / 1e6:.1f} MB JavaScript's heap")

    def transfers(self):
        """Prints the largest request and reply."""
        sent = self.page.evaluate("window.attndSent")
        came = self.page.evaluate("performance.getEntriesByType('resource')"
                                  ".map((entry) => entry.encodedBodySize)")
        self.say("transfers", f"{len(sent)} calls, largest reply {max(came) / 1e6:.2f} MB, "
                              f"largest request {max(sent) / 1e6:.2f} MB")

    def run(self):
        """All figures of the size."""
        self.overview()
        self.memory("with the overview")
        if self.opens:
            self.head()
            self.hover()
            self.frames()
            self.memory("with one head")
        self.transfers()
        faults = self.page.faults()
        if faults:
            self.say("faults", faults)
        self.page.close()
        self.daemon.stop()
        return not faults


def main(names):
    """Measures the named sizes, or all; returns the exit status."""
    print(f"{case.browser().version}, {os.cpu_count()} CPUs", flush=True)
    try:
        good = [Bench(name).run() for name in names or SIZES]
    finally:
        case.end()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
