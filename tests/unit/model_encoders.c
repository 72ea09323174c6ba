/* model_encoders.c: the encoders' rows of the table of families: keys that would change the
 * mathematics, what keys mean, tensors that layers share.  Configurations with all keys of the
 * published files are in tests/published/pinned (model_published.c). */
#include <check.h>
#include <math.h>
#include <string.h>

#include "families/config.h"
#include "layers/layer.h"
#include "model_cases.h"
#include "models/model.h"

#define TOWERS(type)                                                                         \
    "{\"model_type\":\"" type "\",\"architectures\":[\"Model\"],\"initializer_factor\":1.0," \
    "\"logit_scale_init_value\":2.6592,\"projection_dim\":512,\"torch_dtype\":\"float32\","
#define CLIP_TOWERS                                                                       \
    "\"text_config\":{\"add_cross_attention\":false,\"bos_token_id\":0,\"dropout\":0.0,"  \
    "\"hidden_act\":\"quick_gelu\",\"hidden_size\":768,\"intermediate_size\":3072,"       \
    "\"max_position_embeddings\":77,\"model_type\":\"clip_text_model\","                  \
    "\"num_attention_heads\":12,\"num_hidden_layers\":12,\"projection_dim\":768,"         \
    "\"pruned_heads\":{},\"top_k\":50,\"torchscript\":false,\"vocab_size\":49408},"       \
    "\"vision_config\":{\"hidden_act\":\"quick_gelu\",\"hidden_size\":1024,"              \
    "\"image_size\":224,\"intermediate_size\":4096,\"model_type\":\"clip_vision_model\"," \
    "\"num_attention_heads\":16,\"num_channels\":3,\"num_hidden_layers\":24,"             \
    "\"patch_size\":14,\"projection_dim\":768}"
#define DEBERTA(terms)                                                                      \
    "{\"model_type\":\"deberta-v2\",\"hidden_size\":768,\"layer_norm_eps\":1e-12,"          \
    "\"num_attention_heads\":12,\"num_hidden_layers\":12,"                                  \
    "\"max_position_embeddings\":512,"                                                      \
    "\"max_relative_positions\":-1,\"norm_rel_ebd\":\"layer_norm\",\"pad_token_id\":0,"     \
    "\"pooler_dropout\":0,\"pooler_hidden_act\":\"gelu\",\"pooler_hidden_size\":768,"       \
    "\"position_biased_input\":false,\"position_buckets\":256,\"relative_attention\":true," \
    "\"share_att_key\":true,\"type_vocab_size\":0,\"vocab_size\":128100,\"pos_att_type\":" terms

CASE(encoders, NULL, NULL, 60)

/* ---- Keys that would change the mathematics -------------------------------------------------- */

#define SMALL(type)           \
    "{\"model_type\":\"" type \
    "\",\"hidden_size\":64,\"num_attention_heads\":4,\"num_hidden_layers\":2,"

static const struct {
    const char *text, *key;
    enum attn_status status;
} refused[] = {
    {SMALL("xlm-roberta") "\"position_embedding_type\":\"rotary\"}", "position_embedding_type",
     ATTN_UNSUPPORTED},
    {SMALL("camembert") "\"position_embedding_type\":\"relative_keys\"}", "position_embedding_type",
     ATTN_UNSUPPORTED},
    {SMALL("electra") "\"add_cross_attention\":true}", "add_cross_attention", ATTN_UNSUPPORTED},
    {SMALL("ernie") "\"sliding_window\":8}", "sliding_window", ATTN_UNSUPPORTED},
    {SMALL("albert") "\"inner_group_num\":2}", "inner_group_num", ATTN_UNSUPPORTED},
    {SMALL("albert") "\"num_hidden_groups\":3}", "num_hidden_groups", ATTN_MALFORMED},
    {SMALL("mpnet") "\"relative_attention_num_buckets\":16}", "relative_attention_num_buckets",
     ATTN_UNSUPPORTED},
    {SMALL("xlm") "\"causal\":true}", "causal", ATTN_UNSUPPORTED},
    {SMALL("xlm") "\"is_encoder\":false}", "is_encoder", ATTN_UNSUPPORTED},
    {TOWERS("clip") CLIP_TOWERS ",\"text_config_dict\":{\"num_attention_heads\":8}}",
     "num_attention_heads", ATTN_MALFORMED},
    {TOWERS("clip") CLIP_TOWERS ",\"quantization_config\":4}", "quantization_config",
     ATTN_MALFORMED},
    {TOWERS("clip") "\"text_config\":{\"hidden_size\":64,\"rope_theta\":1e4}}", "rope_theta",
     ATTN_UNSUPPORTED},
    {SMALL("modernbert") "\"local_attention\":0}", "local_attention", ATTN_OUT_OF_RANGE},
    {SMALL("modernbert") "\"use_qk_norm\":true}", "use_qk_norm", ATTN_UNSUPPORTED},
    {SMALL("mpt") "\"attn_config\":{\"alibi\":false}}", "attn_config.alibi", ATTN_UNSUPPORTED},
    {SMALL("mpt") "\"attn_config\":{\"qk_ln\":true}}", "attn_config.qk_ln", ATTN_UNSUPPORTED},
    {SMALL("mpt") "\"attn_config\":{\"kv_n_heads\":2}}", "kv_n_heads", ATTN_UNSUPPORTED},
    {SMALL("mpt") "\"attn_config\":7}", "attn_config", ATTN_MALFORMED},
    {SMALL("mpt") "\"no_bias\":false}", "no_bias", ATTN_UNSUPPORTED},
    {SMALL("deberta") "\"pos_att_type\":[\"c2p\"]}", "relative_attention", ATTN_UNSUPPORTED},
    {SMALL("deberta") "\"position_buckets\":32}", "position_buckets", ATTN_UNSUPPORTED},
    {SMALL("beit") "\"use_relative_position_bias\":true,"
                   "\"use_shared_relative_position_bias\":true}",
     "use_shared_relative_position_bias", ATTN_UNSUPPORTED},
    {SMALL("beit") "\"use_relative_position_bias\":true,\"patch_size\":500}", "image_size",
     ATTN_MALFORMED},
    {SMALL("wav2vec2-bert") "\"position_embeddings_type\":\"rotary\"}", "position_embeddings_type",
     ATTN_UNSUPPORTED},
    {SMALL("layoutlmv3") "\"has_spatial_attention_bias\":false}", "has_relative_attention_bias",
     ATTN_UNSUPPORTED},
    {SMALL("layoutlmv3") "\"has_relative_attention_bias\":false}", "has_spatial_attention_bias",
     ATTN_UNSUPPORTED},
    {SMALL("roformer") "\"rotary_value\":true}", "rotary_value", ATTN_UNSUPPORTED},
    {SMALL("nomic_bert") "\"rotary_emb_fraction\":1.0}", "rope_theta", ATTN_MALFORMED},
    {SMALL("nomic_bert") "\"rotary_emb_base\":1000,\"rotary_emb_fraction\":0.0}",
     "rotary_emb_fraction", ATTN_OUT_OF_RANGE},
    {SMALL("nomic_bert") "\"rotary_emb_base\":1000,\"rotary_scaling_factor\":2}",
     "rotary_scaling_factor", ATTN_UNSUPPORTED},
    {SMALL("esm") "\"position_embedding_type\":\"relative_key\"}", "position_embedding_type",
     ATTN_UNSUPPORTED},
    {SMALL("jina_embeddings_v3") "\"position_embedding_type\":\"absolute\"}",
     "position_embedding_type", ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"share_att_key\":true,\"pos_att_type\":\"c2p\"}", "relative_attention",
     ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"pos_att_type\":\"c2p|p2p\"}", "pos_att_type", ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"pos_att_type\":[7]}", "pos_att_type", ATTN_MALFORMED},
    {SMALL("deberta-v2") "\"norm_rel_ebd\":\"batch_norm\"}", "norm_rel_ebd", ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"talking_head\":true}", "talking_head", ATTN_UNSUPPORTED},
    {SMALL("deberta-v2") "\"position_buckets\":5000}", "position_buckets", ATTN_OUT_OF_RANGE},
    {SMALL("vit") "\"use_qk_norm\":true}", "use_qk_norm", ATTN_UNSUPPORTED},
    {SMALL("wav2vec2") "\"position_embeddings_type\":\"rotary\"}", "position_embeddings_type",
     ATTN_UNSUPPORTED},
    {SMALL("whisper") "\"d_model\":32}", "d_model", ATTN_MALFORMED},
    {SMALL("bart") "\"decoder_layers\":2,\"decoder_attention_heads\":4,\"rope_theta\":1e4}",
     "rope_theta", ATTN_UNSUPPORTED},
};

TEST_EACH(config_of_encoder_refuses_what_changes_its_mathematics_by_name, COUNT(refused))
{
    struct attn_error error = {0};
    struct attn_config config;
    const char *text = refused[_i].text;
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error),
                     refused[_i].status);
    ck_assert_str_eq(error.param, refused[_i].key);
}

/* ---- What keys of newer encoders mean -------------------------------------------------------- */

static struct attn_layer_spec spec_of_text(const char *text)
{
    static struct attn_config config;
    struct attn_error error = {0};
    struct attn_layer_spec spec;
    ck_assert_msg(attn_config_read(&config, NULL, text, strlen(text), &error) == ATTN_OK, "%s",
                  error.message);
    attn_config_layer_spec(&spec, &config, 0);
    ck_assert_int_eq(attn_layer_check(&spec, &error), ATTN_OK);
    return spec;
}

TEST(config_of_encoder_positions_are_where_their_key_says)
{
    struct attn_layer_spec spec = spec_of_text(SMALL("esm") "\"vocab_size\":33}");
    ck_assert_int_eq(spec.rope.type, ATTN_ROPE_NONE);
    spec = spec_of_text(SMALL("esm") "\"position_embedding_type\":\"rotary\"}");
    ck_assert_int_eq(spec.rope.type, ATTN_ROPE_DEFAULT);
    ck_assert(!spec.rope.interleaved);
    spec = spec_of_text(SMALL("roformer") "\"vocab_size\":33}");
    ck_assert(spec.rope.type == ATTN_ROPE_DEFAULT && spec.rope.interleaved);
    spec = spec_of_text(SMALL("wav2vec2-bert") "\"right_max_position_embeddings\":0}");
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_RELATIVE_KEY);
    ck_assert_uint_eq(spec.position_bias.max_distance, 64);
    ck_assert_uint_eq(spec.position_bias.max_after, 0);
    spec = spec_of_text(SMALL("wav2vec2-bert") "\"position_embeddings_type\":null}");
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_NONE);
    spec = spec_of_text(SMALL("dinov3_vit") "\"num_register_tokens\":4}");
    ck_assert_uint_eq(spec.rope.grid_prefix, 5);
    ck_assert(spec.q_bias && !spec.k_bias && spec.v_bias && spec.o_bias);
}

TEST(config_of_encoder_biases_and_lengths_are_what_their_keys_say)
{
    struct attn_layer_spec spec = spec_of_text(SMALL("beit") "\"vocab_size\":33}");
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_NONE);
    ck_assert(spec.q_bias && !spec.k_bias && spec.v_bias && spec.o_bias);
    spec = spec_of_text(SMALL("beit") "\"use_shared_relative_position_bias\":true}");
    ck_assert_uint_eq(spec.position_bias.grid, 14);
    ck_assert(!spec.position_bias.own_table);
    spec = spec_of_text(SMALL("wavlm") "\"vocab_size\":33}");
    ck_assert(spec.position_bias.type == ATTN_BIAS_T5 && spec.position_bias.gated);
    spec = spec_of_text(SMALL("big_bird") "\"use_bias\":false}");
    ck_assert_uint_eq(spec.max_tokens, 704);
    ck_assert(!spec.q_bias && spec.o_bias);
    spec = spec_of_text(SMALL("big_bird") "\"attention_type\":\"original_full\"}");
    ck_assert_uint_eq(spec.max_tokens, 0);
    spec = spec_of_text(SMALL("deberta-v2") "\"relative_attention\":true,\"pos_att_type\":"
                                            "\"p2c\",\"position_buckets\":8}");
    ck_assert(spec.position_bias.own_projections && spec.position_bias.own_key_bias);
    spec = spec_of_text(SMALL("deberta") "\"relative_attention\":true,\"pos_att_type\":"
                                         "[\"c2p\",\"p2c\"],\"max_relative_positions\":-1}");
    ck_assert(spec.position_bias.own_projections && !spec.position_bias.own_key_bias);
    ck_assert_uint_eq(spec.position_bias.max_distance, 512);
    ck_assert_double_eq_tol(spec.scale, 1 / sqrt(16.0 * 3), 1e-12);
    spec = spec_of_text(SMALL("layoutlmv3") "\"has_relative_attention_bias\":false,"
                                            "\"has_spatial_attention_bias\":false}");
    ck_assert_int_eq(spec.position_bias.type, ATTN_BIAS_NONE);
}

/* ---- Biases, groups -------------------------------------------------------------------------- */

TEST(config_of_vit_and_whisper_denies_single_biases)
{
    const char *vit = SMALL("vit") "\"qkv_bias\":false}";
    const char *whisper = "{\"model_type\":\"whisper\",\"d_model\":64,\"decoder_layers\":2,"
                          "\"decoder_attention_heads\":4}";
    struct attn_error error;
    struct attn_config config;
    ck_assert_int_eq(attn_config_read(&config, NULL, vit, strlen(vit), &error), ATTN_OK);
    ck_assert(!config.specs[0].q_bias && !config.specs[0].k_bias && !config.specs[0].v_bias);
    ck_assert(config.specs[0].o_bias);
    ck_assert_int_eq(attn_config_read(&config, NULL, whisper, strlen(whisper), &error), ATTN_OK);
    ck_assert(config.specs[0].q_bias && !config.specs[0].k_bias && config.specs[0].v_bias);
    ck_assert(config.specs[0].o_bias);
}

TEST(config_of_albert_divides_layers_among_groups)
{
    static const size_t groups[] = {0, 0, 0, 1, 1};
    const char *text = "{\"model_type\":\"albert\",\"hidden_size\":64,\"num_attention_heads\":4,"
                       "\"num_hidden_layers\":5,\"num_hidden_groups\":2}";
    struct attn_error error;
    struct attn_config config;
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    for (size_t i = 0; i < 5; i++)
        ck_assert_uint_eq(attn_config_tensor_index(&config, i), groups[i]);
}

TEST(config_of_modernbert_has_a_window_and_a_base_of_its_own_in_two_layers_of_three)
{
    const char *text = "{\"model_type\":\"modernbert\",\"hidden_size\":64,"
                       "\"num_attention_heads\":4,\"num_hidden_layers\":6,"
                       "\"global_attn_every_n_layers\":3,\"local_attention\":128,"
                       "\"global_rope_theta\":160000.0,"
                       "\"local_rope_theta\":10000.0}";
    struct attn_error error;
    struct attn_config config;
    struct attn_layer_spec spec;
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    for (size_t i = 0; i < 6; i++) {
        attn_config_layer_spec(&spec, &config, i);
        ck_assert_uint_eq(spec.sliding_window, i % 3 == 0 ? 0 : 65); /* 64 on both sides */
        ck_assert_double_eq(spec.rope.theta, i % 3 == 0 ? 160000 : 10000);
    }
    text = SMALL("modernbert") "\"local_rope_theta\":null}";
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    attn_config_layer_spec(&spec, &config, 1);
    ck_assert_double_eq(spec.rope.theta, 160000);
    ck_assert_uint_eq(spec.sliding_window, 65);
    text = SMALL("modernbert") "\"local_attention\":128}";
    ck_assert_int_eq(attn_config_read(&config, NULL, text, strlen(text), &error), ATTN_OK);
    attn_config_layer_spec(&spec, &config, 1);
    ck_assert_double_eq(spec.rope.theta, 10000);
}

TEST(config_of_deberta_divides_scores_for_each_product)
{
    const char *both = DEBERTA("\"p2c|c2p\"") "}", *one = DEBERTA("\"c2p\"") "}";
    struct attn_error error;
    struct attn_config config;
    const struct attn_layer_spec *spec = &config.specs[0];
    ck_assert_int_eq(attn_config_read(&config, NULL, both, strlen(both), &error), ATTN_OK);
    ck_assert_double_eq_tol(spec->scale, 1 / sqrt(64.0 * 3), 1e-15);
    ck_assert_int_eq(spec->position_bias.type, ATTN_BIAS_DISENTANGLED);
    ck_assert_uint_eq(attn_relative_rows(spec), 512);
    ck_assert_uint_eq(spec->position_bias.max_distance, 512);
    ck_assert(spec->position_bias.table_norm);
    ck_assert_double_eq(spec->position_bias.table_norm_eps, 1e-12);
    ck_assert_int_eq(attn_config_read(&config, NULL, one, strlen(one), &error), ATTN_OK);
    ck_assert_double_eq_tol(spec->scale, 1 / sqrt(64.0 * 2), 1e-15);
    ck_assert(spec->position_bias.content_to_position && !spec->position_bias.position_to_content);
}

/* The table of a position bias, and its norm's weight and bias, count once. */
TEST(model_counts_a_table_that_layers_share_once)
{
    static const struct {
        const char *path, *stack;
    } cases[] = {
        {"tests/reference/t5/model", "encoder"},
        {"tests/golden/mpnet/model", NULL},
        {"tests/golden/deberta_v2/model", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct attn_model *model =
            cases_open(cases[i].path, &(struct attn_model_options){.stack = cases[i].stack});
        const struct attn_layer_spec *s = attn_model_layer(model, 0);
        const struct attn_position_bias_spec *bias = &s->position_bias;
        const size_t linears =
            s->hidden_size * (2 * s->num_heads * s->head_dim + 2 * s->num_kv_heads * s->head_dim) +
            (size_t)s->q_bias * s->num_heads * s->head_dim +
            (size_t)s->k_bias * s->num_kv_heads * s->head_dim +
            (size_t)s->v_bias * s->num_kv_heads * s->head_dim + (size_t)s->o_bias * s->hidden_size;
        const size_t one = cases_parameters(cases[i].path, cases[i].stack, 1);
        ck_assert(bias->type != ATTN_BIAS_NONE);
        ck_assert_uint_gt(one, linears);
        ck_assert_uint_eq(cases_parameters(cases[i].path, cases[i].stack, 2), one + linears);
        attn_model_close(model);
    }
}

TEST(model_of_shared_layers_keeps_their_weights_once)
{
    char path[SCRATCH_PATH];
    struct attn_model_info all, one;
    const size_t last[] = {2};
    cases_golden(path, "albert");
    struct attn_model *model = cases_open(path, NULL);
    cases_load(model);
    attn_model_describe(&all, model);
    ck_assert_ptr_eq(attn_model_loaded_layer(model, 0), attn_model_loaded_layer(model, 2));
    ck_assert_uint_eq(attn_model_resident_index(model, 2), 2);
    attn_model_close(model);

    model = cases_open(path, &(struct attn_model_options){.layers = last, .num_layers = 1});
    cases_load(model);
    attn_model_describe(&one, model);
    ck_assert_uint_eq(all.num_resident, 3);
    ck_assert_uint_eq(all.weight_bytes, one.weight_bytes);
    ck_assert_uint_eq(all.cache_bytes_per_token, 3 * one.cache_bytes_per_token);
    ck_assert_str_ne(all.fingerprint, one.fingerprint);
    attn_model_close(model);
}

CASES_OF(encoders)
