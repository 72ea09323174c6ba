#!/usr/bin/env python3
"""make.py: writes the models beside it, with NumPy alone.

Each folder has `stored`, a small model whose weights are random codes with scales, and `plain`, the
same model in float32: the numbers that the formulas of docs/MODELS.md give of those codes.  The unit
suite `quantized` loads both, which must have one fingerprint.  ../broken has models of these that
were changed by hand.
"""
import json
import pathlib
import struct

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "uint32": "U32", "int64": "I64",
          "int8": "I8", "uint8": "U8"}
RANDOM = np.random.default_rng(7)
LLAMA = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 16, "num_hidden_layers": 1,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "vocab_size": 4, "intermediate_size": 8}
GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 1, "n_positions": 64}


def write(path, tensors):
    """A safetensors file; a pair (dtype, array of bytes, shape) stands as it is."""
    header, data = {}, b""
    for name, value in tensors.items():
        dtype, array, shape = (value if isinstance(value, tuple) else
                               (DTYPES[str(value.dtype)], value, value.shape))
        part = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def stream(codes, bits):
    """Rows of codes as rows of words of 32 bits, lowest first."""
    rows, count = codes.shape
    width = -(-count * bits // 32) * 32
    flags = np.zeros((rows, width), np.uint8)
    for bit in range(bits):
        flags[:, bit:count * bits:bits] = codes >> bit & 1
    return np.packbits(flags, axis=1, bitorder="little").view(np.uint32)


def f32(x):
    """One number or an array of float32."""
    return np.asarray(x, np.float32)


def scales_of(shape, dtype=np.float16):
    """Random scales."""
    return RANDOM.uniform(0.01, 0.05, shape).astype(dtype)


def gptq(out, size, bits=4, group=16, one=1, ordered=False):
    """qweight, qzeros, scales, g_idx."""
    groups = -(-size // group)
    index = np.arange(size) // group
    if ordered:
        index = RANDOM.permutation(index)
    codes = RANDOM.integers(0, 1 << bits, (out, size))
    zeros = RANDOM.integers(0, (1 << bits) - 1, (groups, out))
    zeros[0, 0] = (1 << bits) - 1  # wraps to 0 where 1 is added
    scales = scales_of((groups, out))
    weight = f32(codes - (zeros.T + one & (1 << bits) - 1)[:, index]) * f32(scales).T[:, index]
    return {".qweight": stream(codes, bits).T.view(np.int32),
            ".qzeros": stream(zeros, bits).view(np.int32), ".scales": scales,
            ".g_idx": index.astype(np.int32)}, weight


def awq(out, size, group=16):
    """Nibbles of a word are outputs 0 2 4 6 1 3 5 7."""
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def pack(codes):
        codes = codes.reshape(len(codes), -1, 8)[:, :, order].reshape(len(codes), -1)
        return stream(codes, 4).view(np.int32)

    groups = size // group
    codes, zeros = RANDOM.integers(0, 16, (size, out)), RANDOM.integers(0, 16, (groups, out))
    scales = scales_of((groups, out))
    weight = (f32(codes - zeros.repeat(group, 0)) * f32(scales).repeat(group, 0)).T
    return {".qweight": pack(codes), ".qzeros": pack(zeros), ".scales": scales}, weight


def packed(out, size, bits=4, group=16, zeros=False, ordered=False):
    """pack-quantized of compressed-tensors."""
    groups = -(-size // group)
    index = np.arange(size) // group
    codes, scales = RANDOM.integers(0, 1 << bits, (out, size)), scales_of((out, groups))
    parts = {".weight_packed": stream(codes, bits).view(np.int32), ".weight_scale": scales,
             ".weight_shape": np.array([out, size], np.int64)}
    zero = np.full((out, groups), 1 << bits >> 1)
    if ordered:
        index = RANDOM.permutation(index)
        parts[".weight_g_idx"] = index.astype(np.int32)
    if zeros:
        zero = RANDOM.integers(0, 1 << bits, (out, groups))
        parts[".weight_zero_point"] = stream(zero.T, bits).T.view(np.int32)
    return parts, f32(codes - zero[:, index]) * f32(scales)[:, index]


def int8(out, size, group=16, one=False, ordered=True):
    """int-quantized: by groups in any order with zero points, or one number of each for all."""
    groups = 1 if one else size // group
    index = np.arange(size) // (size // groups)
    index = RANDOM.permutation(index) if ordered else index
    codes = RANDOM.integers(-128, 128, (out, size)).astype(np.int8)
    scales = scales_of((1,) if one else (out, groups), np.float32)
    zeros = RANDOM.integers(-20, 20, scales.shape).astype(np.int8)
    parts = {".weight": codes, ".weight_scale": scales, ".weight_zero_point": zeros,
             ".input_scale": f32([0.5]), ".input_zero_point": np.array([3], np.int8)}
    if not one and ordered:
        parts[".weight_g_idx"] = index.astype(np.int32)
    scale, zero = (scales[0], zeros[0]) if one else (scales[:, index], zeros[:, index])
    return parts, f32(codes.astype(int) - zero) * scale


def e4m3():
    """Numbers of E4M3, by code."""
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    size = np.where(exponent == 0, fraction * 2.0**-9,
                    (8 + fraction) * 2.0**(exponent - 10.0))
    return f32(np.where(code & 128, -size, size))


def fp8_codes(out, size):
    """Random codes that are numbers."""
    codes = RANDOM.integers(0, 127, (out, size)) | RANDOM.integers(0, 2, (out, size)) << 7
    return ("F8_E4M3", codes.astype(np.uint8), (out, size)), e4m3()[codes]


def fp8(out, size, block=None, scale=".weight_scale", activation=".input_scale"):
    """One scale, or one for each block."""
    codes, values = fp8_codes(out, size)
    if block is None:
        scales = f32(0.02)
        return {".weight": codes, scale: scales, activation: f32(0.5)}, values * scales
    rows, columns = np.arange(out) // block[0], np.arange(size) // block[1]
    scales = scales_of((rows[-1] + 1, columns[-1] + 1), np.float32)
    return {".weight": codes, scale: scales}, values * scales[rows][:, columns]


def torchao(parts, weight):
    """The same tensors by torchao's names; groups follow each other."""
    own = {".weight": "._weight_qdata", ".input_scale": "._weight_act_quant_scale",
           ".input_zero_point": "._weight_act_quant_zero_point"}
    return {own.get(end, end.replace(".weight_", "._weight_")): part
            for end, part in parts.items()}, weight


def int4(out, size, group=16):
    """Int4Tensor of torchao: the lower nibble is the first, a zero point is the number of code 0."""
    codes, groups = RANDOM.integers(-8, 8, (out, size)), size // group
    scales = scales_of((groups, out))
    zeros = RANDOM.normal(0, 0.1, (groups, out)).astype(np.float16)
    parts = {"._weight_qdata": (codes[:, ::2] & 15 | codes[:, 1::2] << 4).astype(np.int8),
             "._weight_scale": scales, "._weight_zero_point": zeros}
    return parts, f32(codes) * f32(scales).T.repeat(group, 1) + f32(zeros).T.repeat(group, 1)


def fp4(out, size, mx=False):
    """MXFP4, or NVFP4 of compressed-tensors; the lower nibble is the first."""
    group = 32 if mx else 16
    table = f32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = np.concatenate([table, -table])
    codes = RANDOM.integers(0, 16, (out, size))
    parts = {".weight_packed": (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)}
    if mx:
        scales = RANDOM.integers(115, 130, (out, size // group)).astype(np.uint8)
        parts[".weight_scale"] = scales
        scales = f32(2.0**(scales.astype(float) - 127))
    else:
        parts[".weight_scale"], values = fp8_codes(out, size // group)
        parts[".weight_global_scale"] = f32([123.0])
        parts[".input_global_scale"] = f32([7.0])
        scales = values / f32(123.0)
    return parts, table[codes] * scales.repeat(group, 1)


def nf4(out, size, storage="U8", block=64, nested=False):
    """Codes over the whole matrix, the higher nibble first."""
    count = out * size
    codes = RANDOM.integers(0, 16, count + count % 2)
    table = np.sort(RANDOM.uniform(-1, 1, 16)).astype(np.float32)
    scales = RANDOM.uniform(0.1, 0.5, -(-count // block)).astype(np.float32)
    data = (codes[::2] << 4 | codes[1::2]).astype(np.uint8)
    shape = (len(data), 1) if storage == "U8" else (len(data) // 2, 1)
    state = {"quant_type": "nf4", "blocksize": block, "dtype": "float16", "shape": [out, size]}
    parts = {".weight": (storage, data, shape), ".weight.absmax": scales,
             ".weight.quant_map": table}
    if nested:
        state.update({"nested_blocksize": 4, "nested_dtype": "float32", "nested_offset": 0.25})
        numbers = np.linspace(-1, 1, 256).astype(np.float32)
        own = RANDOM.integers(0, 256, len(scales)).astype(np.uint8)
        outer = RANDOM.uniform(0.1, 0.2, -(-len(scales) // 4)).astype(np.float32)
        scales = numbers[own] * outer.repeat(4)[:len(own)] + f32(0.25)
        parts.update({".weight.absmax": own, ".weight.nested_absmax": outer,
                      ".weight.nested_quant_map": numbers})
    parts[".weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(
        json.dumps(state).encode(), np.uint8)
    return parts, (table[codes[:count]] * scales.repeat(block)[:count]).reshape(out, size)


def mlx(out, size, bits=4, group=16):
    """Affine: with biases."""
    codes, groups = RANDOM.integers(0, 1 << bits, (out, size)), size // group
    scales, biases = scales_of((out, groups)), RANDOM.normal(0, 0.1, (out, groups))
    biases = biases.astype(np.float16)
    return ({".weight": stream(codes, bits), ".scales": scales, ".biases": biases},
            f32(codes) * f32(scales).repeat(group, 1) + f32(biases).repeat(group, 1))


def model(name, config, settings, form, files=(), more=()):
    """Writes a folder: `form` makes the tensors of a weight, by its index among q, k, v, o."""
    width = config.get("hidden_size", 32)
    if config["model_type"] == "gpt2":
        shapes = {"h.0.attn.c_attn": (96, 32), "h.0.attn.c_proj": (32, 32)}
    else:
        shapes = {f"model.layers.0.self_attn.{n}_proj": s for n, s in
                  {"q": (32, width), "k": (16, width), "v": (16, width), "o": (width, 32)}.items()}
    stored, plain = {}, {}
    for i, (base, shape) in enumerate(shapes.items()):
        parts, weight = form(i, *shape)
        assert weight.dtype == np.float32 and weight.shape == shape
        stored.update({base + end: part for end, part in parts.items()})
        transposed = config["model_type"] == "gpt2"
        plain[base + ".weight"] = np.ascontiguousarray(weight.T) if transposed else weight
        if transposed:
            plain[base + ".bias"] = stored[base + ".bias"] = scales_of(shape[0])
    stored.update(more)
    for kind, tensors in (("stored", stored), ("plain", plain)):
        folder = HERE / name / kind
        folder.mkdir(parents=True, exist_ok=True)
        own = {**config, **(settings if kind == "stored" else {})}
        (folder / "config.json").write_text(json.dumps(own, indent=1) + "\n", "utf-8")
        write(folder / "model.safetensors", tensors)
        for file, content in files if kind == "stored" else ():
            (folder / file).write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def said(method, **more):
    """A configuration's key."""
    return {"quantization_config": {"quant_method": method, **more}}


def compressed(form, *groups):
    """The same of compressed-tensors; `groups` are the weights' objects."""
    return said("compressed-tensors", format=form, config_groups={
        f"group_{i}": {"targets": ["Linear"], "weights": weights}
        for i, weights in enumerate(groups)})


def main():
    """Writes all folders."""
    words = {"bits": 4, "group_size": 16, "desc_act": False}
    biases = {f"model.layers.0.self_attn.{n}_proj.bias": np.zeros(s, np.float16)
              for n, s in (("q", 32), ("k", 16), ("v", 16), ("o", 32))}
    odd = {**LLAMA, "hidden_size": 33}
    model("gptq_gpt2", GPT2, said("gptq", **words), lambda i, *s: gptq(*s))
    model("gptq_zero_bias", LLAMA, {}, lambda i, *s: gptq(*s), [("quantize_config.json", words)],
          biases)
    model("gptq_v2_2_bits", LLAMA,
          said("gptq", bits=2, group_size=16, desc_act=True, checkpoint_format="gptq_v2"),
          lambda i, *s: gptq(*s, 2, 16, 0, True))
    model("awq_upper_case", LLAMA, said("awq", bits=4, group_size=16, version="GEMM"),
          lambda i, *s: awq(*s))
    model("fp8_settings_beside", LLAMA, {}, lambda i, *s: fp8(*s),
          [("hf_quant_config.json", {"producer": {"name": "modelopt"},
                                     "quantization": {"quant_algo": "FP8"}})])
    model("ct_fp8_block", LLAMA, compressed("float-quantized", {
        "num_bits": 8, "strategy": "block", "block_structure": [12, 20], "symmetric": True}),
          lambda i, *s: fp8(*s, (12, 20)))
    model("ct_int8_groups", LLAMA, compressed("int-quantized", {
        "num_bits": 8, "group_size": 16, "symmetric": False, "actorder": "group"}),
          lambda i, *s: int8(*s))
    model("ct_int8_one", LLAMA, compressed("int-quantized", {
        "num_bits": 8, "strategy": "tensor", "symmetric": False}), lambda i, *s: int8(*s, one=True))
    model("ct_3_bits", LLAMA, compressed("pack-quantized", {
        "num_bits": 3, "group_size": 12, "symmetric": False, "actorder": "group"}),
          lambda i, *s: packed(*s, 3, 12, True, True))
    model("ct_group_sizes", LLAMA, compressed("mixed-precision", {
        "num_bits": 4, "group_size": 12, "symmetric": True}, {
            "num_bits": 4, "group_size": 16, "symmetric": True}),
          lambda i, *s: packed(*s, 4, 16 if i % 2 == 0 else 12))
    model("ct_mxfp4", LLAMA, compressed("mxfp4-pack-quantized", {"num_bits": 4, "group_size": 32}),
          lambda i, *s: fp4(*s, True))
    model("ct_nvfp4", LLAMA, compressed("nvfp4-pack-quantized", {"num_bits": 4, "group_size": 16}),
          lambda i, *s: fp4(*s))
    model("bnb_bf16_storage", LLAMA, said("bitsandbytes", bnb_4bit_quant_storage="bfloat16"),
          lambda i, *s: nf4(*s, "BF16"))
    model("bnb_odd_rows", odd, said("bitsandbytes"), lambda i, *s: nf4(*s, nested=True))
    model("mlx_bits", LLAMA, {"quantization": {"group_size": 16, "bits": 3,
                                               "model.layers.0.self_attn.k_proj":
                                               {"group_size": 8, "bits": 6}}},
          lambda i, *s: mlx(*s, 6, 8) if i == 1 else mlx(*s, 3, 16))
    model("fp8_one_inverse", LLAMA, said("fp8", activation_scheme="static", weight_block_size=None),
          lambda i, *s: fp8(*s, None, ".weight_scale_inv", ".activation_scale"))
    model("fp8_usual_blocks", {**LLAMA, "hidden_size": 160}, said("fp8"),
          lambda i, *s: fp8(*s, (128, 128), ".weight_scale_inv"))
    model("torchao_fp8", LLAMA, said("torchao", quant_type={"default": {
        "_type": "Float8DynamicActivationFloat8WeightConfig"}}),
          lambda i, out, size: torchao(*fp8(out, size, None if i % 2 else (1, size))))
    model("torchao_int8", LLAMA, said("torchao"),
          lambda i, *s: torchao(*int8(*s, 8, ordered=False)))
    model("fbgemm_fp8", LLAMA, said("fbgemm_fp8", activation_scale_ub=1200.0),
          lambda i, out, size: fp8(out, size, (1, size)))
    model("torchao_int4", LLAMA, said("torchao", quant_type={"default": {
        "_type": "Int4WeightOnlyConfig", "_data": {"group_size": 16}}}), lambda i, *s: int4(*s))


if __name__ == "__main__":
    main()
