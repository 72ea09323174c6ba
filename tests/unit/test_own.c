/* test_own.c: layers of one's own: names and orientations, files of NumPy, and what is refused.
 *
 * The files of tests/own hold weights of tests/reference under other names.  A fingerprint is of
 * specification and weights, so equal ones say that every number came to its place; the folders'
 * own models are tested against their expected outputs (test_golden.c). */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attn.h"
#include "attn_limits.h"
#include "files/npz.h"
#include "own_expected.h"
#include "scratch.h"
#include "suites.h"

#define OWN "tests/own/"
#define REFERENCE "tests/reference/"
#define QWEN3                                                                                  \
    "\"model_type\":\"attention\",\"d_model\":24,\"n_heads\":4,\"num_key_value_heads\":2,"     \
    "\"head_dim\":8,\"is_causal\":true,\"qk_norm\":true,\"rms_norm_eps\":1e-6,\"rope_theta\":" \
    "1000000"
#define PHI                                                                           \
    "\"model_type\":\"attention\",\"embed_dim\":24,\"num_heads\":2,\"num_layers\":2," \
    "\"is_causal\":true,\"bias\":true,\"rope_theta\":10000,\"partial_rotary_factor\":0.5"
#define SMALL                                                                   \
    "\"model_type\":\"attention\",\"hidden_size\":8,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"head_dim\":4,\"value_head_dim\":3,\"is_causal\":true"

static struct attn_error error;

static enum attn_status open_own(struct attn_model **out, const char *path, const char *config)
{
    const size_t first = 0;
    struct attn_model_options options = {.config = config};
    if (strstr(path, "qwen3") != NULL && strstr(path, "bare") != NULL)
        options = (struct attn_model_options){&first, 1, .config = config};
    error = (struct attn_error){0};
    *out = NULL;
    enum attn_status status = attn_model_open(out, path, &options, &error);
    if (status == ATTN_OK)
        status = attn_model_load(*out, &error);
    return status;
}

static void fingerprint_of(char out[17], struct attn_model *model)
{
    struct attn_model_info info;
    attn_model_describe(&info, model);
    memcpy(out, info.fingerprint, 17);
    attn_model_close(model);
}

/* ---- Names, orientations, types -------------------------------------------------------------- */

CASE(own, NULL, NULL, 60)

TEST(own_weights_under_any_name_are_the_same_layers)
{
    static const struct {
        const char *file, *config, *reference;
        size_t layers; /* of the reference that count */
    } cases[] = {
        {"qwen3_f8.npz", "{" QWEN3 ",\"num_hidden_layers\":2,\"transposed\":true}", "qwen3", 2},
        {"qwen3_deflated.npz", "{" QWEN3 ",\"num_hidden_layers\":2}", "qwen3", 2},
        {"qwen3_fused.safetensors", "{" QWEN3 ",\"num_hidden_layers\":2,\"transposed\":true}",
         "qwen3", 2},
        {"qwen3_bare.npz", "{" QWEN3 ",\"transposed\":false}", "qwen3", 1},
        {"phi_f2.npz", "{" PHI "}", "phi", 2},
        {"qwen3_fortran.npz", "{" QWEN3 ",\"num_hidden_layers\":2,\"transposed\":true}", "qwen3",
         2},
        {"qwen3_fortran_deflated.npz", "{" QWEN3 ",\"num_hidden_layers\":2,\"transposed\":true}",
         "qwen3", 2},
        {"phi_big_f2.npz", "{" PHI "}", "phi", 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const size_t first = 0;
        struct attn_model_options options = {.num_layers = 0};
        struct attn_model *own, *model;
        char path[128], got[17], want[17];
        if (cases[i].layers == 1)
            options = (struct attn_model_options){&first, 1, .stack = NULL};
        snprintf(path, sizeof path, REFERENCE "%s/model", cases[i].reference);
        ck_assert_int_eq(attn_model_open(&model, path, &options, &error), ATTN_OK);
        ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
        snprintf(path, sizeof path, OWN "%s", cases[i].file);
        ck_assert_msg(open_own(&own, path, cases[i].config) == ATTN_OK, "%s: %s", cases[i].file,
                      error.message);
        fingerprint_of(want, model);
        fingerprint_of(got, own);
        ck_assert_msg(strcmp(got, want) == 0, "%s has other weights", cases[i].file);
    }
}

/* What loading a model of W_q to W_o takes, by the sum that a start is refused by. */
static size_t loading_bytes(const char *path)
{
    static const char config[] = "{" QWEN3 ",\"num_hidden_layers\":2,\"transposed\":true}";
    const struct attn_model_options options = {.config = config};
    struct attn_model *model;
    struct attn_model_memory memory;
    ck_assert_int_eq(attn_model_open(&model, path, &options, &error), ATTN_OK);
    attn_model_memory(&memory, model);
    attn_model_close(model);
    return memory.loading_bytes;
}

/* Of one array at a time: 24 x 32 numbers, and 32,768 that are read at a time. */
TEST(memory_of_arrays_in_fortran_order_is_counted)
{
    ck_assert_uint_eq(loading_bytes(OWN "qwen3_fortran.npz") - loading_bytes(OWN "qwen3_f8.npz"),
                      (24 * 32 + 32768) * sizeof(float));
}

struct names {
    const char *items[256];
    size_t count;
};

static bool add_name(void *context, const char *name)
{
    struct names *names = context;
    ck_assert_uint_lt(names->count, 256);
    names->items[names->count++] = name;
    return true;
}

/* A bit of the last number of each tensor of attention is turned, one tensor after another. */
TEST_EACH(every_tensor_of_attention_shows_in_the_fingerprint, 5)
{
    static const struct {
        const char *model, *part; /* of the names of attention's tensors */
    } cases[] = {{REFERENCE "gpt_oss/model", ".self_attn."},
                 {"tests/golden/qwen3_5/model", ".layers.1.self_attn."},
                 {"tests/golden/deepseek_v3/model", ".self_attn."},
                 {"tests/golden/persimmon/model", ".self_attn."},
                 {"tests/golden/deberta_v2/model", ".attention.self."}};
    const char *from = cases[_i].model;
    size_t turned = 0;
    struct attn_safetensors *file;
    struct attn_model *model;
    char path[SCRATCH_PATH], want[17], got[17];
    size_t length, config_length;
    char *bytes = scratch_read(&length, from, "model.safetensors");
    char *config = scratch_read(&config_length, from, "config.json");
    int directory = open(from, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(attn_safetensors_open(&file, directory, "model.safetensors", &error), ATTN_OK);
    ck_assert_int_eq(open_own(&model, from, NULL), ATTN_OK);
    fingerprint_of(want, model);
    scratch_make(path);
    scratch_write(path, "config.json", config, config_length);
    struct names names = {.count = 0};
    attn_visit_names(file->entries, file->count, sizeof *file->entries, "", add_name, &names);
    for (size_t i = 0; i < names.count; i++) {
        const char *name = names.items[i];
        if (strstr(name, cases[_i].part) == NULL)
            continue;
        const struct attn_tensor_entry *entry = attn_safetensors_find(file, name);
        const size_t at = file->data_begin + entry->end - 2;
        bytes[at] ^= 1;
        scratch_write(path, "model.safetensors", bytes, length);
        bytes[at] ^= 1;
        ck_assert_msg(open_own(&model, path, NULL) == ATTN_OK, "%s: %s", name, error.message);
        fingerprint_of(got, model);
        ck_assert_msg(strcmp(got, want) != 0, "%s", name);
        turned++;
    }
    ck_assert_uint_gt(turned, 4);
    attn_safetensors_close(file);
    close(directory);
    scratch_remove(path);
    free(bytes);
    free(config);
}

/* A directory with config.json; and with another configuration in its place. */
TEST(own_weights_in_a_directory_are_the_same_layers)
{
    static const char config[] = "{" QWEN3 ",\"num_hidden_layers\":2,\"transposed\":true}";
    struct attn_model *file, *directory;
    char path[SCRATCH_PATH], want[17], got[17];
    size_t length;
    char *bytes = scratch_read(&length, "tests/own", "qwen3_fused.safetensors");
    scratch_make(path);
    scratch_write(path, "model.safetensors", bytes, length);
    ck_assert_int_eq(open_own(&file, OWN "qwen3_fused.safetensors", config), ATTN_OK);
    fingerprint_of(want, file);
    ck_assert_int_eq(open_own(&directory, path, config), ATTN_OK);
    fingerprint_of(got, directory);
    ck_assert_str_eq(got, want);
    ck_assert_int_eq(open_own(&directory, path, NULL), ATTN_NOT_FOUND);
    scratch_write(path, "config.json", config, sizeof config - 1);
    ck_assert_int_eq(open_own(&directory, path, NULL), ATTN_OK);
    fingerprint_of(got, directory);
    ck_assert_str_eq(got, want);
    scratch_remove(path);
    free(bytes);
}

#define TORCH "{\"model_type\":\"torch_multihead_attention\",\"embed_dim\":8,\"num_heads\":4"
#define TORCH_OWN                                                                                 \
    "{\"model_type\":\"attention\",\"d_model\":8,\"n_heads\":4,\"bias\":true,\"is_causal\":true," \
    "\"num_key_value_heads\":2"

TEST(torch_layer_takes_causality_rope_and_fewer_key_heads)
{
    struct attn_model *torch, *own;
    char got[17], want[17];
    ck_assert_int_eq(open_own(&own, OWN "torch.npz", TORCH_OWN ",\"rope_theta\":500}"), ATTN_OK);
    fingerprint_of(want, own);
    ck_assert_msg(open_own(&torch, OWN "torch.npz",
                           TORCH ",\"is_causal\":true,\"rope_theta\":500,"
                                 "\"num_key_value_heads\":2}") == ATTN_OK,
                  "%s", error.message);
    const struct attn_layer_spec *spec = attn_model_layer(torch, 0);
    ck_assert(spec->is_causal && spec->num_kv_heads == 2 && spec->rope.theta == 500);
    fingerprint_of(got, torch);
    ck_assert_str_eq(got, want);
    ck_assert_int_eq(open_own(&torch, OWN "torch.npz", TORCH ",\"num_key_value_heads\":2}"),
                     ATTN_OK);
    spec = attn_model_layer(torch, 0);
    ck_assert(!spec->is_causal && spec->rope.type == ATTN_ROPE_NONE);
    attn_model_close(torch);
    ck_assert_int_eq(open_own(&torch, OWN "torch.npz", TORCH "}"), ATTN_SHAPE_MISMATCH);
    ck_assert_str_eq(error.param, "in_proj_weight");
}

TEST(own_layer_of_values_narrower_than_keys_computes_and_keeps_sessions)
{
    static const char *const files[] = {OWN "small.npz", OWN "small_deflated.npz"};
    for (size_t i = 0; i < 2; i++) {
        struct attn_engine *engine;
        struct attn_cache_pool *pool;
        struct attn_cache *cache;
        struct attn_model *model;
        float whole[OWN_ROWS * OWN_WIDTH], stepped[OWN_ROWS * OWN_WIDTH];
        ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
        ck_assert_msg(open_own(&model, files[i], "{" SMALL ",\"transposed\":true}") == ATTN_OK,
                      "%s", error.message);
        struct attn_attend_args args = {.batch = 1,
                                        .queries = OWN_ROWS,
                                        .hidden_states = own_rows,
                                        .outputs = {.output = whole}};
        ck_assert_int_eq(attn_attend(engine, model, 0, &args, &error), ATTN_OK);
        ck_assert_int_eq(attn_cache_pool_new(&pool, 1 << 20), ATTN_OK);
        ck_assert_int_eq(attn_cache_new(&cache, pool, model, 64, &error), ATTN_OK);
        for (size_t t = 0; t < OWN_ROWS; t++) {
            struct attn_step step = {.cache = cache,
                                     .position = t,
                                     .rows = 1,
                                     .hidden_states = own_rows + t * OWN_WIDTH,
                                     .outputs = {.output = stepped + t * OWN_WIDTH},
                                     .commit = true};
            struct attn_step *steps[] = {&step};
            ck_assert_int_eq(attn_decode(engine, model, 0, steps, 1), ATTN_OK);
        }
        for (size_t j = 0; j < OWN_ROWS * OWN_WIDTH; j++) {
            ck_assert_float_eq_tol(whole[j], own_expected[j], 1e-5f);
            ck_assert_float_eq_tol(stepped[j], own_expected[j], 1e-5f);
        }
        attn_cache_free(cache);
        attn_cache_pool_free(pool);
        attn_model_close(model);
        attn_engine_close(engine);
    }
}

TEST(parameters_of_a_model_are_all_that_it_has_learned)
{
    struct attn_model_info info;
    struct attn_model *model;
    ck_assert_int_eq(open_own(&model, OWN "small.npz", "{" SMALL ",\"transposed\":true}"), ATTN_OK);
    attn_model_describe(&info, model);
    ck_assert_uint_eq(info.num_parameters, 8 * 16 + 8 * 8 + 8 * 6 + 12 * 8);
    attn_model_close(model);
    ck_assert_int_eq(open_own(&model, OWN "phi_f2.npz", "{" PHI "}"), ATTN_OK);
    attn_model_describe(&info, model);
    ck_assert_uint_eq(info.num_parameters, 2 * (4 * 24 * 24 + 4 * 24));
    ck_assert_str_eq(info.weights_dtype, "F16");
    attn_model_close(model);
    ck_assert_int_eq(open_own(&model, OWN "qwen3_bare.npz", "{" QWEN3 ",\"transposed\":false}"),
                     ATTN_OK);
    attn_model_describe(&info, model);
    ck_assert_uint_eq(info.num_parameters, 2 * 24 * 32 + 2 * 24 * 16 + 2 * 8);
    attn_model_close(model);
}

/* ---- What is refused ------------------------------------------------------------------------- */

TEST(own_weights_that_do_not_fit_are_refused_with_a_remedy)
{
    static const struct {
        const char *file, *config;
        enum attn_status status;
        const char *param, *says;
    } cases[] = {
        {"small.npz", NULL, ATTN_MALFORMED, "config", "needs a configuration"},
        {"small.npz", "{" SMALL "}", ATTN_MALFORMED, "transposed", "true for [in, out]"},
        {"small.npz", "{" SMALL ",\"transposed\":false}", ATTN_SHAPE_MISMATCH, "W_q",
         "is transposed true?"},
        {"qwen3_deflated.npz", "{" QWEN3 ",\"num_hidden_layers\":2,\"transposed\":true}",
         ATTN_SHAPE_MISMATCH, "layers.1.q_proj.weight", "is transposed false?"},
        {"small.npz", "{" SMALL ",\"transposed\":true,\"num_hidden_layers\":2}", ATTN_NOT_FOUND,
         "layers.1.q_proj.weight", "the file has W_k, W_o, W_q, W_v"},
        {"phi_f2.npz",
         "{\"model_type\":\"attention\",\"embed_dim\":24,\"num_heads\":2,\"num_layers\":2}",
         ATTN_MALFORMED, "layers.1.out_proj.bias", "the configuration denies it"},
        {"small.npz", "{" SMALL ",\"transposed\":true,\"heads\":4}", ATTN_UNSUPPORTED, "heads", ""},
        {"small.npz", "{" SMALL ",\"transposed\":true,\"d_model\":9}", ATTN_MALFORMED, "d_model",
         "contradicts"},
        {"absent.npz", "{" SMALL "}", ATTN_NOT_FOUND, "path", "no such directory or file"},
        {"make.py", "{" SMALL "}", ATTN_MALFORMED, "make.py", "is text, not a safetensors file"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct attn_model *model;
        char path[128];
        snprintf(path, sizeof path, OWN "%s", cases[i].file);
        enum attn_status status = open_own(&model, path, cases[i].config);
        ck_assert_msg(status == cases[i].status && strcmp(error.param, cases[i].param) == 0 &&
                          strstr(error.message, cases[i].says) != NULL,
                      "%s: %s, %s: %s", cases[i].file, attn_status_name(status), error.param,
                      error.message);
        ck_assert_ptr_null(strstr(error.message, OWN));
        ck_assert_ptr_null(model);
    }
}

/* ---- Files of NumPy -------------------------------------------------------------------------- */

/* Opens and loads these bytes as small.npz; "" where they are refused, which must be said. */
static void load_bytes(char fingerprint[17], const char *bytes, size_t length)
{
    struct attn_model *model;
    char path[32];
    const int file =
        memfd_create("w.npz", MFD_CLOEXEC); /* thousands are faster so than on a disk */
    ck_assert_int_eq(write(file, bytes, length), (ssize_t)length);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    enum attn_status status = open_own(&model, path, "{" SMALL ",\"transposed\":true}");
    close(file);
    ck_assert(status == ATTN_OK || (status == error.status && error.message[0] != '\0'));
    fingerprint[0] = '\0';
    if (status == ATTN_OK)
        fingerprint_of(fingerprint, model);
    else
        attn_model_close(model);
}

/* The mark of an archive's end may stand in its comment, whose length the end record has. */
TEST(npz_with_the_mark_of_its_end_in_a_comment_is_read)
{
    static const char comment[40] = "PK\5\6";
    size_t length;
    char want[17], got[17], *bytes = scratch_read(&length, "tests/own", "small.npz");
    load_bytes(want, bytes, length);
    ck_assert_str_ne(want, "");
    bytes = realloc(bytes, length + sizeof comment);
    bytes[length - 2] = sizeof comment;
    memcpy(bytes + length, comment, sizeof comment);
    load_bytes(got, bytes, length + sizeof comment);
    ck_assert_msg(strcmp(got, want) == 0, "%s", error.message);
    free(bytes);
}

/* A changed bit makes the file unreadable or changes nothing: weights have a checksum. */
TEST(npz_with_a_changed_bit_never_loads_other_weights)
{
    static const char *const files[] = {"small.npz", "small_deflated.npz"};
    for (size_t f = 0; f < 2; f++) {
        size_t length, refused = 0;
        char want[17], got[17];
        char *bytes = scratch_read(&length, "tests/own", files[f]);
        load_bytes(want, bytes, length);
        ck_assert_str_ne(want, "");
        for (size_t i = 0; i < length; i++) {
            bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
            load_bytes(got, bytes, length);
            ck_assert_msg(got[0] == '\0' || strcmp(got, want) == 0, "%s: bit %zu of byte %zu",
                          files[f], i % 8, i);
            refused += got[0] == '\0';
            bytes[i] = (char)(bytes[i] ^ 1 << i % 8);
        }
        ck_assert_uint_gt(refused, length / 2);
        free(bytes);
    }
}

TEST(npz_cut_off_anywhere_is_refused)
{
    size_t length;
    char got[17], *bytes = scratch_read(&length, "tests/own", "small_deflated.npz");
    for (size_t cut = 0; cut < length; cut++) {
        load_bytes(got, bytes, cut);
        ck_assert_msg(got[0] == '\0', "%zu bytes of %zu", cut, length);
    }
    free(bytes);
}

/* Replaces each `old` by as many bytes of `new`. */
static void replace(char *bytes, size_t length, const char *old, const char *new)
{
    const size_t size = strlen(old);
    ck_assert_uint_eq(size, strlen(new));
    for (size_t i = 0; i + size <= length; i++)
        if (memcmp(bytes + i, old, size) == 0)
            memcpy(bytes + i, new, size);
}

/* Arrays in Fortran's order are held while they are read: no number of one that failed, or that was
 * read to its end, is given for another. */
TEST(npz_in_fortran_order_holds_one_array_at_a_time)
{
    enum { COUNT = 24 * 32, OF_VALUES = 29600 };
    size_t length;
    float whole[COUNT], parts[COUNT];
    char path[SCRATCH_PATH], *bytes = scratch_read(&length, "tests/own", "qwen3_fortran.npz");
    const struct attn_tensor_entry *output, *values;
    struct attn_npz *npz;
    bytes[OF_VALUES] ^= 1;
    scratch_make(path);
    scratch_write(path, "w.npz", bytes, length);
    int directory = open(path, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(attn_npz_open(&npz, directory, "w.npz", &error), ATTN_OK);
    ck_assert_int_eq(attn_npz_find(&output, npz, "layers.0.W_o", &error), ATTN_OK);
    ck_assert_int_eq(attn_npz_find(&values, npz, "layers.1.W_v", &error), ATTN_OK);
    ck_assert_int_eq(attn_npz_read_f32(whole, npz, output, 0, COUNT, &error), ATTN_OK);
    ck_assert_int_eq(attn_npz_read_f32(parts, npz, output, 0, 100, &error), ATTN_OK);
    ck_assert_int_eq(attn_npz_read_f32(parts, npz, values, 0, 1, &error), ATTN_MALFORMED);
    ck_assert_int_eq(attn_npz_read_f32(parts + 100, npz, output, 100, COUNT - 100, &error),
                     ATTN_OK);
    ck_assert_mem_eq(parts + 100, whole + 100, (COUNT - 100) * sizeof *whole);
    attn_npz_close(npz);
    close(directory);
    scratch_remove(path);
    free(bytes);
}

TEST(npz_headers_that_are_not_understood_are_refused_by_array)
{
    static const struct {
        const char *old, *new;
        const char *says;
    } cases[] = {
        {"'<f4'", "'>c4'", "is of type '>c4'"},
        {"'<f4'", "'=f4'", "is of type '=f4'"},
        {"'<f4'", "'|V4'", "astype('float32')"},
        {"'<f4'", "'<f8'", "does not hold the numbers of its shape"},
        {"'shape': (8, 16)", "'shape': (8, 17)", "does not hold the numbers of its shape"},
        {"'shape': (8, 16)", "'shape': (8; 16)", "is not understood"},
        {"'shape': (8, 16)", "'shape': (-8,16)", "is not understood"},
        {"'descr'", "'other'", "is not understood"},
        {"'shape'", "'descr'", "is not understood"},
        {"NUMPY", "NUMPZ", "has no header"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t length;
        char got[17], *bytes = scratch_read(&length, "tests/own", "small.npz");
        replace(bytes, length, cases[i].old, cases[i].new);
        load_bytes(got, bytes, length);
        ck_assert_msg(got[0] == '\0' && strstr(error.message, cases[i].says) != NULL &&
                          error.param[0] == 'W',
                      "%s: %s: %s", cases[i].new, error.param, error.message);
        free(bytes);
    }
}

/* A file is an archive by its content, and this safetensors file begins as one does. */
TEST(safetensors_whose_header_length_is_written_PK_is_read)
{
    enum { LENGTH = 'P' | 'K' << 8 };
    static const char tensors[] =
        "{\"W_q\":{\"dtype\":\"F32\",\"shape\":[8,16],\"data_offsets\":[0,512]},"
        "\"W_k\":{\"dtype\":\"F32\",\"shape\":[8,8],\"data_offsets\":[512,768]},"
        "\"W_v\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[768,960]},"
        "\"W_o\":{\"dtype\":\"F32\",\"shape\":[12,8],\"data_offsets\":[960,1344]}}";
    char directory[SCRATCH_PATH], path[SCRATCH_PATH + 16], header[LENGTH + 1];
    struct attn_model *model;
    scratch_make(directory);
    snprintf(header, sizeof header, "%-*s", LENGTH, tensors);
    scratch_write_tensors(directory, "w", header, NULL, 1344);
    snprintf(path, sizeof path, "%s/w", directory);
    ck_assert_msg(open_own(&model, path, "{" SMALL ",\"transposed\":true}") == ATTN_OK, "%s: %s",
                  error.param, error.message);
    attn_model_close(model);
    scratch_remove(directory);
}

SUITE(own)
