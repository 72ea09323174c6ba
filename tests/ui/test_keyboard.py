"""test_keyboard.py: everything can be done without a mouse, and is said to screen readers."""
from case import whole
from fixture import HEADS, LAYERS, TOKENS, CaptureCase

FOCUS = """(() => { const { dataset, id, tagName } = document.activeElement;
    return dataset.testid || id || tagName; })()"""


class Keyboard(CaptureCase):
    """The keyboard alone, from loading the page to one cell of one head, and out."""

    def focused(self, view):
        """What has the focus: its data-testid, id or name."""
        return view.page.evaluate(FOCUS)

    def tab_to(self, view, wanted, most=60):
        """Presses Tab until something that `wanted` accepts has the focus."""
        passed = []
        for _ in range(most):
            view.page.press("Tab")
            passed.append(self.focused(view))
            if wanted(passed[-1]):
                return passed[-1]
        self.fail(f"Tab reaches {passed}")

    def said(self, view, pattern):
        """Waits until the live region says what matches."""
        return view.page.wait_for("#announcer", f"({{ textContent }}) => "
                                                f"/{pattern}/.test(textContent) && textContent")

    def test_from_load_to_a_cell_of_a_head_and_out(self):
        view = self.overview()
        view.page.evaluate("document.activeElement.blur()")
        self.tab_to(view, lambda name: name == "tab-attention")
        self.tab_to(view, lambda name: name == "input-summary")
        if not view.page.has("input-model"):
            view.page.press("Enter")
        self.tab_to(view, lambda name: name == "input-model")
        first = self.tab_to(view, lambda name: name.startswith("head-"))
        self.assertEqual(first, "head-0-0")
        view.page.press("ArrowRight", times=2)
        self.assertEqual(self.focused(view), "head-0-2")
        view.page.press("ArrowDown")
        self.assertEqual(self.focused(view), "head-1-2")
        view.page.press("End")
        self.assertEqual(self.focused(view), f"head-{LAYERS - 1}-{HEADS - 1}")
        view.page.press("Home")
        self.assertEqual(self.focused(view), "head-0-0")
        view.page.press("ArrowDown")
        view.page.press("Enter")
        view.wait_map(1, 0)
        view.page.wait(f"{FOCUS} === 'map'", "the focus on the map")
        view.page.press("ArrowDown", times=3)
        view.page.press("ArrowRight", times=2)
        expected, cell = self.weights(1, 0), view.cell()
        self.assertEqual(cell.value.tobytes(), expected[cell.row, cell.column].tobytes())
        self.assertGreaterEqual(cell.row, 2)
        self.said(view, f"query {cell.row} .{TOKENS[cell.row]}.")
        view.page.press("Escape")
        self.assertEqual(self.focused(view), "head-1-0")

    @whole
    def test_keys_of_the_map(self):
        view = self.overview().open_head(1, 2)
        view.page.wait(f"{FOCUS} === 'map'", "the focus on the map")
        count = len(TOKENS)
        view.page.press("ArrowDown")
        view.page.press("Home")
        start = view.cell()
        self.assertEqual(start.column, 0)
        view.page.press("End")
        self.assertEqual((view.cell().row, view.cell().column), (start.row, count - 1))
        view.page.press("ArrowLeft", times=count + 2)
        self.assertEqual((view.cell().row, view.cell().column), (start.row, 0))
        view.page.press("PageDown", times=3)
        self.assertEqual(view.cell().row, count - 1)
        view.page.press("PageUp", times=3)
        self.assertEqual(view.cell().row, 0)
        view.page.press("+", times=4)
        view.page.wait("/area=/.test(location.hash)", "the zoomed area")
        before = view.settings()["area"]
        view.page.press("ArrowRight", shift=True, times=2)
        view.page.press("ArrowDown", shift=True, times=2)
        view.page.wait(f"new URLSearchParams(location.hash.slice(1)).get('area') !== '{before}'",
                       "the moved area")
        view.page.press("-", times=2)
        view.page.press("0")
        view.page.wait("!/area=/.test(location.hash)", "the whole map")
        view.page.press("]")
        view.wait_map(1, 3)
        view.page.press("[", times=2)
        view.wait_map(1, 1)

    @whole
    def test_help_lists_keys_and_closes_by_escape(self):
        view = self.overview()
        view.page.evaluate("document.activeElement.blur()")
        view.page.press("?")
        text = view.page.wait_for("dialog[open]", "(element) => element.textContent")
        for word in ("Enter", "Escape", "Home", "zoom"):
            self.assertIn(word, text)
        view.page.press("Escape")
        self.assertFalse(view.page.has("dialog[open]"))

    @whole
    def test_tabs_take_arrow_keys(self):
        view = self.overview()
        view.page.on("tab-attention", "(element) => element.focus()")
        view.page.press("ArrowRight")
        self.assertEqual(self.focused(view), "tab-sessions")
        self.assertEqual(view.page.on("tab-sessions", "(element) => element.ariaSelected"), "true")
        self.assertTrue(view.page.has("#sessions"))
        view.page.press("ArrowLeft")
        self.assertTrue(view.page.has("#overview"))

    @whole
    def test_screen_readers_are_told_what_map_and_head_are(self):
        view = self.overview().open_head(1, 2)
        stats = self.asked(1, outputs=["head_stats"])["head_stats"][2]
        name = view.page.wait_for("map", f"""({{ ariaLabel }}) =>
            ariaLabel.includes('pattern {stats["pattern"]}') && ariaLabel""")
        for part in ("Layer 1, head 2", f"{len(TOKENS)} queries"):
            self.assertIn(part, name)
        node = view.page.ax("map")
        self.assertIn("Layer 1, head 2", node["name"])
        cell = view.select(5, 2)
        view.page.on("map", "(element) => element.focus()")
        view.page.press("ArrowDown")
        self.said(view, f"query 6 .{TOKENS[6]}. → key 2 .{TOKENS[2]}.")
        self.assertNotEqual(view.cell(), cell)
