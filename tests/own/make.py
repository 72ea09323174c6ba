#!/usr/bin/env python3
"""Makes the files beside this one: weights under the names of model_type attention.

qwen3_*, phi_*: the weights of tests/reference/qwen3 and phi, stored anew.  Loaded with the right
configuration they are the same layers, so their fingerprints are those of the folders' models.
torch.npz: nn.MultiheadAttention's names, with fewer heads of keys and values than of queries.
small*.npz: a layer whose values are narrower than its keys, of small numbers.  What it makes of
five rows is computed here, by the definition in float64, and stands in common/own_expected.h.

    /usr/bin/python3 make.py      writes all of them again, to the same bytes
"""
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "reference"))
import files

E, H, G, D, DV, T = 8, 4, 2, 4, 3, 5


def layers_of(folder, out_name):
    """For each of two layers the tensors of a folder, as q, k, v, o and what else it has."""
    stored = files.read_model(HERE.parent / "reference" / folder / "model")
    for i in range(2):
        at = f"model.layers.{i}.self_attn."
        names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": out_name}
        yield i, {role: stored[at + name + ".weight"] for role, name in names.items()}, \
            {name[len(at):]: array for name, array in stored.items() if name.startswith(at)}


def qwen3():
    one, two, three, bare = {}, {}, {}, {}
    for i, weights, tensors in layers_of("qwen3", "o_proj"):
        at = f"layers.{i}."
        norms = {name: tensors[name] for name in ("q_norm.weight", "k_norm.weight")}
        fused = np.concatenate([weights[role] for role in "qkv"])
        one.update({at + "W_" + role: array.T.copy() for role, array in weights.items()})
        two.update({at + role + "_proj.weight": array for role, array in weights.items()})
        three.update({at + "qkv_proj.weight": fused.T.copy(), at + "out_proj.weight":
                      weights["o"].T.copy()})
        for store in (one, two, three):
            store.update({at + name: array for name, array in norms.items()})
        if i == 0:
            bare = {**{"W_" + role.upper(): array for role, array in weights.items()}, **norms}
    np.savez(HERE / "qwen3_f8.npz", **{name: array.astype("<f8") for name, array in one.items()})
    np.savez_compressed(HERE / "qwen3_deflated.npz", **two)
    np.savez_compressed(HERE / "qwen3_bare.npz", **bare)
    kinds = [">f4", "<f4", ">f8", "<f8"]
    turned = {name: np.asfortranarray(array).astype(kinds[i % 4], order="F")
              for i, (name, array) in enumerate(sorted(one.items()))}
    np.savez(HERE / "qwen3_fortran.npz", **turned)
    np.savez_compressed(HERE / "qwen3_fortran_deflated.npz", **turned)
    files.write_tensors(HERE / "qwen3_fused.safetensors", three)


def phi():
    """Halves for weights and biases, q, k and v fused as PyTorch names them."""
    store = {}
    for i, weights, tensors in layers_of("phi", "dense"):
        at = f"layers.{i}."
        names = ("q_proj", "k_proj", "v_proj")
        store[at + "in_proj_weight"] = np.concatenate([weights[role] for role in "qkv"])
        store[at + "in_proj_bias"] = np.concatenate([tensors[name + ".bias"] for name in names])
        store[at + "out_proj.weight"] = weights["o"]
        store[at + "out_proj.bias"] = tensors["dense.bias"]
    np.savez_compressed(HERE / "phi_f2.npz",
                        **{name: array.astype("<f2") for name, array in store.items()})
    np.savez_compressed(HERE / "phi_big_f2.npz",
                        **{name: array.astype(">f2", order="F") for name, array in store.items()})


def torch():
    rng = np.random.default_rng(22)
    shapes = {"in_proj_weight": (16, 8), "in_proj_bias": (16,), "out_proj.weight": (8, 8),
              "out_proj.bias": (8,)}
    np.savez_compressed(HERE / "torch.npz", **{name: rng.standard_normal(shape, np.float32)
                                               for name, shape in shapes.items()})


def attention(x, weights):
    """Causal attention of T rows by its definition, in float64."""
    q = (x @ weights["W_q"]).reshape(T, H, D)
    k = (x @ weights["W_k"]).reshape(T, G, D).repeat(H // G, 1)
    v = (x @ weights["W_v"]).reshape(T, G, DV).repeat(H // G, 1)
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(D)
    scores[:, ~np.tri(T, dtype=bool)] = -np.inf
    share = np.exp(scores - scores.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    return np.einsum("hts,shd->thd", share, v).reshape(T, H * DV) @ weights["W_o"]


def small():
    rng = np.random.default_rng(21)
    shapes = {"W_q": (E, H * D), "W_k": (E, G * D), "W_v": (E, G * DV), "W_o": (H * DV, E)}
    weights = {name: rng.integers(-9, 10, shape) / 16 for name, shape in shapes.items()}
    x = rng.integers(-9, 10, (T, E)) / 8
    np.savez(HERE / "small.npz", **{name: array.astype("<f4") for name, array in weights.items()})
    np.savez_compressed(HERE / "small_deflated.npz", **weights)
    title = "rows, and what the layer of own/small.npz makes of them (make.py)."
    lines = [f"/* own_expected.h: {title} */",
             "#ifndef TESTS_COMMON_OWN_EXPECTED_H", "#define TESTS_COMMON_OWN_EXPECTED_H", "",
             f"enum {{ OWN_ROWS = {T}, OWN_WIDTH = {E} }};", "", "/* clang-format off */"]
    for name, array in (("own_rows", x), ("own_expected", attention(x, weights))):
        lines.append(f"static const float {name}[OWN_ROWS * OWN_WIDTH] = {{")
        flat = [f"{value:#.9g}f," for value in array.flat]
        lines += ["    " + " ".join(flat[i:i + 4]) for i in range(0, len(flat), 4)]
        lines += ["};"]
    lines += ["/* clang-format on */", "", "#endif"]
    (HERE.parent / "common" / "own_expected.h").write_text("\n".join(lines) + "\n")


qwen3()
phi()
torch()
small()
