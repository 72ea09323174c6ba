#!/usr/bin/env python3
"""generate.py: text from a whole decoder, whose attention is computed by attnd.

    build/attnd --model llama=llama-3.2-1b &
    examples/generate.py llama-3.2-1b --prompt "Once upon a time"

This program computes embeddings, norms, MLPs and the head in numpy; attnd computes every attention
layer, projections and rotary positions included, and keeps the keys and values in one session.  The
directory is one of Hugging Face: config.json, model.safetensors or its shards, and for text
tokenizer.json or vocab.json and merges.txt.  Layouts: GPT-2, and that of Llama.

The daemon may be killed and started again meanwhile: with `durability` `journal` its sessions are
still there, the client sends again what was not answered, and no token differs.

Needs numpy, and attn_client.py (found beside this tree, or anywhere on PYTHONPATH).
"""
from __future__ import annotations

import argparse
import json
import mmap
import pathlib
import struct
import sys
import time

try:
    import numpy
except ImportError:
    sys.exit("generate: numpy is needed: apt-get install python3-numpy")

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "clients" / "python"))
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent))
from attn_client import AttnError, Client  # noqa: E402
from bpe import read_tokenizer  # noqa: E402


# ---- Checkpoint --------------------------------------------------------------------------------

def read_safetensors(path):
    """{name: array} of a file; arrays are float32, or the file's own bytes where those are."""
    with open(path, "rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    size, = struct.unpack("<Q", data[:8])
    if size > len(data) - 8:
        raise ValueError(f"{path}: the header is longer than the file")
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__" or entry["dtype"] not in ("F32", "F16", "BF16"):
            continue  # buffers of integers and booleans, such as masks
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        kind = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[entry["dtype"]]
        array = numpy.frombuffer(memoryview(data)[begin:end], kind).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            array = (array.astype(numpy.uint32) << 16).view(numpy.float32)
        tensors[name] = array.astype(numpy.float32, copy=False)
    return tensors


def read_checkpoint(directory):
    """(config, {name: array}) of a directory of Hugging Face."""
    config = json.loads((directory / "config.json").read_text("utf-8"))
    index = directory / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    tensors = {}
    for name in names:
        tensors.update(read_safetensors(directory / name))
    return config, tensors


# ---- Decoders ----------------------------------------------------------------------------------

def layer_norm(rows, weight, bias, eps):
    """Rows [n,E] less their mean, over their standard deviation."""
    centred = rows - rows.mean(-1, keepdims=True)
    return centred / numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + eps) * weight + bias


def rms_norm(rows, weight, eps):
    """Rows [n,E] over their root mean square."""
    return rows / numpy.sqrt((rows ** 2).mean(-1, keepdims=True) + eps) * weight


def gelu_tanh(x):
    """Gaussian error linear unit, in the approximation that GPT-2 was trained with."""
    return 0.5 * x * (1 + numpy.tanh(numpy.float32(0.7978845608) * (x + 0.044715 * x ** 3)))


class Gpt2:
    """GPT-2: learned positions, layer norms, biases, weights stored input-major, a tied head."""

    def __init__(self, config, tensors):
        prefix = "transformer." if "transformer.wte.weight" in tensors else ""
        self.tensors = {name[len(prefix):]: array for name, array in tensors.items()
                        if name.startswith(prefix)}
        self.layers, self.eps = config["n_layer"], config.get("layer_norm_epsilon", 1e-5)
        self.head, self.positions = self.tensors["wte.weight"], len(self.tensors["wpe.weight"])
        if config.get("activation_function", "gelu_new") not in ("gelu_new", "gelu_pytorch_tanh"):
            raise ValueError(f"activation_function {config['activation_function']} is unknown here")

    def _norm(self, rows, name):
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return layer_norm(rows, weight, bias, self.eps)

    def _linear(self, rows, name):
        return rows @ self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def embed(self, ids, positions):
        """Rows [..,n,E] of tokens at positions."""
        return self.tensors["wte.weight"][ids] + self.tensors["wpe.weight"][positions]

    def before_attention(self, rows, layer):
        """What attention takes of the residual stream."""
        return self._norm(rows, f"h.{layer}.ln_1")

    def mlp(self, rows, layer):
        """What the MLP adds to the residual stream."""
        inner = self._linear(self._norm(rows, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
        return self._linear(gelu_tanh(inner), f"h.{layer}.mlp.c_proj")

    def logits(self, rows):
        """Logits [..,vocab] of rows of the last layer."""
        return self._norm(rows, "ln_f") @ self.head.T


class Llama:
    """Llama: RMS norms, rotary positions (attnd's affair), a gated MLP, biases nowhere."""

    def __init__(self, config, tensors):
        self.tensors, self.eps = tensors, config["rms_norm_eps"]
        self.layers, self.positions = config["num_hidden_layers"], None  # any number
        self.head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
        if config.get("hidden_act", "silu") != "silu":
            raise ValueError(f"hidden_act {config['hidden_act']} is unknown here")

    def embed(self, ids, _positions):
        """Rows [..,n,E] of tokens."""
        return self.tensors["model.embed_tokens.weight"][ids]

    def before_attention(self, rows, layer):
        """What attention takes of the residual stream."""
        name = f"model.layers.{layer}.input_layernorm.weight"
        return rms_norm(rows, self.tensors[name], self.eps)

    def mlp(self, rows, layer):
        """What the MLP adds to the residual stream."""
        name = f"model.layers.{layer}."
        rows = rms_norm(rows, self.tensors[name + "post_attention_layernorm.weight"], self.eps)
        gate = rows @ self.tensors[name + "mlp.gate_proj.weight"].T
        up = rows @ self.tensors[name + "mlp.up_proj.weight"].T
        # The sigmoid by tanh, which does not overflow.
        return (gate * (0.5 + 0.5 * numpy.tanh(0.5 * gate)) * up) @ \
            self.tensors[name + "mlp.down_proj.weight"].T

    def logits(self, rows):
        """Logits [..,vocab] of rows of the last layer."""
        return rms_norm(rows, self.tensors["model.norm.weight"], self.eps) @ self.head.T


# Families of one layout: of their decoders only the attention differs.
DECODERS = {"gpt2": Gpt2, "llama": Llama, "mistral": Llama, "qwen2": Llama, "qwen3": Llama}


def read_decoder(directory):
    """The decoder of a directory."""
    config, tensors = read_checkpoint(pathlib.Path(directory))
    if config["model_type"] not in DECODERS:
        raise ValueError(f"model_type {config['model_type']} is none of {', '.join(DECODERS)}")
    return DECODERS[config["model_type"]](config, tensors)


def forward(decoder, ids, positions, attend):
    """Rows [..,n,E] of the last layer.  `attend(rows, layer)` computes a layer's attention."""
    rows = decoder.embed(numpy.asarray(ids), numpy.asarray(positions))
    for layer in range(decoder.layers):
        rows = rows + attend(decoder.before_attention(rows, layer), layer)
        rows = rows + decoder.mlp(rows, layer)
    return rows


class Generator:
    """A decoder over a session: takes tokens, gives the logits after them.

    attention_s  seconds spent waiting for attnd so far
    """

    def __init__(self, decoder, session):
        self.decoder, self.session, self.length, self.attention_s = decoder, session, 0, 0.0

    def _attend(self, rows, layer):
        begin = time.perf_counter()
        step = self.session.prefill if len(rows) > 1 else self.session.decode
        output = step(rows, layer=layer)["output"]
        self.attention_s += time.perf_counter() - begin
        return output

    def feed(self, ids):
        """Appends tokens; logits [n,vocab] after each of them."""
        positions = range(self.length, self.length + len(ids))
        rows = forward(self.decoder, ids, positions, self._attend)
        self.length += len(ids)
        return self.decoder.logits(rows)


def choose(logits, temperature, top_k, chance):
    """The most likely token, or with a temperature a random one of the `top_k` most likely."""
    if temperature == 0:
        return int(logits.argmax())
    likely = numpy.argsort(logits)[::-1][:top_k]
    weights = numpy.exp((logits[likely] - logits[likely[0]]) / temperature)
    return int(chance.choice(likely, p=weights / weights.sum()))


# ---- Command line ------------------------------------------------------------------------------

def options(arguments):
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        description="Text from a decoder whose attention is computed by attnd.")
    parser.add_argument("directory", type=pathlib.Path, help="checkpoint, as Hugging Face has it")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of attnd [%(default)s]")
    parser.add_argument("--model", help="its name in attnd [the only one]")
    parser.add_argument("--api-key", help="API key of attnd")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", help="text to continue")
    what.add_argument("--ids", help="tokens to continue, 1,2,3; prints tokens as numbers")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to make [%(default)s]")
    parser.add_argument("--temperature", type=float, default=0, help="0: the likeliest token [0]")
    parser.add_argument("--top-k", type=int, default=50, help="with a temperature [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="with a temperature [%(default)s]")
    parser.add_argument("--ignore-eos", action="store_true", help="go on after the end of text")
    parser.add_argument("--timing", action="store_true", help="milliseconds of each token")
    return parser.parse_args(arguments)


def ends_of(directory, ignored):
    """The tokens at which text ends."""
    ends = json.loads((directory / "config.json").read_text("utf-8")).get("eos_token_id")
    return set() if ignored or ends is None else set(ends if isinstance(ends, list) else [ends])


def generate(generator, ids, chosen, ends):
    """Yields tokens after `ids`, and the milliseconds that each took."""
    chance = numpy.random.default_rng(chosen.seed)
    for _ in range(chosen.tokens):
        begin = time.perf_counter()
        logits = generator.feed(ids)[-1]
        token = choose(logits, chosen.temperature, chosen.top_k, chance)
        yield token, 1e3 * (time.perf_counter() - begin)
        if token in ends:
            return
        ids = [token]


def report(times, attention_s, prompt):
    """One line on stderr: what the tokens took."""
    rest = sorted(times[1:]) or times
    print(f"generate: {prompt} tokens read in {times[0]:.1f} ms; {len(times)} made, median "
          f"{rest[len(rest) // 2]:.2f} ms each; of {sum(times):.1f} ms in all attnd took "
          f"{1e3 * attention_s:.1f}", file=sys.stderr)


def main(arguments=None):
    """The command line; returns the exit status."""
    chosen = options(arguments)
    try:
        decoder, tokenizer = read_decoder(chosen.directory), None
        if chosen.prompt is not None:
            tokenizer = read_tokenizer(chosen.directory)
            ids = tokenizer.encode(chosen.prompt)
        else:
            ids = [int(number) for number in chosen.ids.split(",")]
        if not ids:
            raise ValueError("the prompt has no token")
        ends, times = ends_of(chosen.directory, chosen.ignore_eos), []
        with Client(chosen.url, api_key=chosen.api_key) as client, \
                client.session(model=chosen.model) as session:
            generator, text = Generator(decoder, session), tokenizer and tokenizer.stream()
            for token, milliseconds in generate(generator, ids, chosen, ends):
                print(text(token) if text else token, end="" if text else " ", flush=True)
                times.append(milliseconds)
                if chosen.timing:
                    print(f"[{milliseconds:.2f} ms]", file=sys.stderr)
        print(flush=True)  # before what follows on standard error
        report(times, generator.attention_s, len(ids))
    except (AttnError, OSError, ValueError, KeyError) as error:
        print(f"generate: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
