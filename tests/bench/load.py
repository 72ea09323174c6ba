#!/usr/bin/env python3
"""load.py: from exec to ready with weights of some size, beside `cat` of the same files; make bench-load.

usage: load.py [--program ATTND]... [--directory DIR] [--layers N] [--rounds N]

Writes a checkpoint of N layers of 4,096 x 32/8 heads of 128 as float32 (167.8 MB a layer, 7 layers) in
DIR, once as one file and once as shards.  For every dtype and 1 and 2 threads it then measures in
turn, `rounds` times: `cat` of the files with nothing of them in the page cache and a daemon's start,
again without; both again with all of them there.  Printed are medians: seconds to the first
/readyz 200, GB/s of the files, the ratio to `cat` of the same round (cold), seconds a GB (warm), the
peak of memory (VmHWM) without the packed weights, and the self-check.  With several programs the
table has a line for each.  posix_fadvise takes the files out of the page cache.
QUICK=1: two layers, one round, float32 and int8.
"""
import argparse
import array
import json
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

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
QUICK = os.environ.get("QUICK", "") not in ("", "0")
WIDTH, HEADS, KV_HEADS, HEAD = 4096, 32, 8, 128
SHAPES = {"q": (HEADS * HEAD, WIDTH), "k": (KV_HEADS * HEAD, WIDTH),
          "v": (KV_HEADS * HEAD, WIDTH), "o": (WIDTH, HEADS * HEAD)}
CONFIG = {"model_type": "llama", "hidden_size": WIDTH, "num_attention_heads": HEADS,
          "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "vocab_size": 128, "intermediate_size": 128, "max_position_embeddings": 4096}


def write_file(path, layers, numbers):
    """A safetensors file of these layers; the numbers repeat, beginning elsewhere in each tensor."""
    header, end = {}, 0
    for layer in layers:
        for name, shape in SHAPES.items():
            begin, end = end, end + 4 * shape[0] * shape[1]
            header[f"model.layers.{layer}.self_attn.{name}_proj.weight"] = {
                "dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for i, entry in enumerate(header.values()):
            begin, end = entry["data_offsets"]
            at = 4 * (i * 4099 % 65536)
            while begin < end:
                part = numbers[at:at + end - begin]
                begin, at = begin + len(part), 0
                file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return header


def write_checkpoint(directory, layers, shards, numbers):
    """Writes it and returns its files of tensors."""
    directory.mkdir()
    (directory / "config.json").write_text(
        json.dumps({**CONFIG, "num_hidden_layers": layers}), "utf-8")
    if shards == 1:
        write_file(directory / "model.safetensors", range(layers), numbers)
        return [directory / "model.safetensors"]
    files, weight_map = [], {}
    for i in range(shards):
        files.append(directory / f"model-{i + 1:05}-of-{shards:05}.safetensors")
        own = range(i * layers // shards, (i + 1) * layers // shards)
        weight_map.update({name: files[-1].name for name in write_file(files[-1], own, numbers)})
    (directory / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map}), "utf-8")
    return files


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
            finally:
                process.terminate()
            text = process.stderr.read()
        self.peak = 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])
        self.weights = float(re.search(r"([\d.]+) MiB; [\d.]+ ms", text)[1]) * 2**20
        self.check_ms = float(re.search(r"self_check.*?([\d.]+) ms", text)[1])


def write_config(directory, checkpoint, dtype, threads):
    """The daemon's."""
    path = directory / f"{checkpoint.name}-{dtype}-{threads}.json"
    path.write_text(json.dumps(
        {"port": 0, "log": "info", "lame_duck_s": 0, "threads": threads, "cache_bytes": "64MiB",
         "max_in_flight_bytes": "64MiB",
         "models": [{"name": "m", "path": str(checkpoint), "dtype": dtype}]}), "utf-8")
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
            found[program].append((cold_cat, cold.seconds, cold.seconds / cold_cat, warm_cat,
                                   warm.seconds, size / warm.seconds, warm.seconds / size,
                                   (warm.peak - warm.weights) / 2**20, warm.check_ms))
    return {program: [statistics.median(column) for column in zip(*rows)]
            for program, rows in found.items()}


def run(options, directory):
    """Writes the checkpoints and prints the table."""
    generator = random.Random(23)
    numbers = array.array("f", (generator.uniform(-0.03, 0.03) for _ in range(1 << 20))).tobytes()
    dtypes = ["f32", "int8"] if QUICK else ["f32", "bf16", "int8"]
    print("files     dtype threads  cold: cat   ready  ratio  warm: cat   ready  GB/s  s/GB"
          "  beside weights MiB  self-check ms")
    for name, shards in ("one", 1), ("shards", min(options.layers, 4)):
        files = write_checkpoint(directory / name, options.layers, shards, numbers)
        for dtype in dtypes:
            for threads in 1, 2:
                config = write_config(directory, directory / name, dtype, threads)
                lines = measure(options.program, config, files, options.rounds)
                for program, line in lines.items():
                    print("{:9} {:5} {:7} {:10.2f} {:7.2f} {:6.2f} {:10.2f} {:7.2f} {:5.2f} {:5.2f}"
                          " {:19.1f} {:14.1f}".format(name, dtype, threads, *line)
                          + (f"  {program}" if len(options.program) > 1 else ""), flush=True)
        shutil.rmtree(directory / name)


def main():
    """Reads the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", action="append")
    parser.add_argument("--directory")
    parser.add_argument("--layers", type=int, default=2 if QUICK else 7)
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
