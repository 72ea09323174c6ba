#!/usr/bin/env python3
"""errors.py: how far each dtype of weights moves the output of a layer, for docs/NUMERICS.md.

    ATTND=build/attnd tests/dtypes/errors.py

Weights are normal numbers of variance 1/in, rows normal numbers of variance 1: 64 of them, causal,
with RoPE.  "outliers" multiplies six components of all rows by 40, as some channels of trained
models are.  An error is the largest difference of an output from numpy's in double, relative to the
largest output of its row; the last column is its root mean square relative to that of the outputs.
"""
import json
import pathlib
import sys
import tempfile

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "clients"), str(HERE.parent.parent / "clients" / "python")]
from attn_client import Client  # noqa: E402
from daemon import Daemon  # noqa: E402

ROWS, THETA, OUTLIERS, GAIN = 64, 10000.0, 6, 40
LAYERS = [(512, 8, 2), (768, 12, 12), (4096, 32, 8)]  # hidden_size, heads, key/value heads
DTYPES = ["f32", "bf16", "int8", "w8a16"]


def write_layer(path, weights, config):
    """Writes a Llama checkpoint of one layer: float32 matrices by "q", "k", "v" and "o"."""
    header, end = {}, 0
    for name, matrix in weights.items():
        header[f"model.layers.0.self_attn.{name}_proj.weight"] = {
            "dtype": "F32", "shape": matrix.shape, "data_offsets": [end, end + matrix.nbytes]}
        end += matrix.nbytes
    text = json.dumps(header).encode()
    with open(path / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for matrix in weights.values():
            file.write(matrix.tobytes())
    (path / "config.json").write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": 1, "max_position_embeddings": 4096, **config}))


def write_model(path, rng, hidden, heads, kv_heads):
    """Writes a Llama checkpoint of one layer; returns its matrices."""
    width = hidden // heads
    sizes = {"q": (heads * width, hidden), "k": (kv_heads * width, hidden),
             "v": (kv_heads * width, hidden), "o": (hidden, heads * width)}
    weights = {name: (rng.standard_normal(shape) / shape[1] ** 0.5).astype("<f4")
               for name, shape in sizes.items()}
    write_layer(path, weights, {"hidden_size": hidden, "num_attention_heads": heads,
                                "num_key_value_heads": kv_heads, "rope_theta": THETA})
    return weights


def rotated(x):
    """Rows [n, heads, D] at positions 0 to n - 1."""
    half = x.shape[2] // 2
    angles = numpy.outer(numpy.arange(len(x)), THETA ** (-numpy.arange(half) / half))[:, None]
    a, b = x[..., :half], x[..., half:]
    return numpy.concatenate([a * numpy.cos(angles) - b * numpy.sin(angles),
                              a * numpy.sin(angles) + b * numpy.cos(angles)], axis=2)


def layer(x, weights, heads, kv_heads):
    """The output of the layer, in double."""
    w = {name: matrix.astype(float) for name, matrix in weights.items()}
    q, k, v = ((x @ w[name].T).reshape(len(x), count, -1)
               for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
    q, k, v = rotated(q), rotated(k).repeat(heads // kv_heads, 1), v.repeat(heads // kv_heads, 1)
    scores = numpy.einsum("thd,shd->hts", q, k) / q.shape[2] ** 0.5
    scores += numpy.triu(numpy.full(scores.shape[1:], -numpy.inf), 1)
    scores = numpy.exp(scores - scores.max(axis=2, keepdims=True))
    scores /= scores.sum(axis=2, keepdims=True)
    return numpy.einsum("hts,shd->thd", scores, v).reshape(len(x), -1) @ w["o"].T


def main():
    """Prints the table."""
    print(f"| layer (E/H/G), {ROWS} rows | dtype | largest error | root mean square |")
    print("|---|---|---|---|")
    rng = numpy.random.default_rng(1)
    for hidden, heads, kv_heads in LAYERS:
        with tempfile.TemporaryDirectory() as name:
            weights = write_model(pathlib.Path(name), rng, hidden, heads, kv_heads)
            models = [{"name": dtype, "path": name, "dtype": dtype} for dtype in DTYPES]
            daemon = Daemon(name, models)
            for gain in (1, GAIN):
                x = rng.standard_normal((ROWS, hidden)).astype("<f4")
                x[:, rng.choice(hidden, OUTLIERS, replace=False)] *= gain
                want = layer(x.astype(float), weights, heads, kv_heads)
                for dtype in DTYPES:
                    reply = Client(daemon.url).attend(x, model=dtype, layer=0)
                    wrong = numpy.array(reply["output"], float).reshape(want.shape) - want
                    most = (abs(wrong).max(1) / abs(want).max(1)).max()
                    mean = numpy.sqrt((wrong ** 2).mean() / (want ** 2).mean())
                    rows = f"{hidden}/{heads}/{kv_heads}" + (", outliers" if gain > 1 else "")
                    print(f"| {rows} | {dtype} | {most:.1e} | {mean:.1e} |", flush=True)
            daemon.stop()


if __name__ == "__main__":
    main()
