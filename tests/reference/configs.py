"""The config of every folder, its decoy tensors, and where the definition is published.

Keys are those of published config files of each family; sizes are small.  A decoy is a name with a
role (norm, small, causal, masked, or any other for a weight) and a shape.
"""
COMMON = {"bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02,
          "torch_dtype": "float32", "use_cache": True, "vocab_size": 16}


def source(tag, *files):
    """Where the definition stands, as cases.json names it."""
    return {"repo": "huggingface/transformers", "tag": tag,
            "paths": ["src/transformers/" + file for file in files]}


def model_files(family, tag):
    return source(tag, f"models/{family}/modeling_{family}.py",
                  f"models/{family}/configuration_{family}.py", "modeling_rope_utils.py")


def published(repo, *files):
    """Where the definition stands that is published with a checkpoint."""
    return {"repo": "huggingface.co/" + repo, "tag": "main", "paths": list(files)}


def config(family, architecture, **keys):
    own = {"architectures": [architecture], "model_type": family, **COMMON, **keys}
    return dict(sorted(own.items()))


# ---- Decoys ----

def llama_decoys(width, head_dim=None, mlp=("gate_proj", "up_proj")):
    """Embedding, head, norms and part of an MLP; an old rotary buffer where head_dim is given."""
    found = {"model.embed_tokens.weight": ("w", (16, width)), "lm_head.weight": ("w", (16, width)),
             "model.norm.weight": ("norm", (width,))}
    for i in range(2):
        at = f"model.layers.{i}."
        found[at + "input_layernorm.weight"] = "norm", (width,)
        found[at + "mlp." + mlp[0] + ".weight"] = "w", (8, width)
        if head_dim:
            found[at + "self_attn.rotary_emb.inv_freq"] = "small", (head_dim // 2,)
    return found


def decoys(width, *names, layers=2, **buffers):
    """The named weights, `%d` standing for each layer; norms and biases are vectors."""
    found = {}
    for name in names:
        vector = any(word in name for word in ("norm", "ln_", "Norm", ".bias"))
        spec = ("norm", (width,)) if vector else ("w", (8, width))
        found.update((name % i if "%d" in name else name, spec) for i in range(layers))
    for name, spec in buffers.pop("each", {}).items():
        found.update((name % i, spec) for i in range(layers))
    return found


CAUSAL = ("causal", (1, 1, 16, 16))
MASKED = ("masked", ())
NEOX_DECOYS = decoys(
    32, "gpt_neox.embed_in.weight", "embed_out.weight", "gpt_neox.layers.%d.input_layernorm.weight",
    "gpt_neox.layers.%d.mlp.dense_h_to_4h.weight", "gpt_neox.final_layer_norm.bias",
    each={"gpt_neox.layers.%d.attention.bias": CAUSAL,
          "gpt_neox.layers.%d.attention.masked_bias": MASKED,
          "gpt_neox.layers.%d.attention.rotary_emb.inv_freq": ("small", (2,))})
GPTJ_DECOYS = decoys(
    32, "transformer.wte.weight", "transformer.h.%d.ln_1.weight",
    "transformer.h.%d.mlp.fc_in.weight", "lm_head.weight",
    each={"transformer.h.%d.attn.bias": CAUSAL, "transformer.h.%d.attn.masked_bias": MASKED})
GPT2_DECOYS = decoys(
    24, "wte.weight", "wpe.weight", "h.%d.ln_1.weight", "h.%d.mlp.c_proj.weight", "ln_f.bias",
    layers=3, each={"h.%d.attn.bias": CAUSAL})
T5_DECOYS = decoys(
    20, "shared.weight", "encoder.block.%d.layer.0.layer_norm.weight",
    "encoder.block.%d.layer.1.DenseReluDense.wi.weight", "encoder.final_layer_norm.weight",
    "decoder.block.%d.layer.2.DenseReluDense.wo.weight")


def falcon_decoys(width):
    return decoys(width, "transformer.word_embeddings.weight", "lm_head.weight",
                  "transformer.h.%d.input_layernorm.weight",
                  "transformer.h.%d.mlp.dense_h_to_4h.weight", "transformer.ln_f.bias")


CHATGLM_DECOYS = decoys(
    24, "transformer.embedding.word_embeddings.weight", "transformer.output_layer.weight",
    "transformer.encoder.final_layernorm.weight",
    "transformer.encoder.layers.%d.input_layernorm.weight",
    "transformer.encoder.layers.%d.mlp.dense_h_to_4h.weight")


def bloom_decoys(width):
    return decoys(width, "word_embeddings.weight", "word_embeddings_layernorm.weight",
                  "h.%d.input_layernorm.bias", "h.%d.mlp.dense_h_to_4h.weight", "ln_f.bias")


def encoder_decoys(at, width, *names):
    return decoys(width, *(at + name for name in names))


# ---- Configs ----

def llama(scaling=None, **keys):
    return config(**{**dict(
        family="llama", architecture="LlamaForCausalLM", hidden_size=24, num_attention_heads=2,
        num_key_value_heads=1, num_hidden_layers=2, intermediate_size=8, hidden_act="silu",
        max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=scaling,
        attention_bias=False, attention_dropout=0.0, mlp_bias=False, pretraining_tp=1,
        tie_word_embeddings=False), **keys})


def mistral(window):
    return config("mistral", "MistralForCausalLM", hidden_size=24, num_attention_heads=4,
                  head_dim=8, num_key_value_heads=2, num_hidden_layers=2, intermediate_size=8,
                  hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-5,
                  rope_theta=1000000.0, sliding_window=window, attention_dropout=0.0,
                  tie_word_embeddings=False)


def qwen2(layers, **keys):
    return config("qwen2", "Qwen2ForCausalLM", hidden_size=24, num_attention_heads=4,
                  num_key_value_heads=2, num_hidden_layers=layers, intermediate_size=8,
                  hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-6,
                  rope_theta=1000000.0, attention_dropout=0.0, tie_word_embeddings=False, **keys)


def baichuan(heads, **keys):
    return config("baichuan", "BaichuanForCausalLM", hidden_size=24, num_attention_heads=heads,
                  num_hidden_layers=2, intermediate_size=8, hidden_act="silu", pad_token_id=0,
                  rms_norm_eps=1e-6, tie_word_embeddings=False, z_loss_weight=0, **keys)


def chatglm(**keys):
    return config("chatglm", "ChatGLMModel", hidden_size=24, num_attention_heads=4, kv_channels=8,
                  multi_query_attention=True, multi_query_group_num=2, num_layers=2, seq_length=64,
                  add_bias_linear=False, add_qkv_bias=True, apply_query_key_layer_scaling=True,
                  apply_residual_connection_post_layernorm=False, attention_dropout=0.0,
                  attention_softmax_in_fp32=True, bias_dropout_fusion=True, ffn_hidden_size=8,
                  fp32_residual_connection=False, hidden_dropout=0.0, layernorm_epsilon=1e-5,
                  original_rope=True, padded_vocab_size=16, post_layer_norm=True, rmsnorm=True,
                  tie_word_embeddings=False, **keys)


def phi3(**keys):
    return config("phi3", "Phi3ForCausalLM", **{**dict(
        hidden_size=24, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
        intermediate_size=8, hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-5,
        original_max_position_embeddings=4096, rope_theta=10000.0, rope_scaling=None,
        sliding_window=None, attention_bias=False, attention_dropout=0.0, embd_pdrop=0.0,
        resid_pdrop=0.0, tie_word_embeddings=False, pad_token_id=3), **keys})


def gpt_neox(bias):
    return config("gpt_neox", "GPTNeoXForCausalLM", hidden_size=32, num_attention_heads=2,
                  num_hidden_layers=2, intermediate_size=8, hidden_act="gelu",
                  max_position_embeddings=2048, layer_norm_eps=1e-5, rotary_emb_base=10000,
                  rotary_pct=0.25, use_parallel_residual=True, attention_bias=bias,
                  tie_word_embeddings=False, classifier_dropout=0.1)


def falcon(width, heads, **keys):
    return config("falcon", "FalconForCausalLM", **{**dict(
        hidden_size=width, num_attention_heads=heads, num_hidden_layers=2, num_kv_heads=heads,
        alibi=False, bias=False, multi_query=True, new_decoder_architecture=False,
        parallel_attn=True, attention_dropout=0.0, hidden_dropout=0.0, layer_norm_epsilon=1e-5,
        apply_residual_connection_post_layernorm=False), **keys})


def bloom(width, heads):
    return config("bloom", "BloomForCausalLM", hidden_size=width, n_head=heads, n_layer=2,
                  apply_residual_connection_post_layernorm=False, attention_dropout=0.0,
                  hidden_dropout=0.0, attention_softmax_in_fp32=True, bias_dropout_fusion=True,
                  layer_norm_epsilon=1e-5, masked_softmax_fusion=True, pad_token_id=3,
                  pretraining_tp=1, offset_alibi=100, seq_length=2048, slow_but_exact=False,
                  skip_bias_add=True, skip_bias_add_qkv=False, unk_token_id=0)


def t5(width, heads, d_kv, buckets, distance):
    return config("t5", "T5ForConditionalGeneration", d_model=width, num_heads=heads, d_kv=d_kv,
                  num_layers=2, num_decoder_layers=2, d_ff=8, dropout_rate=0.1,
                  relative_attention_num_buckets=buckets, relative_attention_max_distance=distance,
                  feed_forward_proj="relu", is_encoder_decoder=True, layer_norm_epsilon=1e-6,
                  n_positions=512, output_past=True, pad_token_id=0, decoder_start_token_id=0)


def encoder_decoder(heads):
    return {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": heads,
            "decoder_attention_heads": heads, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8,
            "is_encoder_decoder": True, "activation_function": "relu", "dropout": 0.1,
            "attention_dropout": 0.0, "activation_dropout": 0.0, "encoder_layerdrop": 0.0,
            "decoder_layerdrop": 0.0}


def spec(own, decoy, where, **more):
    return {"config": own, "decoys": decoy, "source": where, **more}


OLD, NEW, LATER, LATEST = "v4.46.3", "v4.55.4", "v4.57.0", "v5.15.0"
LLAMA = model_files("llama", OLD), model_files("llama", NEW)
MISTRAL, QWEN2 = model_files("mistral", OLD), model_files("qwen2", NEW)
PHI3, FALCON = model_files("phi3", NEW), model_files("falcon", OLD)
SHORT, LONG = [1.0, 1.1, 1.25], [1.5, 2.5, 4.0]
BERT_KEYS = dict(hidden_size=24, num_attention_heads=4, num_hidden_layers=2, intermediate_size=8,
                 hidden_act="gelu", attention_probs_dropout_prob=0.1, hidden_dropout_prob=0.1,
                 layer_norm_eps=1e-5, max_position_embeddings=514, type_vocab_size=1,
                 position_embedding_type="absolute", pad_token_id=1)

BERT_DECOYS = encoder_decoys("bert.", 24, "embeddings.word_embeddings.weight",
                             "encoder.layer.%d.attention.output.LayerNorm.weight",
                             "encoder.layer.%d.intermediate.dense.weight")

CONFIGS = {
    "mistral": spec(mistral(5), llama_decoys(24), MISTRAL, notes="heads * head_dim is not width"),
    "mistral_full": spec(mistral(None), llama_decoys(24), MISTRAL, notes="no window"),
    "qwen2": spec(qwen2(2, use_sliding_window=False, sliding_window=4, max_window_layers=1),
                  llama_decoys(24), QWEN2, shards=2, notes="a window is given but not used"),
    "qwen2_sliding": spec(
        qwen2(3, use_sliding_window=True, sliding_window=4, max_window_layers=1),
        llama_decoys(24), QWEN2, notes="layers 1 and 2 slide"),
    "qwen2_types": spec(
        qwen2(3, use_sliding_window=True, sliding_window=4, max_window_layers=0, layer_types=[
            "full_attention", "sliding_attention", "full_attention"]),
        llama_decoys(24), QWEN2, notes="layer 1 slides, by layer_types"),
    "qwen3": spec(
        config("qwen3", "Qwen3ForCausalLM", hidden_size=24, num_attention_heads=4, head_dim=8,
               num_key_value_heads=2, num_hidden_layers=2, intermediate_size=8, hidden_act="silu",
               max_position_embeddings=4096, rms_norm_eps=1e-6, rope_theta=1000000.0,
               rope_scaling=None, attention_bias=False, attention_dropout=0.0,
               max_window_layers=2, sliding_window=None, use_sliding_window=False,
               tie_word_embeddings=False),
        llama_decoys(24), model_files("qwen3", NEW), notes="norms of q and k before the rotation"),
    "gemma2": spec(
        config("gemma2", "Gemma2ForCausalLM", hidden_size=24, num_attention_heads=4, head_dim=8,
               num_key_value_heads=2, num_hidden_layers=2, intermediate_size=8,
               hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
               max_position_embeddings=8192, rms_norm_eps=1e-6, rope_theta=10000.0,
               query_pre_attn_scalar=20, attn_logit_softcapping=2.0, final_logit_softcapping=30.0,
               sliding_window=5, attention_bias=False, attention_dropout=0.0,
               cache_implementation="hybrid", pad_token_id=0),
        llama_decoys(24), model_files("gemma2", NEW), notes="layer 0 slides, layer 1 does not"),
    "gpt_oss": spec(
        config("gpt_oss", "GptOssForCausalLM", hidden_size=24, num_attention_heads=4, head_dim=12,
               num_key_value_heads=2, num_hidden_layers=2, intermediate_size=8, hidden_act="silu",
               max_position_embeddings=131072, initial_context_length=4096, rms_norm_eps=1e-5,
               rope_theta=150000, sliding_window=5, attention_bias=True, attention_dropout=0.0,
               layer_types=["sliding_attention", "full_attention"], num_local_experts=2,
               num_experts_per_tok=1, experts_per_token=1, output_router_logits=False,
               router_aux_loss_coef=0.9, swiglu_limit=7.0, tie_word_embeddings=False,
               rope_scaling={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                             "original_max_position_embeddings": 4096, "rope_type": "yarn",
                             "truncate": False}) | {"torch_dtype": "bfloat16"},
        llama_decoys(24), model_files("gpt_oss", NEW), dtype="BF16",
        notes="rows of attentions sum to less than 1: the sink takes the rest"),
    "phi": spec(
        config("phi", "PhiForCausalLM", hidden_size=24, num_attention_heads=2,
               num_key_value_heads=None, num_hidden_layers=2, intermediate_size=8,
               hidden_act="gelu_new", max_position_embeddings=2048, layer_norm_eps=1e-5,
               rope_theta=10000.0, rope_scaling=None, partial_rotary_factor=0.5,
               qk_layernorm=False, attention_dropout=0.0, embd_pdrop=0.0, resid_pdrop=0.1,
               tie_word_embeddings=False) | {"torch_dtype": "float16"},
        llama_decoys(24, 6, ("fc1", "fc2")), model_files("phi", OLD), dtype="F16"),
    "phi3": spec(phi3(sliding_window=6), llama_decoys(24), PHI3, notes="qkv_proj rows q | k | v"),
    "phi3_longrope": spec(
        phi3(max_position_embeddings=64, original_max_position_embeddings=16, sliding_window=262144,
             rope_scaling={"type": "longrope", "short_factor": SHORT, "long_factor": LONG}),
        llama_decoys(24), PHI3),
    "phi3_partial": spec(
        phi3(max_position_embeddings=64, original_max_position_embeddings=16,
             partial_rotary_factor=0.75, sliding_window=262144,
             rope_scaling={"type": "longrope", "short_factor": SHORT[:2],
                           "long_factor": LONG[:2]}),
        llama_decoys(24), PHI3, notes="4 of 6 elements turn"),
    "gpt_neox": spec(gpt_neox(True), NEOX_DECOYS, model_files("gpt_neox", OLD),
                     notes="rows per head [q, k, v]; 4 of 16 elements turn"),
    "gpt_neox_nobias": spec(gpt_neox(False), NEOX_DECOYS, model_files("gpt_neox", OLD)),
    "gptj": spec(
        config("gptj", "GPTJForCausalLM", n_embd=32, n_head=2, n_layer=2, n_positions=2048,
               n_inner=None, rotary_dim=8, rotary=True, activation_function="gelu_new",
               attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, layer_norm_epsilon=1e-5,
               scale_attn_weights=True, tie_word_embeddings=False, tokenizer_class="x"),
        GPTJ_DECOYS, model_files("gptj", OLD), notes="neighbouring pairs, 8 of 16 elements turn"),
    "falcon_mqa": spec(falcon(24, 4), falcon_decoys(24), FALCON,
                       notes="rows q heads | k | v; num_kv_heads does not count here"),
    "falcon_gqa": spec(
        falcon(24, 4, num_kv_heads=2, new_decoder_architecture=True), falcon_decoys(24),
        FALCON, notes="rows per kv head [its q heads, k, v]"),
    "falcon_mha": spec(falcon(24, 4, multi_query=False, rope_theta=5000.0), falcon_decoys(24),
                       FALCON, notes="rows per head [q, k, v], with rotation"),
    "falcon_bias": spec(falcon(24, 4, bias=True), falcon_decoys(24), FALCON),
    "falcon_alibi": spec(
        falcon(24, 6, alibi=True, bias=True, multi_query=False), falcon_decoys(24), FALCON,
        notes="ALiBi is divided by sqrt(head_dim); these slopes are exact in bfloat16"),
    "falcon_alibi_12": spec(
        falcon(24, 12, alibi=True, bias=True, multi_query=False), falcon_decoys(24), FALCON,
        notes="slopes and products are rounded to bfloat16, four heads' visibly"),
    "bloom": spec(bloom(24, 8), bloom_decoys(24), model_files("bloom", OLD),
                  notes="rows per head [q, k, v]; ALiBi is not divided by sqrt(head_dim)"),
    "bloom_6": spec(bloom(24, 6), bloom_decoys(24), model_files("bloom", OLD)),
    "opt": spec(
        config("opt", "OPTForCausalLM", hidden_size=24, num_attention_heads=4, num_hidden_layers=2,
               ffn_dim=8, word_embed_proj_dim=24, do_layer_norm_before=True, enable_bias=True,
               activation_function="relu", attention_dropout=0.0, dropout=0.1, layerdrop=0.0,
               layer_norm_elementwise_affine=True, max_position_embeddings=2048, pad_token_id=1,
               _remove_final_layer_norm=False, prefix="</s>"),
        encoder_decoys("model.decoder.", 24, "embed_tokens.weight", "embed_positions.weight",
                       "layers.%d.self_attn_layer_norm.weight", "layers.%d.fc1.weight"),
        model_files("opt", OLD)),
    "t5": spec(
        t5(20, 3, 4, 8, 20), T5_DECOYS | {
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight":
                ("w", (8, 3))}, model_files("t5", OLD),
        notes="no scaling; block 0's table serves both layers; the cross table is unused"),
    "t5_32": spec(t5(12, 2, 4, 32, 128), {}, model_files("t5", OLD),
                  notes="long enough for the last bucket; maps are not stored, they are too large"),
    "roberta": spec(
        config("roberta", "RobertaForMaskedLM", **BERT_KEYS),
        encoder_decoys("roberta.", 24, "embeddings.word_embeddings.weight",
                       "encoder.layer.%d.attention.output.LayerNorm.weight",
                       "encoder.layer.%d.intermediate.dense.weight"), model_files("roberta", OLD)),
    "distilbert": spec(
        config("distilbert", "DistilBertForMaskedLM", dim=24, n_heads=4, n_layers=2, hidden_dim=8,
               activation="gelu", attention_dropout=0.1, dropout=0.1, max_position_embeddings=512,
               pad_token_id=0, qa_dropout=0.1, seq_classif_dropout=0.2,
               sinusoidal_pos_embds=False, tie_weights_=True),
        encoder_decoys("distilbert.", 24, "embeddings.word_embeddings.weight",
                       "transformer.layer.%d.sa_layer_norm.weight",
                       "transformer.layer.%d.ffn.lin1.weight"), model_files("distilbert", OLD)),
    "gpt2_scale_by_layer": spec(
        config("gpt2", "GPT2LMHeadModel", n_embd=24, n_head=4, n_layer=3, n_ctx=64, n_positions=64,
               n_inner=8, activation_function="gelu_new", attn_pdrop=0.1, embd_pdrop=0.1,
               resid_pdrop=0.1, layer_norm_epsilon=1e-5, scale_attn_weights=True,
               scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=False),
        GPT2_DECOYS, model_files("gpt2", OLD), notes="layer i's scores are divided by i + 1 too"),
    "llama_linear": spec(llama({"rope_type": "linear", "factor": 4.0}), llama_decoys(24, 12),
                         LLAMA[0]),
    "llama_dynamic": spec(
        llama({"type": "dynamic", "factor": 4.0}, max_position_embeddings=16), llama_decoys(24, 12),
        LLAMA[0],
        notes="a call's length is its largest position + 1; cached keys stay as they were"),
    "llama_yarn": spec(
        llama({"rope_type": "yarn", "factor": 4.0}, max_position_embeddings=32), llama_decoys(24),
        LLAMA[0], notes="max_position_embeddings is the original length"),
    "llama_yarn_original": spec(
        llama({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
               "beta_fast": 1.0, "beta_slow": 0.1}, max_position_embeddings=128),
        llama_decoys(24), LLAMA[1]),
    "llama_yarn_mscale": spec(
        llama({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
               "mscale": 1.5, "mscale_all_dim": 0.8, "truncate": False},
              max_position_embeddings=128), llama_decoys(24), LLAMA[1]),
    "llama_yarn_factor": spec(
        llama({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
               "attention_factor": 0.9}, max_position_embeddings=128), llama_decoys(24), LLAMA[1]),
    "mimo": spec(
        config("mimo", "MiMoForCausalLM", hidden_size=24, num_attention_heads=4, head_dim=8,
               num_key_value_heads=2, num_hidden_layers=2, intermediate_size=8, hidden_act="silu",
               max_position_embeddings=4096, max_window_layers=2, rms_norm_eps=1e-5,
               rope_theta=640000, rope_scaling=None, attention_bias=True, attention_dropout=0.0,
               num_nextn_predict_layers=1, sliding_window=4, use_mrope=False,
               use_sliding_window=False, tie_word_embeddings=False),
        llama_decoys(24), published("XiaomiMiMo/MiMo-7B-Base", "modeling_mimo.py"),
        notes="qwen2's attention"),
    "internlm2": spec(
        config("internlm2", "InternLM2ForCausalLM", hidden_size=24, num_attention_heads=4,
               num_key_value_heads=2, num_hidden_layers=2, intermediate_size=8, hidden_act="silu",
               max_position_embeddings=16, rms_norm_eps=1e-5, rope_theta=1000000, bias=False,
               rope_scaling={"type": "dynamic", "factor": 2.0}, pretraining_tp=1,
               tie_word_embeddings=False),
        decoys(24, "model.tok_embeddings.weight", "model.norm.weight", "output.weight",
               "model.layers.%d.attention_norm.weight", "model.layers.%d.feed_forward.w1.weight"),
        published("internlm/internlm2-7b", "modeling_internlm2.py"),
        notes="rows per key head [its query heads, k, v]; rotation as llama_dynamic"),
    "cohere_qk_norm": spec(
        config("cohere", "CohereForCausalLM", hidden_size=24, num_attention_heads=4,
               num_key_value_heads=2, num_hidden_layers=2, intermediate_size=8, hidden_act="silu",
               head_dim=8, max_position_embeddings=8192, layer_norm_eps=1e-5, logit_scale=0.0625,
               rope_theta=10000.0, attention_bias=False, attention_dropout=0.0, use_qk_norm=True),
        llama_decoys(24), model_files("cohere", NEW),
        notes="LayerNorm without bias, with weights for each head; neighbouring pairs"),
    "gemma3_bidirectional": spec(
        config("gemma3_text", "Gemma3TextModel", hidden_size=24, num_attention_heads=4, head_dim=8,
               num_key_value_heads=1, num_hidden_layers=2, intermediate_size=8,
               hidden_activation="gelu_pytorch_tanh", max_position_embeddings=2048,
               rms_norm_eps=1e-6, rope_theta=1000000.0, rope_local_base_freq=10000.0,
               rope_scaling=None, query_pre_attn_scalar=20, attention_bias=False,
               attention_dropout=0.0, sliding_window=7, sliding_window_pattern=2, pad_token_id=0,
               use_bidirectional_attention=True),
        llama_decoys(24), model_files("gemma3", LATER),
        notes="EmbeddingGemma's: layer 0 sees 3 tokens on both sides, layer 1 all"),
    "exaone": spec(
        config("exaone", "ExaoneForCausalLM", hidden_size=24, num_attention_heads=4, head_dim=8,
               num_key_value_heads=2, num_layers=2, intermediate_size=8, max_position_embeddings=64,
               activation_function="silu", layer_norm_epsilon=1e-5, rope_theta=1000000.0,
               rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                             "original_max_position_embeddings": 32, "rope_type": "llama3"},
               attention_dropout=0.0, embed_dropout=0.0, tie_word_embeddings=False),
        decoys(24, "transformer.wte.weight", "transformer.ln_f.weight",
               "transformer.h.%d.ln_1.weight", "transformer.h.%d.mlp.c_fc_0.weight"),
        published("LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct", "modeling_exaone.py"),
        notes="llama under other names; llama3 scaling"),
    "baichuan": spec(
        baichuan(4, max_position_embeddings=4096, model_max_length=4096), llama_decoys(24, 6),
        published("baichuan-inc/Baichuan2-7B-Base", "modeling_baichuan.py"),
        notes="W_pack rows q | k | v; halves rotate"),
    "baichuan_alibi": spec(
        baichuan(6, model_max_length=4096), llama_decoys(24),
        published("baichuan-inc/Baichuan2-13B-Base", "modeling_baichuan.py"),
        notes="W_pack rows q | k | v; no max_position_embeddings: ALiBi, as in the models of 13B"),
    "qwen": spec(
        config("qwen", "QWenLMHeadModel", hidden_size=24, num_attention_heads=3, kv_channels=8,
               num_hidden_layers=2, intermediate_size=8, seq_length=64,
               max_position_embeddings=8192, rotary_emb_base=10000, rotary_pct=1.0,
               use_dynamic_ntk=True, use_logn_attn=True, no_bias=True, scale_attn_weights=True,
               layer_norm_epsilon=1e-6, attn_dropout_prob=0.0, emb_dropout_prob=0.0, bf16=False,
               fp16=False, fp32=False, use_flash_attn="auto", tokenizer_class="QWenTokenizer",
               tie_word_embeddings=False),
        decoys(24, "transformer.wte.weight", "transformer.ln_f.weight",
               "transformer.h.%d.ln_1.weight", "transformer.h.%d.mlp.w1.weight"),
        published("Qwen/Qwen-7B", "modeling_qwen.py"),
        notes="c_attn rows q | k | v; c_proj has no bias; calls within seq_length"),
    "chatglm": spec(
        chatglm(), CHATGLM_DECOYS, published("THUDM/chatglm3-6b", "modeling_chatglm.py"),
        notes="rows q heads | k | v; neighbouring pairs of the first 4 of 8 elements turn"),
    "chatglm_ratio": spec(
        chatglm(rope_ratio=500), CHATGLM_DECOYS,
        published("THUDM/glm-4-9b-chat", "modeling_chatglm.py"),
        notes="as chatglm, the base being 500 times 10000"),
    "bert_relative_key": spec(
        config("bert", "BertModel", **{**BERT_KEYS, "max_position_embeddings": 20,
                                       "position_embedding_type": "relative_key"}),
        BERT_DECOYS, model_files("bert", OLD),
        notes="score (q_i.(k_j + R)) / sqrt(d), R row i - j + 19 of the layer's table"),
    "bert_relative_key_query": spec(
        config("bert", "BertLMHeadModel", **{**BERT_KEYS, "max_position_embeddings": 80,
                                             "is_decoder": True,
                                             "position_embedding_type": "relative_key_query"}),
        BERT_DECOYS, model_files("bert", OLD),
        notes="score (q_i.k_j + (q_i + k_j).R) / sqrt(d), R row i - j + 79; causal"),
    "openai_gpt": spec(
        config("openai-gpt", "OpenAIGPTLMHeadModel", n_embd=24, n_head=4, n_layer=2, n_ctx=64,
               n_positions=64, n_special=0, predict_special_tokens=True, afn="gelu",
               attn_pdrop=0.1, embd_pdrop=0.1, resid_pdrop=0.1, layer_norm_epsilon=1e-5),
        decoys(24, "tokens_embed.weight", "h.%d.ln_1.weight"), model_files("openai", NEW),
        notes="as gpt2"),
    "ctrl": spec(
        config("ctrl", "CTRLLMHeadModel", n_embd=24, n_head=4, n_layer=2, n_ctx=64,
               n_positions=64, dff=8, attn_pdrop=0.1, embd_pdrop=0.1, resid_pdrop=0.1,
               layer_norm_epsilon=1e-6),
        decoys(24, "transformer.w.weight", "transformer.h.%d.layernorm1.weight"),
        model_files("ctrl", NEW), notes="maps Wq, Wk, Wv and dense, with biases"),
    "bailing_moe": spec(
        config("bailing_moe", "BailingMoeV2ForCausalLM", hidden_size=24, num_attention_heads=4,
               head_dim=8, num_key_value_heads=2, num_hidden_layers=2, intermediate_size=8,
               hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-6,
               rope_theta=600000, rope_scaling=None, partial_rotary_factor=0.5, use_bias=False,
               use_qkv_bias=True, use_qk_norm=True, use_rmsnorm=True, first_k_dense_replace=1,
               num_experts=2, num_experts_per_tok=1, num_shared_experts=1, n_group=1,
               topk_group=1, moe_intermediate_size=8, norm_topk_prob=True, score_function="sigmoid",
               embedding_dropout=0.0, output_dropout=0.0, attention_dropout=0.0, norm_head=False,
               norm_softmax=False, tie_word_embeddings=False),
        decoys(24, "model.word_embeddings.weight", "model.norm.weight", "lm_head.weight",
               "model.layers.%d.input_layernorm.weight",
               "model.layers.%d.mlp.experts.0.up_proj.weight"),
        published("inclusionAI/Ling-mini-2.0", "modeling_bailing_moe_v2.py"),
        notes="rows q heads | k | v; norms of q and k before half of each head turns"),
    "modernbert_decoder": spec(
        config("modernbert-decoder", "ModernBertDecoderForCausalLM", hidden_size=24,
               num_attention_heads=3, num_hidden_layers=2, intermediate_size=8,
               hidden_activation="gelu", max_position_embeddings=64, local_attention=8,
               global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0,
               norm_eps=1e-5, norm_bias=False, attention_bias=False, mlp_bias=False,
               decoder_bias=True, classifier_bias=False, classifier_activation="gelu",
               tie_word_embeddings=True),
        decoys(24, "model.embeddings.tok_embeddings.weight", "model.final_norm.weight",
               "model.layers.%d.mlp.Wi.weight", "model.layers.%d.mlp_norm.weight"),
        model_files("modernbert_decoder", LATEST),
        notes="layer 1 sees 4 tokens, its own among them, and rotates with a base of its own"),
    "videomae": spec(
        config("videomae", "VideoMAEModel", hidden_size=24, num_attention_heads=3,
               num_hidden_layers=2, intermediate_size=8, hidden_act="gelu", layer_norm_eps=1e-12,
               image_size=224, patch_size=16, num_channels=3, num_frames=16, tubelet_size=2,
               qkv_bias=True, use_mean_pooling=True, decoder_num_attention_heads=6,
               decoder_hidden_size=384, decoder_num_hidden_layers=4,
               decoder_intermediate_size=1536, norm_pix_loss=True,
               attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0),
        decoys(24, "videomae.encoder.layer.%d.layernorm_before.weight",
               "videomae.encoder.layer.%d.intermediate.dense.weight"),
        model_files("videomae", NEW), notes="biases q_bias and v_bias, none of keys"),
    "openai_privacy_filter": spec(
        config("openai_privacy_filter", "OpenAIPrivacyFilterForTokenClassification",
               hidden_size=24, num_attention_heads=4, head_dim=8, num_key_value_heads=2,
               num_hidden_layers=2, intermediate_size=8, max_position_embeddings=131072,
               rms_norm_eps=1e-5, sliding_window=3, attention_bias=True, attention_dropout=0.0,
               rope_theta=150000.0, rope_scaling={
                   "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                   "truncate": False, "original_max_position_embeddings": 4096},
               num_local_experts=2, num_experts_per_tok=1, tie_word_embeddings=False),
        llama_decoys(24, mlp=("router", "experts")), model_files("openai_privacy_filter", LATEST),
        notes="not causal; 3 tokens on each side; neighbouring pairs turn; sinks"),
    "bert_alibi": spec(
        config("bert", "JinaBertForMaskedLM", **{
            **BERT_KEYS, "num_attention_heads": 6, "emb_pooler": "mean",
            "feed_forward_type": "geglu", "max_position_embeddings": 8192,
            "model_max_length": 8192, "position_embedding_type": "alibi"}),
        encoder_decoys("", 24, "embeddings.word_embeddings.weight",
                       "encoder.layer.%d.attention.output.LayerNorm.weight",
                       "encoder.layer.%d.mlp.gated_layers.weight"),
        published("jinaai/jina-bert-implementation", "modeling_bert.py"),
        notes="ALiBi less with the distance of keys on both sides, padding counted"),
    "step3p5": spec(
        config("step3p5", "Step3p5ForCausalLM", hidden_size=24, num_attention_heads=4, head_dim=8,
               num_attention_groups=2, num_hidden_layers=2, num_nextn_predict_layers=1,
               intermediate_size=8, max_position_embeddings=128, max_seq_len=128,
               rms_norm_eps=1e-5, sliding_window=5, att_impl_type="GQA",
               layer_types=["full_attention", "sliding_attention", "sliding_attention"],
               rope_theta=[5000000.0, 10000.0, 10000.0], partial_rotary_factors=[0.5, 1.0, 1.0],
               rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                             "high_freq_factor": 32.0, "original_max_position_embeddings": 32},
               yarn_only_types=["full_attention"], use_rope_layers=[],
               use_head_wise_attn_gate=True, zero_centered=True, moe_layers_enum="1",
               attention_other_setting={"attention_type": "sliding_attention",
                                        "num_attention_heads": 6, "num_attention_groups": 2,
                                        "head_dim": 8, "true_head_dim": 8}),
        llama_decoys(24), published("stepfun-ai/Step-3.5-Flash", "modeling_step3p5.py"),
        notes="sliding layers have more query heads; a gate for each head; norms times 1 + w; "
              "half of a head turns in full layers, whose scaling is llama3's"),
    "chameleon": spec(
        config("chameleon", "ChameleonForConditionalGeneration", hidden_size=24,
               num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
               intermediate_size=8, hidden_act="silu", max_position_embeddings=4096,
               rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=None, attention_bias=False,
               mlp_bias=False, swin_norm=False, vq_config={"embed_dim": 8}),
        llama_decoys(24), model_files("chameleon", NEW),
        notes="LayerNorm of q and k, weights and biases for each head"),
    "moshi": spec(
        config("moshi", "MoshiForConditionalGeneration", hidden_size=24, num_attention_heads=4,
               head_dim=8, num_key_value_heads=2, num_hidden_layers=2, hidden_act="silu",
               max_position_embeddings=3000, rms_norm_eps=1e-8, rope_theta=10000.0,
               sliding_window=5, ffn_dim=16, num_codebooks=8, audio_vocab_size=32,
               depth_decoder_config={"model_type": "moshi_depth"}),
        {}, model_files("moshi", NEW), notes="window 5 in every layer"),
    "mimi": spec(
        config("mimi", "MimiModel", hidden_size=24, num_attention_heads=4, num_key_value_heads=4,
               num_hidden_layers=2, intermediate_size=8, hidden_act="gelu",
               max_position_embeddings=8000, norm_eps=1e-5, rope_theta=10000.0, sliding_window=5,
               attention_bias=False, sampling_rate=24000, codebook_size=32, use_causal_conv=True),
        {}, model_files("mimi", NEW), notes="both transformers are causal, with window 5"),
    "mobilebert": spec(
        config("mobilebert", "MobileBertForMaskedLM", hidden_size=40, intra_bottleneck_size=24,
               num_attention_heads=4, num_hidden_layers=2, intermediate_size=8, hidden_act="relu",
               max_position_embeddings=512, layer_norm_eps=1e-12, embedding_size=16,
               use_bottleneck=True, use_bottleneck_attention=False,
               key_query_shared_bottleneck=True, num_feedforward_networks=4, trigram_input=True,
               normalization_type="no_norm", true_hidden_size=24, type_vocab_size=2),
        {}, model_files("mobilebert", NEW),
        notes="queries and keys of a bottleneck's rows, values of wider ones"),
    "bigbird_pegasus": spec(
        config("bigbird_pegasus", "BigBirdPegasusForConditionalGeneration", d_model=24,
               **encoder_decoder(4), attention_type="block_sparse", block_size=64,
               num_random_blocks=3, max_position_embeddings=4096, use_bias=False,
               scale_embedding=True),
        {}, model_files("bigbird_pegasus", NEW),
        notes="full attention, as up to 704 tokens; no biases"),
    "llava_vision": spec(
        config("llava", "LlavaForConditionalGeneration", image_seq_length=16,
               text_config={"model_type": "llama", "hidden_size": 16, "num_attention_heads": 2,
                            "num_hidden_layers": 1},
               vision_config={"model_type": "clip_vision_model", "hidden_size": 24,
                              "intermediate_size": 8, "num_attention_heads": 4,
                              "num_hidden_layers": 2, "image_size": 8, "patch_size": 2,
                              "projection_dim": 16, "vocab_size": 16}),
        {f"language_model.model.layers.0.self_attn.{role}_proj.weight": ("w", (16, 16))
         for role in "qkvo"},
        model_files("clip", NEW), notes="the model of images inside"),
    "seamless_m4t": spec(
        config("seamless_m4t", "SeamlessM4TForTextToText", hidden_size=24, **encoder_decoder(4),
               max_position_embeddings=1024, speech_encoder_layers=2,
               speech_encoder_attention_heads=4, position_embeddings_type="relative"),
        {}, model_files("seamless_m4t", NEW), notes="the text encoder and the text decoder"),
    "led": spec(
        config("led", "LEDForConditionalGeneration", d_model=24, **encoder_decoder(4),
               attention_window=[6, 4], max_encoder_position_embeddings=64,
               max_decoder_position_embeddings=64),
        {}, model_files("led", NEW), notes="half a window on each side in the encoder, whose "
                                           "global tokens have maps of their own"),
    "detr": spec(
        config("detr", "DetrForObjectDetection", d_model=24, **encoder_decoder(4),
               position_embedding_type="sine", num_queries=9, backbone="resnet50",
               use_timm_backbone=True, num_channels=3),
        {}, model_files("detr", NEW), notes="keys and values of different rows; not causal"),
}
