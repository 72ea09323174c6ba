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
import pathlib
import sys
import time

import numpy
import torch

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(1, str(TOP / "examples" / "demo"))
from decoder import Decoder, make_tokenizer, tokenizer_of, train, write_checkpoint  # noqa: E402

VOCABULARY, TOKENS, BATCH = 512, 128, 32
WIDTH, HEADS, PAIRS, INNER, LAYERS, WINDOW = 64, 4, 2, 128, 4, 12
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": VOCABULARY,
    "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": PAIRS, "hidden_act": "silu",
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 500.0,
    "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2,
    "layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"],
    "tie_word_embeddings": True, "bos_token_id": VOCABULARY - 1, "torch_dtype": "float16",
}


# ---- Sequences ---------------------------------------------------------------------------------

def prose():
    """The documents that the model learns from, as one text."""
    paths = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
    return "\n".join(path.read_text("utf-8") for path in paths)


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

def train_on(decoder, text, chosen):
    """Takes the steps; prints the loss."""
    chance, begin = numpy.random.default_rng(chosen.seed), time.monotonic()

    def told(step, loss):
        if step % 200 == 0 or step == chosen.steps:
            print(f"step {step}: loss {loss:.3f}, {time.monotonic() - begin:.0f} s", flush=True)

    train(decoder, chosen.steps, lambda: batch_of(chance, text), 4e-3, told)


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


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description="Trains the decoder of tests/golden/patterns.")
    parser.add_argument("out", type=pathlib.Path, help="directory to write")
    parser.add_argument("--steps", type=int, default=2500, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    text = prose()
    tokenizer = make_tokenizer(text, VOCABULARY)
    ids = tokenizer_of(tokenizer).encode(text)[1:]
    print(f"{len(text)} characters, {len(ids)} tokens", flush=True)
    decoder = Decoder(CONFIG)
    train_on(decoder, ids, chosen)
    report(decoder, ids, chosen.seed)
    write_checkpoint(chosen.out, decoder, tokenizer)


if __name__ == "__main__":
    main()
