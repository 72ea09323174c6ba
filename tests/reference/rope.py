"""Rotary position embedding: the frequencies of every rope_type, and the rotation.

The published code forms the frequencies and position * frequency in float32, and at 1e-5 that can
be seen, so both are float32 here; sine, cosine and the rotation itself are float64.  The rule of a
layer is a dict: theta, dim (how many elements of a head turn), interleaved, scaling (the config's
rope_scaling or None), max_positions, original (longrope's own original length).
"""
import math

import numpy as np

ONE = np.float32(1)


def powers(theta, dim):
    """theta^(2i/dim), i < dim/2, in float32."""
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    return np.power(np.float32(theta), exponents, dtype=np.float32)


def default(rule, length):
    return ONE / powers(rule["theta"], rule["dim"]), 1.0


def linear(rule, length):
    return default(rule, length)[0] / np.float32(rule["scaling"]["factor"]), 1.0


def dynamic(rule, length):
    """The base grows with the sequence once that is longer than max_position_embeddings."""
    factor, limit, dim = rule["scaling"]["factor"], rule["max_positions"], rule["dim"]
    stretch = factor * max(length, limit) / limit - (factor - 1)
    return ONE / powers(rule["theta"] * stretch ** (dim / (dim - 2)), dim), 1.0


def yarn_magnitude(factor, scale=1.0):
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def yarn_attention_factor(scaling):
    if scaling.get("attention_factor") is not None:
        return scaling["attention_factor"]
    factor, one, other = scaling["factor"], scaling.get("mscale"), scaling.get("mscale_all_dim")
    if one and other:
        return yarn_magnitude(factor, one) / yarn_magnitude(factor, other)
    return yarn_magnitude(factor)


def yarn(rule, length):
    """Fast pairs keep their frequency, slow ones are divided by the factor, a ramp between."""
    scaling, dim, theta = rule["scaling"], rule["dim"], rule["theta"]
    original = scaling.get("original_max_position_embeddings") or rule["max_positions"]

    def pair(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(scaling.get("beta_fast") or 32), pair(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - np.float32(low)) /
                   np.float32(high - low), 0, 1)
    keep = ONE - ramp
    base = powers(theta, dim)
    slow = ONE / (np.float32(scaling["factor"]) * base)
    return slow * (ONE - keep) + ONE / base * keep, yarn_attention_factor(scaling)


def longrope(rule, length):
    """A divisor per pair, from one list or the other by the length of the sequence."""
    scaling, original, factor = rule["scaling"], rule["original"], rule["scaling"].get("factor")
    if original:
        factor = rule["max_positions"] / original
    else:
        original = rule["max_positions"]
    attention = scaling.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    divisors = scaling["long_factor" if length > original else "short_factor"]
    return ONE / (np.array(divisors, np.float32) * powers(rule["theta"], rule["dim"])), attention


def llama3(rule, length):
    """Long waves are divided by the factor, short ones kept, a blend between."""
    scaling = rule["scaling"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    plain = default(rule, length)[0]
    turns = scaling["original_max_position_embeddings"] / (2 * np.pi / plain.astype(np.float64))
    slow = plain / scaling["factor"]
    blend = (turns - low) / (high - low)
    mixed = (1 - blend) * slow + blend * plain
    return np.where(turns < low, slow, np.where(turns > high, plain, mixed)), 1.0


KINDS = {"default": default, "linear": linear, "dynamic": dynamic, "yarn": yarn,
         "longrope": longrope, "su": longrope, "llama3": llama3}


def kind_of(rule):
    scaling = rule["scaling"] or {}
    return scaling.get("rope_type", scaling.get("type", "default"))


def angles(rule, positions):
    """cos and sin [B,T,dim/2] for positions [B,T] of one call; its length is the largest + 1."""
    frequencies, factor = KINDS[kind_of(rule)](rule, int(positions.max()) + 1)
    angle = positions.astype(np.float32)[..., None] * frequencies.astype(np.float32)
    angle = angle.astype(np.float64)
    return np.cos(angle) * factor, np.sin(angle) * factor


def rotate(rule, x, positions):
    """Turns the first `dim` elements of each head of x [B,H,T,D]."""
    dim = rule["dim"]
    cos, sin = (a[:, None] for a in angles(rule, positions))
    out = x.copy()
    if rule["interleaved"]:
        one, two = slice(0, dim, 2), slice(1, dim, 2)
    else:
        one, two = slice(0, dim // 2), slice(dim // 2, dim)
    out[..., one] = x[..., one] * cos - x[..., two] * sin
    out[..., two] = x[..., two] * cos + x[..., one] * sin
    return out
