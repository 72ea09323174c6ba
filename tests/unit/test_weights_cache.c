/* test_weights_cache.c: packed weights in files: the same bits from every family, whatever happens
 * to a file; one writer; what is removed, and what is told. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn.h"
#include "attn_self_check.h"
#include "basics/mem.h"
#include "disk.h"
#include "golden.h"
#include "layers/weights_file.h"
#include "model_cases.h"
#include "models/model.h"
#include "suites.h"

#define LATER_S 10 /* how far the clock is ahead: files of checkpoints have settled */
#define LEAST_MODELS 60
#define SMALL "{\"hidden_size\":24,\"num_attention_heads\":4,\"num_hidden_layers\":2,\"seed\":%d}"

static struct attn_error error;
static char directory[SCRATCH_PATH];

static void set_up(void)
{
    disk_reset();
    atomic_store(&disk.wall_s, LATER_S);
    scratch_make(directory);
}

static void tear_down(void)
{
    scratch_remove(directory);
    disk_reset();
}

static struct attn_model *open_seeded(int seed, enum attn_dtype dtype)
{
    char config[200];
    struct attn_model *model = NULL;
    const struct attn_model_options options = {.dtype = dtype};
    snprintf(config, sizeof config, SMALL, seed);
    ck_assert_int_eq(attn_model_open_random(&model, config, strlen(config), &options, &error),
                     ATTN_OK);
    return model;
}

static struct attn_cached_load load(struct attn_model *model, const char *label)
{
    struct attn_cached_load out;
    struct attn_model_info info;
    ck_assert_msg(attn_model_load_cached(&out, model, directory, label, &error) == ATTN_OK, "%s",
                  error.message);
    attn_model_describe(&info, model);
    ck_assert(info.is_mapped == out.mapped && (out.mapped || out.reason[0] != '\0'));
    return out;
}

/* Loads the model of that seed, which must be mapped, and closes it. */
static bool load_seeded(int seed)
{
    struct attn_model *model = open_seeded(seed, ATTN_BF16);
    struct attn_cached_load out = load(model, "m");
    ck_assert_msg(out.mapped, "%s", out.reason);
    attn_model_close(model);
    return out.written;
}

/* The number of files whose names end so; the name of the last. */
static size_t count_files(char name[ATTN_WEIGHTS_NAME_MAX], const char *end)
{
    size_t count = 0;
    DIR *list = opendir(directory);
    ck_assert_ptr_nonnull(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        const size_t length = strlen(entry->d_name), tail = strlen(end);
        if (length < tail || strcmp(entry->d_name + length - tail, end) != 0)
            continue;
        snprintf(name, ATTN_WEIGHTS_NAME_MAX, "%.150s", entry->d_name);
        count++;
    }
    closedir(list);
    return count;
}

/* ---- The same bits --------------------------------------------------------------------------- */

#define MAX_ARRAYS 4096
struct arrays {
    size_t count, bytes[MAX_ARRAYS];
    const void *array[MAX_ARRAYS];
};

static void *collect(void *context, void *array, size_t bytes)
{
    struct arrays *all = context;
    ck_assert_uint_lt(all->count, MAX_ARRAYS);
    all->array[all->count] = array;
    all->bytes[all->count++] = bytes;
    return array;
}

static void expect_arrays(const char *name, struct attn_layer *want, struct attn_layer *got)
{
    static struct arrays a, b;
    a.count = b.count = 0;
    attn_layer_visit(want, collect, &a);
    attn_layer_visit(got, collect, &b);
    ck_assert_uint_eq(a.count, b.count);
    for (size_t i = 0; i < a.count; i++) {
        ck_assert_uint_eq(a.bytes[i], b.bytes[i]);
        ck_assert_msg(memcmp(a.array[i], b.array[i], a.bytes[i]) == 0, "%s: array %zu", name, i);
        ck_assert_uint_eq((uintptr_t)b.array[i] % ATTN_ALIGN, 0);
    }
}

static void expect_floats(const char *name, const float *want, const float *got, size_t count)
{
    ck_assert_msg((want == NULL) == (got == NULL), "%s", name);
    if (want != NULL)
        ck_assert_msg(memcmp(want, got, count * sizeof(float)) == 0, "%s", name);
}

static void expect_derived(const char *name, const struct attn_layer *want,
                           const struct attn_layer *got)
{
    const struct attn_layer_spec *s = &want->spec;
    expect_floats(name, want->inv_freq, got->inv_freq, s->rope.dim / 2);
    expect_floats(name, want->position_bias.slopes, got->position_bias.slopes, s->num_heads);
    expect_floats(name, want->position_bias.table, got->position_bias.table,
                  s->num_heads * (want->position_bias.grid > 0
                                      ? want->position_bias.reach
                                      : 2 * want->position_bias.reach + 1));
    ck_assert_uint_eq(want->extra, got->extra);
    expect_floats(name, want->extra_k, got->extra_k, s->num_kv_heads * s->head_dim * ATTN_TILE);
    expect_floats(name, want->extra_v, got->extra_v,
                  s->num_kv_heads * s->value_head_dim * ATTN_TILE);
    ck_assert_int_eq(want->relative.reach, got->relative.reach);
    ck_assert_uint_eq(want->relative.tiles, got->relative.tiles);
    if (want->relative.row != NULL)
        ck_assert_mem_eq(want->relative.row, got->relative.row,
                         (size_t)(2 * want->relative.reach + 1) * sizeof(int32_t));
}

static void expect_same(const char *name, const struct attn_model *want,
                        const struct attn_model *got)
{
    struct attn_model_info a, b;
    attn_model_describe(&a, want);
    attn_model_describe(&b, got);
    ck_assert_str_eq(a.fingerprint, b.fingerprint);
    for (size_t i = 0; i < a.num_layers; i++) {
        const struct attn_layer *x = attn_model_loaded_layer(want, i);
        const struct attn_layer *y = attn_model_loaded_layer(got, i);
        ck_assert((x == NULL) == (y == NULL));
        if (x == NULL)
            continue;
        expect_arrays(name, (struct attn_layer *)(uintptr_t)x, (struct attn_layer *)(uintptr_t)y);
        expect_derived(name, x, y);
    }
}

static struct attn_model *open_case(const struct golden_case *c, enum attn_dtype dtype)
{
    struct attn_model *model = NULL;
    const struct attn_model_options options = {.stack = c->stack[0] ? c->stack : NULL,
                                               .dtype = dtype};
    ck_assert_msg(attn_model_open(&model, c->path, &options, &error) == ATTN_OK, "%s: %s", c->name,
                  error.message);
    return model;
}

/* Bits of one layer's output over the vector's rows. */
static float *attend(const struct golden_case *c, const struct attn_model *model,
                     struct attn_engine *engine)
{
    float *out = calloc(c->batch * c->queries * c->hidden, sizeof *out);
    struct attn_attend_args args = {.batch = c->batch,
                                    .queries = c->queries,
                                    .keys = c->keys,
                                    .hidden_states = c->hidden_states,
                                    .key_hidden_states = c->key_states,
                                    .value_hidden_states = c->value_states,
                                    .modifiers.grid = {c->grid[0], c->grid[1]},
                                    .outputs.output = out};
    ck_assert_msg(attn_attend(engine, model, c->layer, &args, &error) == ATTN_OK, "%s: %s", c->name,
                  error.message);
    return out;
}

static void expect_outputs(const struct golden_case *c, const struct attn_model *want,
                           const struct attn_model *got)
{
    const struct attn_engine_options options = {.threads = 1};
    struct attn_engine *engine;
    ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
    float *a = attend(c, want, engine), *b = attend(c, got, engine);
    ck_assert_msg(memcmp(a, b, c->batch * c->queries * c->hidden * sizeof *a) == 0, "%s", c->name);
    free(a);
    free(b);
    attn_engine_close(engine);
}

static void expect_mapped_case(const struct golden_case *c, enum attn_dtype dtype)
{
    struct attn_model *want = open_case(c, dtype), *written = open_case(c, dtype),
                      *found = open_case(c, dtype);
    cases_load(want);
    const struct attn_cached_load first = load(written, c->model), second = load(found, c->model);
    ck_assert_msg(first.mapped && first.written, "%s: %s", c->name, first.reason);
    ck_assert(second.mapped && !second.written);
    expect_same(c->name, want, written);
    expect_same(c->name, want, found);
    expect_outputs(c, want, found);
    attn_model_close(want);
    attn_model_close(written);
    attn_model_close(found);
}

/* Whether no case before number i of the set is of its model. */
static bool is_first_of_model(const struct golden_set *set, size_t i)
{
    for (size_t before = 0; before < i; before++)
        if (strcmp(set->cases[before].model, set->cases[i].model) == 0)
            return false;
    return true;
}

static const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_INT8, ATTN_W8A16};

CASE(weights_cache, set_up, tear_down, 60)

/* Each model with f32 and, by turns, with one of the others. */
TEST_EACH(weights_cache_gives_every_family_the_bits_of_private_weights, 4)
{
    struct golden_set set;
    size_t models = 0, loaded = 0;
    golden_load(&set);
    for (size_t i = 0; i < set.count; i++) {
        const struct golden_case *c = &set.cases[i];
        if (c->model[0] == '\0' || !is_first_of_model(&set, i))
            continue;
        if (_i == 0 || models % 3 == (size_t)_i - 1) {
            expect_mapped_case(c, dtypes[_i]);
            loaded++;
        }
        models++;
    }
    ck_assert_uint_ge(loaded, LEAST_MODELS);
    golden_free(&set);
}

/* ---- Damage ---------------------------------------------------------------------------------- */

static char name[ATTN_WEIGHTS_NAME_MAX], key[ATTN_CHECKSUM_DIGITS];
static size_t size;

/* Writes a file of weights; name, key and size are its own. */
static char *write_one(void)
{
    ck_assert(load_seeded(1));
    ck_assert_uint_eq(count_files(name, ".weights"), 1);
    char *bytes = scratch_read(&size, directory, name);
    memcpy(key, bytes + 16, sizeof key); /* after the magic */
    return bytes;
}

/* What opening the file says, after it was replaced by these bytes. */
static enum attn_status try(const char *bytes, size_t length)
{
    struct attn_weights_file file;
    char path[2 * SCRATCH_PATH];
    int at = open(directory, O_RDONLY | O_DIRECTORY);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    (void)unlink(path);
    scratch_write(directory, name, bytes, length);
    enum attn_status status =
        attn_weights_file_open(&file, at, name, key, size - ATTN_WEIGHTS_HEADER, &error);
    attn_weights_file_close(&file);
    close(at);
    return status;
}

TEST(weights_cache_finds_each_damaged_byte_of_a_header)
{
    char *bytes = write_one();
    for (size_t i = 0; i < ATTN_WEIGHTS_HEADER; i++) {
        bytes[i] ^= (char)(1 << i % 8);
        ck_assert_msg(try(bytes, size) == ATTN_MALFORMED, "byte %zu", i);
        bytes[i] ^= (char)(1 << i % 8);
    }
    ck_assert_int_eq(try(bytes, size), ATTN_OK);
    free(bytes);
}

TEST(weights_cache_finds_damaged_weights_and_other_lengths)
{
    char *bytes = write_one();
    for (size_t i = ATTN_WEIGHTS_HEADER; i < size; i += 997) {
        bytes[i] ^= 1;
        ck_assert_msg(try(bytes, size) == ATTN_MALFORMED, "byte %zu", i);
        bytes[i] ^= 1;
    }
    for (size_t length = 0; length < size; length += 1 + length / 8)
        ck_assert_msg(try(bytes, length) == ATTN_MALFORMED, "%zu bytes", length);
    bytes = realloc(bytes, size + 1);
    bytes[size] = 0;
    ck_assert_int_eq(try(bytes, size + 1), ATTN_MALFORMED);
    ck_assert_int_eq(try(bytes, size), ATTN_OK);
    key[0] = key[0] == 'a' ? 'b' : 'a';
    ck_assert_int_eq(try(bytes, size), ATTN_MALFORMED);
    free(bytes);
}

/* Linux 5.14 and later; an emulator of user mode takes any advice and follows none. */
static bool kernel_reads_pages_ahead(void *memory)
{
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
    return madvise(memory, 1, MADV_POPULATE_READ) == 0 && madvise(memory, 1, -1) != 0;
}

TEST(weights_cache_maps_no_page_that_cannot_be_read)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *bytes = write_one(), path[2 * SCRATCH_PATH];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int file = open(path, O_RDONLY);
    void *memory = attn_map_file(file, size);
    ck_assert_ptr_nonnull(memory);
    ck_assert_mem_eq(memory, bytes, size);
    const bool checked = kernel_reads_pages_ahead(memory);
    attn_unmap(memory, size);
    ck_assert(!checked || attn_map_file(file, size + 2 * page) == NULL);
    close(file);
    free(bytes);
}

TEST(weights_cache_writes_a_damaged_file_anew)
{
    char *bytes = write_one();
    struct attn_model *want = open_seeded(1, ATTN_BF16), *got = open_seeded(1, ATTN_BF16);
    cases_load(want);
    bytes[size / 2] ^= 1;
    ck_assert_int_eq(try(bytes, size), ATTN_MALFORMED);
    const struct attn_cached_load out = load(got, "m");
    ck_assert(out.mapped && out.written);
    expect_same("repaired", want, got);
    attn_model_close(want);
    attn_model_close(got);
    ck_assert(!load_seeded(1));
    free(bytes);
}

TEST(weights_cache_does_not_trust_what_every_user_may_write)
{
    char path[2 * SCRATCH_PATH];
    struct attn_cached_load out;
    char *bytes = write_one();
    snprintf(path, sizeof path, "%s/%s", directory, name);
    ck_assert_int_eq(chmod(path, 0666), 0);
    ck_assert(load_seeded(1)); /* written anew */
    ck_assert_int_eq(chmod(directory, 0777), 0);
    struct attn_model *model = open_seeded(1, ATTN_BF16);
    ck_assert_int_eq(attn_model_load_cached(&out, model, directory, "m", &error), ATTN_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(error.message, "chmod o-w"));
    if (geteuid() == 0) {
        ck_assert_int_eq(chmod(directory, 0700) | chown(directory, 12345, 0), 0);
        ck_assert_int_eq(attn_model_load_cached(&out, model, directory, "m", &error),
                         ATTN_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(error.message, "belongs to user 12345"));
    }
    attn_model_close(model);
    free(bytes);
}

/* ---- Which file ------------------------------------------------------------------------------ */

TEST(weights_cache_tells_models_and_formats_apart)
{
    struct attn_model *models[8];
    size_t count = 0;
    for (size_t i = 0; i < 4; i++) {
        models[count] = open_seeded(1, dtypes[i]);
        ck_assert(load(models[count++], "m").written);
    }
    models[count] = open_seeded(2, ATTN_F32);
    ck_assert(load(models[count++], "m").written);
    ck_assert_uint_eq(count_files(name, ".weights"), 5); /* all in use */
    for (size_t i = 0; i < count; i++)
        attn_model_close(models[i]);
    ck_assert(load_seeded(3));
    ck_assert_uint_eq(count_files(name, ".weights"), 1); /* none of the others is */
    ck_assert_uint_eq(count_files(name, ".note"), 1);
}

/* Copies a golden checkpoint whose weight `byte` is changed, with the same times. */
static void put_checkpoint(const char *path, char byte)
{
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    char file[2 * SCRATCH_PATH];
    cases_copy(path, "llama_gqa", NULL, "model.layers.0.self_attn.q_proj.weight", 0, &byte, 1);
    snprintf(file, sizeof file, "%s/" SINGLE, path);
    ck_assert_int_eq(utimensat(AT_FDCWD, file, times, 0), 0);
}

static struct attn_cached_load load_path(char fingerprint[17], const char *path)
{
    struct attn_model *model = cases_open(path, NULL);
    struct attn_model_info info;
    const struct attn_cached_load out = load(model, "m");
    attn_model_describe(&info, model);
    memcpy(fingerprint, info.fingerprint, sizeof info.fingerprint);
    attn_model_close(model);
    return out;
}

TEST(weights_cache_sees_a_changed_checkpoint_of_the_same_size_and_times)
{
    char path[SCRATCH_PATH], before[17], after[17];
    scratch_make(path);
    put_checkpoint(path, 1);
    ck_assert(load_path(before, path).written);
    ck_assert(!load_path(after, path).written);
    ck_assert_str_eq(before, after);
    usleep(20000); /* the grain of times in an inode */
    put_checkpoint(path, 2);
    ck_assert(load_path(after, path).written);
    ck_assert_str_ne(before, after);
    scratch_remove(path);
}

/* As of two images of a file system that were built alike. */
TEST(weights_cache_sees_a_changed_checkpoint_of_the_same_inode_and_ctime)
{
    char path[SCRATCH_PATH], before[17], after[17];
    scratch_make(path);
    atomic_store(&disk.image_times, true);
    put_checkpoint(path, 1);
    ck_assert(load_path(before, path).written);
    ck_assert(!load_path(after, path).written);
    ck_assert_str_eq(before, after);
    put_checkpoint(path, 2);
    ck_assert(load_path(after, path).written);
    ck_assert_str_ne(before, after);
    scratch_remove(path);
}

TEST(weights_cache_writes_nothing_of_a_checkpoint_that_just_changed)
{
    char path[SCRATCH_PATH], fingerprint[17];
    scratch_make(path);
    put_checkpoint(path, 1);
    atomic_store(&disk.wall_s, 0);
    struct attn_cached_load out = load_path(fingerprint, path);
    ck_assert(!out.mapped);
    ck_assert_ptr_nonnull(strstr(out.reason, "may change again"));
    ck_assert_uint_eq(count_files(name, ".weights"), 0);
    scratch_remove(path);
}

/* Changes the checkpoint while it is read. */
static void change(void *context, size_t done, size_t total)
{
    (void)done, (void)total;
    put_checkpoint(context, 2);
}

TEST(weights_cache_keeps_nothing_of_a_checkpoint_that_changes_meanwhile)
{
    char path[SCRATCH_PATH];
    scratch_make(path);
    put_checkpoint(path, 1);
    const struct attn_model_options options = {.progress = change, .progress_context = path};
    struct attn_model *model = cases_open(path, &options);
    const struct attn_cached_load out = load(model, "m");
    ck_assert(!out.written && !out.mapped);
    ck_assert_uint_eq(count_files(name, ".weights"), 0);
    attn_model_close(model);
    scratch_remove(path);
}

/* ---- Writers --------------------------------------------------------------------------------- */

TEST(weights_cache_goes_on_with_private_weights_where_it_cannot_write)
{
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    struct attn_model *model = open_seeded(1, ATTN_BF16), *want = open_seeded(1, ATTN_BF16);
    char path[2 * SCRATCH_PATH];
    cases_load(want);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct attn_cached_load out = load(model, "m");
    ck_assert(!out.mapped);
    ck_assert_ptr_nonnull(strstr(out.reason, "cannot be written: File too large"));
    expect_same("private", want, model);
    attn_model_close(model);
    ck_assert_uint_eq(count_files(name, ""), 2); /* the directory and its parent */
    model = open_seeded(1, ATTN_BF16);
    scratch_write(directory, "file", "", 0);
    snprintf(path, sizeof path, "%s/file", directory);
    ck_assert_int_eq(attn_model_load_cached(&out, model, path, "m", &error), ATTN_OK);
    ck_assert_ptr_nonnull(strstr(out.reason, "Not a directory"));
    attn_model_close(model);
    attn_model_close(want);
}

static atomic_uint writers;

static void *load_one(void *argument)
{
    (void)argument;
    atomic_fetch_add(&writers, load_seeded(7) ? 1 : 0);
    return NULL;
}

TEST(weights_cache_is_written_once_by_those_that_start_together)
{
    pthread_t threads[6];
    for (size_t i = 0; i < 6; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, load_one, NULL), 0);
    for (size_t i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(atomic_load(&writers), 1);
}

TEST(weights_cache_removes_what_a_killed_writer_left)
{
    char path[SCRATCH_PATH];
    struct attn_weights_writer writer;
    int at = open(directory, O_RDONLY | O_DIRECTORY);
    memset(key, 'c', sizeof key);
    attn_weights_print_name(path, "m", key);
    attn_weights_writer_begin(&writer, at, path, 1 << 20); /* and no more */
    close(writer.file);
    ck_assert_uint_eq(count_files(name, ".part"), 1);
    ck_assert(load_seeded(1));
    ck_assert_uint_eq(count_files(name, ".part"), 0);
    attn_free(writer.buffer);
    close(at);
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static struct attn_self_check prove(unsigned threads)
{
    struct attn_self_check found;
    struct attn_engine *engine;
    const struct attn_engine_options options = {.threads = threads};
    struct attn_model *model = open_seeded(1, ATTN_BF16);
    ck_assert(load(model, "m").mapped);
    ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
    ck_assert_int_eq(attn_self_check(&found, engine, model, &error), ATTN_OK);
    ck_assert(found.same && found.rows == 17);
    attn_engine_close(engine);
    attn_model_close(model);
    return found;
}

TEST(weights_cache_remembers_a_self_check_of_the_same_circumstances)
{
    ck_assert(!prove(1).is_noted);
    ck_assert(prove(1).is_noted);
    ck_assert(!prove(2).is_noted); /* other threads */
    ck_assert(prove(2).is_noted);
    ck_assert(prove(1).is_noted);
}

TEST(weights_cache_keeps_the_last_lines_of_a_note)
{
    int at = open(directory, O_RDONLY | O_DIRECTORY);
    char digest[ATTN_CHECKSUM_DIGITS];
    size_t length;
    for (int i = 0; i < 100; i++) {
        memset(digest, 'a' + i % 6, sizeof digest);
        digest[0] = (char)('0' + i % 10);
        digest[1] = (char)('0' + i / 10);
        attn_weights_note(at, "n", "fact", digest);
        ck_assert(attn_weights_noted(at, "n", "fact", digest));
        ck_assert(!attn_weights_noted(at, "n", "act", digest));
    }
    free(scratch_read(&length, directory, "n.note"));
    ck_assert_uint_lt(length, 2048);
    ck_assert_uint_gt(length, 1024);
    close(at);
}

SUITE(weights_cache)
