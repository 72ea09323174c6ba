#!/usr/bin/env python3
"""golden.py: a daemon's answer to a golden case.

    tests/image/golden.py URL

Posts the hidden states of the first case of tests/golden/llama_gqa to /attend, for the model that is
served as llama, and compares the output with the one that transformers computed.
"""
import json
import math
import os
import struct
import sys
import urllib.request

SET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/llama_gqa")


def tensors(path):
    """A function that reads the float32 tensor of that name as nested lists."""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:start])

    def tensor(name):
        begin = start + header[name]["data_offsets"][0]
        shape = header[name]["shape"]
        rows = list(struct.unpack_from(f"<{math.prod(shape)}f", data, begin))
        for size in reversed(shape[1:]):
            rows = [rows[i:i + size] for i in range(0, len(rows), size)]
        return rows

    return tensor


def numbers(rows):
    return [value for row in rows for value in numbers(row)] if isinstance(rows, list) else [rows]


def main():
    with open(os.path.join(SET, "cases.json"), encoding="utf-8") as file:
        golden = json.load(file)
    tensor = tensors(os.path.join(SET, "cases.safetensors"))
    case = golden["cases"][0]
    body = {"model": "llama", "layer": case["layer"],
            "hidden_states": tensor(case["inputs"]["hidden_states"])}
    request = urllib.request.Request(sys.argv[1] + "/attend", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        got = numbers(json.load(reply)["output"])
    want = numbers(tensor(case["expected"]["output"]))
    if len(got) != len(want):
        sys.exit(f"{len(got)} numbers, expected {len(want)}")
    error = max(abs(a - b) for a, b in zip(got, want))
    if not error <= golden["tolerance"]["abs"]:
        sys.exit(f"error {error:.3g}, at most {golden['tolerance']['abs']}")
    print(f"{len(got)} numbers of a golden case, error at most {error:.1e}")


main()
