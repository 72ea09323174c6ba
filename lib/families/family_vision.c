/* family_vision.c: rows of the encoders of images, and of the towers of image and text.  Data only.
 *
 * Sources: as in family_llama.c. */
#include "families/family_keys.h"
#include "families/family_rows.h"

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
