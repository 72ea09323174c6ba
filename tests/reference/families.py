"""What each model family's config and tensor names mean.

shape() reads the sizes of a config, parts() names the tensors of one layer's attention by role,
and layer() makes of config and tensors what attention.py computes.  parts() serves both ways:
folders are written from it and read back through it.  Roles: q, k, v, o or a fused qkv, each
.weight and .bias; q_norm, k_norm, sinks, table.
"""
from types import SimpleNamespace as Namespace

import numpy as np

LLAMA = {"at": "model.layers.%d.self_attn.", "q": "q_proj", "k": "k_proj", "v": "v_proj",
         "o": "o_proj"}
BERT = {"q": "self.query", "k": "self.key", "v": "self.value", "o": "output.dense"}
FUSED = {"at": "transformer.h.%d.self_attention.", "qkv": "query_key_value", "o": "dense"}

NAMES = {
    "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA, "gemma2": LLAMA,
    "gpt_oss": LLAMA, "mimo": LLAMA, "cohere": LLAMA, "gemma3_text": LLAMA,
    "internlm2": {"at": "model.layers.%d.attention.", "qkv": "wqkv", "o": "wo"},
    "bailing_moe": {"at": "model.layers.%d.attention.", "qkv": "query_key_value", "o": "dense"},
    "modernbert-decoder": {**LLAMA, "at": "model.layers.%d.attn.", "o": "Wo"},
    "openai_privacy_filter": LLAMA, "step3p5": LLAMA, "chameleon": LLAMA,
    "moshi": {"at": "decoder." + LLAMA["at"], **{role: LLAMA[role] + ".linear" for role in "qkvo"}},
    "mobilebert": {**BERT, "at": "mobilebert.encoder.layer.%d.attention."},
    "videomae": {"at": "videomae.encoder.layer.%d.attention.", "q": "attention.query",
                 "k": "attention.key", "v": "attention.value", "o": "output.dense"},
    "exaone": {**LLAMA, "at": "transformer.h.%d.attn.attention.", "o": "out_proj"},
    "baichuan": {"at": LLAMA["at"], "qkv": "W_pack", "o": "o_proj"},
    "qwen": {"at": "transformer.h.%d.attn.", "qkv": "c_attn", "o": "c_proj"},
    "chatglm": {"at": "transformer.encoder.layers.%d.self_attention.", "qkv": "query_key_value",
                "o": "dense"},
    "phi": {**LLAMA, "o": "dense"},
    "phi3": {"at": LLAMA["at"], "qkv": "qkv_proj", "o": "o_proj"},
    "gpt_neox": {"at": "gpt_neox.layers.%d.attention.", "qkv": "query_key_value", "o": "dense"},
    "gptj": {**LLAMA, "at": "transformer.h.%d.attn.", "o": "out_proj"},
    "falcon": FUSED,
    "bloom": {**FUSED, "at": "h.%d.self_attention."},
    "opt": {**LLAMA, "at": "model.decoder.layers.%d.self_attn.", "o": "out_proj"},
    "bert": {**BERT, "at": "bert.encoder.layer.%d.attention."},
    "roberta": {**BERT, "at": "roberta.encoder.layer.%d.attention."},
    "distilbert": {"at": "distilbert.transformer.layer.%d.attention.", "q": "q_lin", "k": "k_lin",
                   "v": "v_lin", "o": "out_lin"},
    "gpt2": {"at": "h.%d.attn.", "qkv": "c_attn", "o": "c_proj"},
    "openai-gpt": {"at": "h.%d.attn.", "qkv": "c_attn", "o": "c_proj"},
    "ctrl": {"at": "transformer.h.%d.multi_head_attention.", "q": "Wq", "k": "Wk", "v": "Wv",
             "o": "dense"},
}
COLUMNS = ("gpt2", "openai-gpt")  # whose weights are stored input-major
T5_AT = {("encoder", "self_attention"): "encoder.block.%d.layer.0.SelfAttention.",
         ("decoder", "self_attention"): "decoder.block.%d.layer.0.SelfAttention.",
         ("decoder", "cross_attention"): "decoder.block.%d.layer.1.EncDecAttention."}
BART = {**LLAMA, "o": "out_proj"}


def stacks(encoder, decoder, cross):
    """The names of an encoder-decoder whose modules have these paths."""
    return {("encoder", "self_attention"): {**BART, "at": encoder},
            ("decoder", "self_attention"): {**BART, "at": decoder},
            ("decoder", "cross_attention"): {**BART, "at": cross}}


def longformer(maps):
    """The names of LED's encoder, or of its global tokens."""
    own = {role: f"longformer_self_attn.{name}{maps}"
           for role, name in (("q", "query"), ("k", "key"), ("v", "value"))}
    return {"at": "led.encoder.layers.%d.self_attn.", "o": "output", **own}


STACKED = {  # by (stack, kind)
    "t5": {place: {"at": at, "q": "q", "k": "k", "v": "v", "o": "o"}
           for place, at in T5_AT.items()},
    "seamless_m4t": stacks("text_encoder.layers.%d.self_attn.", "text_decoder.layers.%d.self_attn.",
                           "text_decoder.layers.%d.cross_attention."),
    "detr": stacks("model.encoder.layers.%d.self_attn.", "model.decoder.layers.%d.self_attn.",
                   "model.decoder.layers.%d.encoder_attn."),
    "led": {**stacks("", "led.decoder.layers.%d.self_attn.",
                     "led.decoder.layers.%d.encoder_attn."),
            ("encoder", "self_attention"): longformer(""),
            ("global", "self_attention"): longformer("_global")},
    "bigbird_pegasus": {
        **stacks("", "model.decoder.layers.%d.self_attn.", "model.decoder.layers.%d.encoder_attn."),
        ("encoder", "self_attention"): {"at": "model.encoder.layers.%d.self_attn.", "o": "output",
                                        "q": "self.query", "k": "self.key", "v": "self.value"}},
    "llava": {("vision", "self_attention"):
              {**BART, "at": "vision_tower.vision_model.encoder.layers.%d.self_attn."}},
    "mimi": {(stack, "self_attention"): {**LLAMA, "at": stack + "_transformer.layers.%d.self_attn."}
             for stack in ("decoder", "encoder")},
}

# What each family writes: biases of q, k, v and of o; a name stands for a key of the config and
# its default.
BIASES = {
    "llama": ("attention_bias", False), "qwen3": ("attention_bias", False),
    "gemma2": ("attention_bias", False), "gpt_oss": ("attention_bias", True),
    "gpt_neox": ("attention_bias", True), "falcon": ("bias", False), "opt": ("enable_bias", True),
    "phi": (True, True), "bloom": (True, True), "bert": (True, True), "roberta": (True, True),
    "distilbert": (True, True), "gpt2": (True, True), "openai-gpt": (True, True),
    "ctrl": (True, True), "qwen2": (True, False),
    "mimo": (True, False), "qwen": (True, False), "chatglm": (True, False),
    "bailing_moe": (True, False), "openai_privacy_filter": ("attention_bias", True),
    "videomae": (False, True),
    "llava": (True, True), "mobilebert": (True, True), "bigbird_pegasus": ("use_bias", False),
    "seamless_m4t": (True, True), "detr": (True, True), "led": (True, True),
}
ENCODERS = ("bert", "roberta", "distilbert", "videomae")
BOTH_WAYS = (*ENCODERS, "llava", "mobilebert", "openai_privacy_filter", "detr")
SINKS = ("gpt_oss", "openai_privacy_filter")


def first(config, *keys):
    """The first of the keys that the config has and that is not null."""
    return next((config[key] for key in keys if config.get(key) is not None), None)


def slides(config, index):
    return config["layer_types"][index] == "sliding_attention"


def shape(config, index=None):
    """width, values (the width of what values are made of), heads, kv_heads, head_dim, layers of a
    config; heads of layer `index`."""
    family = config["model_type"]
    config = config["vision_config"] if family == "llava" else config
    width = values = first(config, "hidden_size", "n_embd", "d_model", "dim")
    width = config.get("intra_bottleneck_size", width)
    heads = first(config, "num_attention_heads", "n_head", "num_heads", "n_heads",
                  "encoder_attention_heads")
    if family == "step3p5" and index is not None and slides(config, index):
        heads = config["attention_other_setting"]["num_attention_heads"]
    layers = first(config, "num_hidden_layers", "n_layer", "num_layers", "n_layers",
                   "encoder_layers")
    head_dim = first(config, "head_dim", "d_kv", "kv_channels") or width // heads
    kv_heads = first(config, "num_key_value_heads", "multi_query_group_num",
                     "num_attention_groups") or heads
    if family == "falcon":
        kv_heads = 1 if config["multi_query"] else heads
        if config["new_decoder_architecture"]:
            kv_heads = config["num_kv_heads"]
    return Namespace(width=width, values=values, heads=heads, kv_heads=kv_heads, head_dim=head_dim, layers=layers)


def biases(config):
    """Whether q, k, v and whether o have biases."""
    qkv, out = BIASES.get(config["model_type"], (False, False))
    if isinstance(qkv, str):
        qkv = out = config.get(qkv, out)
    return qkv, out


def relative_key(config):
    """BERT's relative keys: "relative_key", "relative_key_query" or None."""
    kind = config.get("position_embedding_type", "absolute")
    return kind if kind.startswith("relative") else None


def qkv_order(config):
    """How the rows (columns, in gpt2) of a fused tensor lie: blocks, or groups of heads."""
    family = config["model_type"]
    if family in (*COLUMNS, "phi3", "baichuan", "qwen", "chatglm", "bailing_moe"):
        return "blocks"
    if family == "falcon" and config["multi_query"] and not config["new_decoder_architecture"]:
        return "blocks"
    return "groups"


def parts(config, index, stack=None, kind="self_attention"):
    """role -> (tensor name, shape as stored) for one layer's attention."""
    s, family = shape(config, index), config["model_type"]
    names = STACKED[family][stack, kind] if family in STACKED else NAMES[family]
    at = names["at"] % index
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    rows = {"q": q, "k": kv, "v": kv, "qkv": q + 2 * kv, "o": s.width}
    qkv_bias, out_bias = biases(config)
    found = {}
    for role in ("q", "k", "v", "qkv", "o"):
        if role not in names:
            continue
        size = (rows[role], q if role == "o" else s.values if role == "v" else s.width)
        found[role + ".weight"] = at + names[role] + ".weight", \
            size[::-1] if family in COLUMNS else size
        if out_bias if role == "o" else qkv_bias:
            found[role + ".bias"] = at + names[role] + ".bias", (rows[role],)
    if family == "step3p5":
        found["gate.weight"] = at + "g_proj.weight", (s.heads, s.width)
    if family in ("qwen3", "gemma3_text", "step3p5"):
        found["q_norm"] = at + "q_norm.weight", (s.head_dim,)
        found["k_norm"] = at + "k_norm.weight", (s.head_dim,)
    if family == "bailing_moe" and config["use_qk_norm"]:
        found["q_norm"] = at + "query_layernorm.weight", (s.head_dim,)
        found["k_norm"] = at + "key_layernorm.weight", (s.head_dim,)
    if family == "videomae":  # whose keys have no bias
        found["q.bias"], found["v.bias"] = ((at + f"attention.{n}_bias", (q,)) for n in "qv")
    if family == "chameleon":
        for role, heads in (("q_norm", s.heads), ("k_norm", s.kv_heads)):
            found[role] = at + role + ".weight", (heads, s.head_dim)
            found[role + "_bias"] = at + role + ".bias", (heads, s.head_dim)
    if family == "cohere" and config["use_qk_norm"]:
        found["q_norm"] = at + "q_norm.weight", (s.heads, s.head_dim)
        found["k_norm"] = at + "k_norm.weight", (s.kv_heads, s.head_dim)
    if relative_key(config):
        found["distances"] = at + "self.distance_embedding.weight", \
            (2 * config["max_position_embeddings"] - 1, s.head_dim)
    if family in SINKS:
        found["sinks"] = at + "sinks", (s.heads,)
    if family == "t5" and kind == "self_attention":
        found["table"] = T5_AT[stack, kind] % 0 + "relative_attention_bias.weight", \
            (config["relative_attention_num_buckets"], s.heads)
    return found


def split_fused(config, fused):
    """q, k and v out of the last axis of a fused weight or bias, in head order."""
    s = shape(config)
    share = s.heads // s.kv_heads
    lead = fused.shape[:-1]
    if qkv_order(config) == "blocks":
        cuts = [s.heads * s.head_dim, (s.heads + s.kv_heads) * s.head_dim]
        return np.split(fused, cuts, -1)
    groups = fused.reshape(*lead, s.kv_heads, share + 2, s.head_dim)
    return [groups[..., part, :].reshape(*lead, -1)
            for part in (slice(0, share), slice(share, share + 1), slice(share + 1, share + 2))]


def find(tensors, name):
    """A tensor by name, also where the file was saved from a model that wraps this one."""
    return tensors[next(full for full in tensors if ("." + full).endswith("." + name))]


def weights(config, tensors, named):
    """role -> float64 array; linear weights as [in, out], fused ones taken apart."""
    found = {}
    for role, (name, _) in named.items():
        array = find(tensors, name).astype(np.float64)
        if role.endswith(".weight") and config["model_type"] not in COLUMNS:
            array = array.T
        if role.startswith("qkv"):
            suffix = role[3:]
            q, k, v = split_fused(config, array)
            found.update({"q" + suffix: q, "k" + suffix: k, "v" + suffix: v})
        else:
            found[role] = array
    for role in ("q_norm", "k_norm", "q_norm_bias", "k_norm_bias"):
        if config["model_type"] in ("cohere", "chameleon") and role in found:
            found[role] = found[role][:, None, :]
        elif config["model_type"] in ("gemma3_text", "step3p5") and role in found:
            found[role] = 1 + found[role]
    return found


def window(config, index, stack=None):
    """The sliding window of a layer, or None."""
    family, size = config["model_type"], config.get("sliding_window")
    if family == "led":  # half of it on each side
        return config["attention_window"][index] // 2 + 1 if stack == "encoder" else None
    if family == "step3p5":
        return size if slides(config, index) else None
    if family in ("mistral", "phi3", "moshi", "mimi"):
        return size
    if family == "openai_privacy_filter":  # so many on each side
        return size + 1
    if family == "modernbert-decoder":
        return config["local_attention"] // 2 if index % config["global_attn_every_n_layers"] \
            else None
    if family == "gemma3_text":
        size = size // 2 + 1 if config.get("use_bidirectional_attention") else size
        return size if (index + 1) % config["sliding_window_pattern"] else None
    if family not in ("qwen2", "qwen3", "gemma2", "gpt_oss"):
        return None
    if family in ("qwen2", "qwen3") and not config.get("use_sliding_window"):
        return None
    types = config.get("layer_types")
    if types:
        return size if types[index] == "sliding_attention" else None
    sliding = index % 2 == 0 if family in ("gemma2", "gpt_oss") \
        else index >= config["max_window_layers"]
    return size if sliding else None


def rope_base(config, index):
    """The base of a layer's rotation."""
    if config["model_type"] == "gemma3_text" and window(config, index):
        return config["rope_local_base_freq"]
    if config["model_type"] == "modernbert-decoder":
        return config["local_rope_theta" if window(config, index) else "global_rope_theta"]
    base = config.get("rotary_emb_base", config.get("rope_theta", 10000.0))
    if isinstance(base, list):
        return base[index]
    return base * config.get("rope_ratio", 1)


def has_alibi(config):
    """Baichuan's two sizes share a class name; that of 13B has no max_position_embeddings."""
    family = config["model_type"]
    thirteen = family == "baichuan" and "max_position_embeddings" not in config
    jina = config.get("position_embedding_type") == "alibi"
    return family == "bloom" or thirteen or jina or config.get("alibi", False)


def rope_rule(config, index):
    """The rotary rule of a layer, for rope.py, or None."""
    family, s = config["model_type"], shape(config)
    stacked = family in STACKED and family != "mimi"
    if stacked or family in ("bloom", "opt", "ctrl", "mobilebert", *COLUMNS, *ENCODERS) or \
            has_alibi(config):
        return None
    fraction = {"phi": 0.5, "gpt_neox": 0.25, "chatglm": 0.5}.get(family, 1.0)
    fraction = config.get("rotary_pct", config.get("partial_rotary_factor", fraction))
    scaling = config.get("rope_scaling")
    if family == "step3p5":
        fraction = config["partial_rotary_factors"][index]
        scaling = None if slides(config, index) else scaling
    return {"theta": rope_base(config, index),
            "dim": config.get("rotary_dim") or int(s.head_dim * fraction),
            "interleaved": family in ("gptj", "cohere", "chatglm", "openai_privacy_filter"),
            "scaling": scaling,
            "max_positions": config.get("max_position_embeddings"),
            "original": config.get("original_max_position_embeddings")}


def scale(config, index):
    """What the product of query and key is multiplied by."""
    family, head_dim = config["model_type"], shape(config).head_dim
    if family == "t5":
        return 1.0
    if family in ("gemma2", "gemma3_text"):
        return config["query_pre_attn_scalar"] ** -0.5
    if family == "gpt2" and config.get("scale_attn_by_inverse_layer_idx"):
        return head_dim ** -0.5 / (index + 1)
    return head_dim ** -0.5


def layer(config, tensors, index, stack=None, kind="self_attention"):
    """One layer's attention, ready for attention.py."""
    family, s = config["model_type"], shape(config, index)
    both_ways = (stack in ("encoder", "global") and family != "mimi") or config.get("use_bidirectional_attention", False)
    t5_self = family == "t5" and kind == "self_attention"
    return Namespace(
        heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, scale=scale(config, index),
        causal=config.get("is_decoder", family not in BOTH_WAYS) and not both_ways and
        kind == "self_attention", relative_key=relative_key(config),
        window=window(config, index, stack), softcap=config.get("attn_logit_softcapping"),
        sinks=family in SINKS, rope=rope_rule(config, index),
        norm="layer" if family in ("cohere", "chameleon") else "rms",
        norm_eps=1e-5 if family == "chameleon" else first(config, "rms_norm_eps",
                                                          "layer_norm_eps"),
        alibi=family if has_alibi(config) else None,
        buckets=(config["relative_attention_num_buckets"],
                 config["relative_attention_max_distance"], both_ways) if t5_self else None,
        weights=weights(config, tensors, parts(config, index, stack, kind)))
