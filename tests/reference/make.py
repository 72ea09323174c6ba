#!/usr/bin/env python3
"""Makes the folders beside this file, or checks the same code against tests/golden.

    make.py                     writes every folder again, to the same bytes
    make.py mistral t5          writes only these
    make.py --check DIRECTORY   compares with the expected tensors of each folder there that this
                                code can read, one line per folder; status 1 if one is out
"""
import pathlib
import shutil
import sys

import numpy as np

sys.dont_write_bytecode = True  # leave nothing beside the sources
import attention
import families
import files
from folders import FOLDERS, base_tensors, make_inputs

HERE = pathlib.Path(__file__).resolve().parent


def run(layer, case, inputs):
    """Everything that a case's expected tensors hold, and the decode output if it has one."""
    x = inputs["hidden_states"].astype(np.float64)
    source, mask = x, inputs.get("padding_mask")
    if "value_hidden_states" in inputs:
        source = tuple(inputs[name].astype(np.float64)
                       for name in ("key_hidden_states", "value_hidden_states"))
    elif case.get("kind") == "cross_attention":
        source = inputs["encoder_hidden_states"].astype(np.float64)
        mask = inputs.get("encoder_padding_mask")
    if mask is None:
        mask = np.ones((source[0] if isinstance(source, tuple) else source).shape[:2], bool)
    positions = inputs.get("position_ids")
    if positions is None:
        positions = np.tile(np.arange(x.shape[1]), (x.shape[0], 1))
    out, weights, keys, values, rows = attention.whole(layer, x, source, positions, mask)
    got = {"output": out, "attentions": weights, "key_cache": keys, "value_cache": values}
    if "decode" in case:
        got["decode_output"] = attention.stepwise(layer, x, positions, mask,
                                                  case["decode"]["prefill"])
    return got, rows


def layer_of(config, tensors, case):
    return families.layer(config, tensors, case["layer"], case.get("stack"),
                          case.get("kind", "self_attention"))


# ---- Writing ----

def expected_names(layer, case):
    """Encoders keep no cache; a case may say that its map is too large to store."""
    names = ["output"] if case.get("no_map") else ["output", "attentions"]
    cached = layer.causal or (case.get("kind") == "cross_attention" and "added" not in case)
    return names + ["key_cache", "value_cache"] if cached else names


def same_stepwise(got):
    return np.abs(got.get("decode_output", got["output"]) - got["output"]).max() < 1e-12


def write_case(entry, store, config, tensors, rng):
    """The case's entry of cases.json; its tensors go to the store."""
    case_id = entry["id"]
    layer = layer_of(config, tensors, entry)
    inputs = make_inputs(entry, families.shape(config), rng)
    got, rows = run(layer, entry, inputs)
    kept = {**inputs, **{name: got[name] for name in expected_names(layer, entry)}}
    if not rows.all():
        kept["compare_rows"] = rows
    # Stepwise is the same numbers, save where a rotation depends on the length of its call.
    steps = "output" if same_stepwise(got) else "decode_output"
    if "decode" in entry:
        kept[steps] = got[steps]
    for name, array in kept.items():
        store[f"{case_id}.{name}"] = array.astype(np.float32) if array.dtype.kind == "f" else array
    shown = {"id": case_id, "layer": entry["layer"], "kind": entry.get("kind", "self_attention"),
             "causal": layer.causal, "batch": entry["batch"], "n": entry["n"]}
    shown.update((key, entry[key]) for key in ("stack", "m") if key in entry)
    shown["inputs"] = {name: f"{case_id}.{name}" for name in inputs}
    shown["expected"] = {name: f"{case_id}.{name}" for name in expected_names(layer, entry)}
    if not rows.all():
        shown["compare_rows"] = f"{case_id}.compare_rows"
    if "decode" in entry:
        prefill = entry["decode"]["prefill"]
        shown["decode"] = {"prefill": prefill, "output": f"{case_id}.{steps}",
                           "steps": entry["n"] - prefill}
    return shown


def sizes(size):
    return {"d_model": size.width, "num_heads": size.heads, "num_kv_heads": size.kv_heads,
            "head_dim": size.head_dim, **({"vdim": size.values} if size.values != size.width else {})}


def attention_names(folder):
    named = (families.parts(folder.config, case["layer"], case.get("stack"),
                            case.get("kind", "self_attention")) for case in folder.cases)
    return sorted({name for roles in named for name, _ in roles.values()})


def write_folder(folder):
    path = HERE / folder.name
    shutil.rmtree(path, ignore_errors=True)
    (path / "model").mkdir(parents=True)
    rng = np.random.default_rng(folder.seed)
    tensors = base_tensors(folder, rng)
    files.write_model(path / "model", tensors, folder.dtype, folder.shards)
    files.write_json(path / "model" / "config.json", folder.config, 2)
    store = {}
    cases = [write_case(case, store, folder.config, tensors, rng) for case in folder.cases]
    size = families.shape(folder.config)
    by_type = {name: sizes(families.shape(folder.config, folder.config["layer_types"].index(name)))
               for name in folder.config.get("layer_types", ())
               if "attention_other_setting" in folder.config}
    files.write_tensors(path / "cases.safetensors", store)
    files.write_json(path / "cases.json", {
        "format": "golden-attention/1", "group": "reference", "name": folder.name,
        "family": folder.config["model_type"], "model": "model", "weights_dtype": folder.dtype,
        "compute": "float64 on the stored weights; rotary angles in float32",
        "shape": sizes(size), **({"shapes": by_type} if by_type else {}),
        "tolerance": {"abs": 1e-5}, "attention_tensors": attention_names(folder),
        "seed": folder.seed, "source": folder.source, "notes": folder.notes, "cases": cases})
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    print(f"{folder.name}: {len(cases)} cases, {size / 1000:.0f} kB")


# ---- Checking ----

def error(got, want, rows, name):
    """The largest |got - want| / max(1, |want|), over the rows that count."""
    off = np.abs(got - want) / np.maximum(1, np.abs(want))
    if name in ("output", "decode_output"):
        off = off[rows]
    elif name == "attentions":
        off = off.swapaxes(1, 2)[rows]
    return float(off.max())


def check_case(case, config, tensors, store):
    """The largest error of each expected tensor."""
    inputs = {name: store[key] for name, key in case["inputs"].items()}
    got, rows = run(layer_of(config, tensors, case), case, inputs)
    if "compare_rows" in case:
        rows = store[case["compare_rows"]]
    names = dict(case["expected"])
    if "decode" in case:
        names["decode_output"] = case["decode"]["output"]
    return {name: error(got[name], store[key], rows, name) for name, key in names.items()}


def check_folder(path):
    config = files.read_json(path / "model" / "config.json")
    tensors, store = files.read_model(path / "model"), files.read_tensors(
        path / "cases.safetensors")
    spec = files.read_json(path / "cases.json")
    worst, passed = {}, True
    for case in spec["cases"]:
        limit = case.get("tolerance", spec["tolerance"])["abs"]
        for name, off in check_case(case, config, tensors, store).items():
            worst[name] = max(worst.get(name, 0), off)
            passed &= off <= limit
    shown = ", ".join(f"{name} {off:.1e}" for name, off in worst.items())
    print(f"{path.name}: {'ok' if passed else 'DIFFERS'} ({len(spec['cases'])} cases; {shown})")
    return passed


def readable(path):
    """Whether the folder holds a model of a family known here, whose weights are plain."""
    file = path / "model" / "config.json"
    config = files.read_json(file) if file.exists() else {}
    return config.get("model_type") in (*families.NAMES, *families.STACKED) and \
        not {"quantization", "quantization_config"} & config.keys()


def check(directory):
    paths = [path for path in sorted(pathlib.Path(directory).iterdir()) if readable(path)]
    results = [check_folder(path) for path in paths]
    print(f"{sum(results)} of {len(results)} folders agree")
    return 0 if results and all(results) else 1


def main(arguments):
    if arguments[:1] == ["--check"] and len(arguments) == 2:
        return check(arguments[1])
    known = {folder.name: folder for folder in FOLDERS}
    if any(name not in known for name in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    for name in arguments or known:
        write_folder(known[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
