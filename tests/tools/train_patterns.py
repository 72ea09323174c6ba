#!/usr/bin/env python3
"""train_patterns.py: trains the tiny decoder of tests/golden/patterns, whose heads have patterns.

    tests/tools/train_patterns.py OUT [--steps N] [--seed N]

Writes config.json, tokenizer.json and model.safetensors (F16) to OUT.  A Qwen2 of 4 layers, the
third with a sliding window, learns to predict the prose of docs/ and README.md, of which the
vocabulary is made too, and segments that occur again: a repetition is predicted by a head that
attends to the previous token and, in a later layer, one that attends to what followed the earlier
occurrence (induction).  No loss names a pattern: the heads come to theirs by the text alone.

Prints the loss every 200 steps and, at the end, for each head how often its largest weight is on
the previous token, the first, and the token after the earlier occurrence, over the sequences of
training.  2,500 steps took 9 minutes on one CPU.

Needs torch 1.13 or later (Debian: python3-torch).  Not part of any test.
"""
import argparse
import collections
import json
import math
import pathlib
import sys
import time

import numpy
import torch
from torch.nn import functional

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(1, str(TOP / "examples"))
from bpe import GPT2_PATTERN, byte_letters, compiled, tokenizer_of  # noqa: E402

VOCABULARY, TOKENS, BATCH = 512, 128, 32
BOS = "<|begin|>"
WIDTH, HEADS, PAIRS, INNER, LAYERS, WINDOW = 64, 4, 2, 128, 4, 12
DIM = WIDTH // HEADS
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": VOCABULARY,
    "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": PAIRS, "hidden_act": "silu",
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 500.0,
    "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2,
    "layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"],
    "tie_word_embeddings": True, "bos_token_id": VOCABULARY - 1, "torch_dtype": "float16",
}


# ---- Text and vocabulary -----------------------------------------------------------------------

def prose():
    """The documents that the model learns from, as one text."""
    paths = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
    return "\n".join(path.read_text("utf-8") for path in paths)


def join(word, pair):
    """A word's symbols with each occurrence of the pair made one symbol."""
    made, place = [], 0
    while place < len(word):
        both = word[place:place + 2] == pair
        made.append(word[place] + word[place + 1] if both else word[place])
        place += 2 if both else 1
    return tuple(made)


def make_tokenizer(text):
    """tokenizer.json of byte pair encoding: the most frequent pair is merged, again and again."""
    letters = byte_letters()
    words = collections.Counter(
        tuple(letters[byte] for byte in match.group().encode("utf-8"))
        for match in compiled(GPT2_PATTERN).finditer(text))
    symbols, merges = [letters[byte] for byte in range(256)], []
    while len(symbols) < VOCABULARY - 1:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        pair = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(" ".join(pair))
        symbols.append("".join(pair))
        words = collections.Counter({join(word, pair): n for word, n in words.items()})
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    number = len(symbols)
    opening = [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": BOS, "special": True, "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False}],
        "normalizer": None, "pre_tokenizer": level, "decoder": level,
        "post_processor": {"type": "TemplateProcessing", "single": opening, "pair": opening,
                           "special_tokens": {BOS: {"id": BOS, "ids": [number], "tokens": [BOS]}}},
        "model": {"type": "BPE", "vocab": {symbol: place for place, symbol in enumerate(symbols)},
                  "merges": merges},
    }


# ---- Model -------------------------------------------------------------------------------------

def turned(x, positions):
    """Queries or keys [B,H,T,D] after rotary positions, by halves."""
    powers = torch.arange(0, DIM, 2) / DIM
    angle = positions[:, None] * CONFIG["rope_theta"] ** -powers
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def rms_norm(x, weight):
    """Rows over their root mean square."""
    return x * torch.rsqrt((x ** 2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"]) * weight


class Decoder:
    """Tensors by the names of Hugging Face's Qwen2, and their forward pass."""

    def __init__(self):
        self.tensors = {}
        self._matrix("model.embed_tokens.weight", VOCABULARY, WIDTH, 0.02)
        self._vector("model.norm.weight", WIDTH, 1)
        for layer in range(LAYERS):
            name = f"model.layers.{layer}."
            for norm in ("input_layernorm", "post_attention_layernorm"):
                self._vector(f"{name}{norm}.weight", WIDTH, 1)
            for part, heads in (("q", HEADS), ("k", PAIRS), ("v", PAIRS)):
                self._matrix(f"{name}self_attn.{part}_proj.weight", heads * DIM, WIDTH)
                self._vector(f"{name}self_attn.{part}_proj.bias", heads * DIM, 0)
            self._matrix(f"{name}self_attn.o_proj.weight", WIDTH, WIDTH)
            self._matrix(f"{name}mlp.gate_proj.weight", INNER, WIDTH)
            self._matrix(f"{name}mlp.up_proj.weight", INNER, WIDTH)
            self._matrix(f"{name}mlp.down_proj.weight", WIDTH, INNER)

    def _matrix(self, name, rows, columns, deviation=None):
        deviation = deviation or (0.5 if name.endswith(("o_proj.weight", "down_proj.weight"))
                                  else 1) / math.sqrt(columns)
        self.tensors[name] = (torch.randn(rows, columns) * deviation).requires_grad_()

    def _vector(self, name, size, value):
        self.tensors[name] = torch.full((size,), float(value)).requires_grad_()

    def _linear(self, x, name):
        bias = self.tensors.get(f"{name}.bias")
        return functional.linear(x, self.tensors[f"{name}.weight"], bias)

    def _attention(self, x, layer):
        """What attention adds, and its weights [B,H,T,T]."""
        batch, tokens, _ = x.shape
        name, positions = f"model.layers.{layer}.self_attn.", torch.arange(tokens)

        def heads(part, count):
            rows = self._linear(x, f"{name}{part}_proj").view(batch, tokens, count, DIM)
            return rows.transpose(1, 2)

        query, key = turned(heads("q", HEADS), positions), turned(heads("k", PAIRS), positions)
        key, value = (rows.repeat_interleave(HEADS // PAIRS, 1)
                      for rows in (key, heads("v", PAIRS)))
        distance = positions[:, None] - positions
        seen = distance >= 0
        if CONFIG["layer_types"][layer] == "sliding_attention":
            seen &= distance < WINDOW
        scores = (query @ key.transpose(-1, -2)) / math.sqrt(DIM)
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
        output = (weights @ value).transpose(1, 2).reshape(batch, tokens, WIDTH)
        return self._linear(output, name + "o_proj"), weights

    def forward(self, ids):
        """Logits [B,T,vocabulary] and the weights of each layer."""
        x, maps = self.tensors["model.embed_tokens.weight"][ids], []
        for layer in range(LAYERS):
            name = f"model.layers.{layer}."
            rows = rms_norm(x, self.tensors[name + "input_layernorm.weight"])
            output, weights = self._attention(rows, layer)
            x = x + output
            rows = rms_norm(x, self.tensors[name + "post_attention_layernorm.weight"])
            gate = functional.silu(self._linear(rows, name + "mlp.gate_proj"))
            x = x + self._linear(gate * self._linear(rows, name + "mlp.up_proj"),
                                 name + "mlp.down_proj")
            maps.append(weights)
        x = rms_norm(x, self.tensors["model.norm.weight"])
        return x @ self.tensors["model.embed_tokens.weight"].T, maps


# ---- Sequences ---------------------------------------------------------------------------------

def sequence(chance, text):
    """(ids [T+1], whether each is to be predicted): prose, or a segment that occurs again."""
    kind = chance.random()
    start = chance.integers(0, len(text) - TOKENS)
    if kind < 0.5:
        return [VOCABULARY - 1, *text[start:start + TOKENS]], [True] * (TOKENS + 1)
    period = int(chance.integers(6, 48))
    segment = list(text[start:start + period])
    if kind < 0.75:
        segment = chance.integers(0, VOCABULARY - 1, period).tolist()
    ids = [VOCABULARY - 1, *(segment * (TOKENS // period + 1))[:TOKENS]]
    return ids, [place > period for place in range(TOKENS + 1)]


def batch_of(chance, text):
    """(ids [B,T+1], whether each is to be predicted [B,T+1])."""
    ids, wanted = zip(*(sequence(chance, text) for _ in range(BATCH)))
    return torch.tensor(ids), torch.tensor(wanted)


def targets_of(pattern, ids):
    """The key [B,T] of each query in a pattern, -1 where it has none."""
    batch, tokens = ids.shape
    places = torch.arange(tokens).expand(batch, tokens)
    if pattern == "previous":
        return places - 1
    if pattern == "first":
        return torch.where(places > 0, 0, -1)
    same = (ids[:, :, None] == ids[:, None, :]) & (places[:, :, None] > places[:, None, :])
    last = torch.where(same, places[:, None, :], -1).max(-1).values
    return torch.where(last >= 0, last + 1, -1)  # induction: what followed the earlier occurrence


# ---- Training ----------------------------------------------------------------------------------

def train(decoder, text, chosen):
    """Takes the steps; prints the loss."""
    chance, begin = numpy.random.default_rng(chosen.seed), time.monotonic()
    parameters = list(decoder.tensors.values())
    plain = [tensor for tensor in parameters if tensor.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": [tensor for tensor in parameters if tensor.dim() > 1]},
         {"params": plain, "weight_decay": 0}], lr=4e-3, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, chosen.steps, pct_start=0.05)
    for step in range(1, chosen.steps + 1):
        ids, wanted = batch_of(chance, text)
        logits, _ = decoder.forward(ids[:, :-1])
        loss = functional.cross_entropy(logits[wanted[:, 1:]], ids[:, 1:][wanted[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == chosen.steps:
            print(f"step {step}: loss {loss:.3f}, {time.monotonic() - begin:.0f} s", flush=True)


def report(decoder, text, seed):
    """One line for each head: how often its largest weight is where a pattern has it."""
    chance, names = numpy.random.default_rng(seed + 1), ("previous", "first", "induction")
    ids = torch.tensor([sequence(chance, text)[0] for _ in range(128)])[:, :-1]
    with torch.no_grad():
        _, maps = decoder.forward(ids)
    for layer, head in numpy.ndindex(LAYERS, HEADS):
        largest, shares = maps[layer][:, head].argmax(-1), []
        for name in names:
            targets = targets_of(name, ids)
            hits = (largest == targets)[targets >= 0].float().mean()
            mean = maps[layer][:, head].gather(-1, targets.clamp(min=0)[..., None])[..., 0]
            shares.append(f"{name} {hits:.2f} (weight {mean[targets >= 0].mean():.2f})")
        print(f"layer {layer} head {head}: {', '.join(shares)}")


def write_model(path, tensors):
    """A safetensors file of F16."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in sorted(tensors.items()):
        array = tensor.detach().numpy().astype("<f2")
        header[name] = {"dtype": "F16", "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 64)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description="Trains the decoder of tests/golden/patterns.")
    parser.add_argument("out", type=pathlib.Path, help="directory to write")
    parser.add_argument("--steps", type=int, default=2500, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    text = prose()
    tokenizer = make_tokenizer(text)
    ids = tokenizer_of(tokenizer).encode(text)[1:]
    print(f"{len(text)} characters, {len(ids)} tokens", flush=True)
    decoder = Decoder()
    train(decoder, ids, chosen)
    report(decoder, ids, chosen.seed)
    chosen.out.mkdir(parents=True, exist_ok=True)
    compact = {"ensure_ascii": False, "separators": (",", ":")}
    (chosen.out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", "utf-8")
    (chosen.out / "tokenizer.json").write_text(json.dumps(tokenizer, **compact) + "\n", "utf-8")
    write_model(chosen.out / "model.safetensors", decoder.tensors)


if __name__ == "__main__":
    main()
