#!/usr/bin/env python3
"""table.py: the table of docs/benchmarks/ for the CPU that it runs on; make bench-table.

Runs every shape in SWEEPS sweeps, float32 and bf16 beside the same calls with `gemm: openblas` in
turn, and writes the medians of the sweeps beside the peers' times on this kind of CPU (peers.json).
Each result is a line of RECORD, to which a later run adds its own: sweeps can be made in parts.

usage: table.py [--sweeps N] [--shape NAME] [--dtype NAME] [--level LEVEL] [--record FILE]
                [--out DIRECTORY] BENCH

N 0 measures nothing and makes the table of RECORD.  RECORD must be of one machine, one number of
threads and one level.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

MOST_APART = 0.1  # of the times of sweeps, as BENCH_MAX_GAP in runs.h
LEAST_GAIN = 0.05  # of OpenBLAS; less is noise, as of steps, which take packed kernels in any mode
DTYPES = ("f32", "bf16", "int8")
PEERS = os.path.join(os.path.dirname(__file__), "peers.json")


def measure(bench, dtype, options):
    """The results of one sweep of a dtype; without OpenBLAS its column stays empty."""
    command = [bench, "--json", "--dtype", dtype]
    for name in ("shape", "level"):
        if getattr(options, name):
            command += ["--cpu-level" if name == "level" else "--shape", getattr(options, name)]
    sides = [] if dtype == "int8" else ["--interleave", "openblas"]
    done = subprocess.run(command + sides, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 2 and sides:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}")
    return done.stdout


def read(lines):
    """The results by shape and dtype, in the order of the first sweep: those of `auto`, and of
    OpenBLAS."""
    rows, kinds = {}, set()
    for line in filter(str.strip, lines):
        result = json.loads(line)
        row = rows.setdefault((result["shape"], result["dtype"]), {"auto": [], "openblas": []})
        row["openblas" if result["gemm"] == "openblas" else "auto"].append(result)
        kinds.add((result["machine"], result["threads"], result["level"]))
    if len(kinds) != 1:
        sys.exit(f"the record has {len(kinds)} machines, threads or levels: {sorted(kinds)}")
    return rows, kinds.pop()


def cpu_of(machine):
    family, model, stepping = map(int, re.search(r"\((\d+)/(\d+)/(\d+)\)", machine).groups())
    return {"family": family, "model": model, "stepping": stepping}


def peers_of(machine, known):
    """The peers of this kind of CPU; None where there are none."""
    cpu = cpu_of(machine)
    for kind in known:
        if any(all(cpu[name] == value for name, value in some.items()) for some in kind["cpus"]):
            return kind
    return None


def median(results, name):
    values = [r[name] for r in results if r.get(name) is not None]
    return statistics.median(values) if values else None


def is_steady(results):
    """Whether most sweeps were steady in themselves, and their times lie within MOST_APART."""
    times = [r["ms"] for r in results]
    return (max(times) <= (1 + MOST_APART) * min(times)
            and sum(r["steady"] for r in results) * 2 > len(results))


def number(value, form="{:.2f}"):
    return "" if value is None else form.format(value)


def row_of(shape, dtype, row, peers):
    own = row["auto"]
    ms, blas = median(own, "ms"), median(row["openblas"], "ms")
    peer = (peers or {"ms": {}})["ms"].get(dtype, {}).get(shape)
    times = " ".join(number(t, "{:.4g}") for t in sorted(r["ms"] for r in own))
    bounds = [r["bound"] for r in own]
    cells = [shape, dtype, number(ms, "{:.4g}"), times, max(bounds, key=bounds.count),
             ("" if is_steady(own) else "~") + number(median(own, "fraction")),
             number(median(own, "fraction_l1")), number(median(own, "fraction_l2")),
             number(blas, "{:.4g}"), number(blas and blas / ms),
             f"{peer[0]:.4g} {peer[1]}" if peer else "", number(peer and peer[0] / ms)]
    return "| " + " | ".join(cells) + " |"


def ceilings(rows):
    """The ceilings of all results, as medians, a line for each."""
    every = [r for row in rows.values() for r in row["auto"]]
    peaks = []
    for name in ("fp32", "bf16", "int8"):
        peak = median(every, f"peak_{name}_gflops")
        fed = [median(every, f"peak_{name}_{cache}_gflops") for cache in ("l1", "l2")]
        peaks.append(f"{name} none" if peak is None else
                     f"{name} {peak:.0f} GFLOP/s (from L1 {fed[0]:.0f}, L2 {fed[1]:.0f})")
    return peaks + [f"memory {median(every, 'memory_gbs'):.1f} GB/s"]


def blas_note(rows):
    """Whether `auto` is right here by these times; the shapes in which OpenBLAS was faster."""
    pairs = {key: median(row["openblas"], "ms") / median(row["auto"], "ms")
             for key, row in rows.items() if row["openblas"]}
    faster = [f"{shape} {dtype} ({ratio:.2f})"
              for (shape, dtype), ratio in pairs.items() if ratio < 1 - LEAST_GAIN]
    if not pairs:
        return "OpenBLAS was not measured."
    return (f"OpenBLAS is faster by {LEAST_GAIN:.0%} or more in {len(faster)} of {len(pairs)} rows"
            + (f": {', '.join(faster)}." if faster else ", so `gemm: auto` is right to be packed."))


def table(rows, kind, peers):
    machine, threads, level = kind
    sweeps = [len(row["auto"]) for row in rows.values()]
    head = ["shape", "dtype", "ms", "ms of each sweep", "bound by", "fraction", "of L1", "of L2",
            "openblas ms", "openblas / ours", "best peer ms", "peer / ours"]
    few, most = min(sweeps), max(sweeps)
    return "\n".join([
        f"# {machine}, {level}", "",
        "Made by `make bench-table`; [BENCHMARKS](../BENCHMARKS.md) says how shapes are measured.",
        "Times are medians of sweeps; a `~` marks rows whose sweeps differ by more than a tenth,",
        "or of which most were not steady.", "",
        f"- {threads} threads, level {level}, {few if few == most else f'{few} to {most}'} sweeps",
        *(f"- ceiling: {ceiling}" for ceiling in ceilings(rows)),
        f"- {blas_note(rows)}",
        f"- peers: {peers['kind'] if peers else 'none was measured on this kind of CPU'}", "",
        "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        + [row_of(*key, row, peers) for key, row in rows.items()]) + "\n"


def name_of(kind):
    vendor = "amd" if "AMD" in kind[0] else "intel" if "Intel" in kind[0] else "cpu"
    cpu = cpu_of(kind[0])
    return f"{vendor}-{cpu['family']}-{cpu['model']}-{cpu['stepping']}-{kind[2]}.md"


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--record", default="build/bench-table.jsonl")
    parser.add_argument("--out", default="docs/benchmarks")
    for name in ("shape", "dtype", "level"):
        parser.add_argument("--" + name)
    parser.add_argument("bench")
    options = parser.parse_args()
    for _ in range(options.sweeps):
        for dtype in [options.dtype] if options.dtype else DTYPES:
            lines = measure(options.bench, dtype, options)
            with open(options.record, "a", encoding="utf-8") as record:
                record.write(lines)
    with open(options.record, encoding="utf-8") as record, open(PEERS, encoding="utf-8") as known:
        rows, kind = read(record)
        peers = peers_of(kind[0], json.load(known))
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, name_of(kind))
    with open(path, "w", encoding="utf-8") as out:
        out.write(table(rows, kind, peers))
    print(path)


if __name__ == "__main__":
    main()
