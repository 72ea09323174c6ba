#!/usr/bin/env python3
"""seq2seq.py: a decoder over an encoder's rows, as of T5, BART or Whisper, whose attention is
attnd's.

    build/attnd --config seq2seq.json &
    examples/seq2seq.py --encoder-rows 1500 --tokens 20

with two entries of `models` of equal width, such as the stacks of one checkpoint:

    {"models": [{"name": "decoder", "path": "t5-small", "stack": "decoder"},
                {"name": "cross", "path": "t5-small", "stack": "cross"}]}

A token goes through each layer's self-attention, over a session that it is appended to, and then
cross-attention, over a session that was made of the encoder's rows once.  Norms and residuals are
numpy's; rows are random, since what is shown are the calls.  The first and last token's
cross-attention is asked for again with the encoder's rows in the request, which must give the same.

Needs numpy, and attn_client.py (found beside this tree, or anywhere on PYTHONPATH).
"""
from __future__ import annotations

import argparse
import pathlib
import sys
import time
from typing import TYPE_CHECKING, Any, Tuple

try:
    import numpy
except ImportError:
    sys.exit("seq2seq: numpy is needed: apt-get install python3-numpy")

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "clients" / "python"))
from attn_client import AttnError, Client  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def normed(row: Array) -> Array:
    """The row with a root mean square of 1."""
    made: Array = row / numpy.sqrt((row * row).mean(-1, keepdims=True) + 1e-6)
    return made


class Decoder:
    """The layers of a decoder over one encoder's rows: two sessions."""

    def __init__(self, client: Client, own: str, cross: str, encoder: Array) -> None:
        self.client, self.cross, self.encoder = client, cross, encoder
        self.layers = client.model(cross)["resident_layers"]
        self.own = client.session(model=own)
        start = numpy.zeros(client.model(cross)["hidden_size"], numpy.float32)
        self.over = client.start(encoder, start, model=cross, layer=self.layers[0])

    def attend(self, row: Array, layer: int) -> Array:
        """The cross-attention of a row without the session: the encoder is projected again."""
        output: Array = self.client.attend(row[None], model=self.cross, layer=layer,
                                           encoder_hidden_states=self.encoder)["output"][0]
        return output

    def step(self, row: Array, check: bool = False) -> Tuple[Array, float]:
        """A token's row after all layers, and the largest difference to `attend`."""
        worst = 0.0
        for layer in self.layers:
            row = row + self.own.decode(normed(row), layer=layer)["output"]
            query = normed(row)
            found = self.over.decode(query, layer=layer)["output"]
            if check:
                worst = max(worst, float(abs(found - self.attend(query, layer)).max()))
            row = row + found
        return row, worst

    def end(self) -> None:
        """Ends both sessions."""
        self.own.end()
        self.over.end()


def run(client: Client, chosen: argparse.Namespace) -> int:
    """Decodes; returns the exit status."""
    facts = client.model(chosen.cross)
    random = numpy.random.default_rng(chosen.seed)
    encoder = random.standard_normal((chosen.encoder_rows, facts["key_size"])).astype("float32")
    begin = time.monotonic()
    decoder = Decoder(client, chosen.decoder, chosen.cross, encoder)
    print(f"{chosen.encoder_rows} encoder rows in {1000 * (time.monotonic() - begin):.1f} ms, "
          f"{len(decoder.layers)} layers")
    row: Array = random.standard_normal(facts["hidden_size"]).astype("float32")
    worst, seconds = 0.0, []
    for token in range(chosen.tokens):
        begin = time.monotonic()
        row, wrong = decoder.step(normed(row), token in (0, chosen.tokens - 1))
        worst = max(worst, wrong)
        seconds.append(time.monotonic() - begin)
    begin = time.monotonic()
    for layer in decoder.layers:
        decoder.attend(row, layer)
    again = time.monotonic() - begin
    decoder.end()
    print(f"{chosen.tokens} tokens, {1000 * sorted(seconds)[len(seconds) // 2]:.1f} ms each; "
          f"projecting the encoder for a token again takes {1000 * again:.1f} ms; off by at most "
          f"{worst:.1e}")
    return 0 if worst < 1e-5 * max(1.0, float(abs(row).max())) else 1


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--api-key", help="API key")
    parser.add_argument("--decoder", default="decoder", help="model of the self-attention")
    parser.add_argument("--cross", default="cross", help="model of the cross-attention")
    parser.add_argument("--encoder-rows", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    try:
        with Client(chosen.url, api_key=chosen.api_key) as client:
            return run(client, chosen)
    except AttnError as error:
        print(f"seq2seq: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
