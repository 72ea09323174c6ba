"""stored.py: the weights of a checkpoint in float32, however they are stored; generate.py reads
with it.

safetensors of F32, F16 and BF16; of FP8 with one scale, or one for each output or each block of
`weight_block_size` or `block_structure`; of GPTQ with 2, 4 or 8 bits.  GGUF in the formats of
`GGML`, of the layouts of Llama and GPT-2.  The formulas are those of docs/MODELS.md.

Needs numpy.
"""
from __future__ import annotations

import fnmatch
import json
import math
import mmap
import pathlib
import re
import struct
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Tensors = Dict[str, Array]
    Config = Dict[str, Any]

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E8M0": "u1",
          "I32": "<i4"}
PASSED_OVER = ("BOOL", "U8", "I8", "U16", "I16", "U32", "U64", "I64")  # masks and other buffers

# GGUF files that are no model: image towers' projectors, and what quantisation went by.
NO_MODELS = ("mmproj*", "*[-._]mmproj*", "imatrix*", "*.imatrix.gguf")


def to_float32(array: Array, dtype: str) -> Array:
    """Numbers as float32, integers of 32 bits as they are."""
    if dtype == "BF16":
        return (array.astype(numpy.uint32) << 16).view(numpy.float32)
    if dtype == "F8_E8M0":
        powers: Array = numpy.exp2(array.astype(numpy.float32) - 127)
        return powers
    if dtype == "F8_E4M3":
        code = numpy.arange(256)
        exponent, fraction = code >> 3 & 15, code & 7
        size = numpy.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0**(exponent - 10))
        size[[127, 255]] = numpy.nan
        numbers: Array = numpy.where(code & 128, -size, size).astype(numpy.float32)[array]
        return numbers
    return array if dtype == "I32" else array.astype(numpy.float32, copy=False)


# ---- safetensors -------------------------------------------------------------------------------

def map_file(path: pathlib.Path) -> memoryview:
    """The bytes of a file."""
    with open(path, "rb") as stream:
        if path.stat().st_size == 0:  # which mmap refuses
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def read_safetensors(path: pathlib.Path) -> Tensors:
    """{name: array} of a file; arrays are float32, or the file's own bytes where those are."""
    data = map_file(path)
    size = int.from_bytes(data[:8], "little")
    if size > len(data) - 8:
        raise ValueError(f"{path} ends within its header")
    tensors = {}
    for name, entry in json.loads(bytes(data[8:8 + size])).items():
        if name == "__metadata__" or entry["dtype"] in PASSED_OVER:
            continue
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{path}: {name} is of dtype {entry['dtype']}, which is unknown here")
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        if end > len(data):
            raise ValueError(f"{path} ends within {name}")
        array = numpy.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
        tensors[name] = to_float32(array.reshape(entry["shape"]), entry["dtype"])
    return tensors


def times_scale(weight: Array, scale: Array, block: Optional[Sequence[int]]) -> Array:
    """An FP8 weight [out,in] times its scale: one, one for each output, or one for each block."""
    if block is not None and scale.ndim == 2 and scale.size > 1:
        for axis in (0, 1):
            scale = scale.repeat(block[axis], axis)
        scale = scale[:weight.shape[0], :weight.shape[1]]
    elif scale.size > 1:
        scale = scale.reshape(-1, 1)
    made: Array = weight * scale
    return made


def codes_of_words(words: Array, bits: int) -> Array:
    """Codes [..,n * 32 / bits] of words [..,n], the lowest bits first."""
    shifts = numpy.arange(0, 32, bits)
    codes: Array = words.view(numpy.uint32)[..., None] >> shifts & (1 << bits) - 1
    return codes.reshape(*words.shape[:-1], -1).astype(numpy.int32)


def decode_gptq(parts: Tensors, settings: Config) -> Array:
    """A weight [in,out] of qweight, qzeros, scales and, unless groups follow each other, g_idx."""
    bits = settings["bits"]
    if bits not in (2, 4, 8):
        raise ValueError(f"gptq of {bits} bits is unknown here")
    one = 0 if settings.get("checkpoint_format") == "gptq_v2" else 1
    codes = codes_of_words(parts["qweight"].T.copy(), bits).T
    zeros = codes_of_words(parts["qzeros"], bits) + one & (1 << bits) - 1
    group = settings["group_size"] if settings["group_size"] > 0 else len(codes)
    index = parts.get("g_idx", numpy.arange(len(codes)) // group)
    made: Array = (codes - zeros[index]).astype(numpy.float32) * parts["scales"][index]
    return made


def block_of(settings: Config) -> Optional[Sequence[int]]:
    """Rows and columns of the blocks of FP8 that have one scale each; None: no blocks."""
    groups = settings.get("config_groups", {}).values()  # of compressed-tensors
    blocks = [(group.get("weights") or {}).get("block_structure") for group in groups]
    blocks = blocks or [settings.get("weight_block_size")]
    if any(block != blocks[0] for block in blocks):
        raise ValueError("config_groups of different block_structure are unknown here")
    return blocks[0]


def decode(config: Config, settings: Config, stored: Tensors) -> Tensors:
    """Tensors without scales and codes."""
    method, form = settings.get("quant_method"), settings.get("format")
    fp8 = method == "fp8" or form == "float-quantized" or settings.get("quant_algo") == "FP8"
    if not fp8 and method != "gptq":
        raise ValueError(f"quantisation by {method or 'an unknown method'}"
                         f"{f' ({form})' if form else ''} is unknown here")
    block = block_of(settings)
    absent = {"weight_scale_inv": settings.get("weight_block_size", (128, 128))}
    tensors = {name: array for name, array in stored.items() if array.dtype == numpy.float32}
    for name in stored:
        base, _, part = name.rpartition(".")
        if part in ("weight_scale_inv", "weight_scale") and base + ".weight" in tensors:
            tensors[base + ".weight"] = times_scale(
                tensors[base + ".weight"], tensors.pop(name), block or absent.get(part))
        elif part == "qweight":
            parts = {end: stored[f"{base}.{end}"] for end in
                     ("qweight", "qzeros", "scales", "g_idx") if f"{base}.{end}" in stored}
            weight = decode_gptq(parts, settings)
            tensors[base + ".weight"] = weight if config["model_type"] == "gpt2" else weight.T
    return tensors


def read_directory(directory: pathlib.Path) -> Tuple[Config, Tensors]:
    """(config, {name: array}) of a directory of Hugging Face."""
    def read_json(name: str) -> Config:
        path = directory / name
        read: Config = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return read

    config = json.loads((directory / "config.json").read_text("utf-8"))
    index = read_json("model.safetensors.index.json")
    tensors: Tensors = {}
    for name in sorted(set(index["weight_map"].values())) if index else ["model.safetensors"]:
        tensors.update(read_safetensors(directory / name))
    settings = config.get("quantization_config") or {}
    if not settings and (gptq := read_json("quantize_config.json")):
        settings = {**gptq, "quant_method": gptq.get("quant_method", "gptq")}
    if not settings:
        settings = read_json("hf_quant_config.json").get("quantization", {})
    return config, decode(config, settings, tensors) if settings else tensors


# ---- Blocks of ggml: arrays [n, bytes of a block] -> [n, numbers of a block] ---------------------

def float16_at(blocks: Array, at: int) -> Array:
    """A number of 16 bits of each block, [n,1]."""
    return blocks[:, at:at + 2].copy().view("<f2").astype(numpy.float32)


def codes_of_bytes(data: Array, bits: int) -> Array:
    """Codes [..,8 / bits,m] of bytes [..,m]: first the lowest bits of all of them."""
    shifts = numpy.arange(0, 8, bits, numpy.uint8)[:, None]
    codes: Array = data[..., None, :] >> shifts & (1 << bits) - 1
    return codes


def nibbles(data: Array) -> Array:
    """Codes [n,2m] of bytes [n,m]: the low halves of all, then the high ones."""
    return codes_of_bytes(data, 4).reshape(len(data), -1)


def codes_of_5_bits(blocks: Array, at: int) -> Array:
    """Codes of a word of high bits and 16 bytes."""
    high = blocks[:, at:at + 4].copy().view("<u4") >> numpy.arange(32, dtype=numpy.uint32) & 1
    codes: Array = nibbles(blocks[:, at + 4:]) + numpy.float32(16) * high.astype(numpy.float32)
    return codes


def by_parts(codes: Array, step: Array, least: Any = None) -> Array:
    """step * code - least of each part, whose codes are [n,parts,m]."""
    made: Array = step[..., None] * codes.astype(numpy.float32)
    made = made if least is None else made - least[..., None]
    return made.reshape(len(codes), -1)


def q4_k_or_q5_k(blocks: Array, data: Array, high: Any) -> Array:
    """Q4_K and Q5_K."""
    first, second, both = (blocks[:, at:at + 4] for at in (4, 8, 12))
    scale = numpy.concatenate([first & 63, both & 15 | first >> 6 << 4], 1).astype(numpy.float32)
    least = numpy.concatenate([second & 63, both >> 4 | second >> 6 << 4], 1).astype(numpy.float32)
    codes = codes_of_bytes(data.reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    codes = codes if high is None else codes | codes_of_bytes(high, 1) << 4
    return by_parts(codes, float16_at(blocks, 0) * scale, float16_at(blocks, 2) * least)


def q2_k(blocks: Array) -> Array:
    """Q2_K."""
    codes = codes_of_bytes(blocks[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    scale = (blocks[:, :16] & 15).astype(numpy.float32)
    least = (blocks[:, :16] >> 4).astype(numpy.float32)
    return by_parts(codes, float16_at(blocks, 80) * scale, float16_at(blocks, 82) * least)


def q3_k(blocks: Array) -> Array:
    """Q3_K."""
    codes = codes_of_bytes(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 16, 16).astype(int)
    codes -= 4 - 4 * codes_of_bytes(blocks[:, :32], 1).reshape(-1, 16, 16).astype(int)
    scale = nibbles(blocks[:, 96:104]) | codes_of_bytes(blocks[:, 104:108], 2).reshape(-1, 16) << 4
    return by_parts(codes, float16_at(blocks, 108) * (scale.astype(numpy.float32) - 32))


def q6_k(blocks: Array) -> Array:
    """Q6_K."""
    codes = codes_of_bytes(blocks[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 16, 16)
    high = codes_of_bytes(blocks[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    scale = blocks[:, 192:208].view(numpy.int8).astype(numpy.float32)
    return by_parts((codes | high << 4).astype(int) - 32, float16_at(blocks, 208) * scale)


IQ4 = numpy.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113],
                  numpy.float32)


def iq4_xs(blocks: Array) -> Array:
    """IQ4_XS."""
    high = blocks[:, 2:4].copy().view("<u2") >> numpy.arange(0, 16, 2, numpy.uint16) & 3
    low = codes_of_bytes(blocks[:, 4:8], 4).swapaxes(1, 2).reshape(-1, 8)
    scale = (low | high << 4).astype(numpy.float32) - 32
    codes = codes_of_bytes(blocks[:, 8:].reshape(-1, 8, 16), 4).reshape(-1, 8, 32)
    return by_parts(IQ4[codes], float16_at(blocks, 0) * scale)


# By ggml's number: name, numbers and bytes of a block, its numbers.
GGML: Dict[int, Tuple[str, int, int, Callable[[Array], Array]]] = {
    0: ("F32", 1, 4, lambda b: b.view("<f4")),
    1: ("F16", 1, 2, lambda b: b.view("<f2").astype(numpy.float32)),
    2: ("Q4_0", 32, 18, lambda b: (nibbles(b[:, 2:]) - numpy.float32(8)) * float16_at(b, 0)),
    3: ("Q4_1", 32, 20, lambda b: nibbles(b[:, 4:]) * float16_at(b, 0) + float16_at(b, 2)),
    6: ("Q5_0", 32, 22, lambda b: (codes_of_5_bits(b, 2) - 16) * float16_at(b, 0)),
    7: ("Q5_1", 32, 24, lambda b: codes_of_5_bits(b, 4) * float16_at(b, 0) + float16_at(b, 2)),
    8: ("Q8_0", 32, 34, lambda b: b[:, 2:].view(numpy.int8) * float16_at(b, 0)),
    10: ("Q2_K", 256, 84, q2_k),
    11: ("Q3_K", 256, 110, q3_k),
    12: ("Q4_K", 256, 144, lambda b: q4_k_or_q5_k(b, b[:, 16:], None)),
    13: ("Q5_K", 256, 176, lambda b: q4_k_or_q5_k(b, b[:, 48:], b[:, 16:48])),
    14: ("Q6_K", 256, 210, q6_k),
    20: ("IQ4_NL", 32, 18, lambda b: IQ4[nibbles(b[:, 2:])] * float16_at(b, 0)),
    23: ("IQ4_XS", 256, 136, iq4_xs),
    30: ("BF16", 1, 2, lambda b: to_float32(b.view("<u2"), "BF16")),
}


# ---- GGUF --------------------------------------------------------------------------------------

class Reader:
    """Values of a GGUF file, one after the other."""

    # Letters of struct by GGUF's number of a type; 8 and 9 are texts and lists.
    NUMBERS = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.data, self.at = path, map_file(path), 0

    def take(self, size: int) -> memoryview:
        """The next bytes."""
        if size > len(self.data) - self.at:
            raise ValueError(f"{self.path} ends within its header")
        self.at += size
        return self.data[self.at - size:self.at]

    def numbers(self, form: str, count: int = 1) -> Tuple[Any, ...]:
        """The next numbers, by the letters of struct, the last of which counts that often."""
        size = struct.calcsize("<" + form[:-1]) + count * struct.calcsize("<" + form[-1])
        return struct.unpack(f"<{form[:-1]}{count}{form[-1]}", self.take(size))

    def text(self) -> str:
        """The next text."""
        return bytes(self.take(self.numbers("Q")[0])).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """The next value of that type."""
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.numbers("IQ")
            if inner in self.NUMBERS:
                return self.numbers(self.NUMBERS[inner], count)
            return [self.value(inner) for _ in range(count)]
        if kind not in self.NUMBERS:
            raise ValueError(f"{self.path}: a key is of type {kind}, which GGUF does not have")
        return self.numbers(self.NUMBERS[kind])[0]


# Names of a file, less blk.N., and the published ones, N being `*`.  Queries and keys, whose rows
# have another order in some files, are attnd's alone.
LLAMA_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    **{name: f"model.layers.*.{published}" for name, published in {
        "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
        "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}.items()}}
GPT2_NAMES = {
    "token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "attn_norm": "h.*.ln_1",
    "ffn_norm": "h.*.ln_2", "attn_qkv": "h.*.attn.c_attn", "attn_output": "h.*.attn.c_proj",
    "ffn_up": "h.*.mlp.c_fc", "ffn_down": "h.*.mlp.c_proj"}


def gguf_part(path: pathlib.Path) -> Tuple[Config, Tensors]:
    """(metadata, {name: array}) of one file, by its own names."""
    reader = Reader(path)
    magic, version, count, keys = reader.numbers("4sIQQ")
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"{path} is no GGUF file of version 2 or 3")
    facts: Config = {}
    for _ in range(keys):
        name = reader.text()
        facts[name] = reader.value(reader.numbers("I")[0])
    entries = []
    for _ in range(count):
        name = reader.text()
        shape = reader.numbers("Q", reader.numbers("I")[0])[::-1]
        entries.append((name, shape, *reader.numbers("IQ")))
    align = facts.get("general.alignment", 32)
    if not isinstance(align, int) or not 1 <= align <= 1 << 20 or align & align - 1:
        raise ValueError(f"{path}: general.alignment is {align}, "
                         f"wanted is a power of two up to {1 << 20}")
    base, tensors = -(-reader.at // align) * align, {}
    for name, shape, kind, offset in entries:
        if kind not in GGML:
            raise ValueError(f"{path}: {name} is of ggml's format {kind}, which is unknown here")
        _, numbers, size, numbers_of = GGML[kind]
        blocks = math.prod(shape) // numbers
        data = reader.data[base + offset:base + offset + blocks * size]
        if len(data) != blocks * size:
            raise ValueError(f"{path} ends within {name}")
        array = numpy.frombuffer(data, numpy.uint8).reshape(blocks, size)
        tensors[name] = numbers_of(array).reshape(shape)
    return facts, tensors


def read_gguf(paths: List[pathlib.Path]) -> Tuple[Config, Tensors]:
    """(config, {name: array}) of the parts of a GGUF model, as Hugging Face has them."""
    facts, stored = gguf_part(paths[0])
    for path in paths[1:]:
        stored.update(gguf_part(path)[1])
    kind, end = facts["general.architecture"], facts.get("tokenizer.ggml.eos_token_id")

    def fact(name: str) -> Any:
        return facts[f"{kind}.{name}"]

    width, heads = fact("embedding_length"), fact("attention.head_count")
    config: Config = {"model_type": kind, "eos_token_id": end}
    if kind == "gpt2":
        config.update(n_embd=width, n_head=heads, n_layer=fact("block_count"),
                      layer_norm_epsilon=fact("attention.layer_norm_epsilon"))
    else:
        config.update(hidden_size=width, num_attention_heads=heads,
                      num_key_value_heads=facts.get(f"{kind}.attention.head_count_kv", heads),
                      num_hidden_layers=fact("block_count"),
                      rms_norm_eps=fact("attention.layer_norm_rms_epsilon"))
    tensors = {}
    for name, array in stored.items():
        parts = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
        names = GPT2_NAMES if kind == "gpt2" else LLAMA_NAMES
        if parts and parts[2] in names:
            published = names[parts[2]].replace("*", parts[1] or "")
            turned = ".c_" in published and array.ndim == 2  # GPT-2's are stored input-major
            tensors[f"{published}.{parts[3]}"] = array.T if turned else array
    return config, tensors


def find_gguf(directory: pathlib.Path) -> Optional[pathlib.Path]:
    """The one model of a directory, or its first part; None where there is none."""
    models = [path for path in sorted(directory.iterdir())
              if fnmatch.fnmatchcase(path.name, "*.gguf")
              and not any(fnmatch.fnmatchcase(path.name, form) for form in NO_MODELS)
              and not re.search(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", path.name)]
    if len(models) > 1:
        raise ValueError(f"{directory} holds {models[0].name} and {models[1].name}: "
                         "name the file itself")
    return models[0] if models else None


def read_checkpoint(path: pathlib.Path) -> Tuple[Config, Tensors]:
    """(config, {name: array}) of a directory of Hugging Face, of a GGUF file or its first part, or
    of a directory that holds one."""
    file: Optional[pathlib.Path] = path
    if path.is_dir():
        file = None if (path / "config.json").exists() else find_gguf(path)
    if file is None:
        return read_directory(path)
    split = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", file.name)
    if split is None:
        return read_gguf([file])
    return read_gguf([file.with_name(f"{split[1]}-{part:05}-of-{split[2]}.gguf")
                      for part in range(1, int(split[2]) + 1)])
