/* bert.c: rows of BERT and the text encoders after it.  Data only.
 *
 * Sources: as in llama.c. */
#include "families/keys.h"
#include "families/rows.h"

/* ---- bert and the families that keep its layer ----------------------------------------------- */

static const struct attn_hf_key bert_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    LAYERS,
    POSITIONS,
    FLAG("is_decoder", is_causal),
    FIXED("position_embedding_type", "\"absolute\""),
    IGNORED("embedding_size"),
    IGNORED("summary_last_dropout"),
    IGNORED("task_type_vocab_size"),
    IGNORED("use_task_id"),
    END,
};

static const char *const bert_prefixes[] = {"bert.", "", NULL};
static const char *const roberta_prefixes[] = {"roberta.", "", NULL};
static const char *const electra_prefixes[] = {"electra.", "", NULL};
static const char *const ernie_prefixes[] = {"ernie.", "", NULL};

static const struct attn_family_tensor bert_tensors[] = {
    {"encoder.layer.*.attention.self.query.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.self.key.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.self.value.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.output.dense.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.self.query.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.self.key.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.self.value.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.output.dense.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

#define BERT_FAMILY(type, title, its_prefixes)                                     \
    {                                                                              \
        .model_type = type, .name = title, .keys = bert_keys, .common_keys = true, \
        .prefixes = its_prefixes, .tensors = bert_tensors,                         \
        .defaults = {.bias = true, .scale_attn_weights = true},                    \
    }

const struct attn_family attn_family_bert = BERT_FAMILY("bert", "bert", bert_prefixes);
const struct attn_family attn_family_roberta = BERT_FAMILY("roberta", "roberta", roberta_prefixes);
const struct attn_family attn_family_xlm_roberta =
    BERT_FAMILY("xlm-roberta", "xlm-roberta", roberta_prefixes);
const struct attn_family attn_family_camembert =
    BERT_FAMILY("camembert", "camembert", roberta_prefixes);
const struct attn_family attn_family_electra = BERT_FAMILY("electra", "electra", electra_prefixes);
const struct attn_family attn_family_ernie = BERT_FAMILY("ernie", "ernie", ernie_prefixes);

/* ---- albert: the layers of a group share one set of tensors ---------------------------------- */

static const struct attn_hf_key albert_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    LAYERS,
    SIZE("num_hidden_groups", num_groups, ATTN_MAX_LAYERS),
    POSITIONS,
    FIXED("inner_group_num", "1"),
    FIXED("position_embedding_type", "\"absolute\""),
    IGNORED("classifier_dropout_prob"),
    IGNORED("down_scale_factor"),
    IGNORED("embedding_size"),
    IGNORED("gap_size"),
    IGNORED("layers_to_keep"),
    IGNORED("net_structure_type"),
    IGNORED("num_memory_blocks"),
    END,
};

static const char *const albert_prefixes[] = {"albert.", "", NULL};

#define ALBERT_LAYER "encoder.albert_layer_groups.*.albert_layers.0.attention."

static const struct attn_family_tensor albert_tensors[] = {
    {ALBERT_LAYER "query.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {ALBERT_LAYER "key.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {ALBERT_LAYER "value.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {ALBERT_LAYER "dense.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {ALBERT_LAYER "query.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},
    {ALBERT_LAYER "key.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS},
    {ALBERT_LAYER "value.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS},
    {ALBERT_LAYER "dense.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

const struct attn_family attn_family_albert = {
    .model_type = "albert",
    .name = "albert",
    .keys = albert_keys,
    .common_keys = true,
    .prefixes = albert_prefixes,
    .tensors = albert_tensors,
    .defaults = {.bias = true, .scale_attn_weights = true, .num_groups = 1},
};

/* ---- mpnet: the relative position bias of T5's encoder beside scaled scores ------------------ */

static const struct attn_hf_key mpnet_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    LAYERS,
    POSITIONS,
    FIXED("relative_attention_num_buckets", "32"), /* the published code has 32 in its text */
    END,
};

static const char *const mpnet_prefixes[] = {"mpnet.", "", NULL};

static const struct attn_family_tensor mpnet_tensors[] = {
    {"encoder.layer.*.attention.attn.q.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.attn.k.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.attn.v.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.attn.o.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.attn.q.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.attn.k.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.attn.v.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.attn.o.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {"encoder.relative_attention_bias.weight", ATTN_PROJ_Q, ATTN_ROLE_POSITION_BIAS},
    {.name = NULL},
};

const struct attn_family attn_family_mpnet = {
    .model_type = "mpnet",
    .name = "mpnet",
    .keys = mpnet_keys,
    .common_keys = true,
    .prefixes = mpnet_prefixes,
    .tensors = mpnet_tensors,
    .defaults = {.bias = true, .scale_attn_weights = true, .buckets = 32, .max_distance = 128},
};

/* ---- distilbert ------------------------------------------------------------------------------ */

static const struct attn_hf_key distilbert_keys[] = {
    SIZE("dim", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    HIDDEN_SIZE,
    SIZE("n_heads", num_heads, ATTN_MAX_HEADS),
    HEADS,
    SIZE("n_layers", num_layers, ATTN_MAX_LAYERS),
    LAYERS,
    POSITIONS,
    IGNORED("activation"),
    IGNORED("hidden_dim"),
    IGNORED("qa_dropout"),
    IGNORED("seq_classif_dropout"),
    IGNORED("sinusoidal_pos_embds"),
    IGNORED("tie_weights_"),
    END,
};

static const char *const distilbert_prefixes[] = {"distilbert.", "", NULL};

#define LIN_TENSORS(layer)                                               \
    {                                                                    \
        {layer "q_lin.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},           \
            {layer "k_lin.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},       \
            {layer "v_lin.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},       \
            {layer "out_lin.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},     \
            {layer "q_lin.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},           \
            {layer "k_lin.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS},           \
            {layer "v_lin.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS},           \
            {layer "out_lin.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS}, {NULL}, \
    }

static const struct attn_family_tensor distilbert_tensors[] =
    LIN_TENSORS("transformer.layer.*.attention.");

const struct attn_family attn_family_distilbert = {
    .model_type = "distilbert",
    .name = "distilbert",
    .keys = distilbert_keys,
    .common_keys = true,
    .prefixes = distilbert_prefixes,
    .tensors = distilbert_tensors,
    .defaults = {.bias = true, .scale_attn_weights = true},
};

/* ---- xlm: `causal` would make a mask that ignores padding ------------------------------------ */

static const struct attn_hf_key xlm_keys[] = {
    SIZE("emb_dim", hidden_size, ATTN_MAX_HIDDEN_SIZE),
    HIDDEN_SIZE,
    SIZE("n_heads", num_heads, ATTN_MAX_HEADS),
    HEADS,
    SIZE("n_layers", num_layers, ATTN_MAX_LAYERS),
    LAYERS,
    POSITIONS,
    FIXED("causal", "false"),
    FIXED("is_encoder", "true"),
    IGNORED("asm"),
    IGNORED("bos_index"),
    IGNORED("embed_init_std"),
    IGNORED("end_n_top"),
    IGNORED("eos_index"),
    IGNORED("gelu_activation"),
    IGNORED("id2lang"),
    IGNORED("init_std"),
    IGNORED("lang2id"),
    IGNORED("lang_id"),
    IGNORED("mask_index"),
    IGNORED("max_vocab"),
    IGNORED("min_count"),
    IGNORED("n_langs"),
    IGNORED("n_words"),
    IGNORED("pad_index"),
    IGNORED("same_enc_dec"),
    IGNORED("share_inout_emb"),
    IGNORED("sinusoidal_embeddings"),
    IGNORED("start_n_top"),
    IGNORED("unk_index"),
    IGNORED("use_lang_emb"),
    END,
};

static const char *const xlm_prefixes[] = {"transformer.", "", NULL};

static const struct attn_family_tensor xlm_tensors[] = LIN_TENSORS("attentions.*.");

const struct attn_family attn_family_xlm = {
    .model_type = "xlm",
    .name = "xlm",
    .keys = xlm_keys,
    .common_keys = true,
    .prefixes = xlm_prefixes,
    .tensors = xlm_tensors,
    .defaults = {.bias = true, .scale_attn_weights = true},
};

/* ---- modernbert: one layer in three sees everything, the others both sides of a window ------- */

static const struct attn_hf_key modernbert_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    LAYERS,
    POSITIONS,
    FLAG("attention_bias", bias),
    SIZE("local_attention", sliding_window, MAX_POSITION),
    FULL_PERIOD("global_attn_every_n_layers"),
    LAYER_TYPES("layer_types"),
    NUMBER("global_rope_theta", rope.theta, 1, MAX_THETA),
    NUMBER("local_rope_theta", sliding_rope.theta, 1, MAX_THETA),
    ROPE_OBJECTS,
    IGNORED("classifier_activation"),
    IGNORED("classifier_bias"),
    IGNORED("classifier_pooling"),
    IGNORED("decoder_bias"),
    IGNORED("deterministic_flash_attn"),
    IGNORED("embedding_dropout"),
    IGNORED("initializer_cutoff_factor"),
    IGNORED("mlp_dropout"),
    IGNORED("norm_bias"),
    IGNORED("norm_eps"),
    IGNORED("position_embedding_type"), /* positions rotate whatever it says */
    IGNORED("reference_compile"),
    IGNORED("repad_logits_with_grad"),
    IGNORED("sparse_pred_ignore_index"),
    IGNORED("sparse_prediction"),
    END,
};

static const char *const modernbert_prefixes[] = {"model.", "", NULL};

static const struct attn_family_tensor modernbert_tensors[] = {
    {"layers.*.attn.Wqkv.weight", ATTN_PROJ_QKV, ATTN_ROLE_WEIGHT},
    {"layers.*.attn.Wo.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"layers.*.attn.Wqkv.bias", ATTN_PROJ_QKV, ATTN_ROLE_BIAS},
    {"layers.*.attn.Wo.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

const struct attn_family attn_family_modernbert = {
    .model_type = "modernbert",
    .name = "modernbert",
    .keys = modernbert_keys,
    .common_keys = true,
    .prefixes = modernbert_prefixes,
    .tensors = modernbert_tensors,
    .defaults = {.scale_attn_weights = true,
                 .use_sliding_window = true,
                 .half_window = true,
                 .sliding_window = 128,
                 .full_period = 3,
                 .full_first = true,
                 .rope_by_type = true,
                 .rope = {ROPE_OF(160000)},
                 .sliding_rope = {ROPE_OF(10000)}},
};

/* ---- deberta-v2, which is v3's model_type too ------------------------------------------------ */

static const struct attn_hf_key deberta_v2_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    SIZE("attention_head_size", head_dim, ATTN_MAX_HEAD_DIM),
    LAYERS,
    POSITIONS,
    FLAG("relative_attention", relative_attention),
    FLAG("share_att_key", share_att_key),
    POSITION_TABLE,
    NUMBER("layer_norm_eps", relative_norm_eps, 0, 1),
    FIXED("talking_head", "false"),
    IGNORED("conv_act"),
    IGNORED("conv_groups"),
    IGNORED("conv_kernel_size"),
    IGNORED("embedding_size"),
    IGNORED("legacy"),
    IGNORED("padding_idx"),
    IGNORED("pooler_dropout"),
    IGNORED("pooler_hidden_act"),
    IGNORED("pooler_hidden_size"),
    IGNORED("position_biased_input"),
    END,
};

static const char *const deberta_prefixes[] = {"deberta.", "", NULL};

static const struct attn_family_tensor deberta_tensors[] = {
    {"encoder.layer.*.attention.self.query_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.self.key_proj.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.self.value_proj.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.output.dense.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.self.query_proj.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.self.key_proj.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.self.value_proj.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.output.dense.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {"encoder.rel_embeddings.weight", ATTN_PROJ_Q, ATTN_ROLE_POSITION_BIAS},
    {"encoder.LayerNorm.weight", ATTN_PROJ_Q, ATTN_ROLE_POSITION_NORM},
    {"encoder.LayerNorm.bias", ATTN_PROJ_K, ATTN_ROLE_POSITION_NORM},
    {.name = NULL},
};

const struct attn_family attn_family_deberta_v2 = {
    .model_type = "deberta-v2",
    .name = "deberta-v2",
    .keys = deberta_v2_keys,
    .common_keys = true,
    .prefixes = deberta_prefixes,
    .tensors = deberta_tensors,
    .defaults = {.bias = true,
                 .scale_attn_weights = true,
                 .max_position = 512,
                 .relative_norm_eps = 1e-7},
};
