#!/usr/bin/env python3
"""own_projections.py: an engine that projects by itself, and has attnd keep and attend.

    build/attnd &
    examples/own_projections.py                     # any attnd: no model is needed

The engine has several sequences and a few layers with random weights.  For each layer it projects
the rows of all sequences to queries, keys and values at once, sends them as one /decode over one
session without weights of each sequence, and projects what the heads put out.  The caches are
attnd's.  The first request of a sequence is its prompt, all others are one row.  All outputs are
compared with a computation in float64 by numpy alone.  Exit status 1 where they differ.

Needs numpy, and attn_client.py (found beside this tree, or anywhere on PYTHONPATH).
"""
from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
from typing import TYPE_CHECKING, Any, Dict, List

try:
    import numpy
except ImportError:
    sys.exit("own_projections: numpy is needed: apt-get install python3-numpy")

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "clients" / "python"))
from attn_client import AttnError, Client, Session  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

TOLERANCE = 1e-5
LAYERS, HEADS, KV_HEADS, WIDTH, HIDDEN = 3, 8, 2, 16, 64
PROMPTS = [5, 1, 9]  # rows of each sequence
STEPS = 6


class Layer:
    """The projections of one layer, which attnd never sees."""

    def __init__(self, random: numpy.random.Generator) -> None:
        def weights(rows: int, columns: int) -> Array:
            made: Array = random.standard_normal((rows, columns)) / rows ** 0.5
            return made.astype("f4")
        self.query = weights(HIDDEN, HEADS * WIDTH)
        self.key, self.value = (weights(HIDDEN, KV_HEADS * WIDTH) for _ in range(2))
        self.output = weights(HEADS * WIDTH, HIDDEN)

    def project(self, x: Array) -> Dict[str, Array]:
        """Rows [n,HIDDEN] as query [HEADS,n,WIDTH], key and value [KV_HEADS,n,WIDTH]."""
        def heads(rows: Array) -> Array:
            return numpy.ascontiguousarray(rows.reshape(len(x), -1, WIDTH).swapaxes(0, 1))
        return {"query": heads(x @ self.query), "key": heads(x @ self.key),
                "value": heads(x @ self.value)}

    def project_back(self, heads: Array) -> Array:
        """What heads put out, [HEADS,n,WIDTH], as rows [n,HIDDEN]."""
        rows: Array = numpy.asarray(heads).swapaxes(0, 1).reshape(-1, HEADS * WIDTH) @ self.output
        return rows


def step(client: Client, layers: List[Layer], sessions: List[Session], rows: List[Array]
         ) -> List[Array]:
    """The rows of each sequence through all layers; one request for a layer."""
    for number, layer in enumerate(layers):
        steps = [(session, layer.project(x)) for session, x in zip(sessions, rows)]
        outputs = []
        for reply in client.step_many(steps, layer=number):
            if isinstance(reply, AttnError):
                raise reply
            outputs.append(reply["output"])
        rows = [x + layer.project_back(output) for x, output in zip(rows, outputs)]
    return rows


def expected(layers: List[Layer], rows: Array) -> Array:
    """All rows [n,HIDDEN] of one sequence at once, in float64."""
    x: Array = rows.astype("f8")
    for layer in layers:
        projected = layer.project(x)
        query, key, value = (projected[name].astype("f8") for name in ("query", "key", "value"))
        heads = []
        for head in range(HEADS):
            group = head * KV_HEADS // HEADS
            scores = query[head] @ key[group].T / WIDTH ** 0.5
            scores[numpy.triu_indices(len(x), 1)] = -numpy.inf
            weights = numpy.exp(scores - scores.max(-1, keepdims=True))
            heads.append(weights / weights.sum(-1, keepdims=True) @ value[group])
        x = x + layer.project_back(numpy.stack(heads))
    return x


def main() -> int:
    """Runs all sequences together, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8080")
    parser.add_argument("--api-key")
    options = parser.parse_args()
    random = numpy.random.default_rng(7)
    layers = [Layer(random) for _ in range(LAYERS)]
    shape: Dict[str, Any] = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
                             "head_dim": WIDTH, "num_hidden_layers": LAYERS}
    worst = 0.0
    given: List[Array]
    try:
        with Client(options.url, api_key=options.api_key) as client, \
                contextlib.ExitStack() as sessions_end:
            sessions = [sessions_end.enter_context(client.session(**shape)) for _ in PROMPTS]
            given = [random.standard_normal((n, HIDDEN)).astype("f4") for n in PROMPTS]
            got = [[rows] for rows in step(client, layers, sessions, given)]
            for _ in range(STEPS):
                rows = [random.standard_normal((1, HIDDEN)).astype("f4") for _ in PROMPTS]
                given = [numpy.concatenate([before, row]) for before, row in zip(given, rows)]
                for all_rows, row in zip(got, step(client, layers, sessions, rows)):
                    all_rows.append(row)
            for taken, outputs in zip(given, got):
                want = expected(layers, taken)
                error = numpy.abs(numpy.concatenate(outputs) - want) / numpy.abs(want).max()
                worst = max(worst, float(error.max()))
    except AttnError as error:
        sys.exit(f"own_projections: {error}")
    print(f"own_projections: {len(PROMPTS)} sequences, {LAYERS} layers, worst error {worst:.1e}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
