/* vision.c: rows of the encoders of images, and of the towers of image and text.  Data only.
 *
 * Sources: as in llama.c. */
#include "families/keys.h"
#include "families/rows.h"

/* ---- vit ------------------------------------------------------------------------------------- */

static const struct attn_hf_key vit_keys[] = {
    HIDDEN_SIZE,
    HEADS,
    LAYERS,
    FLAG("qkv_bias", bias),
    IGNORED("encoder_stride"),
    IGNORED("image_size"),
    IGNORED("num_channels"),
    IGNORED("patch_size"),
    IGNORED("pooler_act"),
    IGNORED("pooler_output_size"),
    END,
};

static const char *const vit_prefixes[] = {"vit.", "", NULL};

static const struct attn_family_tensor vit_tensors[] = {
    {"encoder.layer.*.attention.attention.query.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.attention.key.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.attention.value.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.output.dense.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"encoder.layer.*.attention.attention.query.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.attention.key.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.attention.value.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS},
    {"encoder.layer.*.attention.output.dense.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

const struct attn_family attn_family_vit = {
    .model_type = "vit",
    .name = "vit",
    .keys = vit_keys,
    .common_keys = true,
    .prefixes = vit_prefixes,
    .tensors = vit_tensors,
    .defaults = {.bias = true, .o_bias = true, .scale_attn_weights = true},
};

/* ---- clip, siglip: a tower of text and a tower of images ------------------------------------- */

/* `logit_scale_init_value` and the projections follow the towers. */
#define TOWER                                                                                 \
    HIDDEN_SIZE, HEADS, LAYERS, POSITIONS, IGNORED("image_size"),                             \
        IGNORED("logit_scale_init_value"), IGNORED("num_channels"), IGNORED("patch_size"),    \
        IGNORED("projection_dim"), IGNORED("projection_size"), IGNORED("text_config"),        \
        IGNORED("text_config_dict"), IGNORED("vision_config"), IGNORED("vision_config_dict"), \
        IGNORED("vision_use_head")

static const struct attn_hf_key tower_keys[] = {TOWER, END};

static const char *const text_prefixes[] = {"text_model.", NULL};
static const char *const vision_prefixes[] = {"vision_model.", NULL};

static const struct attn_family_tensor tower_tensors[] = {
    {"encoder.layers.*.self_attn.q_proj.weight", ATTN_PROJ_Q, ATTN_ROLE_WEIGHT},
    {"encoder.layers.*.self_attn.k_proj.weight", ATTN_PROJ_K, ATTN_ROLE_WEIGHT},
    {"encoder.layers.*.self_attn.v_proj.weight", ATTN_PROJ_V, ATTN_ROLE_WEIGHT},
    {"encoder.layers.*.self_attn.out_proj.weight", ATTN_PROJ_O, ATTN_ROLE_WEIGHT},
    {"encoder.layers.*.self_attn.q_proj.bias", ATTN_PROJ_Q, ATTN_ROLE_BIAS},
    {"encoder.layers.*.self_attn.k_proj.bias", ATTN_PROJ_K, ATTN_ROLE_BIAS},
    {"encoder.layers.*.self_attn.v_proj.bias", ATTN_PROJ_V, ATTN_ROLE_BIAS},
    {"encoder.layers.*.self_attn.out_proj.bias", ATTN_PROJ_O, ATTN_ROLE_BIAS},
    {.name = NULL},
};

#define TOWER_OF(part, its_prefixes, width, heads, ...)                              \
    .name = part, .keys = tower_keys, .common_keys = true, .prefixes = its_prefixes, \
    .tensors = tower_tensors,                                                        \
    .defaults = {.hidden_size = width,                                               \
                 .num_heads = heads,                                                 \
                 .num_layers = 12,                                                   \
                 .bias = true,                                                       \
                 .scale_attn_weights = true,                                         \
                 __VA_ARGS__}
#define TEXT_OF(type)                                                \
    .model_type = type, .stack = "text", .subconfig = "text_config", \
    .subconfig_dict = "text_config_dict"
#define VISION_OF(type)                                                  \
    .model_type = type, .stack = "vision", .subconfig = "vision_config", \
    .subconfig_dict = "vision_config_dict"

#define CLIP_TEXT(name) TOWER_OF(name, text_prefixes, 512, 8, .is_causal = true, .max_position = 77)
#define SIGLIP_TEXT(name) TOWER_OF(name, text_prefixes, 768, 12, .max_position = 64)
#define VISION(name) TOWER_OF(name, vision_prefixes, 768, 12, )

const struct attn_family attn_family_clip_text = {TEXT_OF("clip"), CLIP_TEXT("clip")};
const struct attn_family attn_family_clip_vision = {VISION_OF("clip"), VISION("clip")};
const struct attn_family attn_family_siglip_text = {TEXT_OF("siglip"), SIGLIP_TEXT("siglip")};
const struct attn_family attn_family_siglip_vision = {VISION_OF("siglip"), VISION("siglip")};

/* A tower that is published alone: its settings are at the top of the configuration. */
const struct attn_family attn_family_clip_text_model = {.model_type = "clip_text_model",
                                                        CLIP_TEXT("clip_text_model")};
const struct attn_family attn_family_clip_vision_model = {.model_type = "clip_vision_model",
                                                          VISION("clip_vision_model")};
const struct attn_family attn_family_siglip_text_model = {.model_type = "siglip_text_model",
                                                          SIGLIP_TEXT("siglip_text_model")};
const struct attn_family attn_family_siglip_vision_model = {.model_type = "siglip_vision_model",
                                                            VISION("siglip_vision_model")};
