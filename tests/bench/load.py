#!/usr/bin/env python3
"""load.py: from exec to ready with weights of some size, beside `cat` of the same files; make bench-load.

usage: load.py [--program ATTND]... [--directory DIR] [--layers N] [--rounds N] [--only FILES] [--dtype D]

Writes checkpoints of about 1.2 GB of float32 in DIR, one after the other: N layers of 4,096 x 32/8
heads of 128 (167.8 MB a layer) as one file, as shards and as an .npz of NumPy; layers with latents as
DeepSeek has them; layers of GPT-2 XL, whose weights are [in][out].  For every dtype and 1 and 2
threads it then measures in turn, `rounds` times: `cat` of the files with nothing of them in the page
cache and a daemon's start, again without; both again with all of them there.  Printed are medians:
seconds to the first /readyz 200, the ratio to `cat` of the same round and the daemon's CPU time
(cold), GB/s of the files and seconds a GB (warm), the peak of memory (VmHWM) without the packed weights, and the self-check.  With
several programs the table has a line for each.  posix_fadvise takes the files out of the page cache.
--only one,npz and --dtype measure some of the lines.
QUICK=1: a sixth of the layers, one round, float32 and int8.
"""
import argparse
import array
import json
import math
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request
import zipfile

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
QUICK = os.environ.get("QUICK", "") not in ("", "0")
WIDTH, HEADS, KV_HEADS, HEAD = 4096, 32, 8, 128


def llama():
    """Configuration, layers of 1.2 GB, and the tensors of a layer."""
    config = {"model_type": "llama", "hidden_size": WIDTH, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "vocab_size": 128, "intermediate_size": 128, "max_position_embeddings": 4096}
    shapes = {"q": (HEADS * HEAD, WIDTH), "k": (KV_HEADS * HEAD, WIDTH),
              "v": (KV_HEADS * HEAD, WIDTH), "o": (WIDTH, HEADS * HEAD)}
    return config, 7, {f"model.layers.*.self_attn.{name}_proj.weight": shape
                       for name, shape in shapes.items()}


def latent():
    """The same of layers with latents: 5,120 wide, 64 heads."""
    width, heads, q_rank, rank, nope, rope, value = 5120, 64, 1536, 512, 128, 64, 128
    config = {"model_type": "deepseek_v3", "hidden_size": width, "num_attention_heads": heads,
              "num_key_value_heads": heads, "q_lora_rank": q_rank, "kv_lora_rank": rank,
              "qk_nope_head_dim": nope, "qk_rope_head_dim": rope, "v_head_dim": value,
              "max_position_embeddings": 4096}
    shapes = {"q_a_proj": (q_rank, width), "q_a_layernorm": (q_rank,),
              "q_b_proj": (heads * (nope + rope), q_rank),
              "kv_a_proj_with_mqa": (rank + rope, width), "kv_a_layernorm": (rank,),
              "kv_b_proj": (heads * (nope + value), rank), "o_proj": (width, heads * value)}
    return config, 4, {f"model.layers.*.self_attn.{name}.weight": shape
                       for name, shape in shapes.items()}


def gpt2():
    """The same of GPT-2 XL."""
    width = 1600
    config = {"model_type": "gpt2", "n_embd": width, "n_head": 25, "n_positions": 1024}
    return config, 29, {"h.*.attn.c_attn.weight": (width, 3 * width),
                        "h.*.attn.c_attn.bias": (3 * width,),
                        "h.*.attn.c_proj.weight": (width, width), "h.*.attn.c_proj.bias": (width,)}


def tensors_of(layers, shapes):
    """Names and shapes."""
    return {name.replace("*", str(layer)): shape
            for layer in layers for name, shape in shapes.items()}


def write_numbers(file, i, count, numbers):
    """Writes the numbers of tensor i; the numbers repeat, beginning elsewhere in each tensor."""
    left, at = 4 * count, 4 * (i * 4099 % 65536)
    while left > 0:
        part = numbers[at:at + left]
        left, at = left - len(part), 0
        file.write(part)


def write_safetensors(path, tensors, numbers):
    """A file of these tensors, on the disk."""
    header, end = {}, 0
    for name, shape in tensors.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for i, shape in enumerate(tensors.values()):
            write_numbers(file, i, math.prod(shape), numbers)
        file.flush()
        os.fsync(file.fileno())


def write_npz(path, tensors, numbers):
    """The same as numpy.savez has it."""
    with open(path, "wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for i, (name, shape) in enumerate(tensors.items()):
                text = str({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
                text += b" " * (-(len(text) + 11) % 64) + b"\n"
                with archive.open(name + ".npy", "w", force_zip64=True) as member:
                    member.write(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text)
                    write_numbers(member, i, math.prod(shape), numbers)
        file.flush()
        os.fsync(file.fileno())


def write_checkpoint(directory, make, layers, numbers):
    """Writes a checkpoint of FILES; its model as the configuration has it, and files of tensors."""
    config, whole, shapes = make()
    layers = max(whole * layers // 7, 1)
    config["num_hidden_layers"] = layers
    directory.mkdir()
    if directory.name == "npz":
        path = directory / "model.npz"
        write_npz(path, tensors_of(range(layers), shapes), numbers)
        return {"path": str(path), "config": config}, [path]
    (directory / "config.json").write_text(json.dumps(config), "utf-8")
    model = {"path": str(directory)}
    if directory.name != "shards":
        path = directory / "model.safetensors"
        write_safetensors(path, tensors_of(range(layers), shapes), numbers)
        return model, [path]
    shards, files, weight_map = min(layers, 4), [], {}
    for i in range(shards):
        files.append(directory / f"model-{i + 1:05}-of-{shards:05}.safetensors")
        own = tensors_of(range(i * layers // shards, (i + 1) * layers // shards), shapes)
        write_safetensors(files[-1], own, numbers)
        weight_map.update({name: files[-1].name for name in own})
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map}), "utf-8")
    return model, files


FILES = {"one": llama, "shards": llama, "latent": latent, "gpt2": gpt2, "npz": llama}


def forget(files):
    """Leaves nothing of the files in the page cache."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def cat(files):
    """Seconds."""
    begin = time.perf_counter()
    with open(os.devnull, "wb") as sink:
        subprocess.run(["cat", *files], stdout=sink, check=True)
    return time.perf_counter() - begin


class Start:
    """A daemon, started, until it is ready, and ended."""

    def __init__(self, program, config):
        begin = time.perf_counter()
        with subprocess.Popen([program, "--config", config], stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline()  # printed when it is ready
                self.seconds = time.perf_counter() - begin
                with urllib.request.urlopen(re.search(r"http://[\w.:]+", line)[0] + "/readyz"):
                    pass  # 200: all else raises
                status = pathlib.Path(f"/proc/{process.pid}/status").read_text("utf-8")
                times = pathlib.Path(f"/proc/{process.pid}/stat").read_text("utf-8")
            finally:
                process.terminate()
            text = process.stderr.read()
        self.peak = 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])
        self.weights = float(re.search(r"([\d.]+) MiB; [\d.]+ ms", text)[1]) * 2**20
        self.cpu = sum(map(int, times.rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        self.check_ms = float(re.search(r"self_check.*?([\d.]+) ms", text)[1])


def write_config(path, model, dtype, threads):
    """The daemon's."""
    path.write_text(json.dumps(
        {"port": 0, "log": "info", "lame_duck_s": 0, "threads": threads, "cache_bytes": "64MiB",
         "max_in_flight_bytes": "64MiB",
         "models": [{"name": "m", **model, "dtype": dtype}]}), "utf-8")
    return str(path)


def measure(programs, config, files, rounds):
    """For every program the medians of what a line prints."""
    size = sum(path.stat().st_size for path in files) / 1e9
    found = {program: [] for program in programs}
    for _ in range(rounds):
        for program in programs:
            forget(files)
            cold_cat = cat(files)
            forget(files)
            cold = Start(program, config)
            warm_cat = cat(files)
            warm = Start(program, config)
            found[program].append((cold_cat, cold.seconds, cold.seconds / cold_cat, cold.cpu,
                                   warm_cat, warm.seconds, size / warm.seconds, warm.seconds / size,
                                   (warm.peak - warm.weights) / 2**20, warm.check_ms))
    return {program: [statistics.median(column) for column in zip(*rows)]
            for program, rows in found.items()}


def run(options, directory):
    """Writes the checkpoints and prints the table."""
    generator = random.Random(23)
    numbers = array.array("f", (generator.uniform(-0.03, 0.03) for _ in range(1 << 20))).tobytes()
    print("files     dtype threads  cold: cat   ready  ratio  CPU s  warm: cat   ready  GB/s  s/GB"
          "  beside weights MiB  self-check ms")
    for name in options.only.split(","):
        model, files = write_checkpoint(directory / name, FILES[name], options.layers, numbers)
        for dtype in options.dtype.split(","):
            for threads in 1, 2:
                config = write_config(directory / "config.json", model, dtype, threads)
                lines = measure(options.program, config, files, options.rounds)
                for program, line in lines.items():
                    print("{:9} {:5} {:7} {:10.2f} {:7.2f} {:6.2f} {:6.2f} {:10.2f} {:7.2f} {:5.2f} {:5.2f}"
                          " {:19.1f} {:14.1f}".format(name, dtype, threads, *line)
                          + (f"  {program}" if len(options.program) > 1 else ""), flush=True)
        shutil.rmtree(directory / name)


def main():
    """Reads the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", action="append")
    parser.add_argument("--directory")
    parser.add_argument("--layers", type=int, default=1 if QUICK else 7)
    parser.add_argument("--only", default=",".join(FILES))
    parser.add_argument("--dtype", default="f32,int8" if QUICK else "f32,bf16,int8")
    parser.add_argument("--rounds", type=int, default=1 if QUICK else 3)
    options = parser.parse_args()
    options.program = options.program or [str(TOP / "build" / "attnd")]
    directory = pathlib.Path(tempfile.mkdtemp(dir=options.directory))
    try:
        run(options, directory)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
