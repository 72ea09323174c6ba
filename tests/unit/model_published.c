/* model_published.c: configurations with all the keys that the published files of each family have;
 * none may be refused for a key that does not touch attention, and each means what its file
 * says. */
#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/config.h"
#include "layers/layer.h"
#include "model_cases.h"

CASE(published, NULL, NULL, 60)

TEST(config_of_quantised_weights_says_their_blocks)
{
    struct attn_error error = {0};
    struct attn_config config;
    size_t size;
    char *text = scratch_read(&size, "tests/published", "deepseek-ai__DeepSeek-R1.json");
    ck_assert_int_eq(attn_config_read(&config, NULL, text, size, &error), ATTN_OK);
    ck_assert_int_eq(config.hf.quantization.method, ATTN_QUANT_FP8);
    ck_assert_uint_eq(config.hf.quantization.block[0], 128);
    ck_assert_uint_eq(config.hf.quantization.block[1], 128);
    free(text);
}

/* ---- The files of tests/published/pinned --------------------------------------------------- */

static const char *rope_name(enum attn_rope_type type)
{
    for (const struct attn_rope_name *known = attn_rope_names; known->name != NULL; known++)
        if (known->type == type)
            return known->name;
    return "none";
}

/* Returns the member of a specification that a file names; NAN where there is none. */
static double member(const struct attn_layer_spec *s, const char *name)
{
    const struct {
        const char *name;
        double value;
    } members[] = {
        {"num_attention_heads", (double)s->num_heads},
        {"num_key_value_heads", (double)s->num_kv_heads},
        {"head_dim", (double)s->head_dim},
        {"scale", s->scale},
        {"sliding_window", (double)s->sliding_window},
        {"attention_chunk_size", (double)s->attention_chunk_size},
        {"is_causal", s->is_causal},
        {"is_cross", s->is_cross},
        {"q_bias", s->q_bias},
        {"o_bias", s->o_bias},
        {"output_gate", s->output_gate},
        {"qk_norm", s->qk_norm.type != ATTN_NORM_NONE},
        {"norm_extent", s->qk_norm.extent},
        {"v_norm", s->v_norm.type != ATTN_NORM_NONE},
        {"shares_layer", s->shares_layer == SIZE_MAX ? -1 : (double)s->shares_layer},
        {"scaling_beta", s->query_scaling.beta},
        {"scaling_period", s->query_scaling.period},
        {"rope_theta", s->rope.theta},
        {"rope_dim", (double)s->rope.dim},
        {"rope_interleaved", s->rope.interleaved},
    };
    for (size_t i = 0; i < COUNT(members); i++)
        if (strcmp(members[i].name, name) == 0)
            return members[i].value;
    return NAN;
}

static void expect_members(const char *file, const struct attn_layer_spec *spec, json_t *wanted)
{
    const char *name;
    json_t *value;
    ck_assert_uint_ge(json_object_size(wanted), 1);
    json_object_foreach(wanted, name, value) {
        if (strcmp(name, "rope_type") == 0) {
            ck_assert_str_eq(rope_name(spec->rope.type), json_string_value(value));
            continue;
        }
        double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
        double got = member(spec, name);
        ck_assert_msg(fabs(got - number) <= 1e-12 * fabs(number), "%s: %s is %.17g, expected %.17g",
                      file, name, got, number);
    }
}

static void expect_file(const char *file)
{
    static struct attn_config config;
    struct attn_layer_spec spec;
    struct attn_error error = {0};
    char path[512];
    snprintf(path, sizeof path, "tests/published/pinned/%s", file);
    json_t *whole = json_load_file(path, 0, NULL);
    ck_assert_msg(whole != NULL, "%s", path);
    char *text = json_dumps(json_object_get(whole, "config"), 0);
    const struct attn_config_options options = {
        .stack = json_string_value(json_object_get(whole, "stack"))};
    enum attn_status status = attn_config_read(&config, &options, text, strlen(text), &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", file, error.message);
    json_int_t layers = json_integer_value(json_object_get(whole, "num_hidden_layers"));
    json_int_t layer = json_integer_value(json_object_get(whole, "layer"));
    ck_assert_uint_eq(config.num_layers, (size_t)layers);
    ck_assert_msg(attn_config_attends(&config, (size_t)layer), "%s", file);
    attn_config_layer_spec(&spec, &config, (size_t)layer);
    status = attn_layer_check(&spec, &error);
    ck_assert_msg(status == ATTN_OK, "%s: %s", file, error.message);
    expect_members(file, &spec, json_object_get(whole, "spec"));
    free(text);
    json_decref(whole);
}

TEST(config_of_pinned_files_means_what_they_say)
{
    struct dirent **names;
    size_t files = 0;
    int n = scandir("tests/published/pinned", &names, NULL, alphasort);
    ck_assert_int_gt(n, 0);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') {
            expect_file(names[i]->d_name);
            files++;
        }
        free(names[i]);
    }
    free(names);
    ck_assert_uint_ge(files, 105);
}

CASES_OF(published)
