"""Reading and writing of the files of a folder: safetensors and JSON.

A safetensors file is eight bytes of header length, a JSON header, and the tensors' bytes one after
the other.  Tensors are numpy arrays here; BF16, which numpy lacks, is kept as float32 values that
are already rounded, and marked by the name of its type when it is written.  The same tensors give
the same bytes: names are sorted, and nothing depends on time or machine.
"""
import json
import struct

import numpy as np

TYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "BOOL": np.bool_, "U8": np.uint8}
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}


def round_bf16(values):
    """The nearest bfloat16 of each value, ties to even, as float32."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    odd = (bits >> 16) & 1
    return ((bits + 0x7FFF + odd) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)


def stored(values, dtype):
    """What a weight reads back as after it was stored as `dtype`, in float32."""
    if dtype == "BF16":
        return round_bf16(values)
    return np.asarray(values, np.float32).astype(TYPES[dtype]).astype(np.float32)


def encode(array, dtype):
    if dtype == "BF16":
        return (round_bf16(array).view(np.uint32) >> 16).astype("<u2").tobytes()
    return np.ascontiguousarray(array.astype(TYPES[dtype])).tobytes()


def write_tensors(path, tensors, dtype=None):
    """Writes name -> array; float32 arrays are stored as `dtype` if one is given."""
    header, chunks, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        array = tensors[name]
        kind = NAMES[array.dtype]
        kind = dtype if dtype and kind == "F32" else kind
        data = encode(array, kind)
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(data)]}
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))
    return offset


def decode(data, kind, shape):
    if kind == "BF16":
        bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).reshape(shape)
    array = np.frombuffer(data, TYPES[kind]).reshape(shape)
    return array.astype(np.float32) if kind == "F16" else array


def read_tensors(path):
    with open(path, "rb") as file:
        blob = file.read()
    length, = struct.unpack("<Q", blob[:8])
    header, data = json.loads(blob[8:8 + length]), blob[8 + length:]
    header.pop("__metadata__", None)
    return {name: decode(data[slice(*entry["data_offsets"])], entry["dtype"], entry["shape"])
            for name, entry in header.items()}


def write_json(path, value, indent=1):
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=indent) + "\n")


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_model(folder, tensors, dtype, shards):
    """model.safetensors, or with several shards their files and the index."""
    if shards == 1:
        write_tensors(folder / "model.safetensors", tensors, dtype)
        return
    names, total, where = sorted(tensors), 0, {}
    share = -(-len(names) // shards)
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = names[i * share:(i + 1) * share]
        total += write_tensors(folder / file, {name: tensors[name] for name in part}, dtype)
        where.update((name, file) for name in part)
    write_json(folder / "model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": where}, 2)


def read_model(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(read_tensors(path))
    return tensors
