#!/usr/bin/env python3
"""block.py: a transformer block, pre-norm or post-norm, whose attention is computed by attnd.

    build/attnd &
    examples/block.py                  # any attnd: the attention is weightless, no model is needed

    pre-norm   x = x + attention(norm(x));  x = x + mlp(norm(x))       GPT-2, Llama
    post-norm  x = norm(x + attention(x));  x = norm(x + mlp(x))       BERT, the first transformer

The block projects to queries, keys and values, and projects back; attnd attends, over a batch whose
sequences are of unequal length.  All outputs are compared with a computation in float64 by numpy
alone, one head of one sequence after the other.  Exit status 1 where they differ.

Needs numpy, and attn_client.py (found beside this tree, or anywhere on PYTHONPATH).
"""
from __future__ import annotations

import argparse
import pathlib
import sys
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence

try:
    import numpy
except ImportError:
    sys.exit("block: numpy is needed: apt-get install python3-numpy")

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "clients" / "python"))
from attn_client import AttnError, Client  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Attend = Callable[[Array, Array, Array], Array]

TOLERANCE = 1e-5
EPS = 1e-5


def norm(x: Array, gain: Array, bias: Array) -> Array:
    """Layer norm of rows [..,E]."""
    centred: Array = x - x.mean(-1, keepdims=True)
    spread: Array = numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + EPS)
    made: Array = centred / spread * gain + bias
    return made


class TransformerBlock:
    """Self-attention and an MLP of width `inner`, with residual connections and two norms.

    attend(query, key, value) computes attention, [B,H,T,D] each, and returns [B,H,T,D]
    """

    def __init__(self, width: int, heads: int, inner: int, pre_norm: bool, seed: int = 0) -> None:
        chance = numpy.random.default_rng(seed)
        self.heads, self.pre_norm = heads, pre_norm

        def weight(rows: int, columns: int) -> Array:
            made: Array = chance.standard_normal((rows, columns)) / rows ** 0.5
            return made.astype(numpy.float32)

        self.query, self.key, self.value, self.output = (weight(width, width) for _ in range(4))
        self.up, self.down = weight(width, inner), weight(inner, width)
        self.norms = [(1 + 0.1 * weight(1, width)[0], 0.1 * weight(1, width)[0]) for _ in range(2)]

    def _split(self, x: Array) -> Array:
        batch, tokens, width = x.shape
        split: Array = x.reshape(batch, tokens, self.heads, width // self.heads).swapaxes(1, 2)
        return split

    def attention(self, x: Array, attend: Attend) -> Array:
        """[B,T,E] of rows [B,T,E]."""
        heads = attend(*(self._split(x @ weight) for weight in (self.query, self.key, self.value)))
        output: Array = heads.swapaxes(1, 2).reshape(x.shape) @ self.output
        return output

    def mlp(self, x: Array) -> Array:
        """[..,E] of rows [..,E]."""
        output: Array = numpy.maximum(x @ self.up, 0) @ self.down
        return output

    def __call__(self, x: Array, attend: Attend) -> Array:
        if self.pre_norm:
            x = x + self.attention(norm(x, *self.norms[0]), attend)
            return x + self.mlp(norm(x, *self.norms[1]))
        x = norm(x + self.attention(x, attend), *self.norms[0])
        return norm(x + self.mlp(x), *self.norms[1])


def reference(block: TransformerBlock, x: Array, real: Array, causal: bool) -> Array:
    """The block's output in float64, token by token, by its definition."""
    x = x.astype(numpy.float64)
    size = x.shape[-1] // block.heads
    made = numpy.zeros_like(x)
    for sequence, rows in enumerate(x):
        source = norm(rows, *block.norms[0]) if block.pre_norm else rows
        attended = numpy.zeros_like(rows)
        for head in range(block.heads):
            part = slice(head * size, (head + 1) * size)
            query, key, value = (source @ w[:, part].astype(numpy.float64)
                                 for w in (block.query, block.key, block.value))
            for token in range(len(rows)):
                last = token if causal else len(rows) - 1
                seen = [j for j in range(last + 1) if real[sequence, j]]
                weights = numpy.exp([query[token] @ key[j] / size ** 0.5 for j in seen])
                attended[token, part] = weights / weights.sum() @ value[seen]
        rows = rows + attended @ block.output
        if block.pre_norm:
            made[sequence] = rows + block.mlp(norm(rows, *block.norms[1]))
        else:
            rows = norm(rows, *block.norms[0])
            made[sequence] = norm(rows + block.mlp(rows), *block.norms[1])
    return made


def run(client: Client, chosen: argparse.Namespace) -> float:
    """Prints how far off each kind of block is; returns the largest difference."""
    chance, worst = numpy.random.default_rng(1), 0.0
    x = chance.standard_normal((3, 10, chosen.width)).astype(numpy.float32)
    real = numpy.arange(10) < numpy.array([[10], [7], [1]])  # [B,S]: the tokens of each sequence
    for pre_norm in (True, False):
        for causal in (False, True):
            def attend(query: Array, key: Array, value: Array, causal: bool = causal) -> Array:
                return client.attend(query=query, key=key, value=value, padding_mask=real,
                                     is_causal=causal)["output"]

            block = TransformerBlock(chosen.width, chosen.heads, 4 * chosen.width, pre_norm)
            made = block(x, attend)
            difference = float(numpy.abs(made - reference(block, x, real, causal)).max())
            worst = max(worst, difference) if difference == difference else numpy.inf
            print(f"{'pre' if pre_norm else 'post'}-norm, {'causal' if causal else 'full'} "
                  f"attention: {x.shape} -> {made.shape}, off by at most {difference:.1e}")
    return worst


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="A transformer block with its attention by attnd, beside numpy.")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of attnd [%(default)s]")
    parser.add_argument("--api-key", help="API key of attnd")
    parser.add_argument("--width", type=int, default=64, help="of the model [%(default)s]")
    parser.add_argument("--heads", type=int, default=4, help="of attention [%(default)s]")
    chosen = parser.parse_args(arguments)
    if chosen.heads < 1 or chosen.width < 1 or chosen.width % chosen.heads:
        parser.error("--width is a multiple of --heads")
    try:
        with Client(chosen.url, api_key=chosen.api_key) as client:
            worst = run(client, chosen)
    except AttnError as error:
        print(f"block: {error}", file=sys.stderr)
        return 1
    print(f"block: {'as numpy has it' if worst <= TOLERANCE else 'DIFFERS'}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
