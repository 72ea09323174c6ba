#!/usr/bin/env python3
"""generate.py: text from a whole decoder, whose attention is computed by attnd.

    build/attnd --model llama=llama-3.2-1b &
    examples/generate.py llama-3.2-1b --prompt "Once upon a time"

This program computes embeddings, norms, MLPs and the head in numpy; attnd computes every attention
layer, projections and rotary positions included, and keeps the keys and values in one session.  The
checkpoint is a directory of Hugging Face, config.json with model.safetensors or its shards, plain,
FP8 or GPTQ (stored.py), or a GGUF file; for text with tokenizer.json or vocab.json and merges.txt
beside it.  Layouts: GPT-2, and that of Llama.

The daemon may be killed and started again meanwhile: with `durability` `journal` its sessions are
still there, the client sends again what was not answered, and no token differs.

Needs numpy, and attn_client.py (found beside this tree, or anywhere on PYTHONPATH).
"""
from __future__ import annotations

import argparse
import pathlib
import sys
import time
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Set,
                    Tuple, Union)

try:
    import numpy
except ImportError:
    sys.exit("generate: numpy is needed: apt-get install python3-numpy")

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "clients" / "python"))
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent))
from attn_client import AttnError, Client, Session  # noqa: E402
from bpe import read_tokenizer  # noqa: E402
from stored import read_checkpoint  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Tensors = Dict[str, Array]
    Attend = Callable[[Array, int], Array]

LOOSE = {"f32": 1e-3}  # what outputs may differ by, of their largest component, for a dtype
LOOSEST = 0.05  # for the others, whose weights are rounded


# ---- Decoders ----------------------------------------------------------------------------------

def layer_norm(rows: Array, weight: Array, bias: Array, eps: float) -> Array:
    """Rows [n,E] less their mean, over their standard deviation."""
    centred: Array = rows - rows.mean(-1, keepdims=True)
    spread: Array = numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + eps)
    made: Array = centred / spread * weight + bias
    return made


def rms_norm(rows: Array, weight: Array, eps: float) -> Array:
    """Rows [n,E] over their root mean square."""
    size: Array = numpy.sqrt((rows ** 2).mean(-1, keepdims=True) + eps)
    return rows / size * weight


def gelu_tanh(x: Array) -> Array:
    """Gaussian error linear unit, in the approximation that GPT-2 was trained with."""
    made: Array = 0.5 * x * (1 + numpy.tanh(numpy.float32(0.7978845608) * (x + 0.044715 * x ** 3)))
    return made


def ends_of(config: Dict[str, Any]) -> Set[int]:
    """The tokens at which text ends."""
    ends = config.get("eos_token_id")
    return set() if ends is None else set(ends if isinstance(ends, list) else [ends])


class Gpt2:
    """GPT-2: learned positions, layer norms, biases, weights stored input-major, a tied head.

    facts  what attnd says of the same model
    """

    def __init__(self, config: Dict[str, Any], tensors: Tensors) -> None:
        prefix = "transformer." if "transformer.wte.weight" in tensors else ""
        self.tensors = {name[len(prefix):]: array for name, array in tensors.items()
                        if name.startswith(prefix)}
        self.layers, self.eps = int(config["n_layer"]), config.get("layer_norm_epsilon", 1e-5)
        self.head, self.ends = self.tensors["wte.weight"], ends_of(config)
        self.positions: Optional[int] = len(self.tensors["wpe.weight"])
        self.facts = {"hidden_size": config["n_embd"], "num_layers": self.layers,
                      "num_attention_heads": config["n_head"]}
        if config.get("activation_function", "gelu_new") not in ("gelu_new", "gelu_pytorch_tanh"):
            raise ValueError(f"activation_function {config['activation_function']} is unknown here")

    def _norm(self, rows: Array, name: str) -> Array:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return layer_norm(rows, weight, bias, self.eps)

    def _linear(self, rows: Array, name: str) -> Array:
        made: Array = rows @ self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]
        return made

    def embed(self, ids: Array, positions: Array) -> Array:
        """Rows [..,n,E] of tokens at positions."""
        rows: Array = self.tensors["wte.weight"][ids] + self.tensors["wpe.weight"][positions]
        return rows

    def before_attention(self, rows: Array, layer: int) -> Array:
        """What attention takes of the residual stream."""
        return self._norm(rows, f"h.{layer}.ln_1")

    def mlp(self, rows: Array, layer: int) -> Array:
        """What the MLP adds to the residual stream."""
        inner = self._linear(self._norm(rows, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
        return self._linear(gelu_tanh(inner), f"h.{layer}.mlp.c_proj")

    def attend_one(self, row: Array, layer: int) -> Array:
        """The attention of a sequence of one row [E], which attends to itself alone."""
        value = self._linear(row, f"h.{layer}.attn.c_attn")[2 * len(row):]
        return self._linear(value, f"h.{layer}.attn.c_proj")

    def logits(self, rows: Array) -> Array:
        """Logits [..,vocab] of rows of the last layer."""
        made: Array = self._norm(rows, "ln_f") @ self.head.T
        return made


class Llama:
    """Llama: RMS norms, rotary positions (attnd's affair), a gated MLP, biases nowhere."""

    def __init__(self, config: Dict[str, Any], tensors: Tensors) -> None:
        self.tensors, self.eps, self.ends = tensors, config["rms_norm_eps"], ends_of(config)
        self.layers: int = config["num_hidden_layers"]
        self.positions: Optional[int] = None  # any number
        heads = config["num_attention_heads"]
        self.facts = {"hidden_size": config["hidden_size"], "num_layers": self.layers,
                      "num_attention_heads": heads,
                      "num_key_value_heads": config.get("num_key_value_heads", heads)}
        self.head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
        if config.get("hidden_act", "silu") != "silu":
            raise ValueError(f"hidden_act {config['hidden_act']} is unknown here")

    def embed(self, ids: Array, _positions: Array) -> Array:
        """Rows [..,n,E] of tokens."""
        rows: Array = self.tensors["model.embed_tokens.weight"][ids]
        return rows

    def before_attention(self, rows: Array, layer: int) -> Array:
        """What attention takes of the residual stream."""
        name = f"model.layers.{layer}.input_layernorm.weight"
        return rms_norm(rows, self.tensors[name], self.eps)

    def mlp(self, rows: Array, layer: int) -> Array:
        """What the MLP adds to the residual stream."""
        name = f"model.layers.{layer}."
        rows = rms_norm(rows, self.tensors[name + "post_attention_layernorm.weight"], self.eps)
        gate = rows @ self.tensors[name + "mlp.gate_proj.weight"].T
        up = rows @ self.tensors[name + "mlp.up_proj.weight"].T
        # The sigmoid by tanh, which does not overflow.
        made: Array = (gate * (0.5 + 0.5 * numpy.tanh(0.5 * gate)) * up) @ \
            self.tensors[name + "mlp.down_proj.weight"].T
        return made

    def attend_one(self, row: Array, layer: int) -> Array:
        """The attention of a sequence of one row [E], which attends to itself alone."""
        def linear(row: Array, part: str) -> Array:
            name = f"model.layers.{layer}.self_attn.{part}_proj."
            made: Array = row @ self.tensors[name + "weight"].T
            return made + self.tensors.get(name + "bias", numpy.float32(0))

        groups = linear(row, "v").reshape(self.facts["num_key_value_heads"], -1)
        heads = self.facts["num_attention_heads"] // len(groups)
        return linear(groups.repeat(heads, axis=0).reshape(-1), "o")

    def logits(self, rows: Array) -> Array:
        """Logits [..,vocab] of rows of the last layer."""
        made: Array = rms_norm(rows, self.tensors["model.norm.weight"], self.eps) @ self.head.T
        return made


# Families of one layout: of their decoders only the attention differs.
Decoder = Union[Gpt2, Llama]
DECODERS: Dict[str, Callable[[Dict[str, Any], Tensors], Decoder]] = {
    "gpt2": Gpt2, "llama": Llama, "mistral": Llama, "qwen2": Llama, "qwen3": Llama}


def read_decoder(directory: Union[str, pathlib.Path]) -> Decoder:
    """The decoder of a checkpoint."""
    config, tensors = read_checkpoint(pathlib.Path(directory))
    kind = config.get("model_type")
    if kind not in DECODERS:
        raise ValueError(f"model_type {kind} is none of {', '.join(DECODERS)}")
    try:
        return DECODERS[kind](config, tensors)
    except KeyError as error:
        raise ValueError(f"{directory} is no whole {kind}: it has no {error}") from error


def check_model(client: Client, name: str, decoder: Decoder) -> None:
    """Raises ValueError where attnd's model `name` has other attention layers than the decoder."""
    told: Dict[str, Any] = {**client.model(name)}
    for fact, value in decoder.facts.items():
        if told.get(fact) != value:
            raise ValueError(f"attnd's {name} is another model than the checkpoint: {fact} is "
                             f"{told.get(fact)} there, and {value} here")
    row = numpy.random.default_rng(1).standard_normal(told["hidden_size"]).astype(numpy.float32)
    for layer in {0, decoder.layers - 1}:
        here = decoder.attend_one(row, layer)
        there = client.attend(row[None], model=name, layer=layer)["output"][0]
        loose = LOOSE.get(told["dtype"], LOOSEST)
        if not numpy.abs(there - here).max() <= loose * numpy.abs(here).max():
            raise ValueError(f"attnd's {name} is another model than the checkpoint: layer {layer} "
                             "has other weights")


def forward(decoder: Decoder, tokens: Any, places: Any, attend: Attend) -> Array:
    """Rows [..,n,E] of the last layer, of tokens at places.  `attend(rows, layer)` computes a
    layer's attention."""
    ids, positions = numpy.asarray(tokens), numpy.asarray(places)
    if ids.min() < 0 or ids.max() >= len(decoder.head):
        raise ValueError(f"tokens are 0 to {len(decoder.head) - 1}")
    if decoder.positions is not None and positions.max() >= decoder.positions:
        raise ValueError(f"the model has {decoder.positions} positions")
    rows = decoder.embed(ids, positions)
    for layer in range(decoder.layers):
        rows = rows + attend(decoder.before_attention(rows, layer), layer)
        rows = rows + decoder.mlp(rows, layer)
    return rows


class Generator:
    """A decoder over a session: takes tokens, gives the logits after them.

    attention_s  seconds spent waiting for attnd so far
    """

    def __init__(self, decoder: Decoder, session: Session) -> None:
        self.decoder, self.session, self.length, self.attention_s = decoder, session, 0, 0.0

    def _attend(self, rows: Array, layer: int) -> Array:
        begin = time.perf_counter()
        step = self.session.prefill if len(rows) > 1 else self.session.decode
        output = step(rows, layer=layer)["output"]
        self.attention_s += time.perf_counter() - begin
        return output

    def feed(self, ids: Sequence[int]) -> Array:
        """Appends tokens; logits [n,vocab] after each of them."""
        positions = range(self.length, self.length + len(ids))
        rows = forward(self.decoder, ids, positions, self._attend)
        self.length += len(ids)
        return self.decoder.logits(rows)


def choose(logits: Array, temperature: float, top_k: int, chance: numpy.random.Generator) -> int:
    """The most likely token, or with a temperature a random one of the `top_k` most likely."""
    if temperature == 0:
        return int(logits.argmax())
    likely = numpy.argsort(logits)[::-1][:top_k]
    weights = numpy.exp((logits[likely] - logits[likely[0]]) / temperature)
    return int(chance.choice(likely, p=weights / weights.sum()))


# ---- Command line ------------------------------------------------------------------------------

def positive(text: str) -> int:
    """A number of the command line, 1 or more."""
    if int(text) < 1:
        raise ValueError(text)
    return int(text)


def options(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        description="Text from a decoder whose attention is computed by attnd.")
    parser.add_argument("directory", type=pathlib.Path, help="checkpoint: a directory or a GGUF file")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of attnd [%(default)s]")
    parser.add_argument("--model", help="its name in attnd [the only one]")
    parser.add_argument("--api-key", help="API key of attnd")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", help="text to continue")
    what.add_argument("--ids", help="tokens to continue, 1,2,3; prints tokens as numbers")
    parser.add_argument("--tokens", type=positive, default=64, help="tokens to make [%(default)s]")
    parser.add_argument("--temperature", type=float, default=0, help="0: the likeliest token [0]")
    parser.add_argument("--top-k", type=positive, default=50,
                        help="with a temperature [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="with a temperature [%(default)s]")
    parser.add_argument("--ignore-eos", action="store_true", help="go on after the end of text")
    parser.add_argument("--timing", action="store_true", help="milliseconds of each token")
    return parser.parse_args(arguments)


def generate(generator: Generator, ids: List[int], chosen: argparse.Namespace,
             ends: Set[int]) -> Iterator[Tuple[int, float]]:
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


def report(times: List[float], attention_s: float, prompt: int) -> None:
    """One line on stderr: what the tokens took."""
    rest = sorted(times[1:]) or times
    print(f"generate: {prompt} tokens read in {times[0]:.1f} ms; {len(times)} made, median "
          f"{rest[len(rest) // 2]:.2f} ms each; of {sum(times):.1f} ms in all attnd took "
          f"{1e3 * attention_s:.1f}", file=sys.stderr)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    chosen = options(arguments)
    try:
        decoder, tokenizer = read_decoder(chosen.directory), None
        if chosen.prompt is not None:
            at = chosen.directory
            tokenizer = read_tokenizer(at if at.is_dir() else at.parent)
            ids = tokenizer.encode(chosen.prompt)
        else:
            ids = [int(number) for number in chosen.ids.split(",")]
        if not ids:
            raise ValueError("the prompt has no token")
        most = decoder.positions
        if most is not None and len(ids) + chosen.tokens - 1 > most:
            raise ValueError(f"the model has {most} positions: after a prompt of {len(ids)} tokens "
                             f"--tokens is at most {max(0, most - len(ids) + 1)}")
        ends, times = set() if chosen.ignore_eos else decoder.ends, []
        with Client(chosen.url, api_key=chosen.api_key) as client, \
                client.session(model=chosen.model) as session:
            check_model(client, session.model or "", decoder)
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
