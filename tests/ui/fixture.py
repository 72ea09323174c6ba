"""fixture.py: a golden model over a capture, and what the API says of it."""
import functools

import inputs
from case import Case, daemon, directory
from view import View

MODEL, WIDTH, HEADS, LAYERS = "llama_gqa", 64, 4, 2
TOKENS = inputs.SENTENCE


@functools.cache
def capture():
    """The path of the capture, and its rows by layer."""
    path = directory() / "capture.safetensors"
    return path, inputs.capture(path, MODEL, LAYERS, WIDTH)


class CaptureCase(Case):
    """Tests on the capture."""

    def overview(self, **settings):
        """A page with all heads of the capture."""
        view = View(self.page(), daemon().url).open(**settings)
        view.capture(capture()[0])
        return view.wait_source("capture.safetensors").wait_overview(LAYERS * HEADS)

    def head(self, layer=1, head=2, **settings):
        """A page with that head of the capture open."""
        view = View(self.page(), daemon().url).open(layer=layer, head=head, **settings)
        view.capture(capture()[0])
        return view.wait_source("capture.safetensors").wait_map(layer, head)

    def asked(self, layer, **fields):
        """The reply of the API to the question that the page asks."""
        return self.client().attend(capture()[1][layer], model=MODEL, layer=layer, **fields)

    def weights(self, layer, head, **fields):
        """The map [T,S] of a head, by the API."""
        return self.asked(layer, outputs=["attention_weights"], heads=[head],
                          **fields)["attention_weights"][0]

    def scores(self, layer, head, **fields):
        """The scores [T,S] of a head, by the API."""
        return self.asked(layer, outputs=["attention_scores"], heads=[head],
                          **fields)["attention_scores"][0]

    def settle(self, view):
        """Waits until two frames have been drawn."""
        view.page.evaluate("new Promise((done) => requestAnimationFrame(() => "
                           "requestAnimationFrame(done)))")

    def picture(self, view, where="map"):
        """The pixels of a canvas, as text."""
        return view.page.on(where, "(canvas) => canvas.toDataURL()")
