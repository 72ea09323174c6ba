"""test_input.py: every way to say what is looked at, and files that are not what they say."""
import json
import re

import numpy

import inputs
from case import Case, GOLDEN, QUICK, TINY, daemon, directory, golden, start, whole
from fixture import HEADS, LAYERS, MODEL, TOKENS, WIDTH
from view import View


class Input(Case):
    """Inputs over a daemon with models of several kinds."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = start([golden(MODEL), TINY, golden("torch_mha_cross"),
                            {"name": "patterns", "path": str(GOLDEN / "patterns")}])
        cls.files = directory()

    def view(self, **settings):
        """A page of this daemon."""
        return View(self.page(), self.daemon.url).open(**settings)

    def path(self, name, data):
        """A file of that name."""
        path = self.files / name
        path.write_bytes(data)
        return path

    def weights(self, rows, layer, head, **fields):
        """The map of a head, by the API."""
        return self.client(self.daemon).attend(
            rows, model=MODEL, layer=layer, outputs=["attention_weights"], heads=[head],
            **fields)["attention_weights"][0]

    def mark(self, view):
        """The warning that stays visible."""
        return view.page.evaluate("""[...document.querySelectorAll(".mark")].filter((element) =>
            element.checkVisibility() && element.textContent)[0].textContent""")

    def same(self, view, expected, row, column):
        """Asserts that a cell of the open head has the number of the API."""
        cell = view.select(row, column)
        self.assertEqual(cell.value.tobytes(), expected[row, column].tobytes(), cell.text)
        return cell

    def test_golden_capture_shows_all_layers_with_their_patterns(self):
        view = self.view()
        view.capture(GOLDEN / "patterns" / "capture.safetensors")
        view.wait_source("capture.safetensors").wait_overview(16)
        self.assertIn("previous", view.name(2, 3))
        self.assertIn("sink", view.name(1, 3))
        self.assertEqual(view.page.on("input-model", "(list) => list.value"), "patterns")

    @whole
    def test_rows_come_from_npy_json_and_a_chosen_tensor(self):
        rows = inputs.rows_of(TOKENS, WIDTH)
        expected = self.weights(rows, 0, 1)
        numpy.save(self.files / "rows.npy", rows)
        half = self.files / "half.npy"
        numpy.save(half, rows.astype(numpy.float16))
        many = self.path("many.safetensors", inputs.safetensors({
            "other": numpy.zeros((3, 5), numpy.float32), "wanted": rows,
            "flat": numpy.zeros(7, numpy.float32)}))
        text = self.path("rows.json", json.dumps(rows.astype(float).tolist()).encode())
        labels = self.path("labels.txt", "\n".join(TOKENS).encode())
        for path in (self.files / "rows.npy", many, text):
            view = self.view(model=MODEL, layer=0, head=1)
            view.way("rows").page.files("input-rows", path)
            view.wait_source(path.name).wait_map(0, 1)
            self.same(view, expected, 9, 4)
            view.page.files("input-labels", labels)
            view.page.wait_for("cell", f"(element) => element.textContent.includes('{TOKENS[4]}')")
        view = self.view(model=MODEL, layer=0, head=1)
        view.way("rows").page.files("input-rows", half)
        view.wait_source("half.npy").wait_map(0, 1)
        self.same(view, self.weights(rows.astype(numpy.float16).astype(numpy.float32), 0, 1), 9, 4)

    @whole
    def test_text_makes_random_rows_that_are_marked_as_such(self):
        view = self.view(model=MODEL)
        view.way("text").page.fill("input-text", "a b a c")
        view.page.fill("input-seed", "12")
        self.assertEqual(view.page.on("input-text", "(element) => element.value"), "a b a c")
        view.page.click("input-apply")
        view.wait_source("random rows, seed 12").wait_overview(LAYERS * HEADS)
        self.assertEqual(view.settings()["text"], "a b a c")
        self.assertIn("random", self.mark(view))
        view.open_head(0, 0)
        self.assertIn("“a” → key 2 “a”", view.select(0, 2).text)

    @whole
    def test_model_and_layers_can_be_chosen(self):
        view = self.view(text="a b c", model=MODEL).wait_overview(8)
        view.page.choose("input-model", "tiny")
        view.wait_overview(8)
        self.assertEqual(view.settings()["model"], "tiny")
        view.page.fill("input-layers", "1")
        view.wait_overview(4)
        self.assertEqual({layer for layer, _ in view.heads()}, {1})

    def test_cross_attention_takes_two_inputs(self):
        view = self.view(model="torch_mha_cross", text="a b c d e", encoder="x y z")
        view.wait_source("over")
        view.page.wait("document.querySelectorAll('[data-testid^=head-] canvas').length > 0",
                       "heads")
        view.wait_overview(len(view.heads()))
        layer, head = view.heads()[0]
        view.open_head(layer, head)
        self.assertIn("query 4 “e” → key 2 “z”", view.select(4, 2).text)

    @whole
    def test_session_that_exists_is_looked_at(self):
        rows = inputs.rows_of(TOKENS, WIDTH)
        session = self.client(self.daemon).session(session_id="looked", model=MODEL)
        self.addCleanup(session.end)
        for layer in range(LAYERS):
            session.prefill(rows[:-1], layer=layer)
            session.decode(rows[-1], layer=layer)
        view = self.view(model=MODEL, session="looked")
        view.wait_source("session looked").wait_overview(LAYERS * HEADS)
        self.assertIn("last cached key", self.mark(view))
        numpy.save(self.files / "step.npy", rows[-1:])
        view = self.view(model=MODEL, layer=0, head=1)
        view.page.files("input-rows", self.files / "step.npy")
        view.wait_source("step.npy")
        view.way("session").page.fill("input-session-id", "looked")
        view.wait_source("session looked")
        view.page.choose("input-step", "last")
        view.wait_source("its last step").wait_map(0, 1)
        expected = self.weights(rows, 0, 1)[-1:]
        self.same(view, expected, 0, 3)
        self.assertEqual({entry["length"] for entry in self.client(self.daemon).get(
            "/sessions/looked")["lengths"]}, {len(TOKENS)})

    def test_live_session_grows_row_by_row_and_is_ended(self):
        path = self.files / "live.safetensors"
        rows = inputs.capture(path, MODEL, LAYERS, WIDTH)
        view = self.view(layer=1, head=2)
        view.capture(path).wait_source("live.safetensors").wait_overview(LAYERS * HEADS)
        view.way("live")
        for count in (1, 2, 3):
            view.page.click("live-next")
            view.page.wait_for("live-state",
                               f"(element) => /^{count} token/.test(element.textContent)")
        view.wait_map(1, 2)
        expected = self.weights(rows[1][:3], 1, 2)
        for row, column in ((0, 0), (1, 0), (2, 1), (2, 2)):
            cell = view.select(row, column)
            numpy.testing.assert_allclose(cell.value, expected[row, column], atol=1e-6)
        self.assertEqual(len(list(self.client(self.daemon).sessions())), 1)
        view.page.click("live-end")
        view.wait_source("live.safetensors")
        self.none_is_left(view)
        view.page.click("live-next")
        view.page.wait_for("live-state", "(element) => /^1 token/.test(element.textContent)")
        view.page.click("live-end")
        self.none_is_left(view)

    def test_live_session_stays_while_something_else_is_looked_at(self):
        view = self.view(model=MODEL, text="a b c", layer=0, head=1).wait_overview(LAYERS * HEADS)
        view.way("live").page.click("live-next")
        view.wait_source("live session")
        name = view.page.text("live-state").split()[-1]
        there = lambda: self.client(self.daemon).get(f"/sessions/{name}")["lengths"][0]["length"]
        self.assertFalse(view.page.has("live-show"))
        view.way("text").page.click("input-apply")  # the segments
        view.wait_source("random rows, seed 7").wait_overview(LAYERS * HEADS)
        self.assertEqual(there(), 1)
        view.page.click("tab-sessions")
        view.page.click(f"[data-testid='session-row-{name}'] [data-testid=look]")
        view.wait_source(f"session {name}, its last key").wait_overview(LAYERS * HEADS)
        self.assertEqual(there(), 1)
        view.way("live").page.click("live-show")
        view.wait_source("live session").page.click("live-next")
        view.page.wait_for("live-state", "(element) => /^2 token/.test(element.textContent)")
        self.assertEqual(there(), 2)
        view.way("text").page.click("input-apply")
        view.wait_source("random rows, seed 7")
        view.way("live").page.click("live-end")
        self.none_is_left(view)
        self.assertFalse(view.page.has("live-show"))
        self.assertIn("random rows, seed 7", view.page.text("#overview h2"))

    def none_is_left(self, view):
        """Waits until the daemon has no session."""
        view.page.wait("fetch('/sessions').then((reply) => reply.json())"
                       ".then(({ sessions }) => sessions.length === 0)", "the session's end")

    def test_malformed_files_give_a_text_and_leave_the_page_usable(self):
        view = self.view(text="a b c").wait_overview(8)
        view.page.expect("console.warning")
        for path in inputs.malformed(self.files, WIDTH):
            view.page.files("input-capture", path)
            text = view.page.wait_for("error", "(element) => element.textContent.includes("
                                               f"{path.name!r}) && element.textContent")
            self.assertGreater(len(text), len(path.name) + 10)
            self.assertEqual(len(view.page.error_texts()), 1)
        for name, data in (("cut.npy", b"\x93NUMPY\x01\x00"), ("no.npy", b"none"),
                           ("deep.json", b"[" * 100000), ("text.json", b"{\"shape\":[1e9,1e9]}"),
                           ("ragged.json", b"[[1,2],[3]]")):
            view.page.files("input-rows", self.path(name, data))
            view.page.wait_for("error", f"(element) => element.textContent.includes({name!r})")
        view.page.files("input-capture", GOLDEN / "patterns" / "capture.safetensors")
        view.wait_source("capture.safetensors").wait_overview(16)
        self.assertEqual(view.page.error_texts(), [])

    def test_texts_of_others_are_text_and_nothing_else(self):
        path = self.files / "hostile.safetensors"
        inputs.capture(path, "<b>model</b>", LAYERS, WIDTH, inputs.HOSTILE)
        with self.client(self.daemon).session(session_id="x-onerror-1", model=MODEL):
            view = self.view(model=MODEL, layer=0, head=0)
            view.capture(path).wait_source("hostile.safetensors").wait_map(0, 0)
            for at, token in enumerate(inputs.HOSTILE):
                shown = re.sub("[\u202a-\u202e]", "\ufffd", token)  # none turns the line around
                text = view.select(at, at).text  # long ones are cut
                self.assertIn(f"query {at} “{shown[:24]}", text)
                self.assertIn(f"→ key {at} “{shown[:24]}", text)
            for name in ("lines", "neurons", "compare", "map"):
                view.page.click(f"view-{name}")
            view.page.click("export-svg")
            self.assertEqual(view.page.evaluate("""[window.hostile ?? null,
                document.querySelectorAll("img:not(header img), main script, main b").length]"""),
                             [None, 0])
            hostile = self.page()
            hostile.expect("console.warning: Error: attnd serves no model")
            hostile = View(hostile, self.daemon.url).open(model="<img src=x onerror=window.hostile=1>",
                                text=" ".join(inputs.HOSTILE[:2]), layer="<b>", head="<b>",
                                cell="<b>", session="")
            self.assertIsNone(hostile.page.evaluate("window.hostile ?? null"))
