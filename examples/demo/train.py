#!/usr/bin/env python3
"""train.py: trains the demonstration model of this directory on the text of grammar.py.

    examples/demo/train.py OUT [--steps N] [--seed N]

Writes config.json, tokenizer.json and model.safetensors (F16) to OUT.  A Qwen2 begins with the layers
of tests/golden/patterns, which looks up what followed the last time, but with a vocabulary of its
own, and without the window.  Of 16 sequences 10 are the grammar's text, and 6 are segments that
occur again, of random tokens or of the text.  No loss names a pattern: the heads come to theirs by
what is to be predicted.

Prints the loss every 100 steps.  Needs torch 1.13 or later (Debian: python3-torch).
"""
import argparse
import pathlib
import random
import time

import torch

import grammar
from decoder import Decoder, make_tokenizer, tokenizer_of, train, write_checkpoint  # sets the path
from bpe import read_tokenizer
from generate import read_checkpoint

OLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "patterns"
TOKENS, BATCH = 128, 16
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 0,
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
    "max_position_embeddings": TOKENS, "rms_norm_eps": 1e-6, "rope_theta": 500.0,
    "tie_word_embeddings": True, "bos_token_id": 0, "torch_dtype": "float16",
}


def grow(decoder, tokenizer, begin):
    """Begins with the layers of the older model; a token's row is about the mean of its pieces'."""
    _, tensors = read_checkpoint(OLDER)
    rows = torch.tensor(tensors.pop("model.embed_tokens.weight"))
    for name, tensor in tensors.items():
        decoder.tensors[name].data.copy_(torch.tensor(tensor))
    pieces, table = read_tokenizer(OLDER), decoder.tensors["model.embed_tokens.weight"].data
    size, spread = rows.norm(dim=1).mean(), 0.5 * rows.std()
    for number in range(len(table)):
        text = tokenizer.label(number)
        row = rows[pieces.encode(text)[1:]].mean(0) + spread * torch.randn(rows.shape[1])
        table[number] = rows[-1] if number == begin else row / row.norm() * size


def sequence(chance, tokenizer, begin, row):
    """(ids [T+1], whether each is to be predicted): a text, random tokens that occur again, or a
    part of a text that does, by the row of the batch."""
    kind, period = row / BATCH, chance.randrange(4, 48)
    ids = tokenizer.encode(grammar.text_of(chance, 6 * TOKENS))[:TOKENS + 1]
    if kind < 0.6:
        return ids, [True] * (TOKENS + 1)
    start = chance.randrange(1, TOKENS - period)
    segment = ids[start:start + period]
    if kind < 0.8:
        segment = [chance.randrange(begin) for _ in range(period)]
    ids = [begin, *(segment * (TOKENS // period + 1))[:TOKENS]]
    return ids, [place > period for place in range(TOKENS + 1)]


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description="Trains the demonstration model.")
    parser.add_argument("out", type=pathlib.Path, help="directory to write")
    parser.add_argument("--steps", type=int, default=1500, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    chosen = parser.parse_args()
    torch.manual_seed(chosen.seed)
    torch.set_num_threads(1)  # so that sums are the same on every machine
    words = grammar.words_of()
    facts = make_tokenizer(" " + " ".join(words) + "(the(a[the[a{the{a (a [a {a", 10000, add_prefix_space=True)
    tokenizer, begin = tokenizer_of(facts), facts["added_tokens"][0]["id"]
    decoder = Decoder({**CONFIG, "vocab_size": begin + 1, "bos_token_id": begin})
    grow(decoder, tokenizer, begin)
    chance, start = random.Random(chosen.seed), time.monotonic()

    def batch_of():
        ids, wanted = zip(*(sequence(chance, tokenizer, begin, row)
                            for row in range(BATCH)))
        return torch.tensor(ids), torch.tensor(wanted)

    def told(step, loss):
        if step % 100 == 0 or step == chosen.steps:
            print(f"step {step}: loss {loss:.3f}, {time.monotonic() - start:.0f} s", flush=True)

    train(decoder, chosen.steps, batch_of, 2e-3, told)
    write_checkpoint(chosen.out, decoder, facts)


if __name__ == "__main__":
    main()
