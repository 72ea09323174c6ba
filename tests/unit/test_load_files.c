/* test_load_files.c: weights of several strips, as files of each kind hold them: the bytes and
 * fingerprints are those of a build that read, hashed and packed matrix after matrix on one
 * thread, on any number of threads. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "attn.h"
#include "basics/random.h"
#include "families/weights.h"
#include "machine/pool.h"
#include "models/internal.h"
#include "scratch.h"
#include "suites.h"

struct tensor {
    const char *name;
    size_t rows, columns; /* columns 0: one dimension */
};

#define MOST 16 /* tensors */

static const struct kind {
    const char *config;
    struct tensor tensors[MOST];
    struct {
        const char *fingerprint, *sum; /* of all arrays */
    } of[3];                           /* float32, bf16, int8 */
} kinds[] = {
    /* Heads of 48 rows, 20 of them gathered, of 28 rows of keys and of 30 of values. */
    {
        .config = "{\"model_type\":\"deepseek_v3\",\"hidden_size\":256,\"num_hidden_layers\":1,"
                  "\"num_attention_heads\":65,\"num_key_value_heads\":65,\"q_lora_rank\":512,"
                  "\"kv_lora_rank\":128,\"qk_nope_head_dim\":28,\"qk_rope_head_dim\":20,"
                  "\"v_head_dim\":30}",
        .tensors = {{"model.layers.0.self_attn.q_a_proj.weight", 512, 256},
                    {"model.layers.0.self_attn.q_a_layernorm.weight", 512, 0},
                    {"model.layers.0.self_attn.q_b_proj.weight", 65 * 48, 512},
                    {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 128 + 20, 256},
                    {"model.layers.0.self_attn.kv_a_layernorm.weight", 128, 0},
                    {"model.layers.0.self_attn.kv_b_proj.weight", 65 * (28 + 30), 128},
                    {"model.layers.0.self_attn.o_proj.weight", 256, 65 * 30}},
        .of = {{"cbde71914f757fe3",
                "2f5d2b70a85f62afdb281720af9cd683eded4e8971ada20ec3424ad718ebb30c"},
               {"e2b7afa6f52a1a29",
                "e7e4c5693f100465065555bc1523e8707fa348ec5c698f90fbfb59a314027be7"},
               {"84587c8353f35e0b",
                "a63c7284896f75c95a302cc3f5b7a071755b38010a0c9edf012ca79dd3a07f8d"}},
    },
    /* [in][out]; the second layer is read to where the first one stood. */
    {
        .config = "{\"model_type\":\"gpt2\",\"n_embd\":260,\"n_head\":13,\"n_layer\":2}",
        .tensors = {{"h.0.attn.c_attn.weight", 260, 780},
                    {"h.0.attn.c_attn.bias", 780, 0},
                    {"h.0.attn.c_proj.weight", 260, 260},
                    {"h.0.attn.c_proj.bias", 260, 0},
                    {"h.1.attn.c_attn.weight", 260, 780},
                    {"h.1.attn.c_attn.bias", 780, 0},
                    {"h.1.attn.c_proj.weight", 260, 260},
                    {"h.1.attn.c_proj.bias", 260, 0}},
        .of = {{"2ceb61cf49033e4c",
                "e6f1b07d9dc98c84336a2b6ae83feaa0fe4561756ea451b27bfd3a6002c47554"},
               {"6b28beaea6ea63ac",
                "d929cd8eb23640a87ec5eaa65ee076e73b65fc1d6c5414292cabb2080ea94636"},
               {"253f84ce716bc4a5",
                "f13338eee6f36b2a7000caab2ce8b71b120dfa838adc67fcf881e77790cf99f3"}},
    },
    /* Matrices of two strips, whose rows no panel divides. */
    {
        .config = "{\"model_type\":\"llama\",\"hidden_size\":1230,\"num_hidden_layers\":1,"
                  "\"num_attention_heads\":30,\"head_dim\":42,\"num_key_value_heads\":5}",
        .tensors = {{"model.layers.0.self_attn.q_proj.weight", 1260, 1230},
                    {"model.layers.0.self_attn.k_proj.weight", 210, 1230},
                    {"model.layers.0.self_attn.v_proj.weight", 210, 1230},
                    {"model.layers.0.self_attn.o_proj.weight", 1230, 1260}},
        .of = {{"a3b734d674a9068d",
                "0d189e640a5e0395575c72432641023cfff4c30dc9eab8fb10a1b39323ca111e"},
               {"8ca25bf5265b0522",
                "b290f389cd924156be3f83357026d2aa486e143c46e704b4f370008c9afbb554"},
               {"68aa49c6e38f79b9",
                "4092bda1656ee556bdf8f263c3c503574d342db82bd7f95f270220c6093a120a"}},
    },
};
#define KINDS ((int)COUNT(kinds))

static char path[SCRATCH_PATH];
static void setup(void) { scratch_make(path); }
static void teardown(void) { scratch_remove(path); }

static size_t count_of(const struct tensor *tensor)
{
    return tensor->rows * (tensor->columns > 0 ? tensor->columns : 1);
}

static float *numbers_of(const struct kind *kind, size_t i)
{
    const size_t count = count_of(&kind->tensors[i]);
    float *numbers = malloc(count * sizeof *numbers);
    attn_random_uniform(numbers, count, attn_random_stream(7, 0, i), 0.1f);
    return numbers;
}

static void write_shape(char out[64], const struct tensor *tensor)
{
    if (tensor->columns > 0)
        snprintf(out, 64, "%zu,%zu", tensor->rows, tensor->columns);
    else
        snprintf(out, 64, "%zu", tensor->rows);
}

static void write_safetensors(const struct kind *kind)
{
    char header[4096] = "{", shape[64];
    size_t at = 1, begin = 0, i, all = 0;
    for (i = 0; i < MOST && kind->tensors[i].name != NULL; i++)
        all += count_of(&kind->tensors[i]);
    float *data = malloc(all * sizeof *data);
    for (i = 0; i < MOST && kind->tensors[i].name != NULL; i++) {
        const size_t count = count_of(&kind->tensors[i]);
        float *numbers = numbers_of(kind, i);
        write_shape(shape, &kind->tensors[i]);
        at += (size_t)snprintf(
            header + at, sizeof header - at,
            "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
            i > 0 ? "," : "", kind->tensors[i].name, shape, 4 * begin, 4 * (begin + count));
        memcpy(data + begin, numbers, count * sizeof *data);
        begin += count;
        free(numbers);
    }
    snprintf(header + at, sizeof header - at, "}");
    scratch_write(path, "config.json", kind->config, strlen(kind->config));
    scratch_write_tensors(path, "model.safetensors", header, data, 4 * begin);
    free(data);
}

/* ---- .npz ------------------------------------------------------------------------------------ */

struct bytes {
    unsigned char *at;
    size_t count;
};

static void put(struct bytes *out, const void *bytes, size_t count)
{
    out->at = realloc(out->at, out->count + count);
    memcpy(out->at + out->count, bytes, count);
    out->count += count;
}

static void put_number(struct bytes *out, uint64_t number, size_t bytes)
{
    put(out, &number, bytes); /* little-endian, as this machine */
}

/* The same members of a local header and of an entry of the central directory. */
static void put_facts(struct bytes *out, const char *name, const struct bytes *member,
                      bool deflated, const struct bytes *packed)
{
    put_number(out, 20, 2);
    put_number(out, 0, 2);
    put_number(out, deflated ? 8 : 0, 2);
    put_number(out, 0, 4);
    put_number(out, crc32(0, member->at, (unsigned)member->count), 4);
    put_number(out, packed->count, 4);
    put_number(out, member->count, 4);
    put_number(out, strlen(name), 2);
    put_number(out, 0, 2);
}

static struct bytes npy_of(const struct kind *kind, size_t i)
{
    struct bytes out = {NULL, 0};
    char shape[64], header[160];
    float *numbers = numbers_of(kind, i);
    write_shape(shape, &kind->tensors[i]);
    snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (%s,), }\n",
             shape);
    put(&out, "\x93NUMPY\1", 8);
    put_number(&out, strlen(header), 2);
    put(&out, header, strlen(header));
    put(&out, numbers, count_of(&kind->tensors[i]) * sizeof *numbers);
    free(numbers);
    return out;
}

static struct bytes pack(const struct bytes *member, bool deflated)
{
    struct bytes out = {malloc(member->count + member->count / 100 + 1000), member->count};
    z_stream z = {.next_in = member->at, .avail_in = (unsigned)member->count, .next_out = out.at};
    memcpy(out.at, member->at, member->count);
    if (!deflated)
        return out;
    z.avail_out = (unsigned)(member->count + member->count / 100 + 1000);
    ck_assert_int_eq(deflateInit2(&z, 1, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.count = z.total_out;
    deflateEnd(&z);
    return out;
}

/* The archive; a byte of member `wrong` is turned after its checksum was made. */
static void write_npz(const struct kind *kind, bool deflated, size_t wrong)
{
    struct bytes file = {NULL, 0}, directory = {NULL, 0};
    size_t i;
    for (i = 0; i < MOST && kind->tensors[i].name != NULL; i++) {
        char name[128];
        struct bytes member = npy_of(kind, i), packed = pack(&member, deflated);
        const size_t header = file.count;
        snprintf(name, sizeof name, "%s.npy", kind->tensors[i].name);
        put_number(&file, 0x04034b50, 4);
        put_facts(&file, name, &member, deflated, &packed);
        put(&file, name, strlen(name));
        if (i == wrong)
            packed.at[packed.count / 2] ^= 1;
        put(&file, packed.at, packed.count);
        put_number(&directory, 0x02014b50, 4);
        put_number(&directory, 20, 2);
        put_facts(&directory, name, &member, deflated, &packed);
        put_number(&directory, 0, 6);
        put_number(&directory, 0, 4);
        put_number(&directory, header, 4);
        put(&directory, name, strlen(name));
        free(member.at);
        free(packed.at);
    }
    const size_t begin = file.count;
    put(&file, directory.at, directory.count);
    put_number(&file, 0x06054b50, 4);
    put_number(&file, 0, 4);
    put_number(&file, i | i << 16, 4);
    put_number(&file, directory.count, 4);
    put_number(&file, begin, 4);
    put_number(&file, 0, 2);
    scratch_write(path, "model.npz", file.at, file.count);
    free(file.at);
    free(directory.at);
}

/* ---- Loading --------------------------------------------------------------------------------- */

static const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_INT8};

static void *add_bytes(void *context, void *array, size_t bytes)
{
    attn_checksum_add(context, array, bytes);
    return array;
}

static void sum_model(char out[ATTN_CHECKSUM_DIGITS + 1], const struct attn_model *model)
{
    struct attn_checksum sum;
    struct attn_model_info info;
    attn_model_describe(&info, model);
    attn_checksum_init(&sum);
    for (size_t i = 0; i < info.num_layers; i++) {
        struct attn_layer layer = *attn_model_loaded_layer(model, i);
        attn_layer_visit(&layer, add_bytes, &sum);
    }
    attn_checksum_hex(out, &sum);
    out[ATTN_CHECKSUM_DIGITS] = '\0';
}

static size_t last_done;

static void tell(void *context, size_t done, size_t total)
{
    (void)context;
    ck_assert_uint_ge(done, last_done);
    ck_assert_uint_le(done, total);
    last_done = done;
}

static enum attn_status load(struct attn_model **out, const char *config, size_t dtype,
                             unsigned threads, struct attn_error *error)
{
    char file[SCRATCH_PATH + 16];
    const struct attn_model_options options = {
        .dtype = dtypes[dtype], .threads = threads, .config = config, .progress = tell};
    snprintf(file, sizeof file, "%s%s", path, config != NULL ? "/model.npz" : "");
    last_done = 0;
    ck_assert_int_eq(attn_model_open(out, file, &options, error), ATTN_OK);
    return attn_model_load(*out, error);
}

static void check_loads(const struct kind *kind, const char *config)
{
    static const unsigned threads[] = {1, 2, 5};
    for (size_t i = 0; i < 9; i++) {
        char sum[ATTN_CHECKSUM_DIGITS + 1];
        struct attn_model_info info;
        struct attn_model *model = NULL;
        struct attn_error error;
        ck_assert_int_eq(load(&model, config, i / 3, threads[i % 3], &error), ATTN_OK);
        attn_model_describe(&info, model);
        sum_model(sum, model);
        ck_assert_uint_eq(last_done, info.weight_bytes);
        ck_assert_str_eq(info.fingerprint, kind->of[i / 3].fingerprint);
        ck_assert_str_eq(sum, kind->of[i / 3].sum);
        attn_model_close(model);
    }
}

CASE(files, setup, teardown, 60)

TEST_EACH(load_files_of_safetensors_give_the_same_bytes_on_any_number_of_threads, KINDS)
{
    write_safetensors(&kinds[_i]);
    check_loads(&kinds[_i], NULL);
}

TEST_EACH(load_files_of_npz_give_the_bytes_of_safetensors, 2 * KINDS)
{
    write_npz(&kinds[_i % KINDS], _i >= KINDS, MOST);
    check_loads(&kinds[_i % KINDS], kinds[_i % KINDS].config);
}

/* The damage is in the middle of the largest matrix of each kind. */
TEST_EACH(load_files_of_npz_with_a_wrong_checksum_are_refused, KINDS)
{
    static const size_t largest[] = {2, 4, 3};
    struct attn_model *model = NULL;
    struct attn_error error;
    write_npz(&kinds[_i], false, largest[_i]);
    ck_assert_int_eq(load(&model, kinds[_i].config, 0, 2, &error), ATTN_MALFORMED);
    ck_assert_ptr_nonnull(strstr(error.message, "does not have its checksum"));
    attn_model_close(model);
}

/* Else the system would read no further ahead. */
TEST(load_files_of_whole_matrices_tell_how_far_they_are_read)
{
    struct attn_model *model = NULL;
    struct attn_layer layer;
    struct attn_read_ahead ahead;
    struct attn_error error;
    write_safetensors(&kinds[1]);
    ck_assert_int_eq(attn_model_open(&model, path, NULL, &error), ATTN_OK);
    struct attn_weights_source source = {
        .checkpoint = model->checkpoint, .config = &model->config, .ahead = &ahead};
    ck_assert(attn_read_ahead_init(&ahead, 4));
    ck_assert_int_eq(attn_pool_open(&source.pool, 1), ATTN_OK);
    ck_assert_int_eq(attn_weights_list(&ahead, source.checkpoint, source.config, 0, &error),
                     ATTN_OK);
    ck_assert_int_eq(attn_layer_init(&layer, &model->specs[0], &error), ATTN_OK);
    ck_assert_int_eq(attn_layer_make_weights(&layer, &error), ATTN_OK);
    ck_assert_int_eq(attn_weights_read(&layer, &source, 0, &error), ATTN_OK);
    ck_assert_uint_eq(ahead.used, sizeof(float) * 260 * (780 + 260));
    ck_assert_uint_eq(ahead.asked, ahead.used);
    attn_layer_fini(&layer);
    attn_pool_close(source.pool);
    attn_read_ahead_fini(&ahead);
    attn_model_close(model);
}

SUITE(load_files)
