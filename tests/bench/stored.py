#!/usr/bin/env python3
"""stored.py: from exec to ready with the same weights in bf16 and in quantised forms; make bench-stored.

usage: stored.py [--program ATTND] [--directory DIR] [--layers N] [--rounds N] [--only FORMS]
                 [--dtype D] [--threads LIST]

Writes checkpoints of N layers of 4,096 x 32/8 heads of 128 (12: 1 GB in bf16) of random codes, and
starts a daemon on each in turn, with its files in the page cache, `rounds` times.  Printed are the
bytes stored, and medians: seconds to ready, their ratio to bf16 in the same round, CPU time, and the
peak of memory (VmHWM) without the packed weights.  QUICK=1: one layer, one round.
"""
import argparse
import json
import math
import pathlib
import random
import shutil
import statistics
import struct
import tempfile

from load import HEAD, HEADS, KV_HEADS, QUICK, WIDTH, Start, cat, llama, write_config

GROUP, BLOCK = 128, 128
PATTERN = 1 << 20  # bytes that repeat
RANDOM = random.Random(29)
SHAPES = {"q": (HEADS * HEAD, WIDTH), "k": (KV_HEADS * HEAD, WIDTH),
          "v": (KV_HEADS * HEAD, WIDTH), "o": (WIDTH, HEADS * HEAD)}


def numbers(code, low, high):
    """Bytes of random numbers of a format of struct."""
    count = PATTERN // 8 // struct.calcsize(code)
    return struct.pack(f"<{count}{code}", *(RANDOM.uniform(low, high) for _ in range(count)))


def bf16():
    """A weight's tensors: ending, dtype, shape, bytes that repeat; by its shape."""
    halves = b"".join(struct.pack("<f", RANDOM.uniform(-0.03, 0.03))[2:]
                      for _ in range(PATTERN // 2))
    return {}, lambda out, size: [(".weight", "BF16", (out, size), halves)]


def fp8():
    """Blocks of 128 x 128, as DeepSeek and Qwen publish them."""
    codes = RANDOM.randbytes(PATTERN).replace(b"\x7f", b"\0").replace(b"\xff", b"\x80")
    scales = numbers("f", 1e-4, 2e-4)
    return ({"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]},
            lambda out, size: [(".weight", "F8_E4M3", (out, size), codes),
                               (".weight_scale_inv", "F32", (out // BLOCK, size // BLOCK), scales)])


def gptq():
    """Four bits in groups of 128 inputs."""
    words, scales = RANDOM.randbytes(PATTERN), numbers("e", 1e-3, 2e-3)
    index = struct.pack(f"<{WIDTH}i", *(i // GROUP for i in range(WIDTH)))
    return ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False},
            lambda out, size: [(".qweight", "I32", (size // 8, out), words),
                               (".qzeros", "I32", (size // GROUP, out // 8), words),
                               (".scales", "F16", (size // GROUP, out), scales),
                               (".g_idx", "I32", (size,), index)])


def awq():
    """The same by outputs."""
    words, scales = RANDOM.randbytes(PATTERN), numbers("e", 1e-3, 2e-3)
    return ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"},
            lambda out, size: [(".qweight", "I32", (size, out // 8), words),
                               (".qzeros", "I32", (size // GROUP, out // 8), words),
                               (".scales", "F16", (size // GROUP, out), scales)])


def repeat(file, pattern, count):
    """Writes `count` bytes."""
    while count > 0:
        file.write(pattern[:count])
        count -= min(count, len(pattern))


def write_safetensors(directory, layers, form):
    """A directory; what the daemon is told as its path."""
    settings, tensors_of = form
    config = {**llama()[0], "num_hidden_layers": layers, "quantization_config": settings or None}
    (directory / "config.json").write_text(json.dumps(config), "utf-8")
    header, parts, end = {}, [], 0
    sizes = {"BF16": 2, "F8_E4M3": 1, "F32": 4, "F16": 2, "I32": 4}
    for layer in range(layers):
        for name, shape in SHAPES.items():
            for ending, dtype, own, pattern in tensors_of(*shape):
                begin, end = end, end + sizes[dtype] * math.prod(own)
                header[f"model.layers.{layer}.self_attn.{name}_proj{ending}"] = {
                    "dtype": dtype, "shape": own, "data_offsets": [begin, end]}
                parts.append((pattern, end - begin))
    text = json.dumps(header).encode()
    with open(directory / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for pattern, count in parts:
            repeat(file, pattern, count)
    return directory, [directory / "model.safetensors"]


def text_of(text):
    """As GGUF has it."""
    return struct.pack("<Q", len(text)) + text.encode()


def write_q4_k(directory, layers, _):
    """A GGUF file whose blocks of 256 numbers have 144 bytes: two halves, codes."""
    block = b"".join(struct.pack("<2e", RANDOM.uniform(1e-4, 2e-4), RANDOM.uniform(1e-3, 2e-3))
                     + RANDOM.randbytes(140) for _ in range(PATTERN // 144))
    keys = {"general.architecture": "llama", "llama.block_count": layers,
            "llama.context_length": 4096, "llama.embedding_length": WIDTH,
            "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
            "llama.feed_forward_length": 128, "llama.rope.dimension_count": HEAD}
    head = b"".join(text_of(key) + (struct.pack("<I", 8) + text_of(value)
                                    if isinstance(value, str) else
                                    struct.pack("<If", 6, value) if isinstance(value, float) else
                                    struct.pack("<II", 4, value)) for key, value in keys.items())
    names, end = {"q": "q", "k": "k", "v": "v", "o": "output"}, 0
    for layer in range(layers):
        for name, (out, size) in SHAPES.items():
            head += text_of(f"blk.{layer}.attn_{names[name]}.weight")
            head += struct.pack("<IQQIQ", 2, size, out, 12, end)
            end += out * size // 256 * 144
    head = struct.pack("<4sIQQ", b"GGUF", 3, 4 * layers, len(keys)) + head
    with open(directory / "model.gguf", "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        repeat(file, block, end)
    return directory / "model.gguf", [directory / "model.gguf"]


FORMS = {"bf16": (write_safetensors, bf16), "fp8": (write_safetensors, fp8),
         "gptq": (write_safetensors, gptq), "awq": (write_safetensors, awq),
         "q4_k": (write_q4_k, dict)}


def measure(program, directory, models, options, threads):
    """By form the medians that a line prints."""
    found = {form: [] for form in models}
    for _ in range(options.rounds):
        first = None
        for form, (path, files) in models.items():
            config = write_config(directory / "config.json", {"path": str(path)}, options.dtype,
                                  threads)
            cat(files)
            start = Start(program, config)
            first = first or start.seconds
            found[form].append((start.seconds, start.seconds / first, start.cpu,
                                (start.peak - start.weights) / 2**20))
    return {form: [statistics.median(column) for column in zip(*rows)]
            for form, rows in found.items()}


def main():
    """Reads the options, writes the checkpoints and prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(pathlib.Path(__file__).parents[2] / "build/attnd"))
    parser.add_argument("--directory")
    parser.add_argument("--layers", type=int, default=1 if QUICK else 12)
    parser.add_argument("--rounds", type=int, default=1 if QUICK else 5)
    parser.add_argument("--only", default=",".join(FORMS))
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(dir=options.directory))
    try:
        models = {}
        for form in options.only.split(","):
            (directory / form).mkdir()
            write, make = FORMS[form]
            models[form] = write(directory / form, options.layers, make())
        print("form  threads  GB stored  ready s  to bf16  CPU s  MiB beside the weights")
        for threads in map(int, options.threads.split(",")):
            lines = measure(options.program, directory, models, options, threads)
            for form, line in lines.items():
                size = sum(file.stat().st_size for file in models[form][1]) / 1e9
                print("{:5} {:7} {:10.2f} {:8.2f} {:8.2f} {:6.2f} {:23.1f}".format(
                    form, threads, size, *line), flush=True)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
