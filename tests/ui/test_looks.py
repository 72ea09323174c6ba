"""test_looks.py: two widths and both themes: nothing is cut, nothing overlaps, axe-core agrees."""
import unittest

import axe
from case import QUICK, whole
from fixture import HEADS, LAYERS, CaptureCase

WIDTHS = (360, 1440) if QUICK else (360, 1440, 2560)
THEMES = ("light", "dark")
# Controls that reach over the window's edge, or lie over one another, or are too small to hit.
MISPLACED = """() => {
    const controls = [...document.querySelectorAll("button, select, input, textarea, summary, a")]
        .filter((element) => element.checkVisibility({ visibilityProperty: true,
            contentVisibilityAuto: true }) // what is far out of sight is not laid out yet
            && !element.closest(".visually-hidden, .skip"));
    const boxes = controls.map((element) => [element, element.getBoundingClientRect()])
        .filter(([, box]) => box.width > 0 && box.height > 0);
    const name = (element) => element.dataset.testid || element.textContent.slice(0, 20)
        || element.tagName;
    const pinned = (element) => {
        while (element && !/fixed|sticky/.test(getComputedStyle(element).position))
            element = element.parentElement;
        return element; // what scrolls below a pinned part is not covered for good
    };
    const wrong = [];
    for (const [element, box] of boxes) {
        if (box.left < -1 || box.right > innerWidth + 1)
            wrong.push(`${name(element)} reaches over the edge: ${box.left} to ${box.right}`);
        const target = element.matches("[type=checkbox], [type=radio]")
            ? element.closest("label")?.getBoundingClientRect() ?? box : box;
        if (target.height < 23.5 || target.width < 23.5)
            wrong.push(`${name(element)} is ${target.width} x ${target.height}`);
    }
    boxes.forEach(([a, one], i) => boxes.slice(i + 1).forEach(([b, two]) => {
        if (a.contains(b) || b.contains(a) || pinned(a) !== pinned(b)) return;
        const across = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        const down = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        if (across > 1.5 && down > 1.5) wrong.push(`${name(a)} lies over ${name(b)}`);
    }));
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth > clientWidth) wrong.push(`the page is ${scrollWidth} wide in ${clientWidth}`);
    return wrong.slice(0, 8);
}"""


# Texts of which a part cannot be seen, though no ellipsis or scroll bar says so.
CUT = """() => [...document.querySelectorAll("body *")].filter((element) => {
    if (!element.checkVisibility({ visibilityProperty: true })) return false;
    const style = getComputedStyle(element);
    const hides = (value) => value === "hidden" || value === "clip";
    const across = hides(style.overflowX) && style.textOverflow !== "ellipsis"
        && element.scrollWidth > element.clientWidth + 1;
    const down = hides(style.overflowY) && element.scrollHeight > element.clientHeight + 1;
    const pen = new OffscreenCanvas(1, 1).getContext("2d");
    pen.font = style.font;
    const chosen = element.selectedOptions?.[0]?.textContent ?? "";
    const field = element.matches("input, button") && element.scrollWidth > element.clientWidth + 1
        || pen.measureText(chosen).width + 24 > element.clientWidth && chosen !== "";
    return (across || down || field) && element.textContent.trim() !== ""
        && !element.closest(".visually-hidden, .thumbnail");
}).map((element) => `${element.dataset.testid ?? element.className} is cut`)"""


class Looks(CaptureCase):
    """Every view in every width and theme."""

    def each_look(self):
        """(view, width, theme) with one head open."""
        view = self.head()
        for width in WIDTHS:
            view.page.size(width)
            for theme in THEMES:
                view.page.theme(theme)
                self.settle(view)
                yield view, width, theme

    def test_controls_are_within_the_window_and_apart(self):
        for view, width, theme in self.each_look():
            for name in ("map", "lines", "neurons", "compare"):
                view.page.click(f"view-{name}")
                self.settle(view)
                self.assertEqual(view.page.evaluate(f"({MISPLACED})()"), [], (width, theme, name))
            view.page.click("view-map")

    def test_at_200_percent_nothing_is_cut(self):
        view = self.head(color_by="previous", sort="mean_distance")
        view.page.size(640, 400, ratio=2)  # 1280 x 800 at 200 %
        for name in ("map", "lines", "neurons", "compare"):
            view.page.click(f"view-{name}")
            self.settle(view)
            self.assertEqual(view.page.evaluate(f"({MISPLACED})()"), [], name)
            self.assertEqual(view.page.evaluate(f"({CUT})()"), [], name)
        view.page.click("view-map")
        view.page.size(1280, 800)
        self.settle(view)
        self.assertEqual(view.page.evaluate(f"({CUT})()"), [])
        view.page.size(640, 400, ratio=2)
        self.assertLess(view.page.on("map", "(map) => map.getBoundingClientRect().width"), 640)
        view.page.click("tab-sessions")
        self.settle(view)
        self.assertEqual(view.page.evaluate(f"({MISPLACED})()"), [])
        self.assertEqual(view.page.evaluate(f"({CUT})()"), [])

    def test_where_no_head_is_open_all_heads_have_the_whole_width(self):
        view = self.overview()
        view.set(head="")
        for width in WIDTHS:
            view.page.size(width)
            self.settle(view)
            place = """(part) => { const { left, right } = part.getBoundingClientRect();
                return [left, right]; }"""
            left, right = view.page.on("#overview", place)
            self.assertFalse(view.page.on("#view", "(view) => view.checkVisibility()"), width)
            begin = view.page.on("#input", place)[1] if width >= 1600 else 0
            self.assertLess(left - begin, 20, width)
            self.assertLess(width - right, 20, width)
        view.page.size(1280)
        view.page.click("head-0-0")
        view.wait_map(0, 0)
        self.assertLess(view.page.on("#overview", place)[1], view.page.on("#view", place)[0])

    def test_the_legend_is_above_the_fold_on_every_scale(self):
        view = self.head()
        view.page.size(1280, 800)
        for scale in ("linear", "log", "rank"):
            view.set(scale=scale)
            self.settle(view)
            bottom = view.page.on("#view .legend", "(legend) => legend.getBoundingClientRect().bottom")
            self.assertLessEqual(bottom, 800, scale)

    def test_theme_follows_the_system_and_the_switch(self):
        view = self.overview()
        ground = """[document.documentElement, document.body].map((element) =>
            getComputedStyle(element).backgroundColor).join(" ")"""
        light = view.page.evaluate(ground)
        view.page.theme("dark")
        dark = view.page.evaluate(ground)
        self.assertNotEqual(light, dark)
        view.page.choose("theme", "light")
        self.assertEqual(view.page.evaluate(ground), light)
        view.page.choose("theme", "dark")
        view.page.theme("light")
        self.assertEqual(view.page.evaluate(ground), dark)

    def test_on_paper_there_are_maps_and_no_controls(self):
        view = self.head()
        view.page.wait_for("statistics")
        controls = """[...document.querySelectorAll("button, select, input, textarea, a, summary")]
            .filter((element) => element.checkVisibility() && !element.matches(".thumbnail, summary"))
            .map((element) => element.dataset.testid || element.textContent)"""
        self.assertGreater(len(view.page.evaluate(controls)), 20, "on a screen")
        view.page.call("Emulation.setEmulatedMedia", media="print")
        self.assertEqual(view.page.evaluate(controls), [])
        shown = view.page.evaluate("""["#view h2", "#overview h2", "[data-testid=map]", ".looked",
            "[data-testid=head-0-0] canvas", ".legend svg", "[data-testid=statistics]"]
            .filter((name) => !document.querySelector(name).checkVisibility())""")
        self.assertEqual(shown, [])
        view.page.call("Emulation.setEmulatedMedia", media="")

    def test_paper_is_white_in_every_theme(self):
        view = self.head(theme="light")
        self.settle(view)
        light = self.picture(view)
        view.page.choose("theme", "dark")
        self.settle(view)
        self.assertNotEqual(self.picture(view), light)
        printed = view.page.evaluate("""(() => {
            dispatchEvent(new Event("beforeprint"));
            return document.querySelector("[data-testid=map]").toDataURL();
        })()""")
        self.assertTrue(printed == light)
        view.page.evaluate("dispatchEvent(new Event('afterprint'))")
        self.settle(view)
        self.assertEqual(view.page.evaluate("document.documentElement.dataset.theme"), "dark")
        self.assertNotEqual(self.picture(view), light)

    @unittest.skipUnless(axe.AXE, "axe-core is not here")
    def test_axe_has_no_serious_finding(self):
        for view, width, theme in self.each_look():
            for name in ("map",) if QUICK else ("map", "lines", "neurons", "compare"):
                view.page.click(f"view-{name}")
                self.settle(view)
                self.assertEqual(axe.findings(view.page), [], (width, theme, name))
            view.page.click("view-map")
            view.page.click("tab-sessions")
            self.settle(view)
            self.assertEqual(axe.findings(view.page), [], (width, theme, "sessions"))
            view.page.click("tab-attention")
