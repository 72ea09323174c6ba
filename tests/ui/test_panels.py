"""test_panels.py: what the panels of input and of all heads do beside the plain way."""
import hashlib
import json

import numpy

import inputs
from case import GOLDEN, Case, directory, golden, start, whole
from attn_client import NotFound
from daemon import wait_for
from fixture import HEADS, LAYERS, MODEL, TOKENS, WIDTH
from view import View

KEY = "k" * 40
TWELVE = {"name": "twelve", "random": {"hidden_size": 96, "num_attention_heads": 12,
                                       "num_hidden_layers": 2, "seed": 7}}


class Panels(Case):
    """Input and overview over a daemon without keys."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = start([golden(MODEL), golden("torch_mha_cross"), golden("bert"),
                            {"name": "patterns", "path": str(GOLDEN / "patterns")}, TWELVE])
        cls.files = directory()

    def view(self, **settings):
        """A page of this daemon."""
        return View(self.page(), self.daemon.url).open(**settings)

    def given(self, view, name):
        """What the page's source has under `name`."""
        return view.page.evaluate(
            f"import('/ui/source.js').then(({{ current }}) => current().{name})")

    def capture(self, model=MODEL, layers=LAYERS):
        """The path of a capture that says it is of `model`."""
        path = self.files / f"{model}-{layers}.safetensors"
        inputs.capture(path, model, layers, WIDTH)
        return path

    def test_example_is_shown_unasked_and_marked_as_random(self):
        view = self.view().wait_overview(LAYERS * HEADS)
        self.assertIn("random rows", view.page.text("input-summary"))
        self.assertIn("2 layers × 4 heads", view.page.text("input-summary"))
        self.assertIn("cat", view.settings()["text"])
        view.wait_map(0, 0)  # so that a first visitor sees what a head is

    def again(self, view, name):
        """Reloads; the page must ask for the file, and show nothing in its place."""
        view.page.reload()
        view.page.wait_for("input-missing", f"(e) => e.textContent === "
                                            f"'{name} was on your disk: choose it again'")
        view.page.wait("!document.querySelector('.spinner')?.checkVisibility()", "no call")
        self.assertEqual(view.heads(), [])
        self.assertIsNone(view.page.evaluate(
            "import('/ui/source.js').then(({ current }) => current())"))

    def test_files_are_asked_for_again_after_a_reload(self):
        path = GOLDEN / "patterns" / "capture.safetensors"
        view = self.view().capture(path).wait_source(path.name).wait_overview(16).open_head(3, 2)
        self.again(view, path.name)
        self.assertTrue(view.page.has("input-capture"))
        view.page.files("input-capture", path)
        view.wait_source(path.name).wait_map(3, 2)
        self.assertFalse(view.page.has("input-missing"))

    def test_a_link_names_its_file_by_digest_and_tells_another_one(self):
        path = GOLDEN / "patterns" / "capture.safetensors"
        view = self.view().capture(path).wait_source(path.name).wait_overview(16).open_head(3, 2)
        link = view.page.evaluate("location.href")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        self.assertEqual(view.settings()["digest"], digest)
        other = View(self.page(), self.daemon.url)
        other.page.open(link)
        other.page.wait_for("input-digest", f"(e) => e.textContent.endsWith('{digest}')")
        wrong = directory() / path.name
        inputs.capture(wrong, "patterns", 4, WIDTH)
        other.page.files("input-capture", wrong)
        other.page.wait_for("error", "(e) => e.textContent.includes('another file than that')")
        third = View(self.page(), self.daemon.url)
        third.page.open(link)
        third.page.wait_for("input-digest")
        third.page.files("input-capture", path)
        third.wait_source(path.name).wait_map(3, 2)
        self.assertEqual(third.page.error_texts(), [])

    def test_rows_and_keys_from_files_are_asked_for_again(self):
        for name in ("queries", "keys"):
            numpy.save(self.files / f"{name}.npy", inputs.rows_of(["x", "y"], 64))
        view = self.view(model="bert")
        view.page.files("input-rows", self.files / "queries.npy")
        view.wait_source("queries.npy")
        self.again(view, "queries.npy")
        self.assertTrue(view.page.has("input-rows"))
        view.page.click("input-kind-text")
        view.page.fill("input-text", "a b")
        view.page.click("input-apply")
        view.wait_source("random rows").wait_overview(8)
        self.assertNotIn("rows_file", view.settings())
        view.page.files("input-encoder", self.files / "keys.npy")
        view.wait_source("over keys.npy")
        self.again(view, "keys.npy")
        view.page.click("input-encoder-clear")
        view.wait_source("random rows").wait_overview(8)

    def test_back_to_a_file_that_another_took_the_place_of(self):
        view = self.view(model=MODEL)
        one, two = self.capture("elsewhere"), self.capture()
        view.capture(one).wait_source(one.name).wait_overview(LAYERS * HEADS).open_head(1, 2)
        view.capture(two).wait_source(two.name).wait_overview(LAYERS * HEADS)
        view.page.evaluate("history.back()")
        view.page.wait_for("input-missing", f"(e) => e.textContent.startsWith({one.name!r})")
        self.assertFalse(view.page.has("overview-sort"))

    def test_panel_closes_over_a_file_where_it_stands_above(self):
        for width, closed in ((1000, True), (1440, True), (1600, False)):
            view = self.view(model=MODEL)
            view.page.size(width)
            view.capture(self.capture()).wait_source(MODEL).wait_overview(LAYERS * HEADS)
            view.page.wait_for("input-panel", f"(e) => e.open === {json.dumps(not closed)}")

    def test_twelve_heads_and_all_controls_fit_at_1440(self):
        view = self.view(model="twelve", text="a b c d e f")
        view.page.size(1440)
        view.wait_overview(24).page.reveal("overview-pool")
        beyond = view.page.on(".all-heads", "(grid) => grid.scrollWidth - grid.clientWidth")
        self.assertLessEqual(beyond, 0)
        cut = view.page.evaluate("""[...document.querySelectorAll("#overview select")].filter(
            (list) => {
                const alone = list.cloneNode();
                alone.append(list.selectedOptions[0].cloneNode(true));
                alone.style.cssText = "position: absolute; width: max-content; max-width: none";
                document.body.append(alone);
                const wanted = alone.offsetWidth;
                alone.remove();
                return wanted > list.offsetWidth;
            }).map((list) => list.dataset.testid)""")
        self.assertEqual(cut, [])

    @whole
    def test_capture_of_a_model_that_is_not_served_says_so(self):
        view = self.view(model=MODEL)
        view.capture(self.capture("elsewhere")).wait_source("elsewhere").wait_overview(8)
        self.assertIn("captured from elsewhere, weights of llama_gqa",
                      view.page.text("input-summary"))
        view.capture(self.capture()).wait_source(MODEL).wait_overview(LAYERS * HEADS)
        self.assertIsNone(self.given(view, "mark"))

    @whole
    def test_layers_that_lack_rows_are_left_out_with_the_reason(self):
        view = self.view(model=MODEL)
        view.capture(self.capture(layers=1)).wait_source("-1").wait_overview(HEADS)
        self.assertRegex(view.page.text("left-out"), r"layer 1 of llama_gqa: .*64 numbers")

    def test_capture_in_the_address_is_of_this_origin_alone(self):
        for path in ("https://attnd.invalid/c", "//attnd.invalid/c", "\\\\attnd.invalid"):
            view = self.view(capture=path)
            view.page.wait_for("error", "({ textContent }) => textContent.includes('own origin')")
            self.assertFalse(view.heads())
        self.addCleanup(self.client(self.daemon).session(session_id="state", model=MODEL).end)
        view = self.view(capture="sessions/state/state")  # safetensors, and no capture
        view.page.wait_for("error", "({ textContent }) => textContent.includes('is no capture')")

    @whole
    def test_labels_belong_to_the_file_they_were_given_for(self):
        rows = inputs.rows_of(TOKENS, WIDTH)
        numpy.save(self.files / "one.npy", rows)
        numpy.save(self.files / "two.npy", rows[:5])
        (self.files / "labels.txt").write_text("\n".join(TOKENS), "utf-8")
        view = self.view(model=MODEL)
        view.page.files("input-rows", self.files / "one.npy")
        view.wait_source("one.npy").page.files("input-labels", self.files / "labels.txt")
        view.page.wait(f"import('/ui/source.js').then(({{ current }}) => "
                       f"current().keyLabels[1] === {TOKENS[1]!r})", "the labels")
        view.page.files("input-rows", self.files / "two.npy")
        view.wait_source("two.npy")
        self.assertEqual(self.given(view, "keyLabels"), [""] * 5)
        view.page.files("input-labels", self.files / "labels.txt")
        view.page.wait_for("error", "(e) => e.textContent.includes('labels for 5 rows')")

    @whole
    def test_induction_targets_are_those_of_the_tokens(self):
        view = self.view(targets="induction", sort="target_hits")
        view.capture(GOLDEN / "patterns" / "capture.safetensors").wait_source("capture.safetensors")
        view.wait_overview(16)
        view.page.wait("document.querySelector('.all-heads').ariaBusy === 'false'", "statistics")
        self.assertEqual(view.heads()[0], (3, 2))  # the golden README: what followed the last time
        self.assertGreater(float(view.page.on("head-3-2", "(e) => e.dataset.value")), 0.8)
        self.assertIn("last occurrence", view.page.text("overview-note"))

    @whole
    def test_pattern_filter_shows_its_heads_alone_and_the_focus_stays(self):
        view = self.view()
        view.capture(GOLDEN / "patterns" / "capture.safetensors").wait_source("capture.safetensors")
        view.wait_overview(16)
        view.page.reveal("overview-filter")
        view.page.on("overview-filter", "(list) => list.focus()")
        view.page.choose("overview-filter", "previous")
        self.assertEqual(view.heads(), [(2, 2), (2, 3)])
        self.assertEqual(view.page.evaluate("document.activeElement.dataset.testid"),
                         "overview-filter")
        view.page.choose("overview-filter", "")
        self.assertEqual(len(view.heads()), 16)

    def test_thumbnails_of_before_are_said_to_be_when_work_is_cancelled(self):
        view = self.view(model=MODEL, text="a b c d").wait_overview(LAYERS * HEADS)
        self.assertFalse(view.page.has("overview-again"))
        view.page.evaluate("""(window.whole = window.fetch, window.fetch = (_, { signal }) =>
            new Promise((_, refuse) =>
                signal.addEventListener("abort", () => refuse(signal.reason))), 0)""")
        view.page.choose("overview-pool", "mean")
        view.page.wait_for("cancel", "(button) => button.checkVisibility()")
        view.page.click("cancel")
        view.page.wait_for("overview-again", "(button) => button.checkVisibility()")
        view.page.evaluate("(window.fetch = window.whole, 0)")
        view.page.click("overview-again")
        view.page.wait_for("overview-again", "(button) => !button.checkVisibility()")
        view.page.wait("document.querySelector('.all-heads').ariaBusy === 'false'", "the maps")

    @whole
    def test_file_for_the_encoder_must_fit_and_can_be_taken_back(self):
        numpy.save(self.files / "keys.npy", inputs.rows_of(["x", "y"], 48))
        view = self.view(model="torch_mha_cross", text="a b c", encoder="x y z")
        view.wait_source("over")
        self.assertEqual((self.given(view, "queries"), self.given(view, "keys")), (3, 3))
        view.page.files("input-encoder", self.files / "keys.npy")
        view.page.wait_for("error", "(e) => e.textContent.includes('keys of 48 and values of 80')")

    @whole
    def test_step_that_is_not_kept_and_rows_that_are_not_the_last_ones(self):
        rows = inputs.rows_of(TOKENS, WIDTH)
        session = self.client(self.daemon).session(session_id="peeked", model=MODEL)
        self.addCleanup(session.end)
        for layer in range(LAYERS):
            session.prefill(rows[:6], layer=layer)
        numpy.save(self.files / "next.npy", rows[6:9])
        view = self.view(model=MODEL, layer=0, head=0)
        view.page.files("input-rows", self.files / "next.npy")
        view.wait_source("next.npy").wait_map(0, 0)
        view.way("session").page.fill("input-session-id", "peeked")
        view.wait_source("its last key").page.choose("input-step", "peek")
        view.wait_source("a step not kept").wait_overview(LAYERS * HEADS)
        self.assertEqual((self.given(view, "queries"), self.given(view, "keys")), (3, 9))
        reply = view.page.evaluate("""import("/ui/source.js").then(async ({ current }) => {
            const reply = await current().call(1, { outputs: ["attention_weights"] });
            return [...reply.attention_weights.data];
        })""")
        expected = self.client(self.daemon).attend(
            rows[:9], model=MODEL, layer=1, outputs=["attention_weights"])["attention_weights"]
        numpy.testing.assert_allclose(reply, expected[:, 6:].reshape(-1), atol=2e-6)
        view.page.expect("409")
        view.page.choose("input-step", "last")
        view.page.wait_for("error", "(e) => e.textContent.includes('position_conflict')")
        self.assertEqual(len(view.page.error_texts()), 1)
        view.wait_source("a step not kept")  # what was looked at before stays
        lengths = self.client(self.daemon).get("/sessions/peeked")["lengths"]
        self.assertEqual({entry["length"] for entry in lengths}, {6})

    @whole
    def test_live_lines_are_replies_of_steps_and_a_typed_token_is_random(self):
        for model in (MODEL, "bert"):  # causal, and of full attention
            view = self.view(model=model)
            path = self.capture(model)
            view.capture(path).wait_source(path.name).wait_overview(LAYERS * HEADS)
            view.way("live").page.click("live-next")
            view.page.wait_for("live-state", "(element) => /^1 token/.test(element.textContent)")
            self.assertIsNone(self.given(view, "mark"))
            view.page.fill("live-token", "typed")
            view.page.click("live-add")
            view.page.wait_for("live-state", "(element) => /^2 token/.test(element.textContent)")
            view.wait_overview(LAYERS * HEADS)
            self.assertEqual(self.given(view, "queryLabels"), [TOKENS[0], "typed"])
            self.assertIn("random rows", self.given(view, "mark"))
            lines, anew = view.page.evaluate("""import("/ui/source.js").then(async (module) => {
                const source = module.current(), fields = { outputs: ["attention_weights"] };
                const whole = await module.Source.prototype.call.call(source, 1, fields);
                return [source.map(1, {}), whole.attention_weights].map(({ data }) => [...data]);
            })""")
            self.assertEqual(lines[1], 0)  # the first row saw no second one
            numpy.testing.assert_allclose(lines, anew, atol=1e-6)


class Keys(Case):
    """With API keys, of which this page's may not list sessions."""

    @whole
    def test_live_session_ends_with_its_page(self):
        keys = directory() / "keys.json"
        keys.write_text(json.dumps({"keys": [{"name": "u", "key": KEY, "scopes": ["infer"]}]}))
        keys.chmod(0o600)
        started = start([golden(MODEL)], api_keys=str(keys))
        page = self.page()
        page.expect("401")
        view = View(page, started.url).open(text="a b c")
        page.wait_for("dialog[open] [data-testid=key-input]")
        page.fill("key-input", KEY)
        page.click("key-save")
        view.wait_overview(LAYERS * HEADS)
        view.way("live").page.click("live-next")
        page.wait_for("live-state", "(element) => /^1 token/.test(element.textContent)")
        session = page.text("live-state").split()[-1]
        client = self.client(started, api_key=KEY)
        self.assertEqual(client.get(f"/sessions/{session}")["lengths"][0]["length"], 1)
        page.open(f"{started.url}/ui/icon.svg")
        def gone():
            try:
                client.get(f"/sessions/{session}")
            except NotFound:
                return True
            return False
        wait_for(gone, 20)
