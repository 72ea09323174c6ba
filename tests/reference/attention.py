"""One attention layer in float64, straight from its definition.

A layer is a namespace made by families.layer(): heads, kv_heads, head_dim, scale, causal, window,
softcap, sinks, rope (a rule of rope.py or None), norm ("rms" or "layer"), norm_eps, alibi ("bloom",
"falcon" or None), relative_key (BERT's kind or None), buckets (t5's relative positions or None),
and `weights`, a dict by role of float64 arrays, every linear one as [in, out].  A source is the
rows that keys and values are made of, or a pair: those of keys, those of values.
"""
import math

import numpy as np

import rope
from files import round_bf16


def split_heads(x, heads):
    """[B,T,heads*D] to [B,heads,T,D]."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def linear(x, weights, role):
    y = x @ weights[role + ".weight"]
    return y + weights[role + ".bias"] if role + ".bias" in weights else y


def normed(x, layer, role):
    if layer.norm == "layer":
        x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + layer.norm_eps)
    return layer.weights[role] * x + layer.weights.get(role + "_bias", 0)


def project(layer, x, source, positions):
    """Queries of x, keys and values of source, as the cache holds them: normed and turned."""
    of_keys, of_values = source if isinstance(source, tuple) else (source, source)
    q = split_heads(linear(x, layer.weights, "q"), layer.heads)
    k = split_heads(linear(of_keys, layer.weights, "k"), layer.kv_heads)
    v = split_heads(linear(of_values, layer.weights, "v"), layer.kv_heads)
    if "q_norm" in layer.weights:
        q, k = normed(q, layer, "q_norm"), normed(k, layer, "k_norm")
    if layer.rope:
        q, k = rope.rotate(layer.rope, q, positions), rope.rotate(layer.rope, k, positions)
    return q, k, v


def alibi_slopes(heads):
    """Geometric for a power of two; the rest take every other one of the next power's series."""
    whole = 2 ** math.floor(math.log2(heads))
    start = np.float32(2 ** -(2 ** -(math.log2(whole) - 3)))
    slopes = [np.power(start, np.float32(i + 1)) for i in range(whole)]
    start = np.float32(2 ** -(2 ** -(math.log2(2 * whole) - 3)))
    slopes += [np.power(start, np.float32(2 * i + 1)) for i in range(heads - whole)]
    return np.array(slopes, np.float32)


def alibi_bias(layer, mask):
    """[B,H,1,S]: slope times the key's place among the real tokens of the mask [B,S]."""
    place = ((np.cumsum(mask, -1) - 1) * mask).astype(np.float32)[:, None, :]
    slopes = alibi_slopes(layer.heads)[None, :, None]
    if layer.alibi == "falcon":
        product = round_bf16(round_bf16(slopes) * round_bf16(place))
    else:
        product = slopes * place
    return product[:, :, None, :].astype(np.float64)


def bucket(relative, buckets, max_distance, both_ways):
    """t5's bucket of key index - query index; the logarithm is float32, as published."""
    offset = np.zeros_like(relative)
    if both_ways:
        buckets //= 2
        offset = np.where(relative > 0, buckets, 0)
        distance = np.abs(relative)
    else:
        distance = np.maximum(-relative, 0)
    exact = buckets // 2
    ratio = np.maximum(distance, 1).astype(np.float32) / np.float32(exact)
    steps = np.log(ratio, dtype=np.float32) / np.float32(math.log(max_distance / exact))
    far = exact + (steps * np.float32(buckets - exact)).astype(np.int64)
    return offset + np.where(distance < exact, distance, np.minimum(far, buckets - 1))


def visible(layer, queries, keys, mask):
    """[B,T,S]: which keys a query may see, by index, window and padding."""
    i, j = queries[:, None], keys[None, :]
    seen = np.ones((len(queries), len(keys)), bool)
    if layer.causal:
        seen &= j <= i
    if layer.window:
        seen &= j > i - layer.window
    if layer.window and not layer.causal:
        seen &= j < i + layer.window
    return seen[None] & mask[:, None, :]


def scores(layer, q, k, queries, mask):
    """[B,H,T,S] before masking: product, scale, soft cap, and the family's bias."""
    k = np.repeat(k, layer.heads // layer.kv_heads, 1)
    raw = q @ k.swapaxes(-1, -2)
    if layer.alibi == "falcon":
        return (raw + alibi_bias(layer, mask)) * layer.scale
    if layer.relative_key:
        table = layer.weights["distances"]
        rows = table[queries[:, None] - np.arange(k.shape[2])[None, :] + len(table) // 2]
        raw += np.einsum("bhtd,tsd->bhts", q, rows)
        if layer.relative_key == "relative_key_query":
            raw += np.einsum("bhsd,tsd->bhts", k, rows)
    raw *= layer.scale
    if layer.softcap:
        raw = layer.softcap * np.tanh(raw / layer.softcap)
    if layer.alibi == "bert":  # both ways, by slots
        raw -= alibi_slopes(layer.heads).astype(np.float64)[:, None, None] * \
            np.abs(queries[:, None] - np.arange(k.shape[2])[None, :])
    elif layer.alibi:
        raw += alibi_bias(layer, mask)
    if layer.buckets:
        relative = np.arange(k.shape[2])[None, :] - queries[:, None]
        raw += layer.weights["table"][bucket(relative, *layer.buckets)].transpose(2, 0, 1)
    return raw


def softmax(layer, values, seen):
    """Rows that see nothing are zero.  A sink takes part in the sum and is then dropped."""
    values = np.where(seen, values, -np.inf)
    peak = values.max(-1, keepdims=True)
    if layer.sinks:
        sink = layer.weights["sinks"].reshape(1, -1, 1, 1)
        peak = np.maximum(peak, sink)
    peak = np.where(np.isfinite(peak), peak, 0)
    powers = np.exp(values - peak)
    total = powers.sum(-1, keepdims=True)
    if layer.sinks:
        total = total + np.exp(sink - peak)
    return powers / np.where(total > 0, total, 1)


def gates(layer, x):
    """[B,H,T,1]: what heads are multiplied by before the output projection."""
    if "gate.weight" not in layer.weights:
        return 1.0
    return 1 / (1 + np.exp(-linear(x, layer.weights, "gate").swapaxes(1, 2)[..., None]))


def attend(layer, q, k, v, first, mask, gate):
    """Queries from index `first` on, over all keys so far; the mask [B,S] marks real keys."""
    queries, keys = first + np.arange(q.shape[2]), np.arange(k.shape[2])
    seen = visible(layer, queries, keys, mask)
    weights = softmax(layer, scores(layer, q, k, queries, mask), seen[:, None])
    mixed = gate * (weights @ np.repeat(v, layer.heads // layer.kv_heads, 1))
    rows = mixed.swapaxes(1, 2).reshape(mixed.shape[0], mixed.shape[2], -1)
    out = linear(rows, layer.weights, "o")
    return np.where(seen.any(-1)[..., None], out, 0), weights, seen.any(-1)


def whole(layer, x, source, positions, mask):
    """All at once: output, attentions, keys, values, and which rows see a key at all."""
    q, k, v = project(layer, x, source, positions)
    out, weights, rows = attend(layer, q, k, v, 0, mask, gates(layer, x))
    return out, weights * rows[:, None, :, None], k, v, rows


def stepwise(layer, x, positions, mask, prefill):
    """The same sequence as a prefill and single tokens; the cache grows as it goes."""
    out, keys, values, start = [], None, None, 0
    for end in [prefill, *range(prefill + 1, x.shape[1] + 1)]:
        part = slice(start, end)
        q, k, v = project(layer, x[:, part], x[:, part], positions[:, part])
        keys = k if keys is None else np.concatenate([keys, k], 2)
        values = v if values is None else np.concatenate([values, v], 2)
        gate = gates(layer, x[:, part])
        out.append(attend(layer, q, keys, values, start, mask[:, :end], gate)[0])
        start = end
    return np.concatenate(out, 1)
