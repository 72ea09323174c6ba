"""decoder.py: a decoder of Llama's or Qwen2's form in torch, to be trained, and its files.

Tensors have the names of Hugging Face; write_checkpoint() writes config.json, tokenizer.json and
model.safetensors (F16).  Used by train.py here and by tests/tools/train_patterns.py.

Needs torch 1.13 or later (Debian: python3-torch).
"""
import collections
import json
import math
import pathlib
import sys

import torch
from torch.nn import functional

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from bpe import GPT2_PATTERN, byte_letters, compiled, tokenizer_of  # noqa: E402

BOS = "<|begin|>"


# ---- Vocabulary --------------------------------------------------------------------------------

def join(word, pair):
    """A word's symbols with each occurrence of the pair made one symbol."""
    made, place = [], 0
    while place < len(word):
        both = word[place:place + 2] == pair
        made.append(word[place] + word[place + 1] if both else word[place])
        place += 2 if both else 1
    return tuple(made)


def make_tokenizer(text, most, **own):
    """tokenizer.json of byte pair encoding: the most frequent pair is merged, again and again, until
    there are `most` symbols with BOS or every word is one.  `own`: settings of the pieces."""
    letters = byte_letters()
    words = collections.Counter(
        tuple(letters[byte] for byte in match.group().encode("utf-8"))
        for match in compiled(GPT2_PATTERN).finditer(text))
    symbols, merges = [letters[byte] for byte in range(256)], []
    while len(symbols) < most - 1:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        pair = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(" ".join(pair))
        symbols.append("".join(pair))
        words = collections.Counter({join(word, pair): n for word, n in words.items()})
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True, **own}
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

class Decoder:
    """Tensors by the names of Hugging Face, and their forward pass.

    config  of config.json; Qwen2 has biases and may have windows, Llama has neither
    """

    def __init__(self, config):
        self.config, self.tensors = config, {}
        self.width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.pairs, self.dim = config["num_key_value_heads"], self.width // self.heads
        self.layers = config["num_hidden_layers"]
        self._matrix("model.embed_tokens.weight", config["vocab_size"], self.width, 0.02)
        self._vector("model.norm.weight", self.width, 1)
        for layer in range(self.layers):
            self._layer(f"model.layers.{layer}.", config["intermediate_size"])

    def _layer(self, name, inner):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            self._vector(f"{name}{norm}.weight", self.width, 1)
        for part, heads in (("q", self.heads), ("k", self.pairs), ("v", self.pairs)):
            self._matrix(f"{name}self_attn.{part}_proj.weight", heads * self.dim, self.width)
            if self.config["model_type"] == "qwen2":
                self._vector(f"{name}self_attn.{part}_proj.bias", heads * self.dim, 0)
        self._matrix(f"{name}self_attn.o_proj.weight", self.width, self.width)
        self._matrix(f"{name}mlp.gate_proj.weight", inner, self.width)
        self._matrix(f"{name}mlp.up_proj.weight", inner, self.width)
        self._matrix(f"{name}mlp.down_proj.weight", self.width, inner)

    def _matrix(self, name, rows, columns, deviation=None):
        deviation = deviation or (0.5 if name.endswith(("o_proj.weight", "down_proj.weight"))
                                  else 1) / math.sqrt(columns)
        self.tensors[name] = (torch.randn(rows, columns) * deviation).requires_grad_()

    def _vector(self, name, size, value):
        self.tensors[name] = torch.full((size,), float(value)).requires_grad_()

    def _linear(self, x, name):
        bias = self.tensors.get(f"{name}.bias")
        return functional.linear(x, self.tensors[f"{name}.weight"], bias)

    def _norm(self, x, name):
        """Rows over their root mean square."""
        size = (x ** 2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]
        return x * torch.rsqrt(size) * self.tensors[f"{name}.weight"]

    def _turned(self, x, positions):
        """Queries or keys [B,H,T,D] after rotary positions, by halves."""
        powers = torch.arange(0, self.dim, 2) / self.dim
        angle = positions[:, None] * self.config["rope_theta"] ** -powers
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def _attention(self, x, layer):
        """What attention adds, and its weights [B,H,T,T]."""
        batch, tokens, _ = x.shape
        name, positions = f"model.layers.{layer}.self_attn.", torch.arange(tokens)

        def heads(part, count):
            rows = self._linear(x, f"{name}{part}_proj").view(batch, tokens, count, self.dim)
            return rows.transpose(1, 2)

        query = self._turned(heads("q", self.heads), positions)
        key = self._turned(heads("k", self.pairs), positions)
        key, value = (rows.repeat_interleave(self.heads // self.pairs, 1)
                      for rows in (key, heads("v", self.pairs)))
        distance = positions[:, None] - positions
        seen = distance >= 0
        if self.config.get("layer_types", {layer: ""})[layer] == "sliding_attention":
            seen &= distance < self.config["sliding_window"]
        scores = (query @ key.transpose(-1, -2)) / math.sqrt(self.dim)
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
        output = (weights @ value).transpose(1, 2).reshape(batch, tokens, self.width)
        return self._linear(output, name + "o_proj"), weights

    def forward(self, ids):
        """Logits [B,T,vocabulary] and the weights of each layer."""
        x, maps = self.tensors["model.embed_tokens.weight"][ids], []
        for layer in range(self.layers):
            name = f"model.layers.{layer}."
            output, weights = self._attention(self._norm(x, name + "input_layernorm"), layer)
            x = x + output
            rows = self._norm(x, name + "post_attention_layernorm")
            gate = functional.silu(self._linear(rows, name + "mlp.gate_proj"))
            x = x + self._linear(gate * self._linear(rows, name + "mlp.up_proj"),
                                 name + "mlp.down_proj")
            maps.append(weights)
        x = self._norm(x, "model.norm")
        return x @ self.tensors["model.embed_tokens.weight"].T, maps


# ---- Training and files ------------------------------------------------------------------------

def train(decoder, steps, batch_of, rate, told):
    """Takes the steps.  `batch_of()` gives (ids [B,T+1], whether each is to be predicted);
    `told(step, loss)` hears of each."""
    parameters = list(decoder.tensors.values())
    plain = [tensor for tensor in parameters if tensor.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": [tensor for tensor in parameters if tensor.dim() > 1]},
         {"params": plain, "weight_decay": 0}], lr=rate, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.05)
    for step in range(1, steps + 1):
        ids, wanted = batch_of()
        logits, _ = decoder.forward(ids[:, :-1])
        loss = functional.cross_entropy(logits[wanted[:, 1:]], ids[:, 1:][wanted[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        told(step, loss)


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


def write_checkpoint(directory, decoder, tokenizer):
    """config.json, tokenizer.json and model.safetensors."""
    directory.mkdir(parents=True, exist_ok=True)
    compact = {"ensure_ascii": False, "separators": (",", ":")}
    (directory / "config.json").write_text(json.dumps(decoder.config, indent=2) + "\n", "utf-8")
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer, **compact) + "\n", "utf-8")
    write_model(directory / "model.safetensors", decoder.tensors)
