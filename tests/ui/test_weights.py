"""test_weights.py: attention weights that somebody has already, looked at without the daemon."""
import argparse
import json
import pathlib
import re
import struct
import xml.etree.ElementTree

import numpy

import inputs
from case import Case, TINY, daemon, directory, golden, start
from fixture import MODEL, WIDTH, CaptureCase, capture
from inputs import SENTENCE
from view import View

SVG = "{http://www.w3.org/2000/svg}"
LAYERS, HEADS, TOKENS = 2, 3, "the cat sat on the mat .".split()


def softmax(shape, causal=True, seed=3):
    """Weights of that shape, those of later keys 0."""
    scores = numpy.random.default_rng(seed).standard_normal(shape) * 2
    if causal:
        scores = numpy.where(numpy.tri(*shape[-2:], dtype=bool), scores, -numpy.inf)
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(numpy.float32)


def rollout(weights):
    """Attention rollout of [L,H,T,T], by its definition, in double."""
    count = weights.shape[-1]
    made, rolled = numpy.eye(count), []
    for mean in weights.astype(float).mean(1):
        mixed = 0.5 * mean + 0.5 * numpy.eye(count)
        made = mixed / mixed.sum(-1, keepdims=True) @ made
        rolled.append(made)
    return rolled


class Weights(Case):
    """Weights of a file, over a daemon that is asked nothing."""

    @classmethod
    def setUpClass(cls):
        cls.files = directory()
        cls.weights = softmax((LAYERS, HEADS, len(TOKENS), len(TOKENS)))

    def path(self, name, data):
        """A file of that name."""
        path = self.files / name
        path.write_bytes(data)
        return path

    def array(self, name, array):
        """A .npy file."""
        numpy.save(self.files / name, array)
        return self.files / name

    def choose(self, path, **settings):
        """A page that was given the file."""
        view = View(self.page(), daemon().url).open(weights_file=path.name, **settings)
        view.page.wait_for("input-missing", "(note) => note.checkVisibility()")
        view.page.files("input-weights", path)
        return view

    def shown(self, path, layer=1, head=2, **settings):
        """The same, with a head open."""
        return self.choose(path, layer=layer, head=head, **settings) \
            .wait_source(path.name).wait_map(layer, head)

    def same(self, view, expected):
        """Asserts that cells of the open head have the file's numbers."""
        for row, column in ((0, 0), (5, 3), (6, 6), (2, 5)):
            cell = view.select(row, column)
            self.assertEqual(cell.value.tobytes(),
                             numpy.float32(expected[row, column]).tobytes(), cell.text)

    def refused(self, path):
        """The sentence that says why a file is not shown."""
        view = self.choose(path)
        view.page.wait("document.querySelector('#errors').textContent !== ''", "an error")
        text = view.page.evaluate("document.querySelector('#errors').innerText")
        self.assertTrue(path.name in text and "undefined" not in text and "[object" not in text, text)
        return text

    def forms(self):
        """Every form of the same weights: (file, weights that must be shown)."""
        given, half = self.weights, self.weights.astype(numpy.float16)
        bits = (given.view(numpy.uint32) >> 16).astype(numpy.uint16)
        rounded = (bits.astype(numpy.uint32) << 16).view(numpy.float32)
        numpy.savez(self.files / "many.npz", *given, tokens=numpy.array(TOKENS))
        numpy.savez_compressed(self.files / "packed.npz", **{f"layer{i}": one[None]
                                                             for i, one in enumerate(given)})
        made = [
            (self.array("whole.npy", given), given),
            (self.array("double.npy", given.astype(float)), given),
            (self.array("batch.npy", half[:, None]), half.astype(numpy.float32)),
            (self.files / "many.npz", given),
            (self.files / "packed.npz", given),
            (self.path("bertviz.json", json.dumps([one[None].tolist() for one in given]).encode()),
             given),
            (self.path("named.json", json.dumps(
                {"attention": given.tolist(), "tokens": TOKENS}).encode()), given),
            (self.path("layers.safetensors", inputs.safetensors(
                {f"attentions.{i}": given[i] for i in (1, 0)})), given),
        ]
        for protocol in (2, 4):
            made += [
                (self.path(f"tuple{protocol}.pt", inputs.torch_file(
                    tuple(inputs.Stored(one[None]) for one in given), protocol)), given),
                (self.path(f"bfloat{protocol}.pt", inputs.torch_file(
                    {"attentions": [inputs.Stored(one, "bfloat16") for one in bits],
                     "ids": inputs.Stored(numpy.arange(7)), "tokens": TOKENS}, protocol)), rounded)]
        return made

    def test_each_form_shows_the_numbers_of_the_file(self):
        for path, expected in self.forms():
            with self.subTest(path.name):
                view = self.shown(path)
                self.same(view, expected[1, 2])
                self.assertEqual(view.heads(), [(n, h) for n in range(LAYERS) for h in range(HEADS)])
                posts = [one["url"] for one in view.page.replies.values() if one["method"] == "POST"]
                self.assertEqual(posts, [])

    def test_no_model_needs_to_be_served(self):
        view = View(self.page(), start([]).url).open(weights_file="alone.npy", layer=0, head=1)
        view.page.wait_for("input-missing", "(note) => note.checkVisibility()")
        view.page.files("input-weights", self.array("alone.npy", self.weights))
        view.wait_source("alone.npy").wait_map(0, 1)
        self.same(view, self.weights[0, 1])

    def test_tokens_of_the_file_or_of_another_are_the_labels(self):
        numpy.savez(self.files / "texts.npz", *self.weights, tokens=numpy.array(TOKENS))
        view = self.shown(self.files / "texts.npz")
        self.assertIn("query 1 “cat” → key 0 “the”", view.select(1, 0).text)
        view = self.shown(self.array("plain.npy", self.weights))
        self.assertIn("query 1 → key 0:", view.select(1, 0).text)
        view.page.files("input-weights-labels",
                        self.path("labels.txt", "\n".join(TOKENS).upper().encode()))
        view.page.wait_for("cell", "(element) => element.textContent.includes('“CAT”')")

    def test_maps_that_are_not_square_have_labels_of_the_side_that_fits(self):
        cross = softmax((HEADS, 2, len(TOKENS)), causal=False)
        path = self.path("cross.json", json.dumps(
            {"cross": cross.tolist(), "tokens": TOKENS}).encode())
        view = self.shown(path, layer=0)
        cell = view.select(1, 5)
        self.assertIn("query 1 → key 5 “mat”", cell.text)
        self.assertEqual(cell.value, cross[2, 1, 5])

    def test_files_that_hold_no_weights_are_refused_with_a_sentence(self):
        def bad(name, value, at=(1, 2, 4, 1)):
            weights = self.weights.copy()
            weights[at] = value
            return self.array(name, weights)
        stored = inputs.Stored(self.weights)
        cases = [
            (bad("nan.npy", numpy.nan), "layer 1, head 2, row 4, key 1 holds what is no number"),
            (bad("infinite.npy", numpy.inf), "holds infinity, which is no weight"),
            (bad("scores.npy", -2), "holds -2, and weights are not negative: of scores, save the "
             "softmax"),
            (self.array("vector.npy", self.weights[0, 0, 0]), r"has no tensor \[heads, tokens, tokens\]"),
            (self.array("batches.npy", numpy.stack([self.weights] * 2, 1)), "has no tensor"),
            (self.path("sizes.safetensors", inputs.safetensors(
                {"a.0": self.weights[0], "a.1": self.weights[1, :, :5, :5].copy()})),
             r"a.1: is \[3, 5, 5\], a.0 is \[3, 7, 7\]: the maps of all layers have one size"),
            (self.path("batch.safetensors", inputs.safetensors(
                {f"a.{i}": self.weights for i in range(2)})), "a batch of 2; save one of them"),
            (self.path("few.json", json.dumps(
                {"a": self.weights.tolist(), "tokens": TOKENS[1:]}).encode()),
             "there are 6 tokens for 7 queries and 7 keys"),
            (self.path("cut.pt", inputs.torch_file((stored,), cut=4)), "lies beyond the .* bytes"),
            (self.path("view.pt", inputs.torch_file((inputs.Stored(
                self.weights, strides=(1, 2, 3, 4)),))), r"save tensor.contiguous\(\)"),
            (self.path("called.pt", inputs.torch_file({"out": pathlib.PurePosixPath("x")})),
             "holds pathlib.PurePosixPath, which is no tensor; save the attentions alone"),
            (self.path("object.pt", inputs.torch_file({"out": argparse.Namespace(a=stored)})),
             "holds argparse.Namespace, which is no tensor; save the attentions alone"),
            (self.path("old.pt", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."), "save it again"),
            (self.path("short.npz", (self.files / "cut.pt").read_bytes()[:-30]), "it is cut short"),
        ]
        for path, sentence in cases:
            with self.subTest(path.name):
                self.assertRegex(self.refused(path), sentence)

    def test_rows_that_do_not_sum_to_one_are_shown_and_marked(self):
        weights = self.weights.copy()
        weights[1, 0, 3] *= 0.5
        view = self.shown(self.array("half.npy", weights))
        marks = view.page.evaluate("""[...document.querySelectorAll(".mark")].map((element) =>
            element.textContent).join(" ")""")
        self.assertIn("rows that do not sum to 1: 1 of 42; layer 1, head 0, row 3 sums to 0.5", marks)
        self.same(view, weights[1, 2])

    def test_weights_are_known_where_rows_are_asked_for_and_where_a_file_is_dropped(self):
        path = self.array("dropped.npy", self.weights)
        view = View(self.page(), daemon().url).open(text="a b c")
        view.way("rows").page.files("input-rows", self.array("chosen.npy", self.weights))
        view.wait_source("chosen.npy").wait_overview(LAYERS * HEADS)
        self.assertEqual(view.settings()["weights_file"], "chosen.npy")
        numbers = path.read_bytes()
        view.page.evaluate("""(bytes) => {
            const data = new DataTransfer();
            data.items.add(new File([Uint8Array.from(bytes)], "dropped.npy"));
            dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
        }""", list(numbers))
        view.wait_source("dropped.npy").wait_overview(LAYERS * HEADS)

    def near(self, view, expected):
        """Asserts that cells of the open map have these numbers, up to float32's rounding."""
        for row, column in ((0, 0), (3, 1), (6, 2), (6, 6), (2, 5)):
            cell = view.select(row, column)
            self.assertAlmostEqual(float(cell.value), expected[row, column], 6, cell.text)

    def test_means_and_rollout_are_those_that_numpy_computes(self):
        view = self.shown(self.array("combined.npy", self.weights), layer=1, head=2)
        means = self.weights.astype(float).mean(1)
        for way, title, expected in (
                ("mean", "Layer 1, mean of heads", means[1]),
                ("layers", "Mean of heads, layers up to 1", means.mean(0)),
                ("rollout", "Attention rollout up to layer 1", rollout(self.weights)[1])):
            view.page.choose("overview-heads", way)
            view.page.wait_for("head-title", f"(title) => title.textContent.startsWith('{title}')")
            view.wait_overview(LAYERS)
            self.near(view, expected)
        view.page.choose("overview-heads", "")
        view.wait_overview(LAYERS * HEADS).wait_map(1, 2)
        self.same(view, self.weights[1, 2])

    def test_rollout_of_maps_that_are_not_square_says_why_not(self):
        view = self.shown(self.array("wide.npy", softmax((HEADS, 2, 7), causal=False)), layer=0)
        view.page.choose("overview-heads", "rollout")
        view.page.wait("/as many keys as queries/.test(document.querySelector('#errors').innerText)",
                       "why there is no rollout")

    def figure(self, view, form):
        """The bytes of all heads as one file."""
        return view.page.downloaded(lambda: view.page.click(f"overview-{form}"),
                                    directory()).read_bytes()

    def test_figure_of_all_heads_has_each_map_in_its_colours(self):
        view = self.choose(self.array("figure.npy", self.weights), colors="grey") \
            .wait_source("figure.npy").wait_overview(LAYERS * HEADS)
        tree = xml.etree.ElementTree.fromstring(self.figure(view, "svg"))
        images = [element.get("href") for element in tree.iter(SVG + "image")]
        self.assertEqual(len(images), LAYERS * HEADS)
        texts = ["".join(element.itertext()) for element in tree.iter(SVG + "text")]
        for text in ("Layer 0", "Layer 1", "0.0", "1.2", "weights: figure.npy"):
            self.assertIn(text, texts)
        for image, weights in zip(images, self.weights.reshape(-1, 7, 7)):
            got = view.page.evaluate("""async (href) => {
                const image = new Image();
                image.src = href;
                await image.decode();
                const canvas = new OffscreenCanvas(image.width, image.height);
                const context = canvas.getContext("2d", { willReadFrequently: true });
                context.drawImage(image, 0, 0);
                const side = image.width / 7;
                return Array.from({ length: 49 }, (_, i) => context.getImageData(
                    Math.floor((i % 7 + 0.1) * side), Math.floor((Math.floor(i / 7) + 0.9) * side),
                    1, 1).data[0]); // near an edge, where a blurred picture would differ
            }""", image)
            wanted = view.page.evaluate("""async (shares) => {
                const { rgbOf } = await import("/ui/colors.js");
                return shares.map((share) => rgbOf("grey", share)[0]);
            }""", (weights / weights.max()).ravel().astype(float).tolist())
            self.assertEqual(got, wanted)

    def test_figure_has_the_heads_that_are_shown_in_their_order(self):
        view = self.choose(self.array("sorted.npy", self.weights), sort="entropy") \
            .wait_source("sorted.npy").wait_overview(LAYERS * HEADS)
        view.page.wait("""document.querySelector("[data-statistic=entropy]") !== null""", "entropy")
        tree = xml.etree.ElementTree.fromstring(self.figure(view, "svg"))
        texts = ["".join(element.itertext()) for element in tree.iter(SVG + "text")]
        names = [text for text in texts if re.fullmatch(r"\d\.\d", text)]
        self.assertEqual(names, [f"{layer}.{head}" for layer, head in view.heads()])
        self.assertTrue(any(text.endswith("below: entropy") for text in texts), texts)

    def test_figure_as_png_is_the_svg_twice_as_fine(self):
        view = self.choose(self.array("png.npy", self.weights)) \
            .wait_source("png.npy").wait_overview(LAYERS * HEADS)
        root = xml.etree.ElementTree.fromstring(self.figure(view, "svg"))
        png = self.figure(view, "png")
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", png[16:24]),
                         tuple(2 * int(size) for size in root.get("viewBox").split()[2:]))
        colours = view.page.evaluate("""async (bytes) => {
            const bitmap = await createImageBitmap(new Blob([Uint8Array.from(bytes)]));
            const context = new OffscreenCanvas(bitmap.width, bitmap.height)
                .getContext("2d", { willReadFrequently: true });
            context.drawImage(bitmap, 0, 0);
            const at = (x, y) => [...context.getImageData(2 * x, 2 * y, 1, 1).data];
            return [at(64 + 7, 44 + 7), at(64 + 89, 44 + 7)];
        }""", list(png))
        self.assertNotEqual(*colours, "weight 1 and weight 0 of the first head")

    def compared(self, view, row, column, one, two):
        """Waits until the comparison says both numbers of a cell."""
        numbers = [f"{float(value):.5g}" for value in (one, two)]
        view.page.wait_for("compare-note", f"""({{ textContent }}) => {{
            const found = /Query {row}, key {column}: (\\S+) and (\\S+),/.exec(textContent);
            return found && [{numbers[0]}, {numbers[1]}].every((number, i) =>
                Math.abs(Number(found[i + 1]) - number) <= 1e-4 * Math.abs(number) + 1e-9);
        }}""")

    def test_a_second_file_is_compared_head_by_head(self):
        other = softmax(self.weights.shape, seed=8)
        view = self.shown(self.array("first.npy", self.weights))
        view.select(5, 3)
        view.page.click("view-compare")
        view.page.files("compare-file", self.array("second.npy", other))
        self.compared(view, 5, 3, self.weights[1, 2, 5, 3], other[1, 2, 5, 3])
        view.page.choose("compare-with", "0,1")
        self.compared(view, 5, 3, self.weights[1, 2, 5, 3], other[0, 1, 5, 3])
        view.page.choose("compare-model", "first.npy")
        self.compared(view, 5, 3, self.weights[1, 2, 5, 3], self.weights[1, 0, 5, 3])

    def test_padding_of_the_user_is_hatched_where_the_weight_is_0(self):
        weights = self.weights.copy()
        weights[..., 2] = 0
        view = self.shown(self.array("padded.npy", weights))
        view.page.fill("input-padding", "1-2")
        view.page.wait("/padding=1-2/.test(location.hash)", "the setting")
        self.settled(view, 5, 2, "(cannot be attended)")
        self.assertEqual(view.cell().value, 0)
        self.assertEqual(view.select(5, 1).value, weights[1, 2, 5, 1])
        self.assertNotIn("cannot", view.cell().text)
        view.page.fill("input-padding", "3-9")
        view.page.wait("""/padding 3-9: positions of keys are expected, from 0 to 6/.test(
            document.querySelector("#errors").innerText)""", "which positions there are")

    def settled(self, view, row, column, words):
        """Selects a cell, and waits until the text says the words."""
        view.select(row, column)
        view.page.wait_for("cell", f"({{ textContent }}) => textContent.includes({words!r})")


class Two(CaptureCase):
    """Two models over the same rows."""

    def test_heads_of_two_models_are_compared(self):
        other = {"name": "other", "random": {"hidden_size": WIDTH, "num_attention_heads": 8,
                                             "seed": 9, "num_hidden_layers": 2}}
        both = start([golden(MODEL), other, TINY])
        view = View(self.page(), both.url).open(layer=1, head=2, model=MODEL)
        view.capture(capture()[0]).wait_source("capture.safetensors").wait_map(1, 2)
        view.select(9, 3)
        view.page.click("view-compare")
        view.page.wait_for("compare-model", """(list) =>
            [...list.options].map(({ value }) => value).join() === "llama_gqa,other" """)
        view.page.choose("compare-model", "other")
        client = self.client(both)
        def weight(model, layer, head):
            return client.attend(capture()[1][layer], model=model, layer=layer, heads=[head],
                                 outputs=["attention_weights"])["attention_weights"][0][9, 3]
        Weights.compared(self, view, 9, 3, weight(MODEL, 1, 2), weight("other", 1, 2))
        view.page.choose("compare-with", "0,7")
        Weights.compared(self, view, 9, 3, weight(MODEL, 1, 2), weight("other", 0, 7))
        self.assertIn("other: Layer 0, head 7", view.page.text("compare"))
        self.assertEqual(view.settings()["with_model"], "other")

    def test_padding_of_the_user_is_that_of_the_call(self):
        mask = numpy.ones(len(SENTENCE), numpy.uint8)
        mask[[0, 1, 2, 5]] = 0
        view = self.head(padding="0-2, 5")
        expected = self.weights(1, 2, padding_mask=mask.tolist())
        for row, column in ((9, 3), (9, 5), (9, 7), (12, 4)):
            cell = view.select(row, column)
            self.assertEqual(cell.value.tobytes(), expected[row, column].tobytes(), cell.text)
        self.assertIn("(cannot be attended)", view.select(9, 5).text)


class Models(CaptureCase):
    """Means and rollout of what the daemon computes."""

    def test_mean_and_rollout_of_a_model_are_those_of_its_weights(self):
        view = self.head(1, 0)
        weights = numpy.stack([self.asked(layer, outputs=["attention_weights"])["attention_weights"]
                               for layer in range(2)])
        expected = {"mean": weights.astype(float).mean(1)[1], "rollout": rollout(weights)[1]}
        for way, title in (("mean", "Layer 1, mean"), ("rollout", "Attention rollout")):
            view.page.choose("overview-heads", way)
            view.page.wait_for("head-title", f"(title) => title.textContent.startsWith('{title}')")
            view.page.wait_for("map", "(canvas) => canvas.ariaBusy !== 'true'")
            for row, column in ((0, 0), (9, 4), (19, 2)):
                cell = view.select(row, column)
                self.assertAlmostEqual(float(cell.value), expected[way][row, column], 6, cell.text)


class Statistics(CaptureCase):
    """Weights of the API, in a file: what the page says of them is what the API says."""

    def test_statistics_are_those_of_the_api(self):
        weights = numpy.stack([self.asked(layer, outputs=["attention_weights"])["attention_weights"]
                               for layer in range(2)])
        path = directory() / "asked.npy"
        numpy.save(path, weights)
        view = View(self.page(), daemon().url).open(weights_file=path.name, targets="0,3")
        view.page.wait_for("input-missing", "(note) => note.checkVisibility()")
        view.page.files("input-weights", path)
        view.wait_source("asked.npy").wait_overview(8)
        stats = [self.asked(layer, outputs=["head_stats"], target_groups=[[0, 3]])["head_stats"]
                 for layer in range(2)]
        for name in ("entropy", "mean_distance", "self", "previous", "first", "local", "largest",
                     "group_share", "group_hits"):
            view.page.choose("overview-color", name)
            view.page.wait_for("head-0-0", f"(head) => head.dataset.statistic === '{name}'")
            for layer in range(2):
                for head, expected in enumerate(stats[layer]):
                    wanted = expected.get(name, expected["groups"][0].get(name.split("_")[-1]))
                    got = view.page.on(f"head-{layer}-{head}", "(one) => Number(one.dataset.value)")
                    self.assertAlmostEqual(got, wanted, 5, f"{name} of {layer}.{head}")
                    self.assertIn(expected["pattern"], view.name(layer, head))
