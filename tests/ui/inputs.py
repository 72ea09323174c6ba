"""inputs.py: files that the page is given: captures, arrays, labels, and files that are not sound."""
import io
import json
import pickle
import struct
import sys
import types
import zipfile

import numpy

SENTENCE = ("the cat sat on the mat , and the dog sat on the rug . "
            "the cat sat on the rug .").split()
# Texts that would become elements or run, were any of them read as HTML.
HOSTILE = ["<img src=x onerror=window.hostile=1>", "<script>window.hostile=1</script>", "&lt;b&gt;",
           "\"'><svg onload=window.hostile=1>", "{{7*7}}", "javascript:window.hostile=1",
           "\u202eevil\u202c", "</title><b>"]
STORAGES = {"float32": "FloatStorage", "float16": "HalfStorage", "float64": "DoubleStorage",
            "bfloat16": "BFloat16Storage", "int64": "LongStorage"}
TYPES = {"float32": "F32", "float16": "F16", "int64": "I64"}


def safetensors(tensors, metadata=None):
    """The bytes of a safetensors file."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, array in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": TYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Stored:
    """A tensor as torch.save has it: an array, or bits of bfloat16 as uint16."""

    def __init__(self, array, kind=None, strides=None):
        self.array, self.kind = numpy.ascontiguousarray(array), kind or str(array.dtype)
        self.strides = strides or tuple(n // array.itemsize for n in self.array.strides)


class TorchPickler(pickle.Pickler):
    """Writes arrays as torch does: their numbers stand beside the pickle."""

    def __init__(self, file, torch, protocol):
        super().__init__(file, protocol)
        self.torch, self.storages = torch, []

    def persistent_id(self, obj):
        """Of the numbers of a tensor."""
        if not isinstance(obj, tuple) or len(obj) != 2 or obj[0] != "numbers":
            return None
        self.storages.append(obj[1].array.tobytes())
        storage = getattr(self.torch, STORAGES[obj[1].kind])
        return ("storage", storage, str(len(self.storages) - 1), "cpu", obj[1].array.size)

    def reducer_override(self, obj):
        """A tensor is a call that makes it."""
        if not isinstance(obj, Stored):
            return NotImplemented
        rebuild = sys.modules["torch._utils"]._rebuild_tensor_v2
        return rebuild, (("numbers", obj), 0, obj.array.shape, obj.strides, False, {})


def torch_file(value, protocol=2, cut=0):
    """The bytes of a file of torch.save; `cut` bytes are missing of each storage."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2(*parts):
        return parts
    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = (
        "torch._utils", "_rebuild_tensor_v2")
    torch._utils, utils._rebuild_tensor_v2 = utils, _rebuild_tensor_v2
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": torch, "torch._utils": utils})
    try:
        file = io.BytesIO()
        pickler = TorchPickler(file, torch, protocol)
        pickler.dump(value)
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module:
                sys.modules[name] = module
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", file.getvalue())
        archive.writestr("archive/byteorder", "little")
        for i, numbers in enumerate(pickler.storages):
            archive.writestr(f"archive/data/{i}", numbers[:len(numbers) - cut])
    return made.getvalue()


def rows_of(tokens, width, layer=0, seed=7):
    """Rows [T,E] float32: one for each distinct token, drifting with the position."""
    rows, known = [], {}
    for position, token in enumerate(tokens):
        if token not in known:
            known[token] = numpy.random.default_rng(
                [seed, layer, len(known)]).standard_normal(width)
        rows.append(known[token] + 0.1 * numpy.sin(position / 3 + numpy.arange(width)))
    return numpy.array(rows, numpy.float32)


def capture(path, model, layers, width, tokens=None, **more):
    """Writes a capture of `layers` layers; returns its rows by layer."""
    tokens = SENTENCE if tokens is None else tokens
    rows = {layer: rows_of(tokens, width, layer) for layer in range(layers)}
    metadata = {"format": "attn-capture-1", "model": model, "tokens": json.dumps(tokens), **more}
    path.write_bytes(safetensors({f"layer.{n}": rows[n] for n in rows}, metadata))
    return rows


def malformed(directory, width):
    """Files that are no captures, by what is wrong with them."""
    rows = rows_of(SENTENCE, width)
    good = safetensors({"layer.0": rows}, {
        "format": "attn-capture-1", "tokens": json.dumps(SENTENCE)})
    wrong = json.dumps({"layer.0": {"dtype": "F32", "shape": [1 << 20, width],
                                    "data_offsets": [0, rows.nbytes]}}).encode()
    beyond = json.dumps({"layer.0": {"dtype": "F32", "shape": list(rows.shape),
                                     "data_offsets": [1 << 40, (1 << 40) + rows.nbytes]}}).encode()
    texts = safetensors({"layer.0": rows}, {
        "format": "attn-capture-1", "tokens": json.dumps(["only", "two"])})
    contents = {
        "truncated.safetensors": good[:-100],
        "headless.safetensors": good[:4],
        "empty.safetensors": b"",
        "huge_header.safetensors": struct.pack("<Q", 1 << 62) + good[8:],
        "wrong_shape.safetensors": struct.pack("<Q", len(wrong)) + wrong + rows.tobytes(),
        "beyond.safetensors": struct.pack("<Q", len(beyond)) + beyond + rows.tobytes(),
        "no_json.safetensors": struct.pack("<Q", 8) + b"{{{{{{{{" + rows.tobytes(),
        "few_tokens.safetensors": texts,
        "no_capture.safetensors": safetensors({"weight": rows}),
        "text.safetensors": b"this is a text and no capture at all",
    }
    for name, data in contents.items():
        (directory / name).write_bytes(data)
    return [directory / name for name in contents]
