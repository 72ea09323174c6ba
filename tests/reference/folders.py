"""The folders: for each a config as that family publishes it, its cases, and random tensors.

A case is a dict: id, layer, n, batch; optionally kind, stack, m (cross attention), decode, pad (how
the last row of the batch is padded: "left", "right", or "gap" within), positions (each row's first
position) and no_map.  usual() gives the set that causal families share.
"""
from types import SimpleNamespace as Namespace

import numpy as np

import families
from configs import CONFIGS
from files import stored

PAD = 4  # padded tokens of a padded row


def case(case_id, layer, n, batch=1, prefill=None, **more):
    found = {"id": case_id, "layer": layer, "n": n, "batch": batch, **more}
    if prefill is not None:
        found["decode"] = {"prefill": prefill}
    return found


def usual(n=12, rope=True, layers=2):
    """Both layers plainly, padding on either side, chosen positions; all of them also stepwise."""
    cases = [case("layer0", 0, n, 2, 5)]
    cases += [case(f"layer{i}", i, n + 2, 1, 1) for i in range(1, layers)]
    cases += [case("layer0_leftpad", 0, n - 2, 2, 7, pad="left"),
              case("layer1_rightpad", 1, n - 2, 2, 6, pad="right")]
    if rope:
        cases.append(case("layer1_positions", 1, n - 4, 2, 4, positions=(3, 21)))
    return cases


def alibi_cases(n=12):
    """A gap among the keys shows whether distance counts real tokens or all."""
    return usual(n, rope=False) + [case("layer0_gap", 0, n, 2, 9, pad="gap")]


def rope_cases(n=13):
    """Less than usual(), for a folder that differs from another in its rotation only."""
    return [case("layer0", 0, n, 2, 5),
            case("layer1_positions", 1, n - 4, 2, 4, positions=(3, 21))]


def plain_encoder(n=12):
    return [case("layer0", 0, n, 2), case("layer1", 1, n + 3),
            case("layer0_padded", 0, n - 2, 2, pad="right"),
            case("layer1_leftpadded", 1, n - 2, 2, pad="left")]


def dynamic_cases():
    """The rotation depends on the length of each call, so keys keep that of the call they came in.

    The decode of `layer1_grows` passes max_position_embeddings on its way.
    """
    return [case("layer0_short", 0, 14, 2, 5), case("layer1_long", 1, 22, 2),
            case("layer0_far_positions", 0, 9, positions=(11,)),
            case("layer1_grows", 1, 21, 1, 12),
            case("layer0_leftpad", 0, 14, 2, 7, pad="left")]


def longrope_cases():
    """Short ones stay within the original length in all their calls, long ones beyond it."""
    return [case("layer0_short", 0, 14, 2, 5), case("layer1_long", 1, 24, 1, 18),
            case("layer1_leftpad", 1, 15, 2, 9, pad="left"),
            case("layer0_far_positions", 0, 9, 2, 3, positions=(20, 31))]


def t5_cases(n, long_n=None):
    encoder = {"stack": "encoder"}
    decoder = {"stack": "decoder"}
    cross = {"stack": "decoder", "kind": "cross_attention"}
    if long_n:
        return [case("encoder_layer0", 0, long_n, no_map=True, **encoder),
                case("decoder_layer1", 1, long_n, 1, long_n - 9, no_map=True, **decoder)]
    return [case("encoder_layer0", 0, n, 2, **encoder),
            case("encoder_layer1_padded", 1, 12, 2, pad="right", **encoder),
            case("decoder_layer0", 0, n, 1, 5, **decoder),
            case("decoder_layer1", 1, 13, 2, 1, **decoder),
            case("decoder_layer1_leftpad", 1, 14, 2, 9, pad="left", **decoder),
            case("cross_layer0", 0, 9, 2, m=14, **cross),
            case("cross_layer1_padded", 1, 7, 2, m=11, pad="right", **cross)]


def stacked_cases(*encoders):
    """Of an encoder-decoder, which has these stacks beside its decoder."""
    decoder = {"stack": "decoder"}
    cross = {"stack": "decoder", "kind": "cross_attention"}
    return [case(f"{stack}_layer1", 1, 13, 2, stack=stack) for stack in encoders] + [
        case("encoder_layer0_padded", 0, 12, 2, pad="right", stack="encoder"),
        case("decoder_layer0", 0, 11, 2, 5, **decoder),
        case("decoder_layer1_leftpad", 1, 12, 2, 7, pad="left", **decoder),
        case("cross_layer1", 1, 9, 2, m=14, **cross),
        case("cross_layer0_padded", 0, 7, 2, m=11, pad="right", **cross)]


def detr_cases():
    """Positions are added to what queries and keys are made of, not to what values are."""
    cross = {"stack": "decoder", "kind": "cross_attention", "added": True}
    return [case("encoder_layer0", 0, 12, 2, stack="encoder", added=True),
            case("decoder_layer1", 1, 9, 2, stack="decoder", added=True),
            case("cross_layer0", 0, 9, 2, m=14, **cross),
            case("cross_layer1", 1, 7, 1, m=11, **cross)]


def mimi_cases():
    return [case("encoder_layer1", 1, 13, 2, 5, stack="encoder"),
            case("decoder_layer0", 0, 12, 1, 1, stack="decoder"),
            case("decoder_layer1_positions", 1, 9, 2, 4, stack="decoder", positions=(3, 21))]


CASES = {
    "mistral": usual(), "mistral_full": usual()[:2],
    "qwen2": usual(), "qwen2_sliding": usual(layers=3), "qwen2_types": usual(layers=3)[:3],
    "qwen3": usual(), "gemma2": usual(), "gpt_oss": usual(),
    "phi": usual(), "phi3": usual(), "phi3_longrope": longrope_cases(),
    "phi3_partial": longrope_cases()[:2], "gpt_neox": usual(),
    "gpt_neox_nobias": usual()[:2], "gptj": usual(),
    "falcon_mqa": usual(), "falcon_gqa": usual(), "falcon_mha": usual()[:2],
    "falcon_bias": usual()[:2], "falcon_alibi": alibi_cases(),
    "falcon_alibi_12": usual(16, rope=False)[::2],
    "bloom": alibi_cases(), "bloom_6": usual(rope=False), "opt": usual(rope=False),
    "t5": t5_cases(23), "t5_32": t5_cases(0, 131),
    "roberta": plain_encoder(), "distilbert": plain_encoder(),
    "gpt2_scale_by_layer": usual(rope=False, layers=3),
    "llama_linear": rope_cases(), "llama_dynamic": dynamic_cases(),
    "llama_yarn": rope_cases(), "llama_yarn_original": rope_cases(),
    "llama_yarn_mscale": rope_cases()[1:], "llama_yarn_factor": rope_cases()[1:],
    "mimo": usual(), "internlm2": dynamic_cases(), "cohere_qk_norm": usual(),
    "gemma3_bidirectional": plain_encoder(15),
    "exaone": usual(), "baichuan": usual(), "baichuan_alibi": usual(rope=False), "qwen": usual(),
    "chatglm": usual(), "chatglm_ratio": rope_cases(),
    "bert_relative_key": plain_encoder(15), "bert_relative_key_query": usual(14, rope=False) +
    [case("layer1_far", 1, 70, 1, 66)],
    "openai_gpt": usual(rope=False), "ctrl": usual(rope=False),
    "bailing_moe": usual(), "modernbert_decoder": usual(), "videomae": plain_encoder(),
    "openai_privacy_filter": plain_encoder(15), "bert_alibi": plain_encoder(15),
    "step3p5": usual(), "seamless_m4t": stacked_cases("encoder"),
    "led": stacked_cases("encoder", "global"), "detr": detr_cases(),
    "chameleon": usual(), "moshi": usual(), "mimi": mimi_cases(),
    "mobilebert": [case("layer0", 0, 12, 2, added=True), case("layer1", 1, 15, added=True)],
    "bigbird_pegasus": stacked_cases("encoder"),
    "llava_vision": [case("layer0", 0, 12, 2, stack="vision"),
                     case("layer1", 1, 17, stack="vision")],
}


# ---- Inputs ----

def pad_mask(side, batch, keys):
    """True where a token is real: the last row of the batch is padded."""
    mask = np.ones((batch, keys), bool)
    first = {"left": 0, "gap": 3, "right": keys - PAD}[side]
    mask[-1, first:first + PAD] = False
    return mask


def make_positions(entry, mask):
    """Given positions: consecutive from each row's first one, or counted by the left padding."""
    if "positions" in entry:
        first = np.array(entry["positions"], np.int64)
        return first[:, None] + np.arange(entry["n"], dtype=np.int64)
    counted = np.cumsum(mask, -1, dtype=np.int64) - 1
    return np.where(mask, counted, 1)


def make_inputs(entry, size, rng):
    """The input tensors of a case."""
    batch, n, m, width = entry["batch"], entry["n"], entry.get("m"), size.width
    found = {"hidden_states": rng.standard_normal((batch, n, width), np.float32)}
    if "added" in entry:
        values = rng.standard_normal((batch, m or n, size.values), np.float32)
        keys = rng.standard_normal((batch, m or n, width), np.float32)
        keys = keys if size.values != width else values + keys
        found = {"hidden_states": found["hidden_states"] if m else keys,
                 "key_hidden_states": keys, "value_hidden_states": values}
    elif m:
        found["encoder_hidden_states"] = rng.standard_normal((batch, m, width), np.float32)
    mask = None
    if "pad" in entry:
        mask = pad_mask(entry["pad"], batch, m or n)
        found["encoder_padding_mask" if m else "padding_mask"] = mask
    if "positions" in entry or (entry.get("pad") == "left" and not entry.get("stack")):
        found["position_ids"] = make_positions(entry, mask)
    return found


# ---- Tensors ----

def draw(role, size, rng):
    """Random values that leave attention neither flat nor a single peak."""
    values = rng.standard_normal(size)
    if role in ("q_norm", "k_norm", "norm"):
        values = 1 + 0.25 * values
    elif role.endswith(("_bias", ".bias")) or role == "small":
        values = 0.3 * values
    elif role.endswith(".weight"):
        values = 1.3 * values / np.sqrt(max(size))
    return values.astype(np.float32)


def decoys(folder, rng):
    """Tensors that an attention loader must pass by: an embedding, norms, an MLP, old buffers."""
    found = {}
    for name, (role, size) in folder.decoys.items():
        if role == "causal":
            found[name] = np.tril(np.ones(size, bool))
        elif role == "masked":
            found[name] = np.full(size, -1e9, np.float32)
        else:
            found[name] = draw(role, size, rng)
    return found


def base_tensors(folder, rng):
    """All tensors of the model file, rounded as they are stored."""
    config, tensors = folder.config, {}
    for index, stack, kind in places(config):
        for role, (name, size) in families.parts(config, index, stack, kind).items():
            if name not in tensors:
                tensors[name] = draw(role, size, rng)
    tensors.update(decoys(folder, rng))
    return {name: stored(array, folder.dtype) if array.dtype == np.float32 else array
            for name, array in tensors.items()}


def places(config):
    """(layer, stack, kind) of every attention in a model."""
    layers = range(families.shape(config).layers)
    if config["model_type"] not in families.STACKED:
        return [(index, None, "self_attention") for index in layers]
    return [(index, *place) for index in layers
            for place in families.STACKED[config["model_type"]]]


def folder(seed, name, spec):
    return Namespace(name=name, seed=seed, cases=CASES[name],
                     **{"notes": "", "shards": 1, "dtype": "F32", **spec})


FOLDERS = [folder(500 + i, name, spec) for i, (name, spec) in enumerate(CONFIGS.items())]
