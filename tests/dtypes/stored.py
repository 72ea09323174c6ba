#!/usr/bin/env python3
"""stored.py: how far quantised weights move a product, and a dtype after them, for docs/NUMERICS.md.

    ATTND=build/attnd tests/dtypes/stored.py

A matrix of 2,048 x 2,048 numbers of Student's t distribution with 4 degrees of freedom is rounded
to each form here, to the nearest codes that the form has; what the codes stand for is the value
projection of a model that attnd keeps in each dtype.  64 rows of normal numbers are multiplied with
it; "outliers" multiplies six components of all rows by 40.  An error is the root mean square of
the differences from numpy's product with the matrix before, relative to that of the products.
"""
import pathlib
import tempfile

import numpy

from errors import GAIN, OUTLIERS, Client, Daemon, write_layer

SIZE, ROWS, FREEDOM = 2048, 64, 4
DTYPES = ["f32", "bf16", "int8", "w8a16"]
E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
# The 16 numbers of NF4 (Dettmers et al. 2023, "QLoRA"), as bitsandbytes has them.
NF4 = numpy.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0])


def e4m3():
    """The magnitudes of E4M3."""
    code = numpy.arange(127)
    exponent, fraction = code >> 3, code & 7
    return numpy.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0**(exponent - 10.0))


def nearest(x, table):
    """Each number of x, or its magnitude with x's sign, as the nearest of an ascending table."""
    signed = table[0] == 0
    at = numpy.searchsorted((table[1:] + table[:-1]) / 2, abs(x) if signed else x)
    return numpy.copysign(table[at], x) if signed else table[at]


def groups(w, size):
    """Rows [n][groups][size]."""
    return w.reshape(len(w), -1, size)


def largest(x):
    """Magnitudes of the groups."""
    return abs(x).max(-1, keepdims=True)


def fp8(w):
    """Blocks of 128 x 128, scaled to 448."""
    blocks = w.reshape(SIZE // 128, 128, SIZE // 128, 128)
    scale = (abs(blocks).max((1, 3), keepdims=True) / 448).astype("f4")
    return nearest(blocks / scale, e4m3())*scale


def int8(w):
    """A scale for each row."""
    scale = (largest(w) / 127).astype("f4")
    return numpy.rint(w / scale) * scale


def int4(size):
    """GPTQ, AWQ and others: 16 steps between the least and the largest number of a group."""
    def form(w):
        x = groups(w, size)
        low = numpy.minimum(x.min(-1, keepdims=True), 0)
        scale = ((numpy.maximum(x.max(-1, keepdims=True), 0) - low) / 15).astype("f2").astype("f8")
        zero = numpy.rint(-low / scale)
        return (numpy.clip(numpy.rint(x / scale) + zero, 0, 15) - zero) * scale
    return form


def nf4(w):
    """Blocks of 64."""
    x = groups(w, 64)
    return nearest(x / largest(x), NF4) * largest(x)


def nvfp4(w):
    """Groups of 16, whose scales are E4M3 of one scale of all."""
    x = groups(w, 16)
    whole = abs(w).max() / (6 * 448)
    scale = nearest(largest(x) / 6 / whole, e4m3()) * whole
    return nearest(x / scale, E2M1) * scale


def mxfp4(w):
    """Groups of 32, whose scales are powers of two."""
    x = groups(w, 32)
    scale = 2.0 ** (numpy.floor(numpy.log2(largest(x))) - 2)
    return nearest(x / scale, E2M1) * scale


def q8_0(w):
    """Blocks of 32."""
    x = groups(w, 32)
    scale = largest(x) / 127
    return numpy.rint(x / scale) * scale.astype("f2")


def q4_0(w):
    """Blocks of 32, from -8 at the number of the largest magnitude."""
    x = groups(w, 32)
    scale = numpy.take_along_axis(x, abs(x).argmax(-1)[..., None], -1) / -8
    return numpy.clip(numpy.floor(x / scale + 8.5), 0, 15) * scale.astype("f2") - \
        8 * scale.astype("f2")


FORMS = {"as float32": lambda w: w, "FP8 (E4M3), blocks of 128": fp8, "int8, a scale each row": int8,
         "4 bits, groups of 128": int4(128), "4 bits, groups of 32": int4(32), "NF4, blocks of 64": nf4,
         "NVFP4": nvfp4, "MXFP4": mxfp4, "Q8_0": q8_0, "Q4_0": q4_0}


def write_model(path, value):
    """A Llama checkpoint of one layer with these values, and hardly anything else."""
    tensors = {name: numpy.full((SIZE, SIZE), 1e-3, "<f4") for name in "qko"}
    tensors["v"] = numpy.ascontiguousarray(value.reshape(SIZE, SIZE).astype("<f4"))
    write_layer(path, tensors, {"hidden_size": SIZE, "num_attention_heads": 16})


def main():
    """Prints the table."""
    rng = numpy.random.default_rng(4)
    w = rng.standard_t(FREEDOM, (SIZE, SIZE)).astype("<f4").astype(float)
    rows = [rng.standard_normal((ROWS, SIZE)).astype("<f4") for _ in range(2)]
    rows[1][:, rng.choice(SIZE, OUTLIERS, replace=False)] *= GAIN
    print("| stored as | " + " | ".join(f"`{d}`" for d in DTYPES) + " | outliers: " +
          " | ".join(f"`{d}`" for d in DTYPES) + " |")
    print("|---" * (1 + 2 * len(DTYPES)) + "|")
    for form, rounded in FORMS.items():
        with tempfile.TemporaryDirectory() as name:
            write_model(pathlib.Path(name), rounded(w))
            daemon = Daemon(name, [{"name": d, "path": name, "dtype": d} for d in DTYPES])
            cells = []
            for x in rows:
                want = x.astype(float) @ w.T
                for dtype in DTYPES:
                    reply = Client(daemon.url).attend(x, model=dtype, layer=0, outputs=["value"])
                    got = numpy.array(reply["value"], float).reshape(16, ROWS, -1)
                    wrong = got.transpose(1, 0, 2).reshape(ROWS, SIZE) - want
                    cells.append(numpy.sqrt((wrong ** 2).mean() / (want ** 2).mean()))
            daemon.stop()
            print(f"| {form} | " + " | ".join(f"{cell:.2g}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
