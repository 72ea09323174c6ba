#!/usr/bin/env python3
"""next_token.py: what follows a sentence, by a decoder whose attention is computed by attnd.

    make run &
    examples/next_token.py "Anna lives in Oslo. A bird sings. Anna lives in"

The whole way in one page: tokens, their rows (embeddings), and for each layer what attention takes,
which goes to attnd as one POST /attend, and the MLP; then probabilities of the next token.  All but
attention is numpy, by the parts of generate.py.  The default is the demonstration model.

Needs numpy, and attn_client.py (found beside this tree, or anywhere on PYTHONPATH).
"""
from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Optional, Sequence

from generate import AttnError, Client, check_model, read_decoder  # first: says what is missing
import numpy
from bpe import read_tokenizer

DEMO = pathlib.Path(__file__).resolve().parent / "demo"


def predict(client: Client, chosen: argparse.Namespace) -> None:
    """Prints tokens, what goes to attnd and back, and the likeliest next tokens."""
    decoder, tokenizer = read_decoder(chosen.directory), read_tokenizer(chosen.directory)
    check_model(client, chosen.model, decoder)
    ids = tokenizer.encode(chosen.text)
    print(f"{len(ids)} tokens:", "|".join(map(tokenizer.label, ids)))

    rows = decoder.embed(numpy.array(ids), numpy.arange(len(ids)))
    for layer in range(decoder.layers):
        taken = decoder.before_attention(rows, layer)
        attention = client.attend(taken, model=chosen.model, layer=layer)["output"]
        print(f"layer {layer}: {taken.shape} to attnd, {attention.shape} back")
        rows = rows + attention
        rows = rows + decoder.mlp(rows, layer)

    logits = decoder.logits(rows[-1])
    chances = numpy.exp(logits - logits.max())
    chances /= chances.sum()
    for number in numpy.argsort(chances)[::-1][:chosen.most]:
        print(f"{chances[number]:.3f} {tokenizer.label(number)}")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="The next token of a sentence, by a decoder whose attention is attnd's.")
    parser.add_argument("text", help="a sentence that goes on")
    parser.add_argument("directory", nargs="?", type=pathlib.Path, default=DEMO,
                        help="checkpoint, as Hugging Face has it [examples/demo]")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of attnd [%(default)s]")
    parser.add_argument("--model", default="demo", help="its name in attnd [%(default)s]")
    parser.add_argument("--api-key", help="API key of attnd")
    parser.add_argument("--most", type=int, default=5, help="tokens to print [%(default)s]")
    chosen = parser.parse_args(arguments)
    try:
        with Client(chosen.url, api_key=chosen.api_key) as client:
            predict(client, chosen)
    except (AttnError, OSError, ValueError, KeyError) as error:
        print(f"next_token: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
