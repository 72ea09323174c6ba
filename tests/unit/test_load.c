/* test_load.c: loading weights: the same packed bytes and fingerprint on any number of threads. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn.h"
#include "basics/random.h"
#include "layers/linear.h"
#include "models/model.h"
#include "opened.h"
#include "oracle_layer.h"
#include "scratch.h"
#include "session/models.h"
#include "suites.h"

/* Widths that no panel, range or strip divides: 65 heads of 34, so that the matrices of queries and
 * outputs have several strips, ranges of inputs end inside a word, and the last panel has 2 columns
 * of its own. */
#define HEADS 65
#define HEAD_DIM 34
#define KV_HEADS 13
#define WIDTH 2210
#define CONFIG                                                                     \
    "{\"hidden_size\":2210,\"num_attention_heads\":65,\"num_key_value_heads\":13," \
    "\"num_hidden_layers\":2,\"bias\":true,\"rope_theta\":10000}"

static const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_INT8};
#define DTYPES COUNT(dtypes)

struct told {
    size_t calls, done, total;
};

static void tell(void *context, size_t done, size_t total)
{
    struct told *told = context;
    ck_assert_uint_ge(done, told->done);
    ck_assert_uint_le(done, total);
    *told = (struct told){told->calls + 1, done, total};
}

static struct attn_model *load(enum attn_dtype dtype, unsigned threads, struct told *told)
{
    const struct attn_model_options options = {
        .dtype = dtype, .threads = threads, .progress = tell, .progress_context = told};
    struct attn_model *model = NULL;
    *told = (struct told){0};
    model = opened_random(CONFIG, &options);
    return model;
}

static void *add_bytes(void *context, void *array, size_t bytes)
{
    attn_checksum_add(context, array, bytes);
    return array;
}

/* The checksum of all arrays that the model keeps. */
static void sum_model(char out[ATTN_CHECKSUM_DIGITS], const struct attn_model *model)
{
    struct attn_checksum sum;
    attn_checksum_init(&sum);
    for (size_t i = 0; i < 2; i++) {
        struct attn_layer layer = *attn_model_loaded_layer(model, i);
        attn_layer_visit(&layer, add_bytes, &sum);
    }
    attn_checksum_hex(out, &sum);
}

static char path[SCRATCH_PATH];

static void setup(void) { scratch_make(path); }
static void teardown(void) { scratch_remove(path); }

CASE(load, setup, teardown, 60)

TEST_EACH(load_gives_the_same_bytes_and_fingerprint_on_any_number_of_threads, DTYPES)
{
    /* Of a build that hashed and packed matrix after matrix on one thread. */
    static const char *const fingerprints[DTYPES] = {"f82cabe220637ae3", "9d739b3cdcdbdbda",
                                                     "b7c39ee90a2689ca"};
    static const unsigned threads[] = {1, 2, 5};
    char one[ATTN_CHECKSUM_DIGITS], other[ATTN_CHECKSUM_DIGITS];
    for (size_t i = 0; i < 3; i++) {
        struct told told;
        struct attn_model_info info;
        struct attn_model *model = load(dtypes[_i], threads[i], &told);
        attn_model_describe(&info, model);
        ck_assert_str_eq(info.fingerprint, fingerprints[_i]);
        sum_model(i == 0 ? one : other, model);
        ck_assert(i == 0 || memcmp(one, other, sizeof one) == 0);
        ck_assert_uint_eq(told.total, info.weight_bytes);
        ck_assert_uint_eq(told.done, info.weight_bytes);
        ck_assert_uint_gt(told.calls, 16); /* in strips */
        attn_model_close(model);
    }
}

/* Whether a packed weight is the number that it was made of, in the dtype. */
static bool is_packed(const struct attn_linear *linear, size_t o, size_t i, float x)
{
    const float packed = oracle_weight(linear, o, i);
    if (linear->dtype == ATTN_F32)
        return packed == x;
    if (linear->dtype == ATTN_BF16) /* 8 bits, to nearest */
        return fabs((double)packed - (double)x) <= ldexp(fabs((double)x), -8);
    return fabs((double)packed - (double)x) <= 0.5001 * (double)linear->scale[o];
}

TEST_EACH(load_packs_every_weight_of_every_strip, DTYPES)
{
    struct told told;
    struct attn_model *model = load(dtypes[_i], 2, &told);
    float *row = malloc(WIDTH * sizeof *row);
    for (size_t layer = 0; layer < 2; layer++) {
        const struct attn_layer *own = attn_model_loaded_layer(model, layer);
        const struct attn_linear *linears[] = {&own->q, &own->k, &own->v, &own->o};
        for (size_t m = 0; m < 4; m++)
            for (size_t o = 0; o < linears[m]->out; o++) {
                const uint64_t stream = attn_random_stream(0, layer, m);
                attn_random_uniform_from(row, o * WIDTH, WIDTH, stream, (float)sqrt(3.0 / WIDTH));
                size_t wrong = 0;
                for (size_t i = 0; i < WIDTH; i++)
                    wrong += !is_packed(linears[m], o, i, row[i]);
                ck_assert_msg(wrong == 0, "matrix %zu, output %zu: %zu wrong", m, o, wrong);
            }
    }
    free(row);
    attn_model_close(model);
}

/* All bits of the panels beside the weights. */
TEST(load_leaves_zeros_beside_the_weights)
{
    struct told told;
    struct attn_model *model = load(ATTN_F32, 2, &told);
    const struct attn_linear *q = &attn_model_loaded_layer(model, 0)->q;
    const size_t bytes = attn_linear_panel_bytes(q);
    size_t zeros = 0;
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        zeros += ((const float *)q->panels)[i] == 0; /* no random weight is 0 */
    ck_assert_uint_eq(zeros, bytes / sizeof(float) - q->in * q->out);
    attn_model_close(model);
}

/* ---- Files ---- */

/* A llama of one layer with WIDTH x WIDTH queries; element `at` of the weights of queries, and each
 * after it that 1,000,003 divides further on, is not finite. */
static void write_checkpoint(size_t at)
{
    const size_t q = (size_t)WIDTH * WIDTH, kv = (size_t)KV_HEADS * HEAD_DIM * WIDTH;
    char header[1024];
    float *data = calloc(2 * q + 2 * kv, sizeof *data);
    const char *config = "{\"model_type\":\"llama\",\"hidden_size\":2210,"
                         "\"num_attention_heads\":65,\"num_key_value_heads\":13,"
                         "\"num_hidden_layers\":1}";
    for (size_t i = at; i < q; i += 1000003)
        data[i] = NAN;
    snprintf(header, sizeof header,
             "{\"model.layers.0.self_attn.q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
             "\"data_offsets\":[0,%zu]},"
             "\"model.layers.0.self_attn.k_proj.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
             "\"data_offsets\":[%zu,%zu]},"
             "\"model.layers.0.self_attn.v_proj.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
             "\"data_offsets\":[%zu,%zu]},"
             "\"model.layers.0.self_attn.o_proj.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
             "\"data_offsets\":[%zu,%zu]}}",
             WIDTH, WIDTH, 4 * q, KV_HEADS * HEAD_DIM, WIDTH, 4 * q, 4 * (q + kv),
             KV_HEADS * HEAD_DIM, WIDTH, 4 * (q + kv), 4 * (q + 2 * kv), WIDTH, WIDTH,
             4 * (q + 2 * kv), 4 * (2 * q + 2 * kv));
    scratch_write(path, "config.json", config, strlen(config));
    scratch_write_tensors(path, "model.safetensors", header, data, 4 * (2 * q + 2 * kv));
    free(data);
}

static enum attn_status load_path(struct attn_error *error)
{
    const struct attn_model_options options = {.threads = 3};
    struct attn_model *model = NULL;
    enum attn_status status = attn_model_open(&model, path, &options, error);
    ck_assert_int_eq(status, ATTN_OK);
    status = attn_model_load(model, error);
    attn_model_close(model);
    return status;
}

/* In the first strip, at its end, and in later ones. */
TEST_EACH(load_names_the_first_number_that_is_not_finite, 4)
{
    static const size_t places[] = {0, 1131519, 1131520, 3400001};
    char text[64];
    struct attn_error error;
    write_checkpoint(places[_i]);
    ck_assert_int_eq(load_path(&error), ATTN_NON_FINITE);
    ck_assert_str_eq(error.param, "model.layers.0.self_attn.q_proj.weight");
    snprintf(text, sizeof text, "element %zu is", places[_i]);
    ck_assert_msg(strstr(error.message, text) != NULL, "%s", error.message);
}

TEST(load_refuses_a_file_that_became_shorter)
{
    char name[SCRATCH_PATH + 32];
    struct attn_error error;
    struct attn_model *model = NULL;
    write_checkpoint(SIZE_MAX / 2);
    ck_assert_int_eq(attn_model_open(&model, path, NULL, &error), ATTN_OK);
    snprintf(name, sizeof name, "%s/model.safetensors", path);
    ck_assert_int_eq(truncate(name, 30000000), 0);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_IO);
    attn_model_close(model);
}

/* ---- Progress ---- */

TEST(loading_line_says_bytes_rate_and_time_left_and_is_cleared)
{
    struct srv_loading loading = {0};
    char text[SRV_LOADING_TEXT_MAX], shown[512] = "";
    FILE *terminal = tmpfile();
    srv_loading_print(text, &loading);
    ck_assert_str_eq(text, "");
    srv_loading_begin(&loading, 600u << 20, terminal);
    srv_loading_advance(&loading, 0, 0);
    ck_assert_int_eq(ftell(terminal), 0); /* not at once */
    atomic_fetch_sub(&loading.begin_ns, 2000000000);
    srv_loading_next(&loading, 100u << 20);
    srv_loading_advance(&loading, 300u << 20, 0);
    srv_loading_print(text, &loading);
    unsigned rate, left;
    ck_assert_int_eq(sscanf(text, "400 of 600 MiB, %u MiB/s, %u s left", &rate, &left), 2);
    ck_assert_uint_ge(rate, 100); /* 200, unless this test was stopped for two seconds */
    ck_assert_uint_le(rate, 200);
    ck_assert_uint_ge(left, 1);
    ck_assert_uint_le(left, 2);
    srv_loading_end(&loading);
    rewind(terminal);
    const size_t length = fread(shown, 1, sizeof shown - 1, terminal);
    ck_assert_ptr_nonnull(strstr(shown, "\rattnd: loading weights: 100 of 600 MiB, "));
    ck_assert_str_eq(shown + length - 4, "\r\033[K");
    fclose(terminal);
}

SUITE(load)
